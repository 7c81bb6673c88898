//! The types of requests and completions of the low layer. They are the adapter's own types, so that posting copies once.
//! They are plain data and do not allocate; the queue pair validates them when they are posted.
//!
//! ```
//! use verbena::low::{Data, Flags, SendOp, SendWr, RecvWr, Wc};
//! use verbena::{Access, Device, Qp, QpOptions, Status};
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

pub use crate::cq::BareCq;
pub use crate::pd::{PdOptions, Prefetch};
pub use verbena_engine::config::{Log, Wire};
pub use verbena_engine::notify::handler::{Affinity, Class, Completion};
pub use verbena_engine::sys::processor;
pub use verbena_engine::sys::spawn;
pub use verbena_engine::sys::timestamp;
pub use verbena_engine::sys::{Channel, WaitFd};
pub use verbena_engine::sys::{interface_mtu, interface_name, interface_of, is_link_up};
pub use verbena_engine::{
    Backoff, DatagramDrops, InterruptCounters, Mtu, Notify, PacketHandovers, QpAttr, Shutdown,
    device_addresses,
};
pub use verbena_engine::{
    CompletionQueueInfo, HandlerId, PeerProcess, QueuePairInfo, StreamPath, WeakCompletionQueue,
};
pub use verbena_events::eqe::ChannelEvent;
pub use verbena_events::interrupts::{Accesses, At, Origin, SignalCounters};
pub use verbena_events::moderation::{Arming, Hold, Moderation};
pub use verbena_events::steering::{Redirection, SteeringRegister};
/// The key of the hash over the addresses of packets (E8).
pub use verbena_events::toeplitz::Key as HashKey;
/// The addresses of a packet that are hashed (E8).
pub use verbena_events::toeplitz::Tuple as PacketTuple;
pub use verbena_events::vector::Signal;
/// What peers may access in a protection domain (M7).
pub use verbena_mem::Policy as RemoteAccess;
pub use verbena_mem::{Bind, PageQuota, PageSize, Refusal, Ticket, WindowType, catches_faults};
pub use verbena_nic::profile::{
    DeviceFunction, DeviceProfile, HostMap, LogicalDevice, Owner, ProfileError, Rule, Service,
    Services, Tuple,
};
pub use verbena_nic::qp::{
    Counters, Limits, OnFailure, PostError, PostRecvError, PostSendError, Psns, QpAccessFlags,
    RegisterError, Registration, View,
};
pub use verbena_nic::ssq::{ChannelInfo, Record, SsqCounters, SsqInfo, SsqLimits, SsqOutcome};
pub use verbena_nic::ud::{Destination, MAX_DATAGRAM, UdCounters, UdSendWr, UdView};
pub use verbena_nic::wr::{Data, RemoteAddr};
pub use verbena_nic::{
    Arm, Attributes, Cause, ControlOp, CqInfo, CqOptions, Flags, FunctionCounters, Header, Object,
    Personality, QpInfo, QpState, QpType, Ranges, Reason, ReceiveWr as RecvWr, SendOp, SendWr, Sge,
    Shares, SrqInfo, Timestamp, Wc, WcOp,
};
pub use verbena_stream::RnrRetry;
pub use verbena_wire::ext::RnrTimer;
pub use verbena_wire::number::{Psn, Qpn};
pub use verbena_wire::rdmap::FlushScope;
pub use verbena_wire::{Stag, To};
