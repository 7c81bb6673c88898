//! A whole RoCEv2 packet as one UDP datagram carries it: BTH, the extension headers of its operation,
//! payload and pad. The operation carries its headers, so a packet has those of its opcode and no other. The ICRC is returned unchecked,
//! because it covers IP and UDP headers that are not part of the input.

use core::fmt;

use super::aeth::Aeth;
use super::atomic_eth::AtomicEth;
use super::bth::Bth;
use super::deth::Deth;
use super::icrc::ICRC_LEN;
use super::reth::Reth;
use crate::{Malformed, Psn, Qpn, Stag};

#[cfg(test)]
mod tests;

const UC: u8 = 0x20;
const UD: u8 = 0x60;
const CNP: u8 = 0x81;
const ZEROS: [u8; 3] = [0; 3];
/// Bytes of a congestion notification behind its BTH; all reserved.
const CNP_LEN: usize = 16;

/// Immediate data, in network order.
pub type Immediate = [u8; 4];

/// The connected transport services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection: Sends and Writes only, without acknowledgements.
    Uc,
}

/// What the last packet of a Send carries beside its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Nothing.
    Plain,
    /// Immediate data.
    Immediate(Immediate),
    /// An R_Key that the receiver invalidates; only of reliable connections.
    Invalidate(Stag),
}

/// The operation of a packet, with its extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// First packet of a Send of several.
    SendFirst(Service),
    /// A packet of a Send between the first and the last.
    SendMiddle(Service),
    /// Last packet of a Send of several.
    SendLast(Service, Tail),
    /// A Send of one packet.
    SendOnly(Service, Tail),
    /// First packet of a Write of several.
    WriteFirst(Service, Reth),
    /// A packet of a Write between the first and the last.
    WriteMiddle(Service),
    /// Last packet of a Write of several.
    WriteLast(Service, Option<Immediate>),
    /// A Write of one packet.
    WriteOnly(Service, Reth, Option<Immediate>),
    /// A Read.
    ReadRequest(Reth),
    /// First packet of a response of several.
    ReadResponseFirst(Aeth),
    /// A packet of a response between the first and the last.
    ReadResponseMiddle,
    /// Last packet of a response of several.
    ReadResponseLast(Aeth),
    /// A response of one packet.
    ReadResponseOnly(Aeth),
    /// An acknowledgement, or its refusal.
    Acknowledge(Aeth),
    /// The original value of the word that an atomic operation changed.
    AtomicAcknowledge(Aeth, u64),
    /// Compare and swap.
    CmpSwap(AtomicEth),
    /// Fetch and add.
    FetchAdd(AtomicEth),
    /// A datagram.
    Datagram(Deth, Option<Immediate>),
    /// Congestion notification: packets of the receiver's queue pair met congestion.
    CongestionNotification,
}

/// A RoCEv2 packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The operation and its extension headers.
    pub operation: Operation,
    /// The queue pair this packet is for.
    pub dest_qpn: Qpn,
    /// Packet sequence number.
    pub psn: Psn,
    /// The sender asks for an acknowledgement.
    pub ack_request: bool,
    /// Raises a solicited event at the receiver.
    pub solicited: bool,
    /// Path migration state.
    pub migration: bool,
    /// FECN: this packet met congestion.
    pub fecn: bool,
    /// BECN: packets in the other direction met congestion.
    pub becn: bool,
    /// Partition key.
    pub pkey: u16,
    /// The payload without its pad.
    pub payload: &'a [u8],
}

