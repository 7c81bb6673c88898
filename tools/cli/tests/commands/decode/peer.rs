//! The bytes that peers send: startup frames and FPDUs, built with the codecs of `verbena-wire`. They conform to the protocols, with numbers
//! that the test chooses.

use verbena_wire::ddp::{Header, Tagged, Untagged};
use verbena_wire::ext::Control;
use verbena_wire::mpa::{Enhanced, Flags, Frame, Kind, Phase, Revision, emit_fpdu};
use verbena_wire::rdmap::{Opcode, ReadRequest};
use verbena_wire::{Mo, Msn, Qn, Stag, To};

/// Checksums, and no other flag.
pub(crate) const CRC: Flags = Flags {
    markers: false,
    crc: true,
    reject: false,
    reserved: 0,
};

pub(crate) fn request(flags: Flags) -> Vec<u8> {
    startup(Kind::Request, flags, None)
}

pub(crate) fn reply(flags: Flags) -> Vec<u8> {
    startup(Kind::Reply, flags, None)
}

/// A startup frame with or without the enhanced block of RFC 6581.
pub(crate) fn startup(kind: Kind, flags: Flags, block: Option<Enhanced>) -> Vec<u8> {
    let mut out = Vec::new();
    let frame = Frame::new(kind, Revision::Two, flags, block, b"hi").expect("frame");
    frame.emit(&mut out);
    out
}

/// The framing of one side.
#[derive(Debug, Clone)]
pub(crate) struct Framer {
    pub(crate) crc: bool,
    pub(crate) phase: Option<Phase>,
    /// Control messages are numbered separately.
    control: u32,
}

impl Framer {
    pub(crate) fn new(crc: bool, markers: bool) -> Framer {
        Framer {
            crc,
            phase: markers.then_some(Phase::START),
            control: 0,
        }
    }

    pub(crate) fn fpdu(&mut self, header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut ulpdu = header.emit().to_vec();
        ulpdu.extend_from_slice(payload);
        let mut out = Vec::new();
        self.phase = emit_fpdu(&ulpdu, self.phase, self.crc, &mut out);
        out
    }

    pub(crate) fn untagged(
        &mut self,
        opcode: Opcode,
        msn: u32,
        ulp: u32,
        payload: &[u8],
    ) -> Vec<u8> {
        let header = Untagged {
            last: true,
            opcode,
            ulp,
            qn: opcode.qn().unwrap_or(Qn::SEND),
            msn: Msn::new(msn),
            mo: Mo::ZERO,
        };
        self.fpdu(&header.into(), payload)
    }

    pub(crate) fn send(&mut self, msn: u32, payload: &[u8]) -> Vec<u8> {
        self.untagged(Opcode::Send, msn, 0, payload)
    }

    /// A segment of a Send.
    pub(crate) fn part(&mut self, msn: u32, mo: u32, last: bool, payload: &[u8]) -> Vec<u8> {
        let header = Untagged {
            last,
            opcode: Opcode::Send,
            ulp: 0,
            qn: Qn::SEND,
            msn: Msn::new(msn),
            mo: Mo::new(mo),
        };
        self.fpdu(&header.into(), payload)
    }

    pub(crate) fn write(&mut self, to: u64, last: bool, payload: &[u8]) -> Vec<u8> {
        self.tagged(Opcode::Write, to, last, payload)
    }

    pub(crate) fn read_response(&mut self, to: u64, last: bool, payload: &[u8]) -> Vec<u8> {
        self.tagged(Opcode::ReadResponse, to, last, payload)
    }

    fn tagged(&mut self, opcode: Opcode, to: u64, last: bool, payload: &[u8]) -> Vec<u8> {
        let header = Tagged {
            last,
            opcode,
            stag: Stag::new(0x77),
            to: To::new(to),
        };
        self.fpdu(&header.into(), payload)
    }

    /// Requests `size` bytes into STag 0x77.
    pub(crate) fn read_request(&mut self, msn: u32, to: u64, size: u32) -> Vec<u8> {
        let request = ReadRequest {
            sink_stag: Stag::new(0x77),
            sink_to: To::new(to),
            size,
            source_stag: Stag::new(0x99),
            source_to: To::new(0),
        };
        self.untagged(Opcode::ReadRequest, msn, 0, &request.emit())
    }

    pub(crate) fn control(&mut self, control: &Control) -> Vec<u8> {
        self.control += 1;
        let mut payload = Vec::new();
        control.emit_payload(&mut payload);
        self.untagged(Opcode::Control, self.control, control.ulp_word(), &payload)
    }
}
