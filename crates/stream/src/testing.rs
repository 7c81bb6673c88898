//! Shared by the tests of this crate: raw frames, a caller of a stream, and tables of state machines.
//! A [`Bench`] does what any caller must do, in the simplest way, and records everything that the stream returns. It is compiled
//! for tests only.

use core::fmt::Debug;

use verbena_wire::crc::crc32c;
use verbena_wire::ddp::{Header, Tagged, Untagged};
use verbena_wire::ext::{Caps, Control, Features, Personality, QpType, RnrTimer};
use verbena_wire::mpa::fpdu::{CRC_LEN, Layout, emit_fpdu};
use verbena_wire::mpa::startup::Revision;
use verbena_wire::rdmap::{Dialect, Opcode, Phase, Terminate};
use verbena_wire::{Mo, Msn, Stag, To};

use crate::startup::{Agreement, Role, Rtr};
use crate::{
    Claim, Delivery, Message, Place, PredictedKind, RnrRetry, Settings, Step, Stream, Time,
    Violation,
};

/// A timer code for tests: 0.64 ms.
pub(crate) fn timer() -> RnrTimer {
    RnrTimer::new(12).unwrap()
}

/// Capabilities that offer everything.
pub(crate) fn caps() -> Caps {
    Caps {
        version: 1,
        max_ulpdu: 65535,
        features: Features::READ_V2 | Features::SEND_IMM | Features::MEMORY_PLACEMENT,
        personality: Personality::Roce,
        qp_type: QpType::Rc,
        min_rnr_timer: timer(),
        ird: 4,
        nonce: 7,
        same_host: None,
        path: None,
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        max_ulpdu: 1000,
        rfc7306: true,
        rnr_retry: RnrRetry::Forever,
        drop_overlong: false,
        caps: caps(),
    }
}

pub(crate) fn agreement(role: Role, extensions: bool) -> Agreement {
    Agreement {
        role,
        revision: Revision::Two,
        crc: false,
        markers_tx: false,
        markers_rx: false,
        ird: 4,
        ord: 4,
        rtr: if extensions { Rtr::Caps } else { Rtr::None },
        extensions,
        private_data: Vec::new(),
    }
}

/// An untagged header with the usual queue and offset.
pub(crate) fn untagged(opcode: Opcode, msn: u32) -> Untagged {
    Untagged {
        last: true,
        opcode,
        ulp: 0,
        qn: opcode.qn().unwrap(),
        msn: Msn::new(msn),
        mo: Mo::ZERO,
    }
}

pub(crate) fn tagged(opcode: Opcode, stag: u32, to: u64) -> Tagged {
    Tagged {
        last: true,
        opcode,
        stag: Stag::new(stag),
        to: To::new(to),
    }
}

/// A frame without checksum or markers.
pub(crate) fn fpdu(header: impl Into<Header>, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = header.into().emit().to_vec();
    ulpdu.extend(payload);
    let mut out = Vec::new();
    emit_fpdu(&ulpdu, None, false, &mut out);
    out
}

/// The same frames with checksums.
pub(crate) fn with_crc(mut frames: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while at < frames.len() {
        let ulpdu_len = u16::from_be_bytes([frames[at], frames[at + 1]]);
        let end = at + Layout::new(ulpdu_len, None).size();
        let crc = crc32c(&frames[at..end - CRC_LEN]);
        frames[end - CRC_LEN..end].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
    frames
}

pub(crate) fn control(control: &Control, msn: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    control.emit_payload(&mut payload);
    let header = Untagged {
        ulp: control.ulp_word(),
        ..untagged(Opcode::Control, msn)
    };
    fpdu(header, &payload)
}

/// A stream and its caller.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) stream: Stream,
    pub(crate) stage: Vec<u8>,
    pub(crate) placed: Vec<(Place, Vec<u8>)>,
    pub(crate) delivered: Vec<Delivery>,
    /// The answer to the next claims.
    pub(crate) claim: Claim,
    pub(crate) now: Time,
    /// Uses [`Stream::predict`] where it applies.
    pub(crate) uses_prediction: bool,
    /// Runs of segments that it took at once.
    pub(crate) runs: u32,
}

impl Bench {
    pub(crate) fn new(agreement: &Agreement, settings: Settings) -> Bench {
        Bench {
            stream: Stream::new(agreement, settings),
            stage: Vec::new(),
            placed: Vec::new(),
            delivered: Vec::new(),
            claim: Claim::Granted { capacity: 1 << 20 },
            now: Time::ZERO,
            uses_prediction: false,
            runs: 0,
        }
    }

    /// A stream with a standard peer, past its opening.
    pub(crate) fn standard() -> Bench {
        Bench::new(&agreement(Role::Initiator, false), settings())
    }

    /// A stream with a peer that has the extensions, past the exchange of CAPS.
    pub(crate) fn verbena() -> Bench {
        let mut bench = Bench::new(&agreement(Role::Initiator, true), settings());
        let _ = bench.control(true);
        bench.feed(&control(&Control::Caps(caps()), 1)).unwrap();
        bench.delivered.clear();
        bench
    }

