//! RDMA for Rust programs, on any machine: verbs without the hardware, over plain TCP.
//! The API is safe: a [`Buf`] belongs either to the program or to an operation, never to both, and every [`Error`] names the
//! party at fault. The only `unsafe` calls register memory that the program allocated itself ([`Mr::register`],
//! [`Mr::register_async`]).
//!
//! # Two layers
//!
//! The **high** layer is [`Connection`]: `send`, `recv`, `write`, `read` and atomics take a [`Buf`] and give it back
//! with the result. Each starts at once and returns a [`Pending`], which a thread can `wait()` for and a task can
//! `.await`, on any executor. A `Pending` may be dropped at any time: the connection keeps the buffer until the
//! adapter is done with it, and a message that arrives for a dropped `recv` is returned by the next one.
//! An [`Endpoint`] accepts receives before it is connected; [`Connection::scope`] works on slices that the program borrows,
//! [`Connection::send_from`] and the related methods on parts of registered [`Memory`].
//!
//! ```
//! use verbena::{Access, Device};
//!
//! let device = Device::open()?;
//! let listener = device.listen("127.0.0.1:0")?;
//! let connecting = device.connect(listener.local_addr()?);
//! let server = listener.accept().wait()?;
//! let client = connecting.wait()?;
//!
//! // A message.
//! let receiving = server.recv(device.buffer(64)?);
//! let (sent, _buf) = client.send(device.buffer_from(b"hello")?).wait();
//! let (received, buf) = receiving.wait();
//! sent?;
//! received?;
//! assert_eq!(&buf[..], b"hello");
//!
//! // The server shares memory, and the client uses it without asking again.
//! let shared = device.memory(4096, Access::ALL)?;
//! let remote = shared.remote(); // 24 bytes, see `RemoteMemory::to_bytes`
//! client.write(device.buffer_from(b"over there")?, &remote).wait().0?;
//! let counter = remote.value::<u64>(64)?;
//! assert_eq!(client.fetch_add(&counter, 5).wait()?, 0);
//! assert_eq!(shared.load(64)?, 5);
//! # Ok::<(), verbena::Error>(())
//! ```
//!
//! The **low** layer is the verbs, without allocation: post lists of requests to a [`Qp`] or its halves, poll into an
//! array that the program owns, sleep on a descriptor; see [`low`].
//!
//! Reading order: [`Device`] → [`mr`] (memory) → [`RemoteValue`] → [`low`] ([`Cq`], [`Qp`], [`Srq`], [`Ssq`], [`ControlQueue`], [`UdQp`], [`SidrListener`], [`ulp`]) → [`Listener`] → [`Endpoint`] →
//! [`Connection`] → `ops` (which side owns a buffer, and until when).
//!
//! # Features
//!
//! `async` (on by default) makes everything that waits a future, without a dependency. `fabric` re-exports the
//! simulator's fabric: whole adapters in one process and in virtual time, for tests that control every fault.

#![deny(unsafe_code, missing_docs)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod connect;
mod connection;
mod control;
mod cq;
mod depths;
mod device;
mod endpoint;
mod error;
mod function;
mod handler;
mod handover;
mod listener;
pub mod low;
#[allow(
    unsafe_code,
    reason = "registering memory is handing out raw addresses; each use argues why it is sound"
)]
pub mod mr;
mod ops;
mod pd;
mod pending;
mod promise;
mod qp;
mod registering;
mod remote;
mod shared;
mod sidr;
mod srq;
mod ssq;
pub mod tcp;
mod ud;
pub mod ulp;
mod xrc;

pub use connect::{Connecting, Connector};
pub use connection::Connection;
pub use control::{ControlQueue, CqChange, CqRef, QpRef, Queued};
pub use cq::Cq;
pub use depths::Depths;
pub use device::Device;
pub use endpoint::{Endpoint, Received};
pub use error::{Error, Failure, Fault};
pub use handler::{Handler, Observation};
pub use handover::{
    FailedHandover, Handover, HandoverError, HandoverListener, HandoverSender, HandoverStep,
    IncomingHandover,
};
pub use listener::{Accepting, BoundListener, ConnectRequest, Listener, NextRequest};
pub use mr::{Buf, FastRegMr, Memory, Mr, MrGuard, MrSlice, Scope, Window};
pub use pd::Pd;
pub use pending::{BufResult, Pending};
pub use promise::QpConnecting;
pub use qp::{MigrateError, Qp, QpEndpoint, QpOptions, QpReceiver, QpSender};
pub use registering::Registering;
pub use remote::{RemoteMemory, RemoteValue};
pub use sidr::{SidrListener, SidrQuery, SidrRequest};
pub use srq::Srq;
pub use ssq::{Ssq, SsqOptions};
pub use ud::{UdOptions, UdQp};
pub use xrc::Xrcd;

#[doc(hidden)]
pub use verbena_engine::EngineThread;
pub use verbena_engine::config::{ConfigError, ConfigErrors, SettingOrigin, Source};
#[doc(inline)]
pub use verbena_engine::notify::monitor;
#[doc(inline)]
pub use verbena_engine::security::access;
/// Directories for the sockets and files of the current user.
pub use verbena_engine::sys::runtime;
pub use verbena_engine::{
    Config, EngineFailure, FunctionOptions, HandlerOptions, SidrCounters, UdEndpoint,
};
pub use verbena_mem::Access;
pub use verbena_nic::{Event, Status};

/// Whole adapters in one process and in virtual time, for tests that control every fault.
///
/// ```
/// let mut fabric = verbena::fabric::Fabric::new(7);
/// let (alice, bob) = (fabric.host(), fabric.host());
/// let (a, b) = (fabric.qp(alice), fabric.qp(bob));
/// fabric.connect(a, b);
/// fabric.run();
/// ```
#[cfg(feature = "fabric")]
pub use verbena_sim::fabric;

/// The examples of the pages in `docs/`, which are tests so that they stay true.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/control.md")]
    struct Control;
    #[doc = include_str!("../../../docs/events.md")]
    struct Events;
    #[doc = include_str!("../../../docs/extensions.md")]
    struct Extensions;
    #[doc = include_str!("../../../docs/functions.md")]
    struct Functions;
    #[doc = include_str!("../../../docs/memory.md")]
    struct Memory;
    #[doc = include_str!("../../../docs/migration.md")]
    struct Migration;
    #[doc = include_str!("../../../docs/shared-send-queue.md")]
    struct SharedSendQueue;
    #[doc = include_str!("../../../docs/tcp.md")]
    struct Tcp;
}