/// The P_Key of the default partition, as a full member.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// Cuts headers off the front of a packet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<T>(
        &mut self,
        len: usize,
        parse: impl FnOnce(&'a [u8]) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        let value = parse(self.0)?;
        self.0 = self.0.get(len..).unwrap_or_default();
        Ok(value)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        self.take(N, |bytes| {
            bytes.first_chunk().copied().ok_or(Malformed::Truncated {
                what,
                need: N,
                got: bytes.len(),
            })
        })
    }

    fn immediate(&mut self) -> Result<Immediate, Malformed> {
        self.array("ImmDt")
    }

    fn reth(&mut self) -> Result<Reth, Malformed> {
        self.take(Reth::LEN, Reth::parse)
    }

    fn aeth(&mut self) -> Result<Aeth, Malformed> {
        self.take(Aeth::LEN, Aeth::parse)
    }

    fn atomic(&mut self) -> Result<AtomicEth, Malformed> {
        self.take(AtomicEth::LEN, AtomicEth::parse)
    }

    fn deth(&mut self) -> Result<Deth, Malformed> {
        self.take(Deth::LEN, Deth::parse)
    }

    fn invalidate(&mut self) -> Result<Tail, Malformed> {
        let rkey = u32::from_be_bytes(self.array("IETH")?);
        Ok(Tail::Invalidate(Stag::new(rkey)))
    }
}

impl Operation {
    /// Reads the extension headers of an opcode.
    fn parse(opcode: u8, rest: &mut Reader<'_>) -> Result<Self, Malformed> {
        let service = match opcode & 0xe0 {
            0 => Service::Rc,
            UC if opcode & 0x1f < 0x0c => Service::Uc,
            UD if matches!(opcode, 0x64 | 0x65) => {
                let deth = rest.deth()?;
                let immediate = (opcode == 0x65).then(|| rest.immediate()).transpose()?;
                return Ok(Self::Datagram(deth, immediate));
            }
            _ if opcode == CNP => return Ok(Self::CongestionNotification),
            _ => return Err(Malformed::RoceOpcode { got: opcode }),
        };
        Ok(match opcode & 0x1f {
            0x00 => Self::SendFirst(service),
            0x01 => Self::SendMiddle(service),
            0x02 => Self::SendLast(service, Tail::Plain),
            0x03 => Self::SendLast(service, Tail::Immediate(rest.immediate()?)),
            0x04 => Self::SendOnly(service, Tail::Plain),
            0x05 => Self::SendOnly(service, Tail::Immediate(rest.immediate()?)),
            0x06 => Self::WriteFirst(service, rest.reth()?),
            0x07 => Self::WriteMiddle(service),
            0x08 => Self::WriteLast(service, None),
            0x09 => Self::WriteLast(service, Some(rest.immediate()?)),
            0x0a => Self::WriteOnly(service, rest.reth()?, None),
            0x0b => Self::WriteOnly(service, rest.reth()?, Some(rest.immediate()?)),
            0x0c => Self::ReadRequest(rest.reth()?),
            0x0d => Self::ReadResponseFirst(rest.aeth()?),
            0x0e => Self::ReadResponseMiddle,
            0x0f => Self::ReadResponseLast(rest.aeth()?),
            0x10 => Self::ReadResponseOnly(rest.aeth()?),
            0x11 => Self::Acknowledge(rest.aeth()?),
            0x12 => {
                let aeth = rest.aeth()?;
                let original = rest.array("AtomicAckETH")?;
                Self::AtomicAcknowledge(aeth, u64::from_be_bytes(original))
            }
            0x13 => Self::CmpSwap(rest.atomic()?),
            0x14 => Self::FetchAdd(rest.atomic()?),
            0x16 => Self::SendLast(service, rest.invalidate()?),
            0x17 => Self::SendOnly(service, rest.invalidate()?),
            _ => return Err(Malformed::RoceOpcode { got: opcode }),
        })
    }

