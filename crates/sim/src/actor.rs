//! The contract between the world and whoever lives in it: bytes in, bytes out, deadlines, and a program's requests.
//! Every adapter that keeps it can be put at either end of a simulated link; the peer of this crate is the first.
//! It refuses to know how an actor is built: the world never looks behind this trait.

use verbena_stream::Time;

use crate::peer::Image;
use crate::work::{Report, Work};

/// One end of a connection.
///
/// The world calls [`receive`](Actor::receive) with bytes as they arrive, [`transmit`](Actor::transmit) whenever the
/// link has room, and [`handle_timeout`](Actor::handle_timeout) at the [`deadline`](Actor::deadline). After
/// [`wants_close`](Actor::wants_close) it closes this direction.
pub trait Actor {
    /// Bytes arrived.
    fn receive(&mut self, bytes: &[u8], now: Time);

    /// At most `room` bytes to send; they count as accepted.
    fn transmit(&mut self, room: usize, now: Time) -> Vec<u8>;

    /// When [`handle_timeout`](Actor::handle_timeout) wants to be called.
    fn deadline(&self) -> Option<Time>;

    /// Time passed.
    fn handle_timeout(&mut self, now: Time);

    /// The peer's direction ended; `reset` if ours did too, and without warning.
    fn handle_eof(&mut self, reset: bool, now: Time);

    /// Nothing more will be sent.
    fn wants_close(&self) -> bool;

    /// The program posts work under a number of its choice.
    fn post(&mut self, id: u64, work: Work, now: Time);

    /// The program supplies a receive under a number of its choice.
    fn supply(&mut self, id: u64, capacity: u32, now: Time);

    /// The program has no more to say: close when everything is sent.
    fn close(&mut self, now: Time);

    /// What happened since the last call, oldest first.
    fn poll_reports(&mut self) -> Vec<Report>;

    /// The actor's memory, guards included, for a checker.
    fn image(&self) -> Image;

    /// What is unfinished, for a checker.
    fn leftovers(&self) -> Leftovers;
}

/// Unfinished business of an actor. All zero after a healthy run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leftovers {
    /// Work requests that have not ended.
    pub works: usize,
    /// Requests the peer has not acknowledged.
    pub unacknowledged: u32,
    /// Reads and atomics of ours without response.
    pub reads_out: usize,
    /// Reads and atomics of the peer that we have not answered.
    pub reads_in: usize,
    /// Bytes received and not understood yet.
    pub staged: usize,
    /// Bytes framed and not sent.
    pub outbox: usize,
    /// A receive that was claimed and never filled.
    pub claimed: usize,
    /// One if requests of the peer are being discarded.
    pub discarding: usize,
}
