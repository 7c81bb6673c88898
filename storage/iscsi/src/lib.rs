//! An iSCSI initiator (M12) as an upper-layer protocol beside RDMA, on the adapter's memory table, completion queues and event queues.
//! One work request carries a SCSI command and its buffers; data moves between the connection and those buffers without a copy in
//! between. The crate has no sockets and no clock: bytes, and the randomness of a login, are arguments.
//!
//! Reading order: [`terms`] (what was negotiated) → [`login`] (how) → [`wr`] (what can be asked) → [`qp`] (the queue pair).

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod login;
pub mod qp;
pub mod terms;
pub mod wr;

pub use login::{Login, LoginError, LoginOutcome, Offer, Progress};
pub use qp::{Counters, Gap, Qp, View};
pub use terms::Terms;
pub use wr::{CommandId, CommandState, CommandWr, Direction, PduWr, PostError};
