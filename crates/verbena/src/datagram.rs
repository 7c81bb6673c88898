//! Datagrams: a [`UdQp`] sends to any number of peers, each message in one packet that may be lost (M14). A peer needs the number, the
//! address and the Q_Key of a queue pair; it gets them in a message, or asks a [`SidrListener`] at a known port. [`UdQp`] has an
//! example with every step, [`SidrListener`] one of the search; groups are joined with [`UdQp::attach`].
//!
//! A receive begins with 40 bytes that tell where the datagram comes from:
//!
//! ```
//! use verbena::datagram::{Destination, UdOptions, UdQp, UdSendWr};
//! use verbena::low::{Data, Flags, QpState, Qpn, RecvWr, Wc};
//! use verbena::{Access, Config, Device};
//!
//! let mut config = Config::default();
//! config.set("device", "127.0.0.1").map_err(verbena::Error::Config)?;
//! let device = Device::with(config)?;
//! let (pd, sent, received) = (device.pd()?, device.cq(16)?, device.cq(16)?);
//! let memory = pd.memory(4096, Access::LOCAL_WRITE)?;
//! let make = || -> Result<UdQp, verbena::Error> {
//!     let qp = UdQp::new(&pd, &sent, &received, UdOptions::default())?;
//!     qp.set_qkey(7);
//!     for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
//!         qp.modify(state)?;
//!     }
//!     Ok(qp)
//! };
//! let (server, client) = (make()?, make()?);
//! server.post_recv(&[RecvWr { id: 1, scatter: &[memory.sge(0, 1024)?] }])?;
//!
//! let address = server.endpoint()?.address;
//! let number = Qpn::wrapping(server.number());
//! let to = Destination { address, source: address, number, qkey: 7 };
//! let data = Data::Inline(b"from the client");
//! client.post_send(&[UdSendWr { id: 2, immediate: None, flags: Flags::SIGNALED, data, to }])?;
//!
//! let mut completions = [Wc::default(); 1];
//! assert_eq!(received.wait(&mut completions)?, 1);
//! assert_eq!(completions[0].src_qp, client.number(), "the number to answer to");
//! assert_eq!(completions[0].len, 40 + 15);
//! # Ok::<(), verbena::Error>(())
//! ```

// Of inner crates, deliberately: requests and counters are plain data, and a copy of each request would cost what the layer saves.

pub use crate::sidr::{SidrListener, SidrQuery, SidrRequest};
pub use crate::ud::{UdOptions, UdQp};

pub use verbena_engine::{SidrCounters, UdEndpoint};
pub use verbena_nic::ud::{Destination, MAX_DATAGRAM, UdCounters, UdSendWr, UdView};
