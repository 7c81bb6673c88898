//! A whole unreliable datagram as one UDP packet carries it: BTH, DETH, optionally an immediate,
//! payload and pad. `parse` accepts the two UD opcodes and a pad within the payload. It returns the
//! ICRC unchecked, because the checksum covers IP and UDP headers that are not part of its input.

use core::fmt;

use super::bth::Bth;
use super::deth::Deth;
use super::icrc::ICRC_LEN;
use super::packet::{Operation, Packet};
use crate::{Malformed, Psn, Qpn};

#[cfg(test)]
mod tests;

const SEND_ONLY: u8 = 0x64;
const SEND_ONLY_IMM: u8 = 0x65;

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
        let opcode = Bth::parse(bytes)?.opcode;
        let other = Malformed::UdOpcode { got: opcode };
        if !matches!(opcode, SEND_ONLY | SEND_ONLY_IMM) {
            return Err(other);
        }
        let (packet, icrc) = Packet::parse(bytes)?;
        let Operation::Datagram(deth, immediate) = packet.operation else {
            return Err(other);
        };
        let datagram = Self {
            dest_qpn: packet.dest_qpn,
            src_qpn: deth.src_qpn,
            qkey: deth.qkey,
            pkey: packet.pkey,
            psn: packet.psn,
            solicited: packet.solicited,
            immediate,
            payload: packet.payload,
        };
        Ok((datagram, icrc))
    }

    /// Appends the packet up to and including its pad; the caller appends the ICRC.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let deth = Deth {
            qkey: self.qkey,
            src_qpn: self.src_qpn,
        };
        let packet = Packet {
            pkey: self.pkey,
            solicited: self.solicited,
            migration: false,
            payload: self.payload,
            ..Packet::new(
                Operation::Datagram(deth, self.immediate),
                self.dest_qpn,
                self.psn,
            )
        };
        packet.emit(out);
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
