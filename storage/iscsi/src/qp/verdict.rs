//! What is done with a received PDU, decided by its header (`head`). A verdict holds the parsed header where the data that follows needs it.

use verbena_storage_wire::iscsi::{DataIn, R2t};

/// What is done with a PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its data is placed in the buffers of the command in this slot, its header is delivered.
    DataIn { slot: u32, pdu: DataIn },
    /// Data of the command in this slot is sent, the header is delivered.
    R2t { slot: u32, pdu: R2t },
    /// The command in this slot ends, and the whole PDU is delivered.
    Response { slot: u32, stat_sn: u32 },
    /// The whole PDU is delivered.
    Deliver,
    /// It is discarded.
    Drop,
}

impl Verdict {
    /// The whole PDU is delivered, so its header is written to the receive before its data comes.
    pub(super) fn delivers_whole(self) -> bool {
        matches!(self, Verdict::Deliver | Verdict::Response { .. })
    }
}
