//! What initiator and target agreed on when they logged in (RFC 7143 §13): the values of this connection.
//! Terms promise to be in effect as they stand: offers, defaults and how two values become one are the login's business.
//! They refuse what this initiator never does: more than one connection, recovery above level 0, data out of order.

use verbena_wire::iscsi::DIGEST_LEN;

/// The terms of a connection in full feature phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Headers are followed by their CRC32C.
    pub header_digest: bool,
    /// Data is followed by its CRC32C.
    pub data_digest: bool,
    /// Most bytes of data that the target may send in one PDU: what we declared.
    pub max_recv: u32,
    /// Most bytes of data that one PDU to the target may have: what it declared.
    pub max_send: u32,
    /// Most bytes of one solicited burst.
    pub max_burst: u32,
    /// Most bytes that leave with a command without being asked for.
    pub first_burst: u32,
    /// Data may leave in the command's own PDU.
    pub immediate_data: bool,
    /// All other data waits to be asked for.
    pub initial_r2t: bool,
    /// Most bursts of one command that the target may ask for at once.
    pub max_r2t: u16,
}

impl Terms {
    /// What holds while nothing has been agreed on (RFC 7143 §13): the defaults, no digests.
    pub const DEFAULT: Terms = Terms {
        header_digest: false,
        data_digest: false,
        max_recv: 8192,
        max_send: 8192,
        max_burst: 262_144,
        first_burst: 65_536,
        immediate_data: true,
        initial_r2t: true,
        max_r2t: 1,
    };

    /// Most bytes of a write that leave before the target has asked for any.
    pub const fn unasked(&self) -> u32 {
        match (self.initial_r2t, self.immediate_data) {
            (false, _) => self.first_burst,
            (true, true) if self.max_send < self.first_burst => self.max_send,
            (true, true) => self.first_burst,
            (true, false) => 0,
        }
    }

    /// Bytes of the digest behind a header.
    pub(crate) fn header_digest_len(&self) -> usize {
        if self.header_digest { DIGEST_LEN } else { 0 }
    }
}

impl Default for Terms {
    fn default() -> Terms {
        Terms::DEFAULT
    }
}
