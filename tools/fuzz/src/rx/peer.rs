//! A scripted peer: turns decisions into frames with valid checksums, markers, numbers and offsets, except where the script asks for an error.
//! Frames of a script without errors pass the checks of framing and order, so that inputs reach the code behind these checks.
//! The bytes depend on the script alone, not on the stream under test.

use verbena_wire::ddp::{Header, Tagged, Untagged};
use verbena_wire::ext::{Caps, Control};
use verbena_wire::mpa::{Phase, RtrKinds, emit_fpdu};
use verbena_wire::rdmap::{AtomicOp, AtomicRequest, Opcode, ReadRequest};
use verbena_wire::{Mo, Msn, Qn, Stag, To};

use crate::source::{Source, bit};

/// Frames per script.
const MAX_FRAMES: usize = 64;
/// A first byte from this value on is followed by a whole ULPDU.
const RAW: u8 = 0xe0;

/// The peer's transmit side.
#[derive(Debug)]
pub struct Peer {
    phase: Option<Phase>,
    crc: bool,
    out: Vec<u8>,
    /// Per queue: the number of the next or unfinished message, and the offset in it.
    queues: [(u32, u32); 6],
    /// The offsets of the unfinished Write and Read Response.
    tagged: [u64; 2],
}

/// One message: what to send, and which fields are wrong.
struct FrameSpec {
    opcode: Opcode,
    last: bool,
    wrong_msn: bool,
    wrong_queue: bool,
    wrong_offset: bool,
    wrong_ulp: bool,
    len: usize,
}

impl Peer {
    /// The STag that reads of the stream under test name as their sink.
    pub const SINK: u32 = 0xaa01;
    /// The offset that they name.
    pub const SINK_TO: u64 = 0x1000;
    /// A Write to this STag fails the access check.
    pub const REFUSED: u32 = 0xbad;
    /// A Write to this STag is discarded by its receiver.
    pub const DROPPED: u32 = 0xddd;

    /// A peer that has sent nothing yet.
    pub fn new(markers: bool, crc: bool) -> Peer {
        Peer {
            phase: markers.then_some(Phase::START),
            crc,
            out: Vec::new(),
            queues: [(1, 0); 6],
            tagged: [0, Peer::SINK_TO],
        }
    }

