//! The FPDUs of one direction, passed to the receive side of a stream one by one. Each is checked by the same code as a live peer's, and
//! both accountings are kept as the two ends keep them. Of a message's payload only the first bytes are kept.

use verbena_stream::accounting::Accounting;
use verbena_stream::rx::{FirstFpdu, Rx, RxFeatures};
use verbena_stream::{Claim, Delivery, Step, Time, Violation};
use verbena_wire::Rsn;
use verbena_wire::ddp::Header;
use verbena_wire::mpa::Phase;
use verbena_wire::rdmap::{Opcode, Phase as TerminatePhase};

use super::super::agree::Terms;
use super::super::fpdu::Fpdu;
use super::super::record::{self, Body, Destination, Detail, Dir, Message, Out, Record, hex};
use super::{State, Stream, first_phase};

/// Payload bytes of a message that are shown if requested.
pub(crate) const SHOWN: usize = 32;

/// The receive side of one direction, and its incomplete messages.
#[derive(Debug)]
pub(super) struct Follower {
    rx: Rx,
    phase: Option<Phase>,
    /// Incomplete messages, by class: one of each may be open.
    open: [Option<OpenMessage>; CLASSES],
}

/// Classes of messages of which one each may be open.
const CLASSES: usize = 5;

/// A message with more segments to come.
#[derive(Debug)]
struct OpenMessage {
    first: Header,
    kind: &'static str,
    detail: Detail,
    segments: u32,
    len: u64,
    offset: u64,
    payload: Vec<u8>,
}

impl Follower {
    pub(super) fn new(terms: &Terms, dir: usize) -> Follower {
        let accepts = RxFeatures {
            rfc7306: true,
            extensions: terms.extensions,
            read_v2: terms.extensions,
            send_imm: terms.extensions,
            memory_placement: terms.extensions,
            xrc: terms.extensions,
            drop_overlong: false,
        };
        let markers = terms.markers[dir];
        Follower {
            rx: Rx::new(markers, terms.crc, accepts, terms.first[dir]),
            phase: first_phase(markers),
            open: Default::default(),
        }
    }

    /// Passes `bytes` to the receive side; returns what was delivered, if anything.
    fn receive(
        &mut self,
        mut bytes: &[u8],
        book: &mut Accounting,
    ) -> Result<Option<Delivery>, Violation> {
        loop {
            let (used, step) = self.rx.handle(bytes, Time::ZERO, book)?;
            bytes = bytes.get(used..).unwrap_or_default();
            match step {
                Step::More(_) => return Ok(None),
                Step::Deliver(delivery) => return Ok(Some(delivery)),
                Step::Claim { .. } => {
                    // The observer always has a receive; an end without one sends an RNR itself.
                    let capacity = u32::MAX;
                    self.rx.claim(Claim::Granted { capacity }, book)?;
                }
                Step::Place(run) => {
                    let n = bytes.len().min(run.len as usize);
                    if n == 0 {
                        return Ok(None);
                    }
                    self.rx.placed(n as u32);
                    bytes = bytes.get(n..).unwrap_or_default();
                }
            }
        }
    }

    /// Whether a message begins with this segment.
    fn is_first_segment(&self, header: &Header) -> bool {
        let open = &self.open[class(header.opcode())];
        open.as_ref()
            .is_none_or(|open| !open.is_continuation(header))
    }

    /// Adds a segment to its message.
    fn add_segment(&mut self, header: &Header, body: &[u8], offset: u64, phase: TerminatePhase) {
        let begins = self.is_first_segment(header);
        let slot = &mut self.open[class(header.opcode())];
        if begins {
            *slot = None;
        }
        let open = slot.get_or_insert_with(|| {
            let (kind, detail) = Detail::of(header, body, phase);
            OpenMessage {
                first: *header,
                kind,
                detail,
                segments: 0,
                len: 0,
                offset,
                payload: Vec::new(),
            }
        });
        open.segments += 1;
        open.len += body.len() as u64;
        let room = SHOWN - open.payload.len();
        open.payload.extend(body.iter().take(room));
    }

    /// Drops incomplete requests, as RESUME requires.
    pub(super) fn drop_requests(&mut self) {
        self.open[class(Opcode::Write)] = None;
        self.open[class(Opcode::Send)] = None;
    }

    /// The receiver of this direction sent RNR.
    pub(super) fn observe_rnr(&mut self, n: Rsn, book: &mut Accounting) {
        self.rx.observe_rnr(n, book);
    }
}

impl OpenMessage {
    /// Whether this segment continues the message. If not, the sender has begun again, and the incomplete message is dropped.
    fn is_continuation(&self, header: &Header) -> bool {
        match (&self.first, header) {
            (Header::Untagged(first), Header::Untagged(h)) => {
                h.msn == first.msn && u64::from(h.mo.get()) == self.len
            }
            (Header::Tagged(first), Header::Tagged(h)) => {
                h.stag == first.stag && first.to.checked_add(self.len) == Some(h.to)
            }
            _ => false,
        }
    }
}

/// Messages of different classes may be open at once.
fn class(opcode: Opcode) -> usize {
    match opcode {
        Opcode::Write => 0,
        Opcode::ReadResponse => 1,
        Opcode::ReadV2Response => 2,
        opcode if opcode.is_send() => 3,
        // Messages of a single segment never stay open, so they share a class.
        _ => CLASSES - 1,
    }
}

