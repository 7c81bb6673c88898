//! RDMA for Rust programs, on any machine: verbs without the hardware, over plain TCP.
//! The API is safe: a [`Buf`] belongs either to the program or to an operation, never to both, and every [`Error`] names the
//! party at fault. The only `unsafe` calls register memory that the program allocated itself ([`Mr::register`](mr::Mr::register),
//! [`Mr::register_async`](mr::Mr::register_async)).
//!
//! # A first program
//!
//! A [`Device`] is the adapter, opened once. One side listens, the other connects, and both get a [`Connection`]. No hardware, kernel module
//! or root is needed, also between two machines.
//!
//! ```
//! use verbena::Device;
//!
//! let device = Device::open()?;
//! let listener = device.listen("127.0.0.1:0")?;
//! let connecting = device.connect(listener.local_addr()?);
//! let server = listener.accept().wait()?;
//! let client = connecting.wait()?;
//!
//! let receiving = server.recv(device.buffer(64)?);
//! let (sent, _buf) = client.send(device.buffer_from(b"hello")?).wait();
//! let (received, buf) = receiving.wait();
//! sent?;
//! received?;
//! assert_eq!(&buf[..], b"hello");
//! # Ok::<(), verbena::Error>(())
//! ```
//!
//! `send`, `recv`, `write`, `read` and atomics take a [`Buf`] and give it back with the result. Each starts at once and returns a [`Pending`],
//! which a thread can `wait()` for and a task can `.await`. A `Pending` may be dropped at any time: the connection keeps the buffer until the
//! adapter is done with it, and a message that arrives for a dropped `recv` is returned by the next one.
//!
//! # Memory
//!
//! A [`Buf`] belongs either to the program or to an operation, so the program may read and write it as a slice. [`Memory`] is shared with
//! peers, which read and write it without asking again; the program copies bytes in and out, or uses its words as atomics. What a peer needs
//! is a [`RemoteMemory`], 24 bytes that can be sent in any way. Slices that the program borrows and memory that it allocated are in [`mr`].
//!
//! ```
//! use verbena::{Access, Device, ErrorKind, RemoteMemory};
//! # let device = Device::open()?;
//! # let listener = device.listen("127.0.0.1:0")?;
//! # let connecting = device.connect(listener.local_addr()?);
//! # let (_server, client) = (listener.accept().wait()?, connecting.wait()?);
//! let shared = device.memory(4096, Access::ALL)?;
//! let handle: [u8; 24] = shared.remote().to_bytes();
//!
//! // The peer, with nothing but the handle.
//! let remote = RemoteMemory::from_bytes(&handle)?;
//! client.write(device.buffer_from(b"over there")?, &remote.slice(0, 10)?).wait().0?;
//! let counter = remote.value::<u64>(64)?;
//! assert_eq!(client.fetch_add(&counter, 5).wait()?, 0);
//!
//! // The owner sees both.
//! assert_eq!(&shared.get::<[u8; 10]>(0)?, b"over there");
//! assert_eq!(shared.load(64)?, 5);
//! // Bounds and rights are checked before anything is sent, and again by the peer.
//! assert_eq!(remote.slice(4090, 10).unwrap_err().kind(), ErrorKind::OutOfBounds);
//! # Ok::<(), verbena::Error>(())
//! ```
//!
//! # Connections
//!
//! A request to connect can carry private data, and the listener can look at it before it accepts or rejects ([`cm`]). An [`Endpoint`] takes
//! receives before it is connected, so that a first message finds one, and [`Depths`] say how many operations may be outstanding.
//!
//! ```
//! use verbena::{Depths, Device, ErrorKind};
//! let device = Device::open()?;
//! let listener = device.listen("127.0.0.1:0")?;
//!
//! let endpoint = device.endpoint(Depths::default())?;
//! let welcome = endpoint.recv(device.buffer(64)?);
//! let connecting = endpoint.connect(listener.local_addr()?, b"password");
//! let request = listener.next().wait()?;
//! assert_eq!(request.private_data(), b"password");
//! let server = request.accept(b"").wait()?;
//! server.send(device.buffer_from(b"welcome")?).wait().0?;
//! let _client = connecting.wait()?;
//! assert_eq!(&welcome.wait().1[..], b"welcome");
//!
//! let connecting = device.connector(b"guess").connect(listener.local_addr()?);
//! listener.next().wait()?.reject(b"no");
//! let error = connecting.wait().unwrap_err();
//! assert_eq!((error.kind(), error.rejection()), (ErrorKind::Rejected, Some(&b"no"[..])));
//! # Ok::<(), verbena::Error>(())
//! ```
//!
//! Datagrams are in [`datagram`], queue pairs on plain TCP connections in [`tcp`], protocols of other crates in [`ulp`].
//!
//! # Async
//!
//! With the feature `async`, which is on by default, everything that has `wait()` is a future. It needs no executor of its own and no
//! dependency: the adapter's threads wake the task.
//!
//! ```
//! use verbena::Device;
//!
//! async fn echo(device: Device) -> Result<Vec<u8>, verbena::Error> {
//!     let listener = device.listen("127.0.0.1:0")?;
//!     let connecting = device.connect(listener.local_addr()?);
//!     let server = listener.accept().await?;
//!     let client = connecting.await?;
//!
//!     let receiving = server.recv(device.buffer(64)?);
//!     client.send(device.buffer_from(b"to and fro")?).await.0?;
//!     let (_, message) = receiving.await;
//!     let answer = client.recv(device.buffer(64)?);
//!     server.send(message).await.0?;
//!     Ok(answer.await.1.to_vec())
//! }
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # #[cfg(feature = "async")]
//! assert_eq!(runtime.block_on(echo(Device::open()?))?, b"to and fro");
//! # Ok::<(), verbena::Error>(())
//! ```
//!
//! # Errors
//!
//! Every call that fails returns an [`Error`]: one sentence with the numbers, a [`kind`](Error::kind) to react to, and the
//! [party at fault](Error::fault). An operation that the adapter or the peer refused ends with the [`Status`] of the verbs. Its buffer is
//! returned in any case.
//!
//! ```
//! use verbena::{Access, Device, ErrorKind, Fault, Status};
//! # let device = Device::open()?;
//! # let listener = device.listen("127.0.0.1:0")?;
//! # let connecting = device.connect(listener.local_addr()?);
//! # let (_server, client) = (listener.accept().wait()?, connecting.wait()?);
//! let read_only = device.memory(64, Access::LOCAL_WRITE | Access::REMOTE_READ)?.remote();
//! // Nothing is sent: the handle says that it does not grant writes.
//! let (result, buf) = client.write(device.buffer_from(b"mine")?, &read_only).wait();
//! let error = result.unwrap_err();
//! assert_eq!((error.kind(), error.fault()), (ErrorKind::AccessDenied, Fault::Caller));
//!
//! // The memory is gone meanwhile: the peer refuses, and the connection ends.
//! let gone = device.memory(64, Access::ALL)?.remote();
//! let error = client.write(buf, &gone).wait().0.unwrap_err();
//! assert_eq!((error.kind(), error.status()), (ErrorKind::Failed, Some(Status::RemAccessErr)));
//! # Ok::<(), verbena::Error>(())
//! ```
//!
//! # Tests without hardware
//!
//! A test opens a [`Device`] for each side and connects them over a loopback address; devices share no state, and port 0 keeps tests apart.
//! The settings make rare cases frequent, such as a peer that is not Verbena: see [`Config::set`]. With the feature `fabric`, whole adapters
//! run in one process and in virtual time, with faults where the test wants them:
//!
//! ```
//! # #[cfg(feature = "fabric")] {
//! use verbena::Status;
//! use verbena::fabric::{Fabric, sge};
//! use verbena::low::{Data, Flags, SendOp, SendWr};
//!
//! let mut fabric = Fabric::new(7); // the seed decides everything that happens
//! let (alice, bob) = (fabric.host(), fabric.host());
//! let (a, b) = (fabric.qp(alice), fabric.qp(bob));
//! fabric.connect(a, b);
//! fabric.run();
//!
//! fabric.kill(bob);
//! let memory = fabric.memory(alice, 64);
//! let op = SendOp::Send { invalidate: None, immediate: None };
//! let data = [sge(&memory, 0, 8)];
//! fabric.post_send(a, &SendWr { id: 1, op, flags: Flags::SIGNALED, data: Data::Gather(&data) })?;
//! fabric.run();
//! assert_ne!(fabric.sent(a)[0].status, Status::Success);
//! # }
//! # Ok::<(), verbena::low::PostError>(())
//! ```
//!
//! # The low layer
//!
//! [`low`] is the verbs, without allocation: post lists of requests to a [`Qp`](low::Qp) or its halves, poll into an array that the program
//! owns, sleep on a descriptor. Everything above is built on it.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`prelude`] | the names that most programs import |
//! | [`mr`] | memory that the program allocated or borrows, windows, registration by work request |
//! | [`cm`] | connection requests one by one |
//! | [`datagram`] | UD queue pairs, multicast, finding a queue pair by service |
//! | [`low`] | queue pairs, completion queues, shared queues, work requests |
//! | [`control`] | registrations and changes of queues, queued and executed in order |
//! | [`events`] | events of the adapter, completion handlers on chosen processors, moderation |
//! | [`function`](mod@function) | virtual functions, logical devices, limits and counters |
//! | [`faults`] | failures on purpose, for tests of how a program handles them |
//! | [`handover`] | a service that is replaced by its next version under load |
//! | [`tcp`], [`ulp`] | queue pairs on plain TCP, and for protocols of other crates |
//! | [`config`] | errors of settings and access lists |
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `async` (default) | what can be waited for is a future; no dependency |
//! | `handover` (default) | [`handover`], with `serde` and `postcard` |
//! | `fabric` | `fabric`: whole adapters in one process and in virtual time, for tests |
//! | `unstable` | what the drop-in libraries and tools of this project use; any version may change it |
//!
//! Enumerations and options that will grow are `#[non_exhaustive]`; options have a setter for each field.

