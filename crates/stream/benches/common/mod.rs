//! Shared by both benchmarks: a stream, the bytes of a conforming peer, and the two loops that are measured.
//! The loops do what any caller must do and nothing else, so that their cost is the stream's own plus one copy of payload.

use verbena_stream::startup::Rtr;
use verbena_stream::{
    Agreement, Claim, Message, Place, RnrRetry, Role, Settings, Step, Stream, Time,
};
use verbena_wire::ext::{Caps, Features, Personality, QpType, RnrTimer};
use verbena_wire::mpa::startup::Revision;
use verbena_wire::{Stag, To};

/// The messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// RDMA Writes, one segment each.
    Write,
    /// Sends, one segment each.
    Send,
}

/// The framing, and what is done with payload.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mode {
    /// With checksums.
    pub(crate) crc: bool,
    /// With markers.
    pub(crate) markers: bool,
    /// Payload is copied once; otherwise only counted.
    pub(crate) copy: bool,
}

/// A new stream with a standard peer.
pub(crate) fn stream(mode: Mode) -> Stream {
    let agreement = Agreement {
        role: Role::Initiator,
        revision: Revision::Two,
        crc: mode.crc,
        markers_tx: mode.markers,
        markers_rx: mode.markers,
        ird: 16,
        ord: 16,
        rtr: Rtr::None,
        extensions: false,
        private_data: Vec::new(),
    };
    let caps = Caps {
        version: Caps::VERSION,
        max_ulpdu: u16::MAX,
        features: Features::NONE,
        personality: Personality::Iwarp,
        qp_type: QpType::Rc,
        min_rnr_timer: RnrTimer::new(12).expect("in range"),
        ird: 16,
        nonce: 0,
        same_host: None,
        path: None,
    };
    let settings = Settings {
        max_ulpdu: u16::MAX,
        rfc7306: true,
        rnr_retry: RnrRetry::Forever,
        drop_overlong: false,
        caps,
    };
    Stream::new(&agreement, settings)
}

fn message(kind: Kind, len: u32) -> Message {
    match kind {
        Kind::Write => Message::Write {
            stag: Stag::new(0x1234),
            to: To::new(0),
            len,
        },
        Kind::Send => Message::Send {
            solicited: false,
            invalidate: None,
            len,
        },
    }
}

/// The bytes of `count` messages of `len` bytes each.
pub(crate) fn wire(kind: Kind, mode: Mode, len: u32, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let payload = vec![0xa5; len as usize];
    let mode = Mode { copy: true, ..mode };
    transmit(&mut stream(mode), kind, mode, &payload, count, |stage| {
        bytes.extend_from_slice(stage);
    });
    bytes
}

/// Receives all of `bytes`; payload goes to `memory`. Returns messages delivered.
#[inline(never)]
pub(crate) fn receive(stream: &mut Stream, mode: Mode, bytes: &[u8], memory: &mut [u8]) -> usize {
    let (mut at, mut delivered) = (0, 0);
    loop {
        let told = stream.handle(&bytes[at..], Time::ZERO);
        let (used, step) = told.expect("a conforming peer");
        at += used;
        match step {
            Step::More(_) => return delivered,
            Step::Claim { .. } => {
                let capacity = memory.len() as u32;
                let claimed = stream.claim(Claim::Granted { capacity });
                claimed.expect("large enough");
            }
            Step::Place(run) => {
                let len = run.len as usize;
                if mode.copy {
                    let to = match run.place {
                        Place::Write { to, .. } => to.get() as usize,
                        Place::Receive { offset } | Place::Sink { offset } => offset as usize,
                        Place::Discard => 0,
                    };
                    memory[to..to + len].copy_from_slice(&bytes[at..at + len]);
                }
                at += len;
                stream.placed(run.len);
            }
            Step::Deliver(_) => delivered += 1,
        }
    }
}

/// Sends `count` messages; `out` is called with the stage of each frame.
#[inline(never)]
pub(crate) fn transmit(
    stream: &mut Stream,
    kind: Kind,
    mode: Mode,
    payload: &[u8],
    count: usize,
    mut out: impl FnMut(&[u8]),
) {
    let mut stage = Vec::new();
    for _ in 0..count {
        let begun = stream.begin(message(kind, payload.len() as u32));
        let mut outgoing = begun.expect("nothing holds it");
        while let Some(frame) = stream.next_frame(&mut outgoing) {
            stage.clear();
            if frame.is_plain() {
                stage.extend_from_slice(frame.head());
                if mode.copy {
                    let from = frame.payload_offset() as usize;
                    let len = usize::from(frame.payload_len());
                    stage.extend_from_slice(&payload[from..from + len]);
                }
                stage.extend_from_slice(frame.trailer());
            } else {
                frame.write(&mut stage, |offset, hole| {
                    let from = offset as usize;
                    hole.copy_from_slice(&payload[from..from + hole.len()]);
                });
            }
            out(&stage);
        }
    }
}
