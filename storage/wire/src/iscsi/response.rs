//! SCSI Response (RFC 7143 §11.4): the status of a command, and the difference between expected and moved data. Overflow
//! and underflow exclude each other, and sense data ends inside the data segment. Status and sense data are interpreted by
//! [`scsi`](crate::scsi).

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;

use super::layout::{FINAL, Raw, Tag, len24};
use super::{Bhs, Opcode, Window};
use crate::coded::coded;

const BIDI_OVERFLOW: u8 = 0x10;
const BIDI_UNDERFLOW: u8 = 0x08;
pub(super) const OVERFLOW: u8 = 0x04;
pub(super) const UNDERFLOW: u8 = 0x02;

/// The difference between expected and moved data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Residual {
    /// All expected data was moved, and no more.
    #[default]
    None,
    /// Bytes that were expected and not moved.
    Underflow(u32),
    /// Bytes that were not moved because they were not expected.
    Overflow(u32),
}

impl Residual {
    /// Reads two flags, of which at most one may be set, and the count.
    pub(super) fn read(
        raw: &Raw,
        [over, under]: [u8; 2],
        count: U32,
    ) -> Result<Residual, Malformed> {
        // RFC 7143 §11.4.1: both is a protocol error.
        raw.refuse(raw.has(over) && raw.has(under))?;
        Ok(match (raw.has(over), raw.has(under)) {
            (true, _) => Residual::Overflow(count.get()),
            (_, true) => Residual::Underflow(count.get()),
            _ => Residual::None,
        })
    }

    /// The flags and the count.
    pub(super) fn write(self, [over, under]: [u8; 2]) -> (u8, U32) {
        let (over_bit, under_bit, count) = match self {
            Residual::None => (0, 0, 0),
            Residual::Underflow(count) => (0, under, count),
            Residual::Overflow(count) => (over, 0, count),
        };
        (over_bit | under_bit, U32::new(count))
    }
}

impl fmt::Display for Residual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Residual::None => f.write_str("none"),
            Residual::Underflow(count) => write!(f, "underflow({count})"),
            Residual::Overflow(count) => write!(f, "overflow({count})"),
        }
    }
}

coded! {
    /// The iSCSI service response.
    Service: u8 {
        /// The command completed with a SCSI status.
        Completed = 0 "completed",
        /// The target failed; the status is undefined.
        TargetFailure = 1 "target-failure",
    }
}

/// SCSI Response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScsiResponse {
    /// Whether there is a SCSI status.
    pub response: Service,
    /// The SCSI status, for [`Status`](crate::scsi::Status).
    pub status: u8,
    /// Residual of the command, or of the write of a bidirectional one.
    pub residual: Residual,
    /// Residual of the read of a bidirectional command.
    pub bidi_residual: Residual,
    /// Bytes of sense and response data.
    pub data_len: u32,
    /// Initiator task tag.
    pub itt: u32,
    /// SNACK tag, 0 if there is none.
    pub snack: u32,
    /// StatSN.
    pub stat_sn: u32,
    /// The CmdSNs that the target accepts.
    pub window: Window,
    /// Number of Data-In and R2T PDUs the target sent for the command.
    pub exp_data_sn: u32,
}

impl ScsiResponse {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<ScsiResponse, Malformed> {
        let raw = Raw::read(bhs, Opcode::ScsiResponse)?;
        Ok(ScsiResponse {
            response: Service::from_code(raw.b2),
            status: raw.b3,
            residual: Residual::read(&raw, [OVERFLOW, UNDERFLOW], raw.w44)?,
            bidi_residual: Residual::read(&raw, [BIDI_OVERFLOW, BIDI_UNDERFLOW], raw.w40)?,
            data_len: raw.data_len(),
            itt: raw.itt.get(),
            snack: raw.w20.get(),
            stat_sn: raw.w24.get(),
            window: raw.window(),
            exp_data_sn: raw.w36.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        let (residual, w44) = self.residual.write([OVERFLOW, UNDERFLOW]);
        let (bidi, w40) = self.bidi_residual.write([BIDI_OVERFLOW, BIDI_UNDERFLOW]);
        Raw {
            flags: FINAL | residual | bidi,
            b2: self.response.code(),
            b3: self.status,
            data_len: len24(self.data_len),
            itt: U32::new(self.itt),
            w20: U32::new(self.snack),
            w24: U32::new(self.stat_sn),
            w36: U32::new(self.exp_data_sn),
            w40,
            w44,
            ..Raw::new(Opcode::ScsiResponse)
        }
        .with_window(self.window)
        .emit()
    }

    /// The sense data in the data segment of a response (RFC 7143 §11.4.7): a length of 16 bits and as many bytes.
    /// An empty segment has none.
    pub fn sense(data: &[u8]) -> Result<&[u8], Malformed> {
        if data.is_empty() {
            return Ok(&[]);
        }
        let (len, rest) = data.split_first_chunk().ok_or(Malformed::Truncated {
            what: "length of sense data",
            need: size_of::<u16>(),
            got: data.len(),
        })?;
        let need = usize::from(u16::from_be_bytes(*len));
        rest.get(..need).ok_or(Malformed::Truncated {
            what: "sense data",
            need,
            got: rest.len(),
        })
    }
}

impl fmt::Display for ScsiResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} itt={} {} status={:#04x} statsn={} {} expdatasn={} residual={} data={}",
            Opcode::ScsiResponse,
            Tag(self.itt),
            self.response,
            self.status,
            self.stat_sn,
            self.window,
            self.exp_data_sn,
            self.residual,
            self.data_len
        )?;
        match self.bidi_residual {
            Residual::None => Ok(()),
            residual => write!(f, " bidi={residual}"),
        }
    }
}
