//! The channel adapter (P1–P3): work queue pairs whose packets are segmented into cells, over any carrier of datagrams. Acknowledged,
//! connected channels deliver every packet once, in order and intact, or fail with an error; bytes are placed only with a grant; and
//! everything that a peer can make grow has a limit. Sockets, clocks and randomness are outside: datagrams are passed in and out, `now`
//! and first packet numbers are arguments.
//!
//! # In which order to call
//!
//! [`Port::create`] work queue pairs; [`Port::post_receive`] and [`Port::ring_receive`]; connected ones [`Port::connect`], or
//! [`Port::listen`] and [`Port::accept`]; then [`Port::post_send`] and [`Port::ring_send`]. After each of these, after
//! [`Port::handle_cells`] and after [`Port::handle_timeout`]: [`Port::poll_transmit`] until it has nothing,
//! [`Port::poll_notice`] until it has nothing, and come back at [`Port::deadline`]. Completions are in the completion queues.
//!
//! Reading order: [`descriptor`] → [`config`] → [`state`] → `wqp` (`transmit`, `answer`, `reassemble`, `step`, `place`, `complete`) →
//! [`port`] (`cells`, `connect`, `transmit`).

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod config;
pub mod cookie;
pub mod counters;
pub mod descriptor;
pub mod error;
pub mod notice;
pub mod port;
pub mod state;
mod wqp;

#[cfg(test)]
mod testing;

pub use config::Config;
pub use cookie::Cookies;
pub use counters::{Counters, PortCounters, Refused};
pub use descriptor::{AddressSegment, ControlSegment, Descriptor, Operation, Peer};
pub use error::Error;
pub use notice::{EndReason, Notice, Ticket};
pub use port::Port;
pub use state::State;
pub use wqp::{ChannelKind, View, WqpInit};