    /// The opcode of the BTH. An unreliable connection has no Send with Invalidate; that of a reliable one is returned for it.
    pub const fn opcode(&self) -> u8 {
        const fn of(service: Service, rc: u8) -> u8 {
            match service {
                Service::Rc => rc,
                Service::Uc => UC | rc,
            }
        }
        match *self {
            Self::SendFirst(service) => of(service, 0x00),
            Self::SendMiddle(service) => of(service, 0x01),
            Self::SendLast(service, Tail::Plain) => of(service, 0x02),
            Self::SendLast(service, Tail::Immediate(_)) => of(service, 0x03),
            Self::SendOnly(service, Tail::Plain) => of(service, 0x04),
            Self::SendOnly(service, Tail::Immediate(_)) => of(service, 0x05),
            Self::WriteFirst(service, _) => of(service, 0x06),
            Self::WriteMiddle(service) => of(service, 0x07),
            Self::WriteLast(service, None) => of(service, 0x08),
            Self::WriteLast(service, Some(_)) => of(service, 0x09),
            Self::WriteOnly(service, _, None) => of(service, 0x0a),
            Self::WriteOnly(service, _, Some(_)) => of(service, 0x0b),
            Self::ReadRequest(_) => 0x0c,
            Self::ReadResponseFirst(_) => 0x0d,
            Self::ReadResponseMiddle => 0x0e,
            Self::ReadResponseLast(_) => 0x0f,
            Self::ReadResponseOnly(_) => 0x10,
            Self::Acknowledge(_) => 0x11,
            Self::AtomicAcknowledge(..) => 0x12,
            Self::CmpSwap(_) => 0x13,
            Self::FetchAdd(_) => 0x14,
            Self::SendLast(_, Tail::Invalidate(_)) => 0x16,
            Self::SendOnly(_, Tail::Invalidate(_)) => 0x17,
            Self::Datagram(_, None) => 0x64,
            Self::Datagram(_, Some(_)) => 0x65,
            Self::CongestionNotification => CNP,
        }
    }

