//! SCSI Command (RFC 7143 §11.3): a CDB of up to 16 bytes and the data it moves. A command whose F bit is clear, which
//! announces unsolicited data, is a write. The CDB is not interpreted.

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;

use super::layout::{FINAL, Raw, Tag, bit, flags, len24};
use super::{Bhs, Lun, Opcode};
use crate::coded::coded;

const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
const ATTRIBUTE: u8 = 0x07;

coded! {
    /// Task attribute, three bits.
    Attribute: u8 {
        /// Not specified.
        Untagged = 0 "untagged",
        /// In any order.
        Simple = 1 "simple",
        /// After all earlier and before all later commands.
        Ordered = 2 "ordered",
        /// Before all others.
        Head = 3 "head",
        /// Allowed during an auto contingent allegiance condition.
        Aca = 4 "aca",
    }
}

/// SCSI Command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScsiCommand {
    /// The I bit: outside the order of commands. It does not refer to immediate data, see `data_len`.
    pub immediate: bool,
    /// F: no unsolicited Data-Out follows.
    pub is_final: bool,
    /// Data comes from the target.
    pub read: bool,
    /// Data goes to the target.
    pub write: bool,
    /// The task attribute.
    pub attribute: Attribute,
    /// Bytes of additional headers, at most 1020 and a multiple of 4; the surplus is not sent.
    pub ahs_len: u16,
    /// Bytes of immediate data.
    pub data_len: u32,
    /// The logical unit.
    pub lun: Lun,
    /// Initiator task tag.
    pub itt: u32,
    /// Expected data transfer length; that of the write if the command does both.
    pub expected_len: u32,
    /// CmdSN.
    pub cmd_sn: u32,
    /// ExpStatSN.
    pub exp_stat_sn: u32,
    /// The CDB, padded with zeros.
    pub cdb: [u8; 16],
}

impl ScsiCommand {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<ScsiCommand, Malformed> {
        let raw = Raw::read(bhs, Opcode::ScsiCommand)?;
        // RFC 7143 §11.3.1: neither F nor W is an error.
        raw.refuse(!raw.has(FINAL) && !raw.has(WRITE))?;
        Ok(ScsiCommand {
            immediate: raw.is_immediate(),
            is_final: raw.has(FINAL),
            read: raw.has(READ),
            write: raw.has(WRITE),
            attribute: Attribute::from_code(raw.flags & ATTRIBUTE),
            ahs_len: u16::from(raw.ahs) * 4,
            data_len: raw.data_len(),
            lun: raw.lun(),
            itt: raw.itt.get(),
            expected_len: raw.w20.get(),
            cmd_sn: raw.w24.get(),
            exp_stat_sn: raw.w28.get(),
            cdb: zerocopy::transmute!([raw.w32, raw.w36, raw.w40, raw.w44]),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        let [w32, w36, w40, w44]: [U32; 4] = zerocopy::transmute!(self.cdb);
        let flags = bit(self.is_final, FINAL)
            | bit(self.read, READ)
            | bit(self.write, WRITE)
            | self.attribute.code() & ATTRIBUTE;
        Raw {
            flags,
            ahs: (self.ahs_len / 4) as u8,
            data_len: len24(self.data_len),
            lun: self.lun.to_bytes(),
            itt: U32::new(self.itt),
            w20: U32::new(self.expected_len),
            w24: U32::new(self.cmd_sn),
            w28: U32::new(self.exp_stat_sn),
            w32,
            w36,
            w40,
            w44,
            ..Raw::new(Opcode::ScsiCommand)
        }
        .immediate(self.immediate)
        .emit()
    }
}

impl fmt::Display for ScsiCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lun={} itt={} expected={} cmdsn={} expstatsn={} data={} ahs={} {} cdb=",
            Opcode::ScsiCommand,
            self.lun,
            Tag(self.itt),
            self.expected_len,
            self.cmd_sn,
            self.exp_stat_sn,
            self.data_len,
            self.ahs_len,
            self.attribute,
        )?;
        self.cdb.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        let words = [
            (self.read, "read"),
            (self.write, "write"),
            (self.is_final, "final"),
            (self.immediate, "immediate"),
        ];
        flags(f, &words)
    }
}
