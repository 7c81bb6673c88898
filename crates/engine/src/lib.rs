//! The hands of the adapter: the system calls that move its bytes and the settings it follows; shards and connections stand on them.
//! It promises that nothing under a lock waits, logs, or can be cancelled half-way, and that every setting names its origin.
//! It refuses protocol decisions: those are made in the inner rings (docs/ARCHITECTURE.md), from bytes and times handed in here.
//!
//! Reading order: [`sys`] (the operating system, the only island of `unsafe`), [`config`] (what can be set, and who set
//! it), [`Engine`] → `core` → `shard` (threads) → `connection` (one socket and its queue pair: startup, turns, close) →
//! `group` (who runs a connection), `watch` (what for) → `queue`, `queue_pair`, `shared_queue`, `shared_sends`, `sharer` (what programs hold), `door` (who may come);
//! `pipeline` → `handler`, `signals`, `station` (who is told, and where that runs);
//! `monitor` (who watches from outside);
//! `control` (what is done later, by a thread of its own);
//! `mailbox` (a UDP socket), `residents`, `ud_pair` (queue pairs for datagrams), `desk`, `asking` (where those are);
//! `iscsi_dial`, `iscsi_stream`, `iscsi_pair` (queue pairs of the iSCSI initiator);
//! `numbers`, `calls`, `life`, `introduction`, `proof` (queue pairs that are connected by hand);
//! `tls` (encryption between a socket and its stream).

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

// What tests share with those outside of the crate names it so.
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
