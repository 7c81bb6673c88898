//! How events of the adapter reach its driver: event queues, moderation, steering, message maps and vectors (E1 to E12).
//! The crate has no threads, clocks or sockets: the time is passed in, and a signal goes to [`Fire`], which the caller implements.
//! There is one path from an event to a handler, and every notification takes it.
//!
//! Reading order: [`event`] (what happened to an object) → [`eqe`] (an entry of a queue) → [`eq`] (a queue) → [`moderation`] →
//! [`toeplitz`], [`steering`], [`message_map`], [`arrangement`] (which queue and vector) → [`vector`] (signals) →
//! [`interrupts`] (all of it together).

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod arrangement;
pub mod eq;
pub mod eqe;
pub mod event;
pub mod interrupts;
pub mod message_map;
pub mod moderation;
pub mod steering;
pub mod toeplitz;
pub mod vector;

pub use arrangement::Arrangement;
pub use eqe::{Cause, Eqe};
pub use event::{Event, Outbox, Raise, Reason, Wake};
pub use interrupts::{At, Interrupts, Origin, Scheme};
pub use vector::{Delivery, Fire, Shutdown, Signal};
