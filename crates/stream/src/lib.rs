//! The protocol state machines of iWARP, without sockets, clocks, memory access or `unsafe`.
//! A connection begins as an [`Endpoint`] (MPA startup) and, once both sides agree, becomes a [`Stream`].
//! Every protocol error of a peer is a named [`Violation`] with at most one Terminate. Payload is not held here: the caller is told
//! where it goes and copies it.
//!
//! Reading order: [`startup`] → [`stream`] → [`rx`] (`deframe`, [`order`], `rx/head`, `rx/message`) → `tx`
//! ([`outgoing`], [`frame`]) → outstanding work ([`accounting`], [`reads`], [`requester`], [`responder`]) → segments out of
//! order ([`ahead`], [`reassembly`]) → [`violation`], [`terminate`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod accounting;
pub mod ahead;
mod deframe;
pub mod delivery;
pub mod frame;
pub mod order;
pub mod outgoing;
pub mod reads;
pub mod reassembly;
pub mod requester;
pub mod responder;
pub mod rx;
pub mod startup;
pub mod stream;
pub mod terminate;
#[cfg(test)]
mod testing;
pub mod time;
mod tx;
pub mod violation;

pub use ahead::{AheadFrame, AheadPlace, Alignment};
pub use delivery::{Claim, Delivery, Place, Run, Step};
pub use frame::{Frame, Plain};
pub use outgoing::{Message, Outgoing};
pub use requester::RnrRetry;
pub use responder::AckPolicy;
pub use rx::{PredictedKind, Prediction, SendProgress, WriteRun};
pub use startup::{Agreement, Endpoint, Outcome, Role, Terms};
pub use stream::{BeginError, Framing, Settings, Stream};
pub use terminate::Offender;
pub use time::{Time, saturating_nanos};
pub use tx::MIN_ULPDU;
pub use violation::{AccessFault, Violation};
