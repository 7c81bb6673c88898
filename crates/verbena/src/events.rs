//! What happens to the adapter and its objects, and who is told. An [`Event`] is of a queue, a queue pair or the port, as in the verbs:
//! read with [`Device::next_event`](crate::Device::next_event) or a callback. A [`Handler`] is called for completions, on the processors that
//! its [`HandlerOptions`] name. Notifications can be [moderated](Moderation), steered by a hash of addresses, and counted (docs/events.md).
//!
//! A handler that is told about completions, and an event of a shared receive queue:
//!
//! ```
//! use std::sync::mpsc;
//! use verbena::Device;
//! use verbena::events::{Event, HandlerOptions};
//! use verbena::low::{Arm, Data, Flags, Qp, QpOptions, RecvWr, SendOp, SendWr, Wc};
//!
//! let device = Device::open()?;
//! let (tell, told) = mpsc::channel();
//! let handler = device.set_handler(&HandlerOptions::new(move |_| drop(tell.send(()))))?;
//! let (pd, sent, received) = (device.pd()?, device.cq(16)?, device.cq(16)?);
//! let srq = pd.srq(16, 1)?;
//! received.set_handler(Some(&handler))?;
//! received.arm(Arm::Next);
//!
//! let a = Qp::new(&pd, &sent, &sent, QpOptions::default())?;
//! let b = Qp::with_srq(&pd, &sent, &received, &srq, QpOptions::default())?;
//! let listener = device.listen("127.0.0.1:0")?;
//! let connecting = a.connect(listener.local_addr()?, b"")?;
//! listener.next().wait()?.accept_on(&b, b"")?.wait()?;
//! connecting.wait()?;
//!
//! let (events, seen) = mpsc::channel();
//! device.on_event(move |event| drop(events.send(event)));
//! srq.post(&[RecvWr { id: 1, scatter: &[] }, RecvWr { id: 2, scatter: &[] }])?;
//! srq.set_limit(2)?;
//! let op = SendOp::Send { invalidate: None, immediate: None };
//! a.post_send(&[SendWr { id: 3, op, flags: Flags::NONE, data: Data::Inline(b"") }])?;
//! told.recv().unwrap();
//! assert_eq!(received.poll(&mut [Wc::default(); 4]), 1);
//! assert!(seen.iter().any(|event| matches!(event, Event::SrqLimit { .. })));
//! # Ok::<(), verbena::Error>(())
//! ```

// Of inner crates, deliberately: events, causes, counters and moderation are plain data of the notification pipeline. The workspace matches
// on them without a wildcard, so a new event is a change of a minor version.

pub use crate::handler::{Handler, Observation};

pub use verbena_engine::notify::handler::{Affinity, Class, Completion};
pub use verbena_engine::{EngineFailure, HandlerId, HandlerOptions, InterruptCounters, Shutdown};
pub use verbena_events::eqe::ChannelEvent;
pub use verbena_events::interrupts::{Accesses, At, Origin, SignalCounters};
pub use verbena_events::moderation::{Arming, Hold, Moderation};
pub use verbena_events::steering::{Redirection, SteeringRegister};
/// The key of the hash over the addresses of packets (E8).
pub use verbena_events::toeplitz::Key as HashKey;
/// The addresses of a packet that are hashed (E8).
pub use verbena_events::toeplitz::Tuple as PacketTuple;
pub use verbena_events::vector::Signal;
pub use verbena_nic::{Cause, Event, Reason};
