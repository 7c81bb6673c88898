//! The adapter itself: what a consumer posts, what becomes of it, and what the consumer is told.
//! It promises verbs semantics on any byte stream that keeps order, in two personalities, and says of every failure whose fault it was.
//! It refuses to know sockets and clocks: bytes, decisions and the time are handed in, bytes and completions come out.
//!
//! Reading order: [`wr`] (what can be asked) → [`wc`] (what is answered) → [`state`] (where a queue pair stands) →
//! [`cq`], [`receive`], [`srq`] (the queues) → [`carrier`] (who moves bytes) → [`qp`] (the queue pair), [`ssq`] (a send queue for many), [`ud`] (one for datagrams), [`upper`] (those of other drivers) → [`event`] → [`control`] (what is done later) →
//! [`function`] (the tables and the verbs on them) → [`adapter`] → [`profile`] (as what it appears); [`error`] says why a verb refuses.
//! How events reach a driver: [`eqe`] (an entry) → [`eq`] (a queue) → [`moderation`] → [`toeplitz`], [`steering`], [`message_map`], [`arrangement`]
//! (where events go) → [`vector`] (signals) → [`interrupts`] (all of it together).
//! Below them, without any meaning of their own: `ring` (a queue without a lock), [`desk`] (a lock with a bell) and `sync`.

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod adapter;
pub mod arrangement;
pub mod carrier;
pub mod control;
pub mod cq;
pub mod desk;
pub mod eq;
pub mod eqe;
pub mod error;
pub mod event;
pub mod function;
mod grounds;
pub mod interrupts;
pub mod message_map;
pub mod moderation;
pub mod profile;
pub mod qp;
pub mod receive;
#[allow(
    unsafe_code,
    reason = "slots that two threads hand to each other without a lock"
)]
mod ring;
pub mod srq;
pub mod ssq;
pub mod state;
pub mod steering;
mod sync;
#[cfg(test)]
mod testing;
pub mod toeplitz;
pub mod ud;
pub mod upper;
pub mod vector;
pub mod wc;
pub mod wr;

pub use adapter::{Adapter, Ranges};
pub use arrangement::Arrangement;
pub use carrier::{Carrier, Hand, Moved};
pub use control::{Control, ControlError, Done, Subject};
pub use cq::{Arm, Cq};
pub use desk::Desk;
pub use eqe::{Cause, Eqe};
pub use error::{Error, Kind, Object};
pub use event::{Event, Outbox, Raise, Reason, Wake};
pub use function::{
    Attributes, CqInfo, Function, FunctionCounters, NewQp, NewUd, NewUpper, QpInfo, Shares, SrqInfo,
};
pub use grounds::Grounds;
pub use interrupts::{At, Interrupts, Origin, Scheme};
pub use qp::{
    Acks, Image, ImageError, OnFailure, Qp, QpInit, Receiving, Registration, Sending, Stays,
    Traits, Transfer, Unregistered,
};
pub use receive::ReceiveQueue;
pub use srq::Srq;
pub use ssq::{Fate, Record, Ssq, SsqLimits};
pub use state::{Personality, QpState, QpType};
pub use ud::{Arrival, Destination, MAX_DATAGRAM, UdQp, UdSendWr};
pub use upper::{Upper, UpperInit};
pub use vector::{Delivery, Fire, Shutdown, Signal};
pub use wc::{ControlOp, Header, Status, Wc, WcOp};
pub use wr::{Flags, ReceiveWr, SendOp, SendWr, Sge};
