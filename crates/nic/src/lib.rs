//! The adapter: work requests, queues, completions and events, without sockets, clocks or threads of its own.
//! Verbs semantics on any byte stream that keeps order, in two personalities (RoCE and iWARP). Bytes and the time are passed in,
//! bytes, completions and events come out; every error says whose fault it is ([`error::Kind`]).
//!
//! Reading order: [`wr`] (requests) → [`wc`] (completions) → [`state`] (states of a queue pair) → [`cq`], [`receive`], [`srq`]
//! (the queues) → [`carrier`] (moves bytes) → [`qp`] (the queue pair), [`ssq`] (shared send queue), [`ud`] (datagrams), [`upper`]
//! (queue pairs of other drivers) → [`event`] → [`control`] (deferred verbs) → [`function`] (the tables and the verbs on them) →
//! [`adapter`] → [`profile`] (what the adapter presents itself as); [`error`] lists why a verb fails.
//! How events reach a driver: [`eqe`] (an entry) → [`eq`] (a queue) → [`moderation`] → [`toeplitz`], [`steering`],
//! [`message_map`], [`arrangement`] (which queue and vector) → [`vector`] (signals) → [`interrupts`] (all of it together).
//! Below them: `ring` (a queue without a lock), [`combining_lock`] (a combining lock) and `sync`.

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod adapter;
pub mod arrangement;
pub mod carrier;
pub mod combining_lock;
pub mod control;
pub mod cq;
pub mod eq;
pub mod eqe;
pub mod error;
pub mod event;
pub mod function;
pub mod interrupts;
mod memory_scope;
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
pub use carrier::{Carrier, IoOutcome, MemoryCarrier};
pub use combining_lock::CombiningLock;
pub use control::{Control, ControlError, ControlResult, Subject};
pub use cq::{Arm, Cq};
pub use eqe::{Cause, Eqe};
pub use error::{Error, Kind, Object};
pub use event::{Event, Outbox, Raise, Reason, Wake};
pub use function::{
    Attributes, CqInfo, Function, FunctionCounters, NewQp, NewUd, NewUpper, QpInfo, Shares, SrqInfo,
};
pub use interrupts::{At, Interrupts, Origin, Scheme};
pub use memory_scope::MemoryScope;
pub use qp::{
    Acks, Image, ImageError, MigrateRefusal, OnFailure, Qp, QpInit, Receiving, RegisterError,
    Registration, Sending, Traits, Transfer,
};
pub use receive::ReceiveQueue;
pub use srq::Srq;
pub use ssq::{Outcome, Record, Ssq, SsqLimits};
pub use state::{Personality, QpState, QpType};
pub use ud::{Destination, MAX_DATAGRAM, ReceivedDatagram, UdQp, UdSendWr};
pub use upper::{Upper, UpperInit};
pub use vector::{Delivery, Fire, Shutdown, Signal};
pub use wc::{ControlOp, Header, Status, Wc, WcOp};
pub use wr::{Flags, ReceiveWr, SendOp, SendWr, Sge};