    /// Appends the extension headers.
    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::SendFirst(_)
            | Self::SendMiddle(_)
            | Self::SendLast(_, Tail::Plain)
            | Self::SendOnly(_, Tail::Plain)
            | Self::WriteMiddle(_)
            | Self::WriteLast(_, None)
            | Self::ReadResponseMiddle
            | Self::CongestionNotification => {}
            Self::SendLast(_, Tail::Immediate(data))
            | Self::SendOnly(_, Tail::Immediate(data))
            | Self::WriteLast(_, Some(data)) => out.extend_from_slice(data),
            Self::SendLast(_, Tail::Invalidate(rkey))
            | Self::SendOnly(_, Tail::Invalidate(rkey)) => {
                out.extend_from_slice(&rkey.get().to_be_bytes());
            }
            Self::WriteFirst(_, reth) | Self::ReadRequest(reth) => {
                out.extend_from_slice(&reth.emit());
            }
            Self::WriteOnly(_, reth, immediate) => {
                out.extend_from_slice(&reth.emit());
                out.extend_from_slice(immediate.as_ref().map_or(&[], Immediate::as_slice));
            }
            Self::ReadResponseFirst(aeth)
            | Self::ReadResponseLast(aeth)
            | Self::ReadResponseOnly(aeth)
            | Self::Acknowledge(aeth) => out.extend_from_slice(&aeth.emit()),
            Self::AtomicAcknowledge(aeth, original) => {
                out.extend_from_slice(&aeth.emit());
                out.extend_from_slice(&original.to_be_bytes());
            }
            Self::CmpSwap(atomic) | Self::FetchAdd(atomic) => {
                out.extend_from_slice(&atomic.emit());
            }
            Self::Datagram(deth, immediate) => {
                out.extend_from_slice(&deth.emit());
                out.extend_from_slice(immediate.as_ref().map_or(&[], Immediate::as_slice));
            }
        }
    }

    /// Bytes of the extension headers.
    const fn headers_len(&self) -> usize {
        const fn immediate_len(immediate: Option<Immediate>) -> usize {
            match immediate {
                Some(data) => data.len(),
                None => 0,
            }
        }
        match self {
            Self::SendFirst(_)
            | Self::SendMiddle(_)
            | Self::SendLast(_, Tail::Plain)
            | Self::SendOnly(_, Tail::Plain)
            | Self::WriteMiddle(_)
            | Self::ReadResponseMiddle
            | Self::CongestionNotification => 0,
            // ImmDt or IETH.
            Self::SendLast(..) | Self::SendOnly(..) => 4,
            Self::WriteLast(_, immediate) => immediate_len(*immediate),
            Self::WriteFirst(..) | Self::ReadRequest(_) => Reth::LEN,
            Self::WriteOnly(_, _, immediate) => Reth::LEN + immediate_len(*immediate),
            Self::ReadResponseFirst(_)
            | Self::ReadResponseLast(_)
            | Self::ReadResponseOnly(_)
            | Self::Acknowledge(_) => Aeth::LEN,
            Self::AtomicAcknowledge(..) => Aeth::LEN + 8,
            Self::CmpSwap(_) | Self::FetchAdd(_) => AtomicEth::LEN,
            Self::Datagram(_, immediate) => Deth::LEN + immediate_len(*immediate),
        }
    }

    /// It answers requests, so it is for the requester; every other operation but a congestion notification is for the responder.
    pub const fn is_response(&self) -> bool {
        matches!(
            self,
            Self::ReadResponseFirst(_)
                | Self::ReadResponseMiddle
                | Self::ReadResponseLast(_)
                | Self::ReadResponseOnly(_)
                | Self::Acknowledge(_)
                | Self::AtomicAcknowledge(..)
        )
    }

    /// The acknowledgement header.
    pub const fn aeth(&self) -> Option<&Aeth> {
        match self {
            Self::ReadResponseFirst(aeth)
            | Self::ReadResponseLast(aeth)
            | Self::ReadResponseOnly(aeth)
            | Self::Acknowledge(aeth)
            | Self::AtomicAcknowledge(aeth, _) => Some(aeth),
            _ => None,
        }
    }

    /// The name, as the specification has it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SendFirst(_) => "Send First",
            Self::SendMiddle(_) => "Send Middle",
            Self::SendLast(_, Tail::Plain) => "Send Last",
            Self::SendLast(_, Tail::Immediate(_)) => "Send Last with Immediate",
            Self::SendLast(_, Tail::Invalidate(_)) => "Send Last with Invalidate",
            Self::SendOnly(_, Tail::Plain) => "Send Only",
            Self::SendOnly(_, Tail::Immediate(_)) => "Send Only with Immediate",
            Self::SendOnly(_, Tail::Invalidate(_)) => "Send Only with Invalidate",
            Self::WriteFirst(..) => "Write First",
            Self::WriteMiddle(_) => "Write Middle",
            Self::WriteLast(_, None) => "Write Last",
            Self::WriteLast(_, Some(_)) => "Write Last with Immediate",
            Self::WriteOnly(_, _, None) => "Write Only",
            Self::WriteOnly(_, _, Some(_)) => "Write Only with Immediate",
            Self::ReadRequest(_) => "Read Request",
            Self::ReadResponseFirst(_) => "Read Response First",
            Self::ReadResponseMiddle => "Read Response Middle",
            Self::ReadResponseLast(_) => "Read Response Last",
            Self::ReadResponseOnly(_) => "Read Response Only",
            Self::Acknowledge(_) => "Acknowledge",
            Self::AtomicAcknowledge(..) => "Atomic Acknowledge",
            Self::CmpSwap(_) => "CmpSwap",
            Self::FetchAdd(_) => "FetchAdd",
            Self::Datagram(_, None) => "UD Send Only",
            Self::Datagram(_, Some(_)) => "UD Send Only with Immediate",
            Self::CongestionNotification => "CNP",
        }
    }
}

