//! Logout Request and Response (RFC 7143 §11.14, §11.15): the orderly end of a session or a connection. Unknown reasons
//! and outcomes are kept as numbers.

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;

use super::layout::{FINAL, Raw, Tag, flags, halves, word};
use super::{Bhs, Opcode, Window};
use crate::coded::coded;

const REASON: u8 = 0x7f;

coded! {
    /// What to close, seven bits.
    LogoutReason: u8 {
        /// The session.
        CloseSession = 0 "close-session",
        /// The connection that is named.
        CloseConnection = 1 "close-connection",
        /// The connection that is named, to be recovered.
        Recovery = 2 "recovery",
    }
}

coded! {
    /// The outcome of a logout.
    LogoutOutcome: u8 {
        /// It is closed.
        Closed = 0 "closed",
        /// There is no such connection.
        NoConnection = 1 "no-connection",
        /// Connections cannot be recovered.
        RecoveryUnsupported = 2 "recovery-unsupported",
        /// The target could not clean up.
        CleanupFailed = 3 "cleanup-failed",
    }
}

/// Logout Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogoutRequest {
    /// The I bit.
    pub immediate: bool,
    /// What to close.
    pub reason: LogoutReason,
    /// Initiator task tag.
    pub itt: u32,
    /// The connection to close, unless the session is closed.
    pub cid: u16,
    /// CmdSN.
    pub cmd_sn: u32,
    /// ExpStatSN.
    pub exp_stat_sn: u32,
}

impl LogoutRequest {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<LogoutRequest, Malformed> {
        let raw = Raw::read_bare(bhs, Opcode::LogoutRequest)?;
        Ok(LogoutRequest {
            immediate: raw.is_immediate(),
            reason: LogoutReason::from_code(raw.flags & REASON),
            itt: raw.itt.get(),
            cid: halves(raw.w20).0,
            cmd_sn: raw.w24.get(),
            exp_stat_sn: raw.w28.get(),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        Raw {
            flags: FINAL | self.reason.code() & REASON,
            itt: U32::new(self.itt),
            w20: word(self.cid, 0),
            w24: U32::new(self.cmd_sn),
            w28: U32::new(self.exp_stat_sn),
            ..Raw::new(Opcode::LogoutRequest)
        }
        .immediate(self.immediate)
        .emit()
    }
}

impl fmt::Display for LogoutRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} itt={} cid={} cmdsn={} expstatsn={}",
            Opcode::LogoutRequest,
            self.reason,
            Tag(self.itt),
            self.cid,
            self.cmd_sn,
            self.exp_stat_sn
        )?;
        flags(f, &[(self.immediate, "immediate")])
    }
}

/// Logout Response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogoutResponse {
    /// The outcome.
    pub response: LogoutOutcome,
    /// Initiator task tag of the request.
    pub itt: u32,
    /// StatSN.
    pub stat_sn: u32,
    /// The CmdSNs that the target accepts.
    pub window: Window,
    /// Seconds to wait before connecting again.
    pub time2wait: u16,
    /// Seconds after these for which the target keeps tasks.
    pub time2retain: u16,
}

impl LogoutResponse {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<LogoutResponse, Malformed> {
        let raw = Raw::read_bare(bhs, Opcode::LogoutResponse)?;
        let (time2wait, time2retain) = halves(raw.w40);
        Ok(LogoutResponse {
            response: LogoutOutcome::from_code(raw.b2),
            itt: raw.itt.get(),
            stat_sn: raw.w24.get(),
            window: raw.window(),
            time2wait,
            time2retain,
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> Bhs {
        Raw {
            b2: self.response.code(),
            itt: U32::new(self.itt),
            w24: U32::new(self.stat_sn),
            w40: word(self.time2wait, self.time2retain),
            ..Raw::new(Opcode::LogoutResponse)
        }
        .with_window(self.window)
        .emit()
    }
}

impl fmt::Display for LogoutResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} itt={} statsn={} {} wait={}s retain={}s",
            Opcode::LogoutResponse,
            self.response,
            Tag(self.itt),
            self.stat_sn,
            self.window,
            self.time2wait,
            self.time2retain
        )
    }
}
