//! Data-Out and Data-In (RFC 7143 §11.7): a part of a command's data and its offset in the command's buffer. A Data-In
//! with status has F set. Offsets are not checked against the buffer.

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;

use super::layout::{FINAL, Raw, Tag, bit, flags, len24};
use super::response::{OVERFLOW, UNDERFLOW};
use super::{Bhs, Lun, Opcode, Residual, Window};

const ACKNOWLEDGE: u8 = 0x40;
const STATUS: u8 = 0x01;

/// Data-Out: data of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataOut {
    /// The last of its sequence: of the R2T, or of the unsolicited burst.
    pub is_final: bool,
    /// Bytes of data.
    pub data_len: u32,
    /// Copied from the R2T.
    pub lun: Lun,
    /// Initiator task tag of the command.
    pub itt: u32,
    /// Target transfer tag of the R2T, or [`NO_TAG`](super::NO_TAG) if unsolicited.
    pub ttt: u32,
    /// ExpStatSN.
    pub exp_stat_sn: u32,
    /// DataSN, from 0 in each sequence.
    pub data_sn: u32,
    /// Offset of the data in the command's buffer.
    pub offset: u32,
}

impl DataOut {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<DataOut, Malformed> {
        let raw = Raw::read(bhs, Opcode::DataOut)?;
        Ok(DataOut {
            is_final: raw.has(FINAL),
            data_len: raw.data_len(),
            lun: raw.lun(),
            itt: raw.itt.get(),
            ttt: raw.w20.get(),
            exp_stat_sn: raw.w28.get(),
            data_sn: raw.w36.get(),
            offset: raw.w40.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        Raw {
            flags: bit(self.is_final, FINAL),
            data_len: len24(self.data_len),
            lun: self.lun.to_bytes(),
            itt: U32::new(self.itt),
            w20: U32::new(self.ttt),
            w28: U32::new(self.exp_stat_sn),
            w36: U32::new(self.data_sn),
            w40: U32::new(self.offset),
            ..Raw::new(Opcode::DataOut)
        }
        .emit()
    }
}

impl fmt::Display for DataOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lun={} itt={} ttt={} expstatsn={} datasn={} offset={} data={}",
            Opcode::DataOut,
            self.lun,
            Tag(self.itt),
            Tag(self.ttt),
            self.exp_stat_sn,
            self.data_sn,
            self.offset,
            self.data_len
        )?;
        flags(f, &[(self.is_final, "final")])
    }
}

/// Data-In: data of a read; the last one may carry the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataIn {
    /// The last of its sequence.
    pub is_final: bool,
    /// A: the target asks for a SNACK that acknowledges the data.
    pub acknowledge: bool,
    /// The SCSI status, if the command ends with this PDU (S); only together with `is_final`.
    pub status: Option<u8>,
    /// Residual of the command; [`Residual::None`] without status.
    pub residual: Residual,
    /// Bytes of data.
    pub data_len: u32,
    /// The logical unit, if there is a TTT.
    pub lun: Lun,
    /// Initiator task tag of the command.
    pub itt: u32,
    /// Target transfer tag for the acknowledgement, or [`NO_TAG`](super::NO_TAG).
    pub ttt: u32,
    /// StatSN; undefined without status.
    pub stat_sn: u32,
    /// The CmdSNs that the target accepts.
    pub window: Window,
    /// DataSN, from 0 in each command.
    pub data_sn: u32,
    /// Offset of the data in the command's buffer.
    pub offset: u32,
}

impl DataIn {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<DataIn, Malformed> {
        let raw = Raw::read(bhs, Opcode::DataIn)?;
        // RFC 7143 §11.7.3: with S, F must be set.
        raw.refuse(raw.has(STATUS) && !raw.has(FINAL))?;
        let residual = Residual::read(&raw, [OVERFLOW, UNDERFLOW], raw.w44)?;
        let has_status = raw.has(STATUS);
        Ok(DataIn {
            is_final: raw.has(FINAL),
            acknowledge: raw.has(ACKNOWLEDGE),
            status: has_status.then_some(raw.b3),
            residual: if has_status { residual } else { Residual::None },
            data_len: raw.data_len(),
            lun: raw.lun(),
            itt: raw.itt.get(),
            ttt: raw.w20.get(),
            stat_sn: raw.w24.get(),
            window: raw.window(),
            data_sn: raw.w36.get(),
            offset: raw.w40.get(),
        })
    }

    /// The header's bytes. Without status no residual is sent.
    pub fn emit(&self) -> Bhs {
        let (residual, w44) = match self.status {
            Some(_) => self.residual.write([OVERFLOW, UNDERFLOW]),
            None => Residual::None.write([OVERFLOW, UNDERFLOW]),
        };
        let flags = bit(self.is_final, FINAL)
            | bit(self.acknowledge, ACKNOWLEDGE)
            | bit(self.status.is_some(), STATUS)
            | residual;
        Raw {
            flags,
            b3: self.status.unwrap_or_default(),
            data_len: len24(self.data_len),
            lun: self.lun.to_bytes(),
            itt: U32::new(self.itt),
            w20: U32::new(self.ttt),
            w24: U32::new(self.stat_sn),
            w36: U32::new(self.data_sn),
            w40: U32::new(self.offset),
            w44,
            ..Raw::new(Opcode::DataIn)
        }
        .with_window(self.window)
        .emit()
    }
}

impl fmt::Display for DataIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lun={} itt={} ttt={} {} datasn={} offset={} data={}",
            Opcode::DataIn,
            self.lun,
            Tag(self.itt),
            Tag(self.ttt),
            self.window,
            self.data_sn,
            self.offset,
            self.data_len
        )?;
        if let Some(status) = self.status {
            let (stat_sn, residual) = (self.stat_sn, self.residual);
            write!(
                f,
                " status={status:#04x} statsn={stat_sn} residual={residual}"
            )?;
        }
        flags(
            f,
            &[(self.is_final, "final"), (self.acknowledge, "acknowledge")],
        )
    }
}
