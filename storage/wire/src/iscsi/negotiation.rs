//! Text Request and Response (RFC 7143 §11.10, §11.11): negotiation in text keys outside the login, such as SendTargets.
//! A PDU with C set has F clear. The text is parsed by [`text`](super::text).

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;

use super::layout::{CONTINUE, FINAL, Raw, Tag, bit, flags, len24};
use super::{Bhs, Lun, Opcode, Window};

/// Text Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextRequest {
    /// The I bit.
    pub immediate: bool,
    /// F: the last request of the negotiation.
    pub is_final: bool,
    /// C: the text continues in the next request.
    pub more: bool,
    /// Bytes of text.
    pub data_len: u32,
    /// Copied from the response whose TTT this is.
    pub lun: Lun,
    /// Initiator task tag, the same in the whole negotiation.
    pub itt: u32,
    /// Target transfer tag of the last response, or [`NO_TAG`](super::NO_TAG) in the first request.
    pub ttt: u32,
    /// CmdSN.
    pub cmd_sn: u32,
    /// ExpStatSN.
    pub exp_stat_sn: u32,
}

impl TextRequest {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<TextRequest, Malformed> {
        let raw = Raw::read(bhs, Opcode::TextRequest)?;
        // RFC 7143 §11.10.2: with C, F must not be set.
        raw.refuse(raw.has(FINAL) && raw.has(CONTINUE))?;
        Ok(TextRequest {
            immediate: raw.is_immediate(),
            is_final: raw.has(FINAL),
            more: raw.has(CONTINUE),
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
            flags: bit(self.is_final, FINAL) | bit(self.more, CONTINUE),
            data_len: len24(self.data_len),
            lun: self.lun.to_bytes(),
            itt: U32::new(self.itt),
            w20: U32::new(self.ttt),
            w24: U32::new(self.cmd_sn),
            w28: U32::new(self.exp_stat_sn),
            ..Raw::new(Opcode::TextRequest)
        }
        .immediate(self.immediate)
        .emit()
    }
}

impl fmt::Display for TextRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lun={} itt={} ttt={} cmdsn={} expstatsn={} data={}",
            Opcode::TextRequest,
            self.lun,
            Tag(self.itt),
            Tag(self.ttt),
            self.cmd_sn,
            self.exp_stat_sn,
            self.data_len
        )?;
        let words = [
            (self.is_final, "final"),
            (self.more, "more"),
            (self.immediate, "immediate"),
        ];
        flags(f, &words)
    }
}

/// Text Response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextResponse {
    /// F: the last response of the negotiation.
    pub is_final: bool,
    /// C: the text continues in the next response.
    pub more: bool,
    /// Bytes of text.
    pub data_len: u32,
    /// Copied by the initiator into the next request.
    pub lun: Lun,
    /// Initiator task tag of the request.
    pub itt: u32,
    /// Copied by the initiator into the next request; [`NO_TAG`](super::NO_TAG) in the last response.
    pub ttt: u32,
    /// StatSN.
    pub stat_sn: u32,
    /// The CmdSNs that the target accepts.
    pub window: Window,
}

impl TextResponse {
    /// Reads the header.
    pub fn parse(bhs: &Bhs) -> Result<TextResponse, Malformed> {
        let raw = Raw::read(bhs, Opcode::TextResponse)?;
        // RFC 7143 §11.11.2: with C, F must not be set.
        raw.refuse(raw.has(FINAL) && raw.has(CONTINUE))?;
        Ok(TextResponse {
            is_final: raw.has(FINAL),
            more: raw.has(CONTINUE),
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
            flags: bit(self.is_final, FINAL) | bit(self.more, CONTINUE),
            data_len: len24(self.data_len),
            lun: self.lun.to_bytes(),
            itt: U32::new(self.itt),
            w20: U32::new(self.ttt),
            w24: U32::new(self.stat_sn),
            ..Raw::new(Opcode::TextResponse)
        }
        .with_window(self.window)
        .emit()
    }
}

impl fmt::Display for TextResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} lun={} itt={} ttt={} statsn={} {} data={}",
            Opcode::TextResponse,
            self.lun,
            Tag(self.itt),
            Tag(self.ttt),
            self.stat_sn,
            self.window,
            self.data_len
        )?;
        flags(f, &[(self.is_final, "final"), (self.more, "more")])
    }
}
