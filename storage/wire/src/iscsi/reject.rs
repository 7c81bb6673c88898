//! Reject (RFC 7143 §11.17): a target rejects a PDU and returns its header. Unknown reasons are kept as numbers.
//! Whether the task continues is decided by the initiator.

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;

use super::layout::{Raw, len24};
use super::{BHS_LEN, Bhs, NO_TAG, Opcode, Window};
use crate::coded::coded;

coded! {
    /// Why a PDU was rejected.
    RejectReason: u8 {
        /// The data digest was wrong.
        DataDigest = 0x02 "data digest error",
        /// The SNACK cannot be served.
        Snack = 0x03 "snack rejected",
        /// It came out of order, or is invalid.
        ProtocolError = 0x04 "protocol error",
        /// The target does not support it.
        NotSupported = 0x05 "command not supported",
        /// Too many immediate commands at once.
        TooManyImmediate = 0x06 "too many immediate commands",
        /// A task with this tag is in progress.
        TaskInProgress = 0x07 "task in progress",
        /// A data acknowledgement for data that was not sent.
        InvalidDataAck = 0x08 "invalid data ack",
        /// A field has an invalid value.
        InvalidField = 0x09 "invalid pdu field",
        /// The target cannot allocate the target transfer tag that the operation needs.
        LongOperation = 0x0a "long operation, no tag",
        /// The target waits for a logout.
        WaitingForLogout = 0x0c "waiting for logout",
    }
}

/// Reject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// Why.
    pub reason: RejectReason,
    /// Bytes of data: the rejected header.
    pub data_len: u32,
    /// StatSN.
    pub stat_sn: u32,
    /// The CmdSNs that the target accepts.
    pub window: Window,
    /// The next DataSN or R2TSN of the command, for a SNACK or a data digest.
    pub data_sn: u32,
}

impl Reject {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<Reject, Malformed> {
        let raw = Raw::read(bhs, Opcode::Reject)?;
        Ok(Reject {
            reason: RejectReason::from_code(raw.b2),
            data_len: raw.data_len(),
            stat_sn: raw.w24.get(),
            window: raw.window(),
            data_sn: raw.w36.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        Raw {
            b2: self.reason.code(),
            data_len: len24(self.data_len),
            itt: U32::new(NO_TAG),
            w24: U32::new(self.stat_sn),
            w36: U32::new(self.data_sn),
            ..Raw::new(Opcode::Reject)
        }
        .with_window(self.window)
        .emit()
    }

    /// The rejected header, at the front of the data segment.
    pub fn header(data: &[u8]) -> Result<&Bhs, Malformed> {
        data.first_chunk().ok_or(Malformed::Truncated {
            what: "rejected header",
            need: BHS_LEN,
            got: data.len(),
        })
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} \"{}\" statsn={} {} datasn={} data={}",
            Opcode::Reject,
            self.reason,
            self.stat_sn,
            self.window,
            self.data_sn,
            self.data_len
        )
    }
}
