//! Data of writes that the target does not ask for (RFC 7143 §4.2.5): immediate data in the command's Send, and Data-Out PDUs behind it up
//! to FirstBurstLength, as the login negotiated. It is sent from the command's memory without a copy. The Data-Out PDUs of a command follow
//! it before any other PDU, so that they come in the order of the commands.

use verbena::low::{Data, Flags, SendWr, Sge};
use verbena_storage_wire::iscsi::{DataOut, Lun, NO_TAG};
use verbena_storage_wire::iser::{HEADER_LEN, IserHeader};

use super::requests::{HEADER_BUFFER_LEN, PostOutcome, pieces, send};
use super::{Iser, text};

/// Data-Out PDUs that may be in the send queue: each has a buffer for its headers.
pub(super) const DATA_OUTS: u64 = 32;
/// Work request id of the first of them.
pub(super) const FIRST_DATA_OUT: u64 = 1 << 32;

/// Data-Out PDUs that are still to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Burst {
    pub(super) task: u32,
    pub(super) itt: u32,
    pub(super) lun: Lun,
    /// All unsolicited data of the command.
    pub(super) data: Sge,
    /// Bytes of it that were sent.
    pub(super) offset: u32,
    /// DataSN of the next PDU.
    pub(super) data_sn: u32,
}

/// `len` bytes of a piece of memory.
pub(super) fn part(of: Sge, offset: u32, len: u32) -> Sge {
    Sge {
        addr: of.addr + u64::from(offset),
        len,
        ..of
    }
}

impl Iser {
    /// Sends the Data-Out PDUs of the last command, as far as there is room.
    pub(super) fn post_burst(&mut self) -> Result<PostOutcome, String> {
        while let Some(burst) = self.burst {
            let Some(slot) = self.free_headers.pop() else {
                return Ok(PostOutcome::QueueFull);
            };
            let left = burst.data.len - burst.offset;
            let len = left.min(self.terms.max_send);
            match self.post_data_out(&burst, slot, len) {
                Ok(PostOutcome::Posted) => {
                    self.burst = (len < left).then_some(Burst {
                        offset: burst.offset + len,
                        data_sn: burst.data_sn + 1,
                        ..burst
                    });
                }
                other => {
                    self.free_headers.push(slot);
                    return other;
                }
            }
        }
        Ok(PostOutcome::Posted)
    }

    fn post_data_out(&self, burst: &Burst, slot: u64, len: u32) -> Result<PostOutcome, String> {
        let pdu = DataOut {
            is_final: burst.offset + len == burst.data.len,
            data_len: len,
            lun: burst.lun,
            itt: burst.itt,
            ttt: NO_TAG,
            exp_stat_sn: self.sequence.exp_stat_sn(),
            data_sn: burst.data_sn,
            offset: burst.offset,
        };
        let at = (self.depth + slot as usize) * HEADER_BUFFER_LEN;
        let header = IserHeader::default().emit();
        let written = self
            .header_buffers
            .write_at(at, &header)
            .and_then(|()| self.header_buffers.write_at(at + HEADER_LEN, &pdu.emit()));
        written.map_err(|error| text(&error))?;
        let data = part(burst.data, burst.offset, len);
        let pieces = pieces(&self.header_buffers, at, Some(data)).map_err(|error| text(&error))?;
        // RFC 7145 §7.3: a Send without Solicited Event.
        let request = SendWr {
            flags: Flags::SIGNALED,
            ..send(FIRST_DATA_OUT + slot, Data::Gather(&pieces))
        };
        PostOutcome::of(self.qp.post_send(&[request]))
    }
}
