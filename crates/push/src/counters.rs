//! What a session counts.
//! The numbers only grow, and say what happened, not what is owed.
//! They refuse to know names and formats of statistics.

use crate::kind::Tally;

/// Counts since the session began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages that arrived, SendData included, good or bad.
    pub messages_in: u64,
    /// Messages that were sent, SendData included.
    pub messages_out: u64,
    /// Packets that arrived.
    pub packets_in: u64,
    /// Packets that were handed to the carrier.
    pub packets_out: u64,
    /// Indications that arrived as immediate data.
    pub immediates_in: u64,
    /// Indications that were sent as immediate data.
    pub immediates_out: u64,
    /// Indications that arrived in messages.
    pub indications_in: u64,
    /// Indications that were sent in messages.
    pub indications_out: u64,
    /// Messages of another function or version, answered.
    pub unknown: u64,
    /// What the peer did against the rules, by its kind.
    pub violations: Tally,
    /// Messages and packets that the carrier, or a count that the peer told, says are lost.
    pub lost: u64,
    /// Packets that were refused because there was no room.
    pub full: u64,
}
