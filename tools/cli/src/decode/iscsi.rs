//! One observed iSCSI connection: PDUs of both directions, with the digests that the login negotiated (RFC 7143). There is a record for
//! every PDU, with its header fields and the results of its digests; of its data only what is shown or negotiated is kept. Sequence
//! numbers and data are not checked: a violation is what cannot be parsed, or has a wrong digest.

mod any;
pub mod digests;
mod login;

pub use any::{is_header, is_login};
pub use digests::Digests;

use core::fmt;
use std::net::SocketAddr;

use verbena_storage_wire::iscsi::{
    BHS_LEN, DIGEST_LEN, FromInitiator, FromTarget, Lengths, Opcode, digest, pad,
};
use verbena_wire::crc::{Crc32c, crc32c_wire};

use super::Options;
use super::record::{Body, Dir, Out, Pdu, Record, Verdict, hex};
use super::stream::SHOWN;
use super::summary::Summary;
use any::AnyPdu;
use login::Login;

/// An observed connection.
#[derive(Debug)]
pub struct Exchange {
    summary: Summary,
    verbose: bool,
    login: Login,
    /// In use from here on.
    digests: Digests,
    sides: [Side; 2],
}

/// One direction.
#[derive(Debug)]
struct Side {
    step: Step,
    /// Bytes of an incomplete header or digest.
    stage: Vec<u8>,
    /// The offset of the stage's first byte in the direction.
    offset: u64,
    fin: bool,
}

#[derive(Debug)]
enum Step {
    /// A header, with additional segments and its digest.
    Head,
    /// Its data.
    Data(Box<Data>),
    /// The direction is no longer parsed.
    Over,
}

/// A PDU whose data is incomplete.
struct Data {
    pdu: AnyPdu,
    record: Pdu,
    offset: u64,
    len: u32,
    /// Bytes to come, padding included.
    left: usize,
    /// `None` if no digest follows.
    crc: Option<Crc32c>,
    /// The bytes that are shown, or the text of a login.
    kept: Vec<u8>,
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({}, {} left)", self.pdu.opcode(), self.left)
    }
}

impl Exchange {
    /// A connection from its first byte on.
    pub fn new(number: usize, ends: [SocketAddr; 2], options: Options) -> Exchange {
        let digests = options.digests.unwrap_or_default();
        let side = || Side {
            step: Step::Head,
            stage: Vec::new(),
            offset: 0,
            fin: false,
        };
        Exchange {
            summary: Summary {
                iscsi: Some(digests),
                ..Summary::new(number, ends)
            },
            verbose: options.verbose,
            login: Login::default(),
            digests,
            sides: [side(), side()],
        }
    }

    /// Takes the next bytes of a direction.
    pub fn feed(&mut self, dir: Dir, bytes: &[u8], out: &mut Out<'_>) {
        self.summary.bytes[dir.index()] += bytes.len() as u64;
        let side = &mut self.sides[dir.index()];
        let mut all = core::mem::take(&mut side.stage);
        all.extend_from_slice(bytes);
        let mut rest = &all[..];
        while let Some(taken) = self.step(dir, rest, out) {
            self.sides[dir.index()].offset += taken as u64;
            rest = rest.get(taken..).unwrap_or_default();
        }
        let side = &mut self.sides[dir.index()];
        if !matches!(side.step, Step::Over) {
            side.stage = rest.to_vec();
        }
    }

    /// The sender of this direction has closed it.
    pub fn fin(&mut self, dir: Dir, out: &mut Out<'_>) {
        let side = &mut self.sides[dir.index()];
        if core::mem::replace(&mut side.fin, true) {
            return;
        }
        let (offset, staged) = (side.offset, side.stage.len());
        let inside = match &side.step {
            Step::Head => staged > 0,
            Step::Data(_) => true,
            Step::Over => false,
        };
        if inside {
            self.report_violation(dir, offset, "the stream ends inside a PDU".to_owned(), out);
        }
        let reverse = &self.sides[dir.reverse().index()];
        self.summary.fin(dir, reverse.fin);
    }

    /// The sender of this direction reset the connection.
    pub fn reset(&mut self, dir: Dir) {
        self.summary.reset(dir);
    }

    /// The next bytes of this direction are not in the capture: the boundaries of PDUs after them are unknown.
    pub fn handle_loss(&mut self, dir: Dir, bytes: u64, out: &mut Out<'_>) {
        if self.summary.lost.is_some() {
            return;
        }
        self.summary.lost = Some((dir, bytes));
        let over = self.sides.iter().all(|s| matches!(s.step, Step::Over));
        let side = &self.sides[dir.index()];
        let offset = side.offset + side.stage.len() as u64;
        if !over {
            let message = format!("the capture lost {bytes} bytes; decoding of this stream ends");
            out.trouble("Lost", (self.summary.stream, dir), offset, message);
        }
        for side in &mut self.sides {
            side.stop();
        }
    }

    /// The summary of the connection.
    pub fn summary(mut self) -> Summary {
        for (side, unfinished) in self.sides.iter().zip(&mut self.summary.unfinished) {
            *unfinished = side.stage.len();
        }
        self.summary
    }

    /// Parses one element at the front; `None` if it is incomplete.
    fn step(&mut self, dir: Dir, rest: &[u8], out: &mut Out<'_>) -> Option<usize> {
        let side = &mut self.sides[dir.index()];
        match core::mem::replace(&mut side.step, Step::Head) {
            Step::Head => self.head(dir, rest, out),
            Step::Data(data) if data.left > 0 && !rest.is_empty() => {
                Some(self.data(dir, data, rest))
            }
            Step::Data(data) => match data.end(rest) {
                Ok((data, verdict, taken)) => {
                    self.finish(dir, data, verdict, out);
                    Some(taken)
                }
                Err(data) => {
                    side.step = Step::Data(data);
                    None
                }
            },
            Step::Over => {
                side.step = Step::Over;
                None
            }
        }
    }

