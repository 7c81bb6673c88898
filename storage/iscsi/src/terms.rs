//! The operational parameters of one connection as the login negotiated them (RFC 7143 §13). A [`Terms`] holds results only; offers,
//! defaults and the negotiation functions are in `login`. Parameters that this initiator fixes have no field: MaxConnections is 1,
//! ErrorRecoveryLevel is 0, data PDUs and sequences are in order.

use verbena_storage_wire::iscsi::DIGEST_LEN;

/// Parameters of a connection in the full feature phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// HeaderDigest=CRC32C: headers are followed by their CRC32C.
    pub header_digest: bool,
    /// DataDigest=CRC32C: data segments are followed by their CRC32C.
    pub data_digest: bool,
    /// MaxRecvDataSegmentLength that we declared: most bytes of data in a PDU from the target.
    pub max_recv: u32,
    /// MaxRecvDataSegmentLength that the target declared: most bytes of data in a PDU to it.
    pub max_send: u32,
    /// MaxBurstLength: most bytes of one solicited data sequence.
    pub max_burst: u32,
    /// FirstBurstLength: most bytes of unsolicited data of one command, immediate data included.
    pub first_burst: u32,
    /// ImmediateData: the command PDU may carry data.
    pub immediate_data: bool,
    /// InitialR2T: data that is not immediate is sent only in answer to an R2T.
    pub initial_r2t: bool,
    /// MaxOutstandingR2T: most R2Ts of one command that may be outstanding at once.
    pub max_r2t: u16,
}

impl Terms {
    /// The protocol's defaults (RFC 7143 §13), without digests.
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

    /// Most bytes of a write that are sent without an R2T.
    pub const fn max_unsolicited(&self) -> u32 {
        match (self.initial_r2t, self.immediate_data) {
            (false, _) => self.first_burst,
            (true, true) if self.max_send < self.first_burst => self.max_send,
            (true, true) => self.first_burst,
            (true, false) => 0,
        }
    }

    /// Of a write of `len` bytes: those in the command PDU, and those that are sent without an R2T, the former included.
    pub fn unsolicited(&self, len: u32) -> (u32, u32) {
        let most = len.min(self.first_burst);
        let immediate = match self.immediate_data {
            true => most.min(self.max_send),
            false => 0,
        };
        // Up to FirstBurstLength, or only immediate data if InitialR2T=Yes.
        let all = if self.initial_r2t { immediate } else { most };
        (immediate, all)
    }

    /// Bytes of the digest after a header.
    pub(crate) fn header_digest_len(&self) -> usize {
        if self.header_digest { DIGEST_LEN } else { 0 }
    }
}

impl Default for Terms {
    fn default() -> Terms {
        Terms::DEFAULT
    }
}
