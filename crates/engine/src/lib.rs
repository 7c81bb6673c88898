//! The engine: it connects the adapter's state machines to sockets, threads, clocks and settings.
//! Nothing blocks or logs while it holds a lock, no thread is cancelled inside a call of this crate, and every setting knows its origin.
//! Protocol decisions are made in the inner crates (docs/ARCHITECTURE.md), from bytes and times passed in here.
//!
//! Reading order: [`sys`] (the operating system, the only `unsafe` here), [`config`] (settings and their origin),
//! [`Engine`] → `core` → `shard` (threads) → `connection` (one socket and its queue pair: startup, turns, close) →
//! `group` (which thread serves a connection), `watch` (socket readiness) → `queue`, `queue_pair`, `shared_receive_queue`, `shared_send_queue`,
//! `ssq_driver` (the objects that programs hold), `acceptor` (accepting connections);
//! `pipeline` → `handler`, `signals`, `handler_threads` (notifications, and the threads they run on);
//! `monitor` (event output for other processes);
//! `control` (control queue pairs, executed by a thread of their own);
//! `udp_port` (a UDP socket), `ud_demux`, `ud_pair` (datagram queue pairs), `sidr_listener`, `sidr_query` (resolution of service ids);
//! `iscsi_dial`, `iscsi_stream`, `iscsi_pair` (queue pairs of the iSCSI initiator);
//! `qpn`, `oob_requests`, `oob_handshake`, `oob_hello`, `oob_auth` (out-of-band connections);
//! `tls` (encryption between a socket and its stream).

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

// Test helpers shared with `tests/` refer to this crate by its name.
#[cfg(test)]
extern crate self as verbena_engine;

mod acceptor;
pub mod access;
mod backoff;
pub mod config;
mod connection;
pub mod control;
mod core;
mod engine;
pub mod error;
mod failure;
mod function_handle;
mod group;
pub mod handler;
mod handler_api;
mod handler_threads;
mod iscsi_dial;
mod iscsi_pair;
mod iscsi_stream;
mod key_auth;
mod keys;
mod listening;
pub mod monitor;
pub mod notify;
mod oob_auth;
mod oob_handshake;
mod oob_hello;
mod oob_requests;
mod owner_rules;
mod pipeline;
mod preemption;
mod qpn;
mod queue;
mod queue_pair;
mod shard;
mod shared_receive_queue;
mod shared_send_queue;
mod shutdown;
mod sidr_listener;
mod sidr_query;
mod signals;
mod sleep_poll;
mod ssq_driver;
#[allow(
    unsafe_code,
    reason = "system calls on raw spans, signal masks and fork handlers"
)]
pub mod sys;
mod tls;
mod ud_demux;
mod ud_pair;
mod udp_port;
mod watch;

pub use access::{AccessList, Refusal};
pub use backoff::Backoff;
pub use config::Config;
pub use control::ControlQueue;
pub use engine::Engine;
pub use error::Error;
pub use failure::{EngineFailure, EngineThread};
pub use function_handle::FunctionOptions;
pub use handler::{HandlerId, HandlerOptions};
pub use handler_api::Observation;
pub use iscsi_dial::IscsiConnecting;
pub use iscsi_pair::{IscsiOptions, IscsiPair};
pub use listening::{Incoming, Listening, Reservation};
pub use notify::{Inbox, Notify};
pub use pipeline::Observer;
pub use queue::CompletionQueue;
pub use queue_pair::{
    Destination, ExportedConnection, ImportedConnection, MigrateError, MigrationState, OobPeer,
    QpAttr, QueuePair, QueuePairInfo, QueuePairOptions,
};
pub use shared_receive_queue::SharedReceiveQueue;
pub use shared_send_queue::SharedSendQueue;
pub use shutdown::Shutdown;
pub use sidr_listener::{SidrCounters, SidrListener, SidrRequest, UdEndpoint};
pub use sidr_query::SidrQuery;
pub use sleep_poll::WeakCompletionQueue;
pub use ud_demux::DatagramDrops;
pub use ud_pair::{UdOptions, UdPair};
