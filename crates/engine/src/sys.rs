//! The operating system interface of the adapter: sockets, epoll, eventfds, the clock, randomness, threads and forks.
//! Calls do not block (except [`Poller::wait`], the sleeps in [`poller`], [`Doorbell::wait`], [`Channel::take`], [`Channel::wait_with_fds`],
//! [`channel_wait::wait`], [`wait`], and the transfer between processes by [`FdChannel`] and [`HandoverListener`]), do not log, and are no cancellation
//! points, so they may be made under a lock. A call that a signal interrupted is repeated. No Rust reference to registered memory is made.
//!
//! With `cfg(shuttle)` the modules that sockets, time and threads go through are replaced by those in `simulated`, with the same interface.

pub mod abstract_socket;
#[cfg(not(shuttle))]
mod cancel;
#[cfg_attr(shuttle, path = "sys/simulated/carry.rs")]
pub mod carry;
#[cfg_attr(shuttle, path = "sys/simulated/channel.rs")]
pub mod channel;
#[cfg_attr(shuttle, path = "sys/simulated/channel_wait.rs")]
pub mod channel_wait;
pub mod claims;
#[cfg_attr(shuttle, path = "sys/simulated/clock.rs")]
pub mod clock;
#[cfg_attr(shuttle, path = "sys/simulated/datagram_socket.rs")]
pub mod datagram_socket;
#[cfg_attr(shuttle, path = "sys/simulated/doorbell.rs")]
pub mod doorbell;
#[cfg(not(shuttle))]
mod eintr;
pub mod error;
mod fd;
pub mod fd_channel;
pub mod fork;
pub mod frames;
pub mod handover_listener;
mod inode;
#[cfg_attr(shuttle, path = "sys/simulated/interfaces.rs")]
pub mod interfaces;
pub mod line;
pub mod link;
#[cfg_attr(shuttle, path = "sys/simulated/listener.rs")]
pub mod listener;
pub mod packet_channel;
mod path;
pub mod peer_credentials;
#[cfg_attr(shuttle, path = "sys/simulated/poller.rs")]
pub mod poller;
pub mod port_pair;
pub mod process_memory;
#[cfg_attr(shuttle, path = "sys/simulated/processor.rs")]
pub mod processor;
#[cfg_attr(shuttle, path = "sys/simulated/random.rs")]
pub mod random;
mod readiness;
pub mod receive_batch;
pub mod record_file;
mod reuseport;
#[cfg_attr(shuttle, path = "sys/simulated/route.rs")]
pub mod route;
pub mod runtime;
#[cfg_attr(shuttle, path = "sys/simulated/sched.rs")]
pub mod sched;
pub mod segments;
#[cfg(shuttle)]
pub mod simulated;
#[cfg_attr(shuttle, path = "sys/simulated/socket.rs")]
pub mod socket;
pub mod socket_folder;
mod tcp_numbers;
#[cfg(test)]
pub(crate) mod testing;
#[cfg_attr(shuttle, path = "sys/simulated/thread.rs")]
pub mod thread;
pub mod timestamp;

pub use abstract_socket::{AbstractClient, AbstractListener, effective_uid, is_privileged};
pub use carry::{peek_end, read_into, readable, write_from};
pub use channel::{Channel, ChannelDup};
pub use channel_wait::WaitFd;
pub use claims::{ClaimError, Claims};
pub use clock::{now, sleep, wait};
pub use datagram_socket::DatagramSocket;
pub use doorbell::Doorbell;
pub(crate) use error::LineError;
pub use error::{Error, Result};
pub use fd_channel::{FdChannel, FdChannelError};
pub use fork::{fork_count, watch_forks};
pub use frames::{FRAME_ROOM, FrameDevice, FrameRead, FrameSent};
pub use handover_listener::HandoverListener;
pub use inode::inode_of;
pub use interfaces::{interface_mtu, interface_name, interface_of, interfaces, running_interfaces};
pub use line::{Line, LineOwner};
pub use link::{LinkSocket, is_link_up};
pub use listener::Listener;
pub use packet_channel::{PacketChannel, PacketListener};
pub use poller::{Interest, Poller, Ready};
pub use port_pair::{BoundPort, PortPair};
pub use process_memory::read_process;
pub use processor::{
    SchedPolicy, online_processors, parallelism, processor, processors, request_short_slice,
    runnable_threads, set_affinity, set_sched_policy,
};
pub use random::random_u64;
pub use receive_batch::{Arrival, ReceiveBatch};
pub use reuseport::sharing_sockets;
pub use route::{Route, route_to};
pub use sched::{SchedState, preemptions, sched_state, thread_id};
pub use segments::SegmentsOutcome;
pub use socket::Socket;
pub use socket_folder::{FolderListener, SocketFolder};
pub use tcp_numbers::TcpNumbers;
pub use thread::{JoinHandle, current_thread, is_own_thread, spawn};
pub use timestamp::timestamp;