    /// What was sent since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.out)
    }

    /// Sends CAPS.
    pub fn caps(&mut self, caps: &Caps) {
        let mut payload = Vec::new();
        caps.emit(&mut payload);
        let header = self.untagged(Opcode::Control, true, payload.len());
        let ulp = Control::Caps(*caps).ulp_word();
        self.frame(Untagged { ulp, ..header }, &payload);
    }

    /// Sends a ready-to-receive message of one of these kinds, if there is one.
    pub fn rtr(&mut self, kinds: RtrKinds) {
        if kinds.write {
            let header = self.write_header(true, Stag::new(1), 0);
            self.frame(header, &[]);
        } else if kinds.read {
            let header = self.untagged(Opcode::ReadRequest, true, ReadRequest::LEN);
            self.frame(header, &read_request(0));
        } else if kinds.send {
            let header = self.untagged(Opcode::Send, true, 0);
            self.frame(header, &[]);
        }
    }

    /// Sends the frames of the script, to its end.
    pub fn script(&mut self, source: &mut Source<'_>) -> Vec<u8> {
        for _ in 0..MAX_FRAMES {
            if source.is_empty() {
                break;
            }
            let kind = source.byte();
            if kind >= RAW {
                let len = usize::from(source.byte());
                let ulpdu = source.slice(len);
                self.phase = emit_fpdu(ulpdu, self.phase, self.crc, &mut self.out);
                continue;
            }
            let opcode = Opcode::ALL[usize::from(kind) % Opcode::ALL.len()];
            let deed = FrameSpec::read(opcode, source);
            self.send(&deed, source);
        }
        self.take()
    }

    fn send(&mut self, deed: &FrameSpec, source: &mut Source<'_>) {
        let mut ulp = 0;
        let body = body(deed, source, &mut ulp);
        if deed.opcode.tagged() {
            return self.send_tagged(deed, &body, source);
        }
        let mut header = self.untagged(deed.opcode, deed.last, body.len());
        header.ulp = ulp;
        if deed.wrong_ulp {
            header.ulp = source.u32();
        }
        if deed.wrong_msn {
            header.msn = Msn::new(u32::from(source.byte()));
        }
        if deed.wrong_queue {
            header.qn = Qn::new(u32::from(source.byte()));
        }
        if deed.wrong_offset {
            header.mo = Mo::new(source.u32());
        }
        self.frame(header, &body);
    }

    fn send_tagged(&mut self, deed: &FrameSpec, body: &[u8], source: &mut Source<'_>) {
        let is_write = deed.opcode == Opcode::Write;
        let stag = match (is_write, deed.wrong_ulp) {
            (true, false) => 0x1234,
            (true, true) if bit(source.byte(), 0) => Peer::REFUSED,
            (true, true) => Peer::DROPPED,
            (false, false) => Peer::SINK,
            (false, true) => source.u32(),
        };
        let mut header = if is_write {
            self.write_header(deed.last, Stag::new(stag), body.len())
        } else {
            self.response_header(deed.last, Stag::new(stag), body.len())
        };
        if deed.wrong_offset {
            header.to = To::new(source.u64());
        }
        self.frame(header, body);
    }

    fn untagged(&mut self, opcode: Opcode, last: bool, len: usize) -> Untagged {
        let qn = opcode.qn().unwrap_or(Qn::SEND);
        let (msn, mo) = &mut self.queues[qn.get() as usize];
        let header = Untagged {
            last,
            opcode,
            ulp: 0,
            qn,
            msn: Msn::new(*msn),
            mo: Mo::new(*mo),
        };
        (*msn, *mo) = if last {
            (msn.wrapping_add(1), 0)
        } else {
            (*msn, mo.wrapping_add(len as u32))
        };
        header
    }

    fn write_header(&mut self, last: bool, stag: Stag, len: usize) -> Tagged {
        let [at, _] = &mut self.tagged;
        let to = To::new(*at);
        *at += len as u64;
        tagged(Opcode::Write, last, stag, to)
    }

    fn response_header(&mut self, last: bool, stag: Stag, len: usize) -> Tagged {
        let [_, at] = &mut self.tagged;
        let to = To::new(*at);
        // Every read of the stream under test begins at the same place.
        *at = if last {
            Peer::SINK_TO
        } else {
            *at + len as u64
        };
        tagged(Opcode::ReadResponse, last, stag, to)
    }

    fn frame(&mut self, header: impl Into<Header>, body: &[u8]) {
        let mut ulpdu = header.into().emit().to_vec();
        ulpdu.extend(body);
        self.phase = emit_fpdu(&ulpdu, self.phase, self.crc, &mut self.out);
    }
}

impl FrameSpec {
    fn read(opcode: Opcode, source: &mut Source<'_>) -> FrameSpec {
        let flags = source.byte();
        let len = usize::from(source.byte());
        FrameSpec {
            opcode,
            last: !bit(flags, 0),
            wrong_msn: bit(flags, 1),
            wrong_queue: bit(flags, 2),
            wrong_offset: bit(flags, 3),
            wrong_ulp: bit(flags, 4),
            // Long segments span several markers.
            len: if bit(flags, 5) { len * 16 } else { len },
        }
    }
}

fn tagged(opcode: Opcode, last: bool, stag: Stag, to: To) -> Tagged {
    Tagged {
        last,
        opcode,
        stag,
        to,
    }
}

/// The bytes behind the DDP header.
fn body(deed: &FrameSpec, source: &mut Source<'_>, ulp: &mut u32) -> Vec<u8> {
    match deed.opcode {
        Opcode::ReadRequest => read_request(deed.len as u32),
        Opcode::AtomicRequest => atomic_request(source.byte()),
        Opcode::AtomicResponse => [&[0, 0, 0, source.byte()][..], &[0; 8]].concat(),
        Opcode::ReadV2Request => vec![1; 16],
        Opcode::Immediate | Opcode::ImmediateSe => vec![9; 8],
        Opcode::Control => {
            *ulp = u32::from(source.byte() % 9) << 24 | u32::from(source.byte());
            source.slice(deed.len).to_vec()
        }
        Opcode::Terminate => source.slice(deed.len).to_vec(),
        _ => (0..deed.len).map(|i| (i % 251) as u8).collect(),
    }
}

fn read_request(size: u32) -> Vec<u8> {
    let request = ReadRequest {
        sink_stag: Stag::new(7),
        sink_to: To::new(0),
        size,
        source_stag: Stag::new(1),
        source_to: To::new(0),
    };
    request.emit().to_vec()
}

fn atomic_request(code: u8) -> Vec<u8> {
    let request = AtomicRequest {
        op: AtomicOp::FetchAdd { add: 1, mask: 0 },
        id: 1,
        stag: Stag::new(1),
        to: To::new(0),
    };
    let mut bytes = request.emit().to_vec();
    bytes[3] = code;
    bytes
}
