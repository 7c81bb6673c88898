//! SCSI Command (RFC 7143 §11.3): a descriptor block of up to 16 bytes and what data it moves. It promises that a
//! command announces unsolicited data only for a write. What the block asks for is not known here.

use core::fmt;

use zerocopy::byteorder::big_endian::U32;

use super::layout::{FINAL, Raw, Tag, bit, flags, len24};
use super::{Bhs, Lun, Opcode};
use crate::Malformed;
use crate::coded::coded;

const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
const ATTRIBUTE: u8 = 0x07;

coded! {
    /// In which order the unit may work on a command, three bits.
    Attribute: u8 {
        /// Not said.
        Untagged = 0 "untagged",
        /// In any order.
        Simple = 1 "simple",
        /// Behind everything before and before everything behind.
        Ordered = 2 "ordered",
        /// First of all.
        Head = 3 "head",
        /// While an error condition is kept.
        Aca = 4 "aca",
    }
}

/// SCSI Command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScsiCommand {
    /// The I bit: outside the order of commands. Data in this PDU is another matter: see `data_len`.
    pub immediate: bool,
    /// No unsolicited Data-Out follows.
    pub is_final: bool,
    /// Data comes from the target.
    pub read: bool,
    /// Data goes to the target.
    pub write: bool,
    /// The order asked for.
    pub attribute: Attribute,
    /// Bytes of additional headers, at most 1020 and a multiple of 4; surplus is not sent.
    pub ahs_len: u16,
    /// Bytes of immediate data.
    pub data_len: u32,
    /// The logical unit.
    pub lun: Lun,
    /// Initiator task tag.
    pub itt: u32,
    /// Bytes the command moves; those of the write if it does both.
    pub expected_len: u32,
    /// CmdSN.
    pub cmd_sn: u32,
    /// ExpStatSN.
    pub exp_stat_sn: u32,
    /// The descriptor block, filled up with zeros.
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
