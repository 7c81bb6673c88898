//! The engine: it connects the adapter's state machines to sockets, threads, clocks and settings.
//! Nothing blocks or logs while it holds a lock, no thread is cancelled inside a call of this crate, and every setting knows its origin.
//! Protocol decisions are made in the inner crates (docs/ARCHITECTURE.md), from bytes and times passed in here.
//!
//! Reading order: [`sys`] (the operating system, the only `unsafe` here), [`config`] (settings and their origin),
//! [`Engine`] → `core` → `shard` (threads) → `connection` (one socket and its queue pair: startup, turns, close) →
//! `group` (which thread serves a connection), `watch` (socket readiness) → `queue`, `queue_pair`, `shared_queue`, `shared_sends`,
//! `sharer` (the objects that programs hold), `door` (accepting connections);
//! `pipeline` → `handler`, `signals`, `station` (notifications, and the threads they run on);
//! `monitor` (event output for other processes);
//! `control` (control queue pairs, executed by a thread of their own);
//! `mailbox` (a UDP socket), `residents`, `ud_pair` (datagram queue pairs), `desk`, `asking` (resolution of service ids);
//! `iscsi_dial`, `iscsi_stream`, `iscsi_pair` (queue pairs of the iSCSI initiator);
//! `numbers`, `calls`, `life`, `introduction`, `proof` (out-of-band connections);
//! `tls` (encryption between a socket and its stream).

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

// Test helpers shared with `tests/` refer to this crate by its name.
#[cfg(test)]
extern crate self as verbena_engine;

pub mod access;
mod asking;
mod calls;
mod claims;
pub mod config;
mod connection;
pub mod control;
mod core;
mod desk;
mod door;
mod doze;
mod engine;
pub mod error;
mod failing;
mod group;
mod habit;
pub mod handler;
mod handling;
mod introduction;
mod iscsi_dial;
mod iscsi_pair;
mod iscsi_stream;
mod keyed;
mod keys;
mod life;
mod listening;
mod mailbox;
pub mod monitor;
pub mod notice;
mod numbers;
mod pipeline;
mod preempted;
mod proof;
mod queue;
mod queue_pair;
mod residents;
mod seat;
mod shard;
mod shared_queue;
mod shared_sends;
mod sharer;
mod shutdown;
mod signals;
mod station;
#[allow(
    unsafe_code,
    reason = "system calls on raw spans, signal masks and fork handlers"
)]
pub mod sys;
mod tls;
mod ud_pair;
mod watch;

pub use access::{AccessList, Refusal};
pub use asking::Asking;
pub use config::Config;
pub use control::ControlQueue;
pub use desk::{Desk, DeskCounts, Question, Whereabouts};
pub use doze::Watched;
pub use engine::Engine;
pub use error::Error;
pub use failing::{EngineFailure, OwnThread};
pub use habit::Habit;
pub use handler::{HandlerId, HandlerOptions};
pub use handling::Observation;
pub use iscsi_dial::IscsiDial;
pub use iscsi_pair::{IscsiOptions, IscsiPair};
pub use listening::{Incoming, Listening, Reservation};
pub use notice::{Inbox, Notify};
pub use pipeline::Observer;
pub use queue::CompletionQueue;
pub use queue_pair::{
    Arriving, Departed, Destination, Manners, Parcel, Peer, QueuePair, QueuePairInfo,
    QueuePairOptions, Unmoved,
};
pub use residents::DatagramDrops;
pub use seat::FunctionOptions;
pub use shared_queue::SharedReceiveQueue;
pub use shared_sends::SharedSendQueue;
pub use shutdown::Shutdown;
pub use ud_pair::{UdOptions, UdPair};
