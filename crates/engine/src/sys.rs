//! The operating system interface of the adapter: sockets, epoll, eventfds, the clock, randomness, threads and forks.
//! Calls do not block (except [`Poller::wait`], the sleeps in [`poller`], [`Doorbell::wait`], [`Channel::take`], [`Channel::wait_with_fds`],
//! [`channel_wait::wait`], [`wait`], and the transfer between processes by [`FdChannel`] and [`HandoverListener`]), do not log, and are no cancellation
//! points, so they may be made under a lock. A call that a signal interrupted is repeated. No Rust reference to registered memory is made.

pub mod abstract_socket;
mod cancel;
pub mod carry;
pub mod channel;
pub mod channel_wait;
pub mod claims;
pub mod clock;
pub mod datagram_socket;
pub mod doorbell;
mod eintr;
pub mod error;
mod fd;
pub mod fd_channel;
pub mod fork;
pub mod handover_listener;
pub mod interfaces;
pub mod listener;
pub mod poller;
pub mod port_pair;
pub mod processor;
pub mod random;
pub mod runtime;
pub mod sched;
pub mod socket;
#[cfg(test)]
pub(crate) mod testing;
pub mod thread;

pub use abstract_socket::{AbstractClient, AbstractListener, effective_uid, is_privileged};
pub use carry::{read_into, write_from};
pub use channel::{Channel, ChannelDup};
pub use channel_wait::WaitFd;
pub use claims::{ClaimError, Claims};
pub use clock::{now, wait};
pub use datagram_socket::DatagramSocket;
pub use doorbell::Doorbell;
pub use error::{Error, Result};
pub use fd_channel::{FdChannel, FdChannelError};
pub use fork::{fork_count, watch_forks};
pub use handover_listener::HandoverListener;
pub use interfaces::{interface_name, interface_of, interfaces};
pub use listener::Listener;
pub use poller::{Interest, Poller, Ready};
pub use port_pair::PortPair;
pub use processor::{
    SchedPolicy, parallelism, processor, processors, request_short_slice, set_affinity,
    set_sched_policy,
};
pub use random::random_u64;
pub use sched::{SchedState, preemptions, sched_state, thread_id};
pub use socket::Socket;
pub use thread::{is_own_thread, spawn};
