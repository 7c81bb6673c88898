//! Asynchronous Message (RFC 7143 §11.9): an event that a target reports unsolicited. Unknown events are kept as numbers;
//! the three parameters are returned for every event.

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;

use super::layout::{Raw, halves, len24, word};
use super::{Bhs, Lun, NO_TAG, Opcode, Window};
use crate::coded::coded;

coded! {
    /// The event.
    AsyncEvent: u8 {
        /// A SCSI event, described by the sense data.
        Scsi = 0 "scsi event",
        /// The target asks for a logout within parameter 3 seconds.
        LogoutRequest = 1 "target requests logout",
        /// The target is about to drop connection parameter 1.
        ConnectionDrop = 2 "target drops the connection",
        /// The target is about to drop all connections of the session.
        SessionDrop = 3 "target drops the session",
        /// The target asks for a negotiation within parameter 3 seconds.
        Negotiation = 4 "target requests negotiation",
        /// All active tasks of the logical unit are terminated.
        TaskTermination = 5 "tasks of the unit terminated",
        /// A vendor-specific event, described by the vendor code.
        Vendor = 255 "vendor event",
    }
}

/// Asynchronous Message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncMessage {
    /// The event.
    pub event: AsyncEvent,
    /// The vendor's code.
    pub vcode: u8,
    /// Parameters of the event: CID, Time2Wait and Time2Retain, or a time in the third.
    pub parameters: [u16; 3],
    /// Bytes of sense data and event data.
    pub data_len: u32,
    /// The logical unit of a SCSI event.
    pub lun: Lun,
    /// StatSN.
    pub stat_sn: u32,
    /// The CmdSNs that the target accepts.
    pub window: Window,
}

impl AsyncMessage {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<AsyncMessage, Malformed> {
        let raw = Raw::read(bhs, Opcode::AsyncMessage)?;
        let (codes, first) = halves(raw.w36);
        let (second, third) = halves(raw.w40);
        let [event, vcode] = codes.to_be_bytes();
        Ok(AsyncMessage {
            event: AsyncEvent::from_code(event),
            vcode,
            parameters: [first, second, third],
            data_len: raw.data_len(),
            lun: raw.lun(),
            stat_sn: raw.w24.get(),
            window: raw.window(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        let codes = u16::from_be_bytes([self.event.code(), self.vcode]);
        let [first, second, third] = self.parameters;
        Raw {
            data_len: len24(self.data_len),
            lun: self.lun.to_bytes(),
            itt: U32::new(NO_TAG),
            w24: U32::new(self.stat_sn),
            w36: word(codes, first),
            w40: word(second, third),
            ..Raw::new(Opcode::AsyncMessage)
        }
        .with_window(self.window)
        .emit()
    }
}

impl fmt::Display for AsyncMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third] = self.parameters;
        write!(
            f,
            "{} \"{}\" vcode={} parameters={first},{second},{third} lun={} statsn={} {} data={}",
            Opcode::AsyncMessage,
            self.event,
            self.vcode,
            self.lun,
            self.stat_sn,
            self.window,
            self.data_len
        )
    }
}