    /// A header, once it is complete.
    fn head(&mut self, dir: Dir, rest: &[u8], out: &mut Out<'_>) -> Option<usize> {
        let bhs = rest.first_chunk::<BHS_LEN>()?;
        let lengths = Lengths::of(bhs);
        // RFC 7143 §13.1: login PDUs have no digests, whatever they negotiate.
        let opcode = Opcode::of(bhs);
        let login = matches!(opcode, Some(Opcode::LoginRequest | Opcode::LoginResponse));
        let digests = if login {
            Digests::default()
        } else {
            self.digests
        };
        let covered = BHS_LEN + usize::from(lengths.ahs);
        let size = covered + if digests.header { DIGEST_LEN } else { 0 };
        let head = rest.get(..size)?;
        let offset = self.sides[dir.index()].offset;
        let header_digest = digests
            .header
            .then(|| Verdict::new(head.split_at(covered).1 == digest(&head[..covered])));
        if header_digest == Some(Verdict::Wrong) {
            // Its length fields cannot be trusted.
            self.report_violation(dir, offset, "wrong header digest".to_owned(), out);
            return None;
        }
        let pdu = match AnyPdu::parse(dir, bhs) {
            Ok(pdu) => pdu,
            Err(malformed) => {
                self.report_violation(dir, offset, malformed.to_string(), out);
                return None;
            }
        };
        let record = match &pdu {
            AnyPdu::Initiator(pdu) => Pdu::from_initiator(pdu),
            AnyPdu::Target(pdu) => Pdu::from_target(pdu),
        };
        let crc = (digests.data && lengths.data > 0).then(Crc32c::new);
        self.sides[dir.index()].step = Step::Data(Box::new(Data {
            pdu,
            record: Pdu {
                header_digest,
                ..record
            },
            offset,
            len: lengths.data,
            left: lengths.data as usize + pad(lengths.data) as usize,
            crc,
            kept: Vec::new(),
        }));
        Some(size)
    }

    /// A part of the data.
    fn data(&mut self, dir: Dir, mut data: Box<Data>, rest: &[u8]) -> usize {
        let taken = data.left.min(rest.len());
        let bytes = rest.get(..taken).unwrap_or_default();
        if let Some(crc) = &mut data.crc {
            crc.update(bytes);
        }
        let limit = if data.pdu.is_login() {
            login::MAX_TEXT
        } else {
            SHOWN
        };
        let room = limit.min(data.len as usize) - data.kept.len();
        data.kept.extend(bytes.iter().take(room));
        data.left -= taken;
        self.sides[dir.index()].step = Step::Data(data);
        taken
    }

    /// A PDU is complete.
    fn finish(
        &mut self,
        dir: Dir,
        data: Box<Data>,
        data_digest: Option<Verdict>,
        out: &mut Out<'_>,
    ) {
        let at = dir.index();
        let opcode = data.pdu.opcode();
        self.summary.fpdus[at] += 1;
        *self.summary.messages[at].entry(opcode.word()).or_default() += 1;
        let shown = data.kept.get(..SHOWN).unwrap_or(&data.kept);
        let pdu = Pdu {
            data_digest,
            payload: self.verbose.then(|| hex(shown)),
            ..data.record
        };
        out.records.push(Record {
            time: out.time,
            stream: self.summary.stream,
            dir,
            kind: opcode.word(),
            segments: 1,
            len: data.len.into(),
            offset: data.offset,
            body: Body::Pdu(Box::new(pdu)),
        });
        if data_digest == Some(Verdict::Wrong) {
            // RFC 7143 §7.8: the PDU is discarded, the stream continues.
            self.summary.violations += 1;
            let message = "wrong data digest".to_owned();
            let at = (self.summary.stream, dir);
            out.trouble("Violation", at, data.offset, message);
        }
        match &data.pdu {
            AnyPdu::Initiator(FromInitiator::LoginRequest(request)) => {
                self.login.handle_text(dir, &data.kept, request.more);
            }
            AnyPdu::Target(FromTarget::LoginResponse(response)) => {
                self.login.handle_text(dir, &data.kept, response.more);
                if login::is_final_response(response) {
                    self.digests = self.login.digests();
                    self.summary.iscsi = Some(self.digests);
                }
            }
            _ => {}
        }
    }

    /// A direction cannot be parsed further.
    fn report_violation(&mut self, dir: Dir, offset: u64, message: String, out: &mut Out<'_>) {
        self.sides[dir.index()].stop();
        self.summary.report_violation(dir, offset, message, out);
    }
}

impl Side {
    fn stop(&mut self) {
        self.step = Step::Over;
        self.stage = Vec::new();
    }
}

impl Data {
    /// The PDU, the result of its digest and the digest's length, if all is complete; else itself.
    fn end(self: Box<Data>, rest: &[u8]) -> Result<(Box<Data>, Option<Verdict>, usize), Box<Data>> {
        if self.left > 0 {
            return Err(self);
        }
        let Some(crc) = &self.crc else {
            return Ok((self, None, 0));
        };
        let Some(found) = rest.first_chunk::<DIGEST_LEN>() else {
            return Err(self);
        };
        let verdict = Verdict::new(*found == crc32c_wire(crc.clone().finish()));
        Ok((self, Some(verdict), DIGEST_LEN))
    }
}
