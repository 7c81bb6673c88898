//! A burst: a range of a command's data that the target requested with an R2T, or that is sent unsolicited after the command PDU. Its
//! Data-Out PDUs cover the range exactly and in order, none longer than the target's MaxRecvDataSegmentLength (RFC 7143 §11.7).

use verbena_storage_wire::iscsi::{DataOut, Lun};

/// A range to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Burst {
    /// The command's slot.
    pub(super) slot: u32,
    pub(super) itt: u32,
    /// Target transfer tag of the R2T, or the reserved value.
    pub(super) ttt: u32,
    pub(super) lun: Lun,
    pub(super) offset: u32,
    pub(super) left: u32,
    pub(super) data_sn: u32,
}

impl Burst {
    /// The header of the next PDU; F is set on the last.
    pub(super) fn next(&mut self, max_send: u32, exp_stat_sn: u32) -> DataOut {
        let len = self.left.min(max_send.max(1));
        let pdu = DataOut {
            is_final: len == self.left,
            data_len: len,
            lun: self.lun,
            itt: self.itt,
            ttt: self.ttt,
            exp_stat_sn,
            data_sn: self.data_sn,
            offset: self.offset,
        };
        self.data_sn = self.data_sn.wrapping_add(1);
        self.offset += len;
        self.left -= len;
        pdu
    }
}
