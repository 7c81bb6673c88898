//! The protocol state machines of RoCEv2, without sockets, clocks, memory access or `unsafe`: a [`Requester`] and a [`Responder`] for each
//! connected queue pair (IBTA volume 1, chapter 9).
//! Payload is not held here: a packet to send names bytes of a request or of memory, and an arrived packet says where its payload goes. A
//! packet that the protocol does not allow changes nothing, except where the specification demands a NAK.
//!
//! Reading order: [`settings`] → [`message`] → [`requester`] (`responses`, `retry`, [`congestion`]) → [`responder`] (`assembly`, `answers`,
//! `resources`) → [`cm`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod cm;
pub mod congestion;
pub mod message;
pub mod requester;
pub mod responder;
pub mod settings;

pub use message::Message;
pub use requester::{BeginError, Failure, Requester, ResponseStep};
pub use responder::{Refusal, RequestStep, Responder};
pub use settings::{Mtu, Settings};

#[cfg(test)]
mod tests;
