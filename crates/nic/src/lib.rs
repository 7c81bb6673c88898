//! The adapter: work requests, queues, completions and events, without sockets, clocks or threads of its own.
//! Verbs semantics on any byte stream that keeps order, in two personalities (RoCE and iWARP). Bytes and the time are passed in,
//! bytes, completions and events come out; every error says whose fault it is ([`error::Kind`]).
//!
//! Reading order: [`wr`] (requests) → [`wc`] (completions) → [`state`] (states of a queue pair) → [`cq`], [`receive`], [`srq`]
//! (the queues), [`xrc`] (domains of shared receive queues) → [`carrier`] (moves bytes) → [`qp`] (the queue pair), [`ssq`] (shared send queue), [`ud`] (datagrams), [`ulp`]
//! (queue pairs of other protocols), [`tcp`] (one of them: a plain byte stream) → [`control`] (deferred verbs) → [`function`] (the tables and the verbs on them) →
//! [`adapter`] → [`profile`] (what the adapter presents itself as); [`trace`] (what observers are told); [`error`] lists why a verb fails.
//! Events go to the `verbena-events` crate; the lock-free queues and the combining lock are those of `verbena-sync`.

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod adapter;
pub mod carrier;
pub mod control;
pub mod cq;
pub mod error;
pub mod function;
mod memory_scope;
pub mod object;
pub mod profile;
pub mod qp;
pub mod receive;
pub mod srq;
pub mod ssq;
pub mod state;
pub mod tcp;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod ud;
pub mod ulp;
pub mod wc;
pub mod wr;
pub mod xrc;

pub use adapter::{Adapter, Ranges};
pub use carrier::{Carrier, IoOutcome, MemoryCarrier};
pub use control::{Control, ControlError, ControlResult, Subject};
pub use cq::{Arm, Cq, CqOptions, Timestamp};
pub use error::{Error, Kind};
pub use function::{
    Attributes, CqInfo, Function, FunctionCounters, NewQp, NewUd, QpInfo, RegistrationCheck,
    Shares, SrqInfo, UlpInfo,
};
pub use memory_scope::MemoryScope;
pub use object::Object;
pub use qp::XrcExecutor;
pub use qp::{
    Acks, FrameStarts, Image, ImageError, MigrateRefusal, OnFailure, PacketSender, PacketTurn, Qp,
    QpInit, Receiving, RegisterError, Registration, Sending, Traits, Transfer,
};
pub use receive::ReceiveQueue;
pub use srq::Srq;
pub use ssq::{Record, Ssq, SsqLimits, SsqOutcome};
pub use state::{Personality, QpState, QpType, TransitionError};
pub use tcp::{Acknowledgement, Fill, TcpAttr, TcpChannel, TcpQp, TcpSendWr};
pub use ud::{Destination, MAX_DATAGRAM, ReceivedDatagram, UdQp, UdSendWr};
pub use ulp::{NewUlp, UlpInit, UlpQp, UlpView};
pub use verbena_events::{
    Arrangement, At, Cause, Delivery, Eqe, Event, Fire, Interrupts, Origin, Outbox, Raise, Reason,
    Scheme, Shutdown, Signal, Wake,
};
pub use verbena_stream::Time;
pub use verbena_sync::CombiningLock;
pub use wc::{ControlOp, Header, Status, Wc, WcOp};
pub use wr::{Flags, ReceiveWr, SendOp, SendWr, Sge};
pub use xrc::{PathClosed, XrcDomain, XrcPath, XrcProcesses};
