//! The interface between the simulation and an endpoint: bytes in, bytes out, deadlines, and a program's requests.
//! Any implementation can be put at either end of a simulated link; the first one is the peer of this crate. The simulation uses
//! nothing but this trait.

use verbena_stream::Time;

use crate::image::Image;
use crate::work::{Report, Work};

/// One end of a connection.
///
/// The world calls [`receive`](Actor::receive) with bytes as they arrive, [`transmit`](Actor::transmit) whenever the
/// link has room, and [`handle_timeout`](Actor::handle_timeout) at the [`deadline`](Actor::deadline). After
/// [`wants_close`](Actor::wants_close) it closes this direction.
pub trait Actor {
    /// Bytes arrived.
    fn receive(&mut self, bytes: &[u8], now: Time);

    /// Takes at most `room` bytes to send; they count as accepted.
    fn transmit(&mut self, room: usize, now: Time) -> Vec<u8>;

    /// When [`handle_timeout`](Actor::handle_timeout) has to be called.
    fn deadline(&self) -> Option<Time>;

    /// Time passed.
    fn handle_timeout(&mut self, now: Time);

    /// The peer's direction ended; `reset` if this side's did too, without warning.
    fn handle_eof(&mut self, reset: bool, now: Time);

    /// Nothing more will be sent.
    fn wants_close(&self) -> bool;

    /// The program posts work under a number of its choice.
    fn post(&mut self, id: u64, work: Work, now: Time);

    /// The program supplies a receive under a number of its choice.
    fn supply(&mut self, id: u64, capacity: u32, now: Time);

    /// The program posts no more: close when everything is sent.
    fn close(&mut self, now: Time);

    /// What happened since the last call, oldest first.
    fn poll_reports(&mut self) -> Vec<Report>;

    /// The actor's memory, guards included, for a checker.
    fn image(&self) -> Image;

    /// What is unfinished, for a checker.
    fn leftovers(&self) -> Leftovers;
}

/// Unfinished work of an actor. All zero after a run without faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// Work requests that have not ended.
    pub works: usize,
    /// Requests the peer has not acknowledged.
    pub unacknowledged: u32,
    /// Outbound reads and atomics without a response.
    pub reads_out: usize,
    /// Inbound reads and atomics that were not answered.
    pub reads_in: usize,
    /// Bytes received and not parsed yet.
    pub staged: usize,
    /// Bytes framed and not sent.
    pub outbox: usize,
    /// A receive that was claimed and not filled.
    pub claimed: usize,
    /// One if requests of the peer are being discarded.
    pub discarding: usize,
}
