//! A whole unreliable datagram as one UDP packet carries it: BTH, DETH, optionally an immediate,
//! payload and pad. `parse` accepts the two UD opcodes and a pad within the payload. It returns the
//! ICRC unchecked, because the checksum covers IP and UDP headers that are not part of its input.

use core::fmt;

use super::bth::Bth;
use super::deth::Deth;
use super::icrc::ICRC_LEN;
use crate::{Malformed, Psn, Qpn};

#[cfg(test)]
mod tests;

const SEND_ONLY: u8 = 0x64;
const SEND_ONLY_IMM: u8 = 0x65;
const IMMEDIATE_LEN: usize = 4;
const ZEROS: [u8; 3] = [0; 3];

/// An unreliable datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdPacket<'a> {
    /// The queue pair this datagram is for.
    pub dest_qpn: Qpn,
    /// The queue pair that sent it.
    pub src_qpn: Qpn,
    /// The Q_Key; the receiving queue pair accepts only its own.
    pub qkey: u32,
    /// Partition key.
    pub pkey: u16,
    /// Packet sequence number; receivers do not check it.
    pub psn: Psn,
    /// Raises a solicited event at the receiver.
    pub solicited: bool,
    /// Immediate data, in network order.
    pub immediate: Option<[u8; 4]>,
    /// The payload without its pad.
    pub payload: &'a [u8],
}

impl<'a> UdPacket<'a> {
    /// Reads the UDP payload of a RoCEv2 packet. The second value is the ICRC at its end, which
    /// the caller compares with one computed over the addresses the packet came with.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, [u8; ICRC_LEN]), Malformed> {
        let bth = Bth::parse(bytes)?;
        let with_immediate = match bth.opcode {
            SEND_ONLY => false,
            SEND_ONLY_IMM => true,
            got => return Err(Malformed::UdOpcode { got }),
        };
        let headers = Bth::LEN + Deth::LEN + if with_immediate { IMMEDIATE_LEN } else { 0 };
        let cut = Malformed::Truncated {
            what: "unreliable datagram",
            need: headers + ICRC_LEN,
            got: bytes.len(),
        };
        let (front, icrc) = bytes.split_last_chunk::<ICRC_LEN>().ok_or(cut)?;
        let (head, padded) = front.split_at_checked(headers).ok_or(cut)?;
        let deth = Deth::parse(head.get(Bth::LEN..).unwrap_or_default())?;
        let immediate = head.last_chunk().filter(|_| with_immediate).copied();
        let len = padded.len().checked_sub(usize::from(bth.pad));
        let payload = len
            .and_then(|len| padded.get(..len))
            .ok_or(Malformed::Padding {
                pad: bth.pad,
                payload: padded.len(),
            })?;
        let packet = Self {
            dest_qpn: bth.dest_qpn,
            src_qpn: deth.src_qpn,
            qkey: deth.qkey,
            pkey: bth.pkey,
            psn: bth.psn,
            solicited: bth.solicited,
            immediate,
            payload,
        };
        Ok((packet, *icrc))
    }

    /// Appends the packet up to and including its pad; the caller appends the ICRC.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let pad = self.payload.len().wrapping_neg() & 3;
        let bth = Bth {
            opcode: if self.immediate.is_some() {
                SEND_ONLY_IMM
            } else {
                SEND_ONLY
            },
            solicited: self.solicited,
            migration: false,
            pad: pad as u8,
            pkey: self.pkey,
            fecn: false,
            becn: false,
            dest_qpn: self.dest_qpn,
            ack_request: false,
            psn: self.psn,
        };
        let deth = Deth {
            qkey: self.qkey,
            src_qpn: self.src_qpn,
        };
        out.extend_from_slice(&bth.emit());
        out.extend_from_slice(&deth.emit());
        out.extend_from_slice(self.immediate.as_ref().map_or(&[], <[u8; 4]>::as_slice));
        out.extend_from_slice(self.payload);
        out.extend_from_slice(ZEROS.get(..pad).unwrap_or_default());
    }
}

impl fmt::Display for UdPacket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "UD {} -> {} qkey={:#010x} psn={} payload={}",
            self.src_qpn,
            self.dest_qpn,
            self.qkey,
            self.psn,
            self.payload.len()
        )?;
        if let Some(data) = self.immediate {
            write!(f, " imm={:#010x}", u32::from_be_bytes(data))?;
        }
        f.write_str(if self.solicited { " se" } else { "" })
    }
}