impl Stream {
    /// Processes the complete FPDUs in the stage.
    pub(super) fn follow(&mut self, dir: Dir, out: &mut Out<'_>) {
        let at = dir.index();
        let stage = core::mem::take(&mut self.sides[at].stage);
        let mut used = 0;
        while let State::Running(follower) = &self.sides[at].state {
            let rest = stage.get(used..).unwrap_or_default();
            let Some(fpdu) = Fpdu::parse(rest, follower.phase) else {
                break;
            };
            let offset = self.sides[at].offset + used as u64;
            used += fpdu.bytes.len();
            self.take_fpdu(dir, offset, &fpdu, out);
        }
        let side = &mut self.sides[at];
        if !matches!(side.state, State::Over) {
            side.stage = stage;
            side.consume(used);
        }
    }

    /// Checks the end of a direction for incomplete FPDUs and messages, unless a Terminate was sent.
    pub(super) fn check_end(&mut self, dir: Dir, out: &mut Out<'_>) {
        let side = &mut self.sides[dir.index()];
        let (State::Running(follower), Some(books)) = (&mut side.state, &mut self.accounting)
        else {
            return;
        };
        let (offset, staged) = (side.offset, side.stage.len());
        let partial = follower.receive(&side.stage, &mut books[dir.index()]);
        let verdict = partial.and_then(|_| follower.rx.handle_eof(staged));
        if self.summary.terminated.is_some() {
            return;
        }
        if let Err(violation) = verdict {
            self.report_violation(dir, offset, violation.to_string(), out);
        }
    }

    fn take_fpdu(&mut self, dir: Dir, offset: u64, fpdu: &Fpdu<'_>, out: &mut Out<'_>) {
        self.summary.fpdus[dir.index()] += 1;
        let header = Header::parse(&fpdu.ulpdu).ok();
        let header_len = header.map_or(0, |h| h.len());
        let body = fpdu.ulpdu.get(header_len..).unwrap_or_default();
        if self.options.segments {
            self.push_fpdu(dir, offset, fpdu, header, out);
        }
        let (State::Running(follower), Some(books)) =
            (&mut self.sides[dir.index()].state, &mut self.accounting)
        else {
            return;
        };
        follower.phase = fpdu.next;
        let book = &mut books[dir.index()];
        let discarding = book.responder.is_discarding();
        let phase = if follower.rx.has_received_first() {
            TerminatePhase::Running
        } else {
            TerminatePhase::Startup
        };
        let begins = header.is_some_and(|h| follower.is_first_segment(&h));
        match (follower.receive(fpdu.bytes, book), header) {
            (Ok(delivery), Some(header)) => {
                follower.add_segment(&header, body, offset, phase);
                if begins && !discarding {
                    self.count_request(dir, header.opcode());
                }
                if header.last() {
                    self.push_message(dir, &header, phase, delivery.as_ref(), out);
                }
                if let Some(delivery) = delivery {
                    self.account_delivery(dir, &delivery);
                }
            }
            (Err(violation), _) => self.report_violation(dir, offset, violation.to_string(), out),
            (Ok(_), None) => {}
        }
    }

    /// Adds the record of a complete message.
    fn push_message(
        &mut self,
        dir: Dir,
        header: &Header,
        phase: TerminatePhase,
        delivery: Option<&Delivery>,
        out: &mut Out<'_>,
    ) {
        let at = dir.index();
        let State::Running(follower) = &mut self.sides[at].state else {
            return;
        };
        let Some(open) = follower.open[class(header.opcode())].take() else {
            return;
        };
        *self.summary.messages[at].entry(open.kind).or_default() += 1;
        let agreed = self.summary.terms.map(|t| t.first[at]);
        let opens = phase == TerminatePhase::Startup && matches!(agreed, Some(FirstFpdu::Rtr(_)));
        out.records.push(Record {
            time: out.time,
            stream: self.summary.stream,
            dir,
            kind: open.kind,
            segments: open.segments,
            len: open.len,
            offset: open.offset,
            body: Body::Message(Message {
                place: Destination::from(&open.first),
                detail: open.detail,
                rtr: opens && header.opcode() != Opcode::Terminate,
                discarded: matches!(delivery, Some(Delivery::Discarded(_))),
                payload: self.options.verbose.then(|| hex(&open.payload)),
            }),
        });
    }

    fn push_fpdu(
        &self,
        dir: Dir,
        offset: u64,
        fpdu: &Fpdu<'_>,
        header: Option<Header>,
        out: &mut Out<'_>,
    ) {
        let header_len = header.map_or(0, |h| h.len());
        out.records.push(Record {
            time: out.time,
            stream: self.summary.stream,
            dir,
            kind: "Fpdu",
            segments: 1,
            len: fpdu.ulpdu.len().saturating_sub(header_len) as u64,
            offset,
            body: Body::Fpdu(record::Fpdu {
                ulpdu: fpdu.ulpdu.len(),
                opcode: header.map(|h| h.opcode().name()),
                tagged: header.map(|h| h.is_tagged()),
                last: header.map(|h| h.last()),
                place: header.as_ref().map(Destination::from),
                pad: fpdu.pad.len(),
                crc: hex(&fpdu.crc.to_le_bytes()),
                crc_ok: fpdu.crc == fpdu.computed,
            }),
        });
    }
}
