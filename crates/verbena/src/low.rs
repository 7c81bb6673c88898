//! The types of requests and completions of the low layer. They are the adapter's own types, so that posting copies once.
//! They are plain data and do not allocate; the queue pair validates them when they are posted.
//!
//! ```
//! use verbena::low::{Data, Flags, Qp, QpOptions, RecvWr, SendOp, SendWr, Wc};
//! use verbena::{Access, Device, Status};
//!
//! let device = Device::open()?;
//! let (pd, cq) = (device.pd()?, device.cq(64)?);
//! let memory = pd.memory(4096, Access::ALL)?;
//! let [a, b] = [(), ()].map(|()| Qp::new(&pd, &cq, &cq, QpOptions::default()));
//! let (a, b) = (a?, b?);
//! let listener = device.listen("127.0.0.1:0")?;
//! let joining = a.connect(listener.local_addr()?, b"")?;
//! listener.next().wait()?.accept_on(&b, b"")?.wait()?;
//! joining.wait()?;
//!
//! b.post_recv(&[RecvWr { id: 1, scatter: &[memory.sge(2048, 64)?] }])?;
//! memory.write_at(0, b"a piece, ")?;
//! memory.write_at(99, b"and another")?;
//! let pieces = [memory.sge(0, 9)?, memory.sge(99, 11)?];
//! let op = SendOp::Send { invalidate: None, immediate: Some(7) };
//! let send = SendWr { id: 2, op, flags: Flags::SIGNALED, data: Data::Gather(&pieces) };
//! a.post_send(&[send])?;
//!
//! let mut done = 0;
//! let mut completions = [verbena::low::Wc::default(); 8];
//! while done < 2 {
//!     let n = cq.wait(&mut completions)?;
//!     assert!(completions[..n].iter().all(|wc| wc.status == Status::Success));
//!     done += n;
//! }
//! let mut got = [0; 20];
//! memory.read_at(2048, &mut got)?;
//! assert_eq!(&got, b"a piece, and another");
//! # Ok::<(), verbena::Error>(())
//! ```

// Objects and their options.
pub use crate::cq::{BareCq, Cq};
pub use crate::pd::{Pd, PdOptions, Prefetch};
pub use crate::promise::QpConnecting;
pub use crate::qp::{Qp, QpEndpoint, QpOptions, QpReceiver, QpSender};
pub use crate::srq::Srq;
pub use crate::ssq::{Ssq, SsqOptions};
pub use crate::xrc::{XrcOpen, Xrcd};

// Requests, completions and their parts: the adapter's own types, because a copy of each would cost what the layer saves. They have the
// fields of rdma-core's structures, which have been the same since 2005.
pub use verbena_nic::wr::{Data, RemoteAddr};
pub use verbena_nic::{
    Arm, Flags, Header, ReceiveWr as RecvWr, SendOp, SendWr, Sge, Timestamp, Wc, WcOp,
};
pub use verbena_wire::number::{Psn, Qpn};
pub use verbena_wire::rdmap::FlushScope;
pub use verbena_wire::{Stag, To};

// Why a list was not posted.
pub use verbena_nic::qp::{PostError, PostRecvError, PostSendError, RegisterError};

// Attributes that are set, and what queries return: plain data.
pub use verbena_engine::sys::WaitFd;
pub use verbena_engine::{
    CompletionQueueInfo, Mtu, PeerProcess, QpAttr, QueuePairInfo, StreamPath,
};
pub use verbena_nic::qp::{Counters, Limits, OnFailure, Psns, QpAccessFlags, Registration, View};
pub use verbena_nic::ssq::{ChannelInfo, Record, SsqCounters, SsqInfo, SsqLimits, SsqOutcome};
pub use verbena_nic::{CqInfo, CqOptions, Personality, QpInfo, QpState, QpType, SrqInfo};
pub use verbena_stream::RnrRetry;
pub use verbena_wire::ext::RnrTimer;
