//! Counters of a session since it began. They only grow; their names in statistics are chosen elsewhere.

use crate::kind::ViolationCounts;

/// Counts since the session began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages that arrived, SendData included, valid or not.
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
    /// Messages with an unknown function or version, answered.
    pub unknown: u64,
    /// Violations of the peer, by kind.
    pub violations: ViolationCounts,
    /// Messages and packets that are lost, according to the carrier or to a count announced by the peer.
    pub lost: u64,
    /// Packets that were refused because no element was free, or none was large enough.
    pub full: u64,
}
