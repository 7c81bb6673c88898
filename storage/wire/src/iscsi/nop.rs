//! NOP-Out and NOP-In: pings of either side and the answers to them (RFC 7143 §11.18, §11.19). The tags tell a ping from
//! an answer; they are not checked here.

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;

use super::layout::{Raw, Tag, flags, len24};
use super::{Bhs, Lun, NO_TAG, Opcode, Window};

/// NOP-Out: with an ITT a ping of the initiator, with a TTT the answer to one of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NopOut {
    /// The I bit; to be set if there is no ITT.
    pub immediate: bool,
    /// Bytes of ping data.
    pub data_len: u32,
    /// Copied from the NOP-In that is answered.
    pub lun: Lun,
    /// Initiator task tag, or [`NO_TAG`] if no answer is requested.
    pub itt: u32,
    /// Target transfer tag of the NOP-In that is answered, or [`NO_TAG`].
    pub ttt: u32,
    /// CmdSN.
    pub cmd_sn: u32,
    /// ExpStatSN.
    pub exp_stat_sn: u32,
}

impl NopOut {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<NopOut, Malformed> {
        let raw = Raw::read(bhs, Opcode::NopOut)?;
        Ok(NopOut {
            immediate: raw.is_immediate(),
            data_len: raw.data_len(),
            lun: raw.lun(),
            itt: raw.itt.get(),
            ttt: raw.w20.get(),
            cmd_sn: raw.w24.get(),
            exp_stat_sn: raw.w28.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        Raw {
            data_len: len24(self.data_len),
            lun: self.lun.to_bytes(),
            itt: U32::new(self.itt),
            w20: U32::new(self.ttt),
            w24: U32::new(self.cmd_sn),
            w28: U32::new(self.exp_stat_sn),
            ..Raw::new(Opcode::NopOut)
        }
        .immediate(self.immediate)
        .emit()
    }
}

impl fmt::Display for NopOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lun={} itt={} ttt={} cmdsn={} expstatsn={} data={}",
            Opcode::NopOut,
            self.lun,
            Tag(self.itt),
            Tag(self.ttt),
            self.cmd_sn,
            self.exp_stat_sn,
            self.data_len
        )?;
        flags(f, &[(self.immediate, "immediate")])
    }
}

/// NOP-In: with an ITT the answer to a ping, with a TTT a ping of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NopIn {
    /// Bytes of ping data.
    pub data_len: u32,
    /// Copied by the initiator into the answer.
    pub lun: Lun,
    /// Initiator task tag of the ping that is answered, or [`NO_TAG`].
    pub itt: u32,
    /// Target transfer tag, or [`NO_TAG`] if no answer is requested.
    pub ttt: u32,
    /// StatSN; without an ITT the next one, which this PDU does not consume.
    pub stat_sn: u32,
    /// The CmdSNs that the target accepts.
    pub window: Window,
}

impl NopIn {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<NopIn, Malformed> {
        let raw = Raw::read(bhs, Opcode::NopIn)?;
        Ok(NopIn {
            data_len: raw.data_len(),
            lun: raw.lun(),
            itt: raw.itt.get(),
            ttt: raw.w20.get(),
            stat_sn: raw.w24.get(),
            window: raw.window(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        Raw {
            data_len: len24(self.data_len),
            lun: self.lun.to_bytes(),
            itt: U32::new(self.itt),
            w20: U32::new(self.ttt),
            w24: U32::new(self.stat_sn),
            ..Raw::new(Opcode::NopIn)
        }
        .with_window(self.window)
        .emit()
    }

    /// Whether the target requests an answer.
    pub const fn wants_answer(&self) -> bool {
        self.ttt != NO_TAG
    }
}

impl fmt::Display for NopIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lun={} itt={} ttt={} statsn={} {} data={}",
            Opcode::NopIn,
            self.lun,
            Tag(self.itt),
            Tag(self.ttt),
            self.stat_sn,
            self.window,
            self.data_len
        )
    }
}