impl<'a> Packet<'a> {
    /// A packet of the default partition without flags and payload.
    pub const fn new(operation: Operation, dest_qpn: Qpn, psn: Psn) -> Packet<'a> {
        Packet {
            operation,
            dest_qpn,
            psn,
            ack_request: false,
            solicited: false,
            migration: true,
            fecn: false,
            becn: false,
            pkey: DEFAULT_PKEY,
            payload: &[],
        }
    }

    /// Reads the UDP payload of a RoCEv2 packet. The second value is the ICRC at its end, which
    /// the caller compares with one computed over the addresses the packet came with.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, [u8; ICRC_LEN]), Malformed> {
        let (front, icrc) = bytes
            .split_last_chunk::<ICRC_LEN>()
            .ok_or(Malformed::Truncated {
                what: "RoCEv2 packet",
                need: Bth::LEN + ICRC_LEN,
                got: bytes.len(),
            })?;
        let mut rest = Reader(front);
        let bth = rest.take(Bth::LEN, Bth::parse)?;
        let operation = Operation::parse(bth.opcode, &mut rest)?;
        let padded = rest.0;
        let len = padded.len().checked_sub(usize::from(bth.pad));
        let payload = len
            .and_then(|len| padded.get(..len))
            .ok_or(Malformed::Padding {
                pad: bth.pad,
                payload: padded.len(),
            })?;
        let packet = Self {
            operation,
            dest_qpn: bth.dest_qpn,
            psn: bth.psn,
            ack_request: bth.ack_request,
            solicited: bth.solicited,
            migration: bth.migration,
            fecn: bth.fecn,
            becn: bth.becn,
            pkey: bth.pkey,
            payload,
        };
        Ok((packet, *icrc))
    }

    /// Bytes of a packet whose payload has `len` bytes, from its BTH to its pad.
    pub const fn len_with(&self, len: usize) -> usize {
        Bth::LEN + self.operation.headers_len() + len + pad_of(len)
    }

    /// Appends BTH and extension headers of a packet whose payload has `len` bytes.
    pub fn emit_headers(&self, len: usize, out: &mut Vec<u8>) {
        let bth = Bth {
            opcode: self.operation.opcode(),
            solicited: self.solicited,
            migration: self.migration,
            pad: pad_of(len) as u8,
            pkey: self.pkey,
            fecn: self.fecn,
            becn: self.becn,
            dest_qpn: self.dest_qpn,
            ack_request: self.ack_request,
            psn: self.psn,
        };
        out.extend_from_slice(&bth.emit());
        self.operation.emit(out);
    }

    /// Appends the packet up to and including its pad; the caller appends the ICRC.
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.emit_headers(self.payload.len(), out);
        out.extend_from_slice(self.payload);
        let pad = pad_of(self.payload.len());
        out.extend_from_slice(ZEROS.get(..pad).unwrap_or_default());
    }

    /// The payload of a congestion notification.
    pub const CNP_PAYLOAD: [u8; CNP_LEN] = [0; CNP_LEN];
}

/// Zero bytes behind a payload of this length.
pub const fn pad_of(len: usize) -> usize {
    len.wrapping_neg() & 3
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = match self.operation.opcode() & 0xe0 {
            0 => "RC ",
            UC => "UC ",
            _ => "",
        };
        let (name, qpn, psn) = (self.operation.name(), self.dest_qpn, self.psn);
        write!(f, "{service}{name} -> {qpn} psn={psn}")?;
        match &self.operation {
            Operation::SendLast(_, tail) | Operation::SendOnly(_, tail) => match tail {
                Tail::Plain => {}
                Tail::Immediate(data) => write!(f, " imm={:#010x}", u32::from_be_bytes(*data))?,
                Tail::Invalidate(rkey) => write!(f, " invalidate={rkey}")?,
            },
            Operation::WriteFirst(_, reth) | Operation::ReadRequest(reth) => {
                write!(f, " {reth}")?;
            }
            Operation::WriteOnly(_, reth, immediate) => {
                write!(f, " {reth}")?;
                if let Some(data) = immediate {
                    write!(f, " imm={:#010x}", u32::from_be_bytes(*data))?;
                }
            }
            Operation::WriteLast(_, Some(data)) => {
                write!(f, " imm={:#010x}", u32::from_be_bytes(*data))?;
            }
            Operation::AtomicAcknowledge(aeth, original) => {
                write!(f, " {aeth} original={original:#x}")?;
            }
            Operation::CmpSwap(atomic) | Operation::FetchAdd(atomic) => write!(f, " {atomic}")?,
            Operation::Datagram(deth, immediate) => {
                write!(f, " {deth}")?;
                if let Some(data) = immediate {
                    write!(f, " imm={:#010x}", u32::from_be_bytes(*data))?;
                }
            }
            other => {
                if let Some(aeth) = other.aeth() {
                    write!(f, " {aeth}")?;
                }
            }
        }
        write!(f, " payload={}", self.payload.len())?;
        for (set, word) in [
            (self.solicited, " se"),
            (self.fecn, " fecn"),
            (self.becn, " becn"),
            (self.ack_request, " ackreq"),
        ] {
            f.write_str(if set { word } else { "" })?;
        }
        Ok(())
    }
}