    /// Does what the stream asks until it needs more bytes than there are.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        self.stage.extend(bytes);
        loop {
            if self.uses_prediction && self.take_predicted() {
                continue;
            }
            let (used, step) = self.stream.handle(&self.stage, self.now)?;
            self.stage.drain(..used);
            match step {
                Step::More(need) => {
                    assert!(need > self.stage.len(), "asked for what it has");
                    return Ok(());
                }
                Step::Claim { .. } => self.stream.claim(self.claim)?,
                Step::Place(run) => {
                    if self.stage.is_empty() {
                        return Ok(());
                    }
                    let n = self.stage.len().min(run.len as usize);
                    let bytes: Vec<u8> = self.stage.drain(..n).collect();
                    self.placed.push((run.place, bytes));
                    self.stream.placed(n as u32);
                }
                Step::Deliver(delivery) => self.delivered.push(delivery),
            }
        }
    }

    /// The fast path: takes the expected next frame, and records it as `handle` would.
    fn take_predicted(&mut self) -> bool {
        let Some(foreseen) = self.stream.predict(&self.stage) else {
            return false;
        };
        if !self.stream.is_intact(&self.stage, &foreseen) {
            return false;
        }
        if let PredictedKind::Write { stag, to, .. } = foreseen.kind
            && let Some(run) = self.stream.predict_run(&self.stage, &foreseen)
        {
            let mut to = to;
            for payload in run.payloads() {
                self.placed
                    .push((Place::Write { stag, to }, payload.to_vec()));
                to = to.checked_add(payload.len() as u64).unwrap();
            }
            self.stream.commit_run(&run);
            let size = run.size();
            self.stage.drain(..size);
            self.runs += 1;
            return true;
        }
        let (what, size, payload) = (foreseen.kind, foreseen.size, foreseen.payload.to_vec());
        let len = payload.len() as u32;
        match (what, self.claim) {
            (PredictedKind::Send { .. }, Claim::Granted { capacity }) if len <= capacity => {}
            (PredictedKind::Send { .. }, _) => return false,
            _ => {}
        }
        self.stream.commit_prediction(&foreseen);
        let rsn = self.stream.accounting().responder.next();
        let (place, delivery) = match what {
            PredictedKind::Send { solicited } => (
                Place::Receive { offset: 0 },
                Some(Delivery::Send {
                    rsn,
                    opcode: if solicited {
                        Opcode::SendSe
                    } else {
                        Opcode::Send
                    },
                    len,
                    invalidate: None,
                    immediate: None,
                }),
            ),
            PredictedKind::Write {
                stag,
                to,
                so_far,
                last,
            } => {
                let len = so_far;
                let delivery = last.then_some(Delivery::Write { rsn, stag, len });
                (Place::Write { stag, to }, delivery)
            }
            PredictedKind::Ack(n) => (Place::Discard, Some(Delivery::Acked(n))),
        };
        if len > 0 {
            self.placed.push((place, payload));
        }
        self.delivered.extend(delivery);
        self.stage.drain(..size);
        true
    }

    /// Feeds bytes that are a violation, and returns it.
    pub(crate) fn expect_violation(&mut self, bytes: &[u8]) -> Violation {
        let before = self.placed.len();
        let violation = self.feed(bytes).expect_err("must be refused");
        assert_eq!(self.placed.len(), before, "nothing may be placed");
        assert_eq!(self.stream.cause(), Some(&violation));
        violation
    }

    /// All queued control frames, as bytes.
    pub(crate) fn control(&mut self, flush: bool) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(frame) = self.stream.poll_control(flush) {
            frame.write(&mut out, |_, _| {});
        }
        out
    }

    /// The Terminate of a failing stream.
    pub(crate) fn sent_terminate(&mut self) -> Option<Terminate> {
        let out = self.control(false);
        let start = out.windows(2).rposition(|w| w == [0x41, 0x47])?;
        let len = usize::from(u16::from_be_bytes([out[start - 2], out[start - 1]]));
        let payload = &out[start + Untagged::LEN..start + len];
        // Two codes mean different things in and after startup; the ones sent here always have the RFC's layout.
        [Phase::Running, Phase::Startup]
            .into_iter()
            .filter_map(|phase| Terminate::parse(payload, phase).ok())
            .find_map(|(terminate, dialect)| (dialect == Dialect::Rfc).then_some(terminate))
    }

    /// Sends a whole message; payload byte `i` is `i` modulo 251.
    pub(crate) fn send(&mut self, message: Message) -> Vec<u8> {
        let mut outgoing = self.stream.begin(message).unwrap();
        let mut out = Vec::new();
        while let Some(frame) = self.stream.next_frame(&mut outgoing) {
            frame.write(&mut out, pattern);
        }
        out
    }
}

pub(crate) fn pattern(offset: u32, hole: &mut [u8]) {
    for (i, byte) in hole.iter_mut().enumerate() {
        *byte = ((offset as usize + i) % 251) as u8;
    }
}

pub(crate) fn patterned(len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    pattern(0, &mut bytes);
    bytes
}

/// The state × event table of a machine, one line per state.
pub(crate) fn table<S: Debug + Copy, E: Debug + Copy>(
    states: &[S],
    events: &[E],
    next: impl Fn(S, E) -> Option<S>,
) -> String {
    let mut out = String::new();
    for &state in states {
        for &event in events {
            let to = next(state, event).map_or("-".to_owned(), |s| format!("{s:?}"));
            out += &format!(
                "{:<16} {:<18} -> {to}\n",
                format!("{state:?}"),
                format!("{event:?}")
            );
        }
    }
    out
}
