//! The push-push messaging layer (P4–P7) for one side of a service connection: pools, credits, indications, transactions.
//! A session addresses only elements of pools that the peer advertised, each only while it is free, and stays within the named
//! limits for any input. It does no I/O, holds no packet data and reads no clock.
//!
//! Reading order: [`settings`] → [`output`] → [`session`] (`send`, `receive`, `arrive`, `pools`, `config`, `pump`) → its state
//! (`owned`, `lent`, `window`, `transactions`) → [`error`] and [`kind`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod counters;
pub mod error;
pub mod kind;
mod lent;
pub mod output;
mod owned;
pub mod session;
pub mod settings;
mod transactions;
mod window;

#[cfg(test)]
mod world;

pub use counters::Counters;
pub use error::{Misuse, Refused, Violation};
pub use kind::{Kind, Tally};
pub use lent::{Lease, LeaseEvent, Use, UseEvent};
pub use output::{Channel, Event, Output, Packet};
pub use owned::{Hold, HoldEvent, Tenure, TenureEvent};
pub use session::Session;
pub use settings::{Arrangement, Limits, Naming, Settings};
pub use window::{FIRST_MESSAGES, MESSAGES};
