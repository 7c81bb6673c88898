//! The engine: it connects the adapter's state machines to sockets, threads, clocks and settings.
//! Nothing blocks or logs while it holds a lock, no thread is cancelled inside a call of this crate, and every setting knows its origin.
//! Protocol decisions are made in the inner crates (docs/ARCHITECTURE.md), from bytes and times passed in here.
//!
//! Reading order: [`sys`] (the operating system, the only `unsafe` here), [`config`] (settings and their origin),
//! [`Engine`] → `core` (what all parts share, in parts: `lifecycle`, `local_addresses`, `qp_routes`, and one of each folder) → `connection` (one socket and its queue pair: startup, turns, close) →
//! `poll` (which thread serves a connection) → `verbs` (the objects that programs hold) → `accept` (listeners), `oob` (connections
//! by queue pair number), `datagram` (UDP), [`capture`] (copies of frames for other processes), [`trace`] (events for other processes), `ulp` (queue pairs of upper-layer protocols), `same_host` (shared memory between processes of one host); [`notify`] (events and the threads that
//! handle them), [`security`] (access lists, keys, TLS).

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

// Test helpers shared with `tests/` refer to this crate by its name.
#[cfg(test)]
extern crate self as verbena_engine;

mod accept;
pub mod capture;
pub mod config;
mod connection;
mod core;
mod datagram;
mod engine;
pub mod error;
mod failure;
mod failure_api;
pub mod faults;
mod guard;
mod lifecycle;
mod local_addresses;
pub mod notify;
mod oob;
mod poll;
mod port;
mod qp_routes;
mod roce;
mod same_host;
pub mod security;
mod shutdown;
mod stream_path;
#[allow(
    unsafe_code,
    reason = "system calls on raw spans, signal masks and fork handlers"
)]
pub mod sys;
pub mod trace;
mod ulp;
pub mod verbs;

pub use accept::listening::{Incoming, Listening, Reservation};
pub use config::Config;
pub use datagram::packet_handover::PacketHandovers;
pub use datagram::sidr_listener::{SidrCounters, SidrListener, SidrRequest, UdEndpoint};
pub use datagram::sidr_query::SidrQuery;
pub use datagram::ud_demux::DatagramDrops;
pub use datagram::ud_pair::{UdOptions, UdPair};
pub use engine::Engine;
pub use error::{EngineFailure, Error};
pub use failure_api::EngineThread;
pub use local_addresses::device_addresses;
pub use notify::handler::{HandlerId, HandlerOptions, HandlerRef};
pub use notify::handler_api::Observation;
pub use notify::interrupt_counters::InterruptCounters;
pub use notify::pipeline::Observer;
pub use notify::{Inbox, Notify};
pub use poll::backoff::Backoff;
pub use poll::queue::{CompletionQueue, CompletionQueueInfo};
pub use poll::sleep_poll::WeakCompletionQueue;
pub use security::access::{AccessList, Refusal};
pub use shutdown::Shutdown;
pub use stream_path::{PeerProcess, StreamPath};
pub use ulp::dial::UlpConnecting;
pub use ulp::pair::{UlpOptions, UlpPair};
pub use verbena_roce::Mtu;
pub use verbs::control::{ControlCallback, ControlQueue};
pub use verbs::function_handle::FunctionOptions;
pub use verbs::queue_pair::{
    Destination, ExportedConnection, ImportedConnection, MigrateError, MigrationState, OobPeer,
    QpAttr, QueuePair, QueuePairInfo, QueuePairOptions, XrcDomain,
};
pub use verbs::shared_receive_queue::SharedReceiveQueue;
pub use verbs::shared_send_queue::{SendQueue, SharedSendQueue};
pub use verbs::xrc::{TargetElsewhere, TargetHandle};
