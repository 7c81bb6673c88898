//! Ready To Transfer (RFC 7143 §11.8): a target asks for a range of a write's data. The range is not empty; it is not
//! checked against the command's buffer.

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;

use super::layout::{Raw, Tag};
use super::{Bhs, Lun, Opcode, Window};

/// R2T.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct R2t {
    /// Copied by the initiator into each Data-Out.
    pub lun: Lun,
    /// Initiator task tag of the command.
    pub itt: u32,
    /// Target transfer tag, copied by the initiator into each Data-Out.
    pub ttt: u32,
    /// The next StatSN; an R2T does not consume it.
    pub stat_sn: u32,
    /// The CmdSNs that the target accepts.
    pub window: Window,
    /// R2TSN, from 0 in each command.
    pub r2t_sn: u32,
    /// Offset in the command's buffer of the requested data.
    pub offset: u32,
    /// Bytes requested, at least one.
    pub len: u32,
}

impl R2t {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<R2t, Malformed> {
        let raw = Raw::read_bare(bhs, Opcode::R2t)?;
        // RFC 7143 §11.8.4: the desired length must not be 0.
        if raw.w44.get() == 0 {
            return Err(Malformed::IscsiR2tEmpty {
                itt: raw.itt.get(),
                offset: raw.w40.get(),
            });
        }
        Ok(R2t {
            lun: raw.lun(),
            itt: raw.itt.get(),
            ttt: raw.w20.get(),
            stat_sn: raw.w24.get(),
            window: raw.window(),
            r2t_sn: raw.w36.get(),
            offset: raw.w40.get(),
            len: raw.w44.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        Raw {
            lun: self.lun.to_bytes(),
            itt: U32::new(self.itt),
            w20: U32::new(self.ttt),
            w24: U32::new(self.stat_sn),
            w36: U32::new(self.r2t_sn),
            w40: U32::new(self.offset),
            w44: U32::new(self.len),
            ..Raw::new(Opcode::R2t)
        }
        .with_window(self.window)
        .emit()
    }
}

impl fmt::Display for R2t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lun={} itt={} ttt={} statsn={} {} r2tsn={} offset={} len={}",
            Opcode::R2t,
            self.lun,
            Tag(self.itt),
            Tag(self.ttt),
            self.stat_sn,
            self.window,
            self.r2t_sn,
            self.offset,
            self.len
        )
    }
}
