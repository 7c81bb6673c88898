//! The adapter as an iSCSI initiator (M12): an upper-layer driver beside RDMA, on the same memory, queues and events.
//! It promises that one work request carries a SCSI command and its buffers, that data moves straight between the wire and those
//! buffers and nowhere else, and that whatever a target says wrongly is passed on or dropped. It refuses to know sockets and clocks.
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

pub use login::{Login, LoginError, Offer, Progress, Settled};
pub use qp::{Counters, Gap, Qp, View};
pub use terms::Terms;
pub use wr::{CommandId, CommandWr, Direction, PduWr, PostError, Standing};