#![deny(unsafe_code, missing_docs)]
#![cfg_attr(
    not(feature = "handover"),
    allow(
        dead_code,
        reason = "the parts of objects that only a handover takes out and puts back"
    )
)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod cm;
pub mod config;
mod connect;
mod connection;
pub mod control;
mod cq;
pub mod datagram;
mod depths;
mod device;
mod endpoint;
mod error;
pub mod events;
pub mod faults;
pub mod function;
mod handler;
#[cfg(feature = "handover")]
pub mod handover;
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
pub mod prelude;
mod promise;
mod qp;
mod registering;
mod remote;
mod setters;
mod shared;
mod sidr;
mod srq;
mod ssq;
pub mod tcp;
mod ud;
pub mod ulp;
#[cfg(feature = "unstable")]
pub mod unstable;
mod xrc;

pub use connect::Connecting;
pub use connection::Connection;
pub use depths::Depths;
pub use device::Device;
pub use endpoint::{Endpoint, Received};
pub use error::{AdapterError, Error, ErrorKind, Failure, Fault};
pub use listener::Listener;
pub use mr::{Buf, Memory};
pub use pending::{BufResult, Pending};
pub use remote::{RemoteMemory, RemoteValue};

// Of inner crates: the settings are kept by their keys, rights are the flags of the verbs, and completion statuses are those of the
// InfiniBand specification.
pub use verbena_engine::Config;
pub use verbena_mem::Access;
pub use verbena_nic::Status;

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
