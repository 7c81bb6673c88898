//! The operating system interface of the adapter: sockets, epoll, eventfds, the clock, randomness, threads and forks.
//! Calls do not block (except [`Poller::wait`], the sleeps in [`poller`], [`Bell::wait`], [`Channel::take`], [`Channel::wait_beside`],
//! [`beside::wait`], [`wait`], and the transfer between processes by [`Courier`] and [`Hatch`]), do not log, and are no cancellation
//! points, so they may be made under a lock. A call that a signal interrupted is repeated. No Rust reference to registered memory is made.

pub mod bell;
pub mod beside;
mod cancel;
pub mod carry;
pub mod channel;
pub mod claims;
pub mod clock;
pub mod courier;
pub mod datagrams;
pub mod error;
mod fd;
pub mod fork;
pub mod glance;
pub mod hatch;
pub mod interfaces;
mod interrupted;
pub mod listener;
pub mod local;
pub mod pair;
pub mod poller;
pub mod processor;
pub mod random;
pub mod runtime;
pub mod socket;
#[cfg(test)]
pub(crate) mod testing;
pub mod thread;

pub use bell::Bell;
pub use beside::Beside;
pub use carry::{read_into, write_from};
pub use channel::{Channel, Double};
pub use claims::{Claims, Missed};
pub use clock::{now, wait};
pub use courier::{Courier, Undelivered};
pub use datagrams::Datagrams;
pub use error::{Error, Result};
pub use fork::{forks, forks_since};
pub use glance::{Glance, glance, preemptions, thread_id};
pub use hatch::Hatch;
pub use interfaces::{interface_name, interface_of, interfaces};
pub use listener::Listener;
pub use local::{Local, Visitor, is_privileged, user};
pub use pair::Pair;
pub use poller::{Interest, Poller, Ready};
pub use processor::{Courtesy, be_prompt, give_way, parallelism, processor, processors, settle};
pub use random::random_u64;
pub use socket::Socket;
pub use thread::{is_own_thread, spawn};
