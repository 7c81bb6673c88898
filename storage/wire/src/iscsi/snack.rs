//! SNACK (RFC 7143 §11.16): asks a target to send PDUs again, or acknowledges those that arrived. It is used by error
//! recovery above level 0 only, which Verbena does not implement.

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;

use super::layout::{FINAL, Raw, Tag};
use super::{Bhs, Lun, Opcode};
use crate::coded::coded;

const KIND: u8 = 0x0f;

coded! {
    /// What is requested, four bits.
    SnackKind: u8 {
        /// Data-In or R2T PDUs.
        Data = 0 "data-or-r2t",
        /// Responses.
        Status = 1 "status",
        /// Acknowledges Data-In PDUs.
        Acknowledge = 2 "data-ack",
        /// Data-In in other segments.
        Resegment = 3 "r-data",
    }
}

/// SNACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snack {
    /// What is requested.
    pub kind: SnackKind,
    /// The logical unit, if there is a TTT.
    pub lun: Lun,
    /// Initiator task tag of the command, or [`NO_TAG`](super::NO_TAG).
    pub itt: u32,
    /// Target transfer tag of what is acknowledged, SNACK tag, or [`NO_TAG`](super::NO_TAG).
    pub ttt: u32,
    /// ExpStatSN.
    pub exp_stat_sn: u32,
    /// The first number of the run.
    pub first: u32,
    /// Length of the run; 0 is all that follow.
    pub count: u32,
}

impl Snack {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Snack, Malformed> {
        let raw = Raw::read_bare(bhs, Opcode::Snack)?;
        Ok(Snack {
            kind: SnackKind::from_code(raw.flags & KIND),
            lun: raw.lun(),
            itt: raw.itt.get(),
            ttt: raw.w20.get(),
            exp_stat_sn: raw.w28.get(),
            first: raw.w40.get(),
            count: raw.w44.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        Raw {
            flags: FINAL | self.kind.code() & KIND,
            lun: self.lun.to_bytes(),
            itt: U32::new(self.itt),
            w20: U32::new(self.ttt),
            w28: U32::new(self.exp_stat_sn),
            w40: U32::new(self.first),
            w44: U32::new(self.count),
            ..Raw::new(Opcode::Snack)
        }
        .emit()
    }
}

impl fmt::Display for Snack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} lun={} itt={} ttt={} expstatsn={} first={} count={}",
            Opcode::Snack,
            self.kind,
            self.lun,
            Tag(self.itt),
            Tag(self.ttt),
            self.exp_stat_sn,
            self.first,
            self.count
        )
    }
}
