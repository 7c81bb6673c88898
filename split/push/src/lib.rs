//! The push-push messaging layer (P4–P7) for one side of a service connection: pools, credits, indications, transactions.
//! A session addresses only elements of pools that the peer advertised, each only while it is free, and stays within the named
//! limits for any input. It does no I/O, holds no packet data and reads no clock.
//!
//! Reading order: [`settings`] → [`output`] → [`session`] (`send`, `receive`, `arrive`, `pools`, `config`, `pump`) → its state
//! (`own_pool`, `peer_pools`, `window`, `transactions`) → [`error`] and [`kind`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod counters;
pub mod error;
pub mod kind;
pub mod output;
mod own_pool;
mod peer_pools;
pub mod session;
pub mod settings;
mod transactions;
mod window;

#[cfg(test)]
mod world;

pub use counters::Counters;
pub use error::{Misuse, Refused, Violation};
pub use kind::{ViolationCounts, ViolationKind};
pub use output::{Channel, Event, Output, Packet};
pub use own_pool::{OwnElementEvent, OwnElementState, OwnPoolEvent, OwnPoolState};
pub use peer_pools::{PeerElementEvent, PeerElementState, PeerPoolEvent, PeerPoolState};
pub use session::Session;
pub use settings::{Arrangement, IndicationMode, Limits, Settings};
pub use window::{INITIAL_CREDIT, MESSAGE_POOL};
