//! Stream sockets on queue pairs: bind, listen, accept, connect, send, receive and shut down (docs/rsockets.md). Order and end of a
//! stream are those of a TCP socket, memory per socket is bounded, and no peer can make a call crash or spin. File descriptors and error
//! numbers are added by the C API.
//!
//! Reading order: `hello` (the first message of both sides) → `control_message` (control messages) → `credit` (flow control) →
//! `link` (one connection on one queue pair) → [`Stream`] (the socket) → `closing` (connections of closed sockets) → [`Notifier`]
//! (waiting for several sockets).
//!
//! ```
//! use verbena_rsocket::{Flags, Net, Stream};
//!
//! let net = Net::open(verbena::Device::open()?);
//! let listener = Stream::new(&net);
//! listener.bind("127.0.0.1:0".parse().expect("an address"))?;
//! listener.listen(16)?;
//! let client = Stream::new(&net);
//! let server = std::thread::scope(|scope| {
//!     let accepting = scope.spawn(|| listener.accept());
//!     client.connect(listener.local_addr()?)?;
//!     accepting.join().expect("no panic")
//! })?;
//! client.send(b"hello", Flags::default())?;
//! let mut got = [0; 5];
//! assert_eq!(server.recv(&mut got, Flags::WAIT_ALL)?, 5);
//! assert_eq!(&got, b"hello");
//! # Ok::<(), verbena_rsocket::Error>(())
//! ```

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod closing;
mod control_message;
mod credit;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod hello;
mod link;
mod net;
mod notifier;
mod options;
mod stream;

pub use error::Error;
pub use link::Mapped;
pub use net::Net;
pub use notifier::{Notifier, Watch};
pub use options::{Linger, Options};
pub use stream::{Flags, Half, Readiness, Stream};
