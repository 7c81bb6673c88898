//! Parameters of one run of the receive target: the agreement, the settings, and how the harness behaves.
//! Only combinations that a startup can produce (docs/extensions.md, RFC 6581 §9.2).

use verbena_stream::startup::Rtr;
use verbena_stream::{Agreement, Claim, Message, RnrRetry, Role, Settings};
use verbena_wire::ext::{Caps, Features, Personality, QpType, ReadV2Request, RnrTimer};
use verbena_wire::mpa::RtrKinds;
use verbena_wire::mpa::startup::Revision;
use verbena_wire::rdmap::{AtomicOp, AtomicRequest, ReadRequest};
use verbena_wire::{Stag, To};

use super::Peer;
use crate::source::{Source, bit};

/// Sizes of the outstanding reads.
const SIZES: [u32; 4] = [16, 0, 1000, 70_000];
/// Capacities of granted receives.
const CAPACITIES: [u32; 4] = [1 << 20, 16, 1000, 0];

/// One run.
pub(super) struct Config {
    pub(super) agreement: Agreement,
    pub(super) settings: Settings,
    /// The harness opens the stream before the input's bytes.
    opened: bool,
    /// The input is a script of frames, not raw bytes.
    pub(super) framed: bool,
    pub(super) chunk: usize,
    /// Payload bypasses the stage where possible.
    pub(super) direct: bool,
    claims: [u8; 4],
    reads: u8,
    kinds: u8,
}

impl Config {
    pub(super) fn read(source: &mut Source<'_>) -> Config {
        let [mode, rules, rtr, chunk, reads, kinds] = source.array();
        let extensions = bit(rules, 0);
        let kinds_of_rtr = RtrKinds {
            send: bit(rtr, 0),
            write: bit(rtr, 1),
            read: bit(rtr, 2),
        };
        let (role, opens_with) = match (extensions, bit(rules, 4), bit(rules, 5)) {
            (true, false, _) => (Role::Initiator, Rtr::Caps),
            (true, true, _) => (Role::Responder, Rtr::Caps),
            (false, true, true) => (Role::Responder, Rtr::AnyOf(kinds_of_rtr)),
            (false, true, false) => (Role::Responder, Rtr::None),
            (false, false, _) => (Role::Initiator, Rtr::None),
        };
        let features = |byte| Features::from_bits(u32::from(byte & 3));
        Config {
            agreement: Agreement {
                role,
                revision: Revision::Two,
                crc: bit(mode, 0),
                markers_tx: false,
                markers_rx: bit(mode, 1),
                ird: 4,
                ord: 16,
                rtr: opens_with,
                extensions,
                private_data: Vec::new(),
            },
            settings: Settings {
                max_ulpdu: 1000,
                rfc7306: bit(rules, 1),
                rnr_retry: RnrRetry::Forever,
                drop_overlong: bit(mode, 5),
                caps: Caps {
                    qp_type: if bit(mode, 5) { QpType::Uc } else { QpType::Rc },
                    ..caps(features(rules >> 2))
                },
            },
            opened: bit(mode, 2),
            framed: bit(mode, 3),
            direct: bit(mode, 4),
            chunk: 1 + usize::from(chunk),
            claims: source.array(),
            reads,
            kinds,
        }
    }

    /// The bytes with which a conforming peer opens this stream.
    pub(super) fn opening(&self, peer: &mut Peer) -> Vec<u8> {
        match self.agreement.rtr {
            _ if !self.opened => {}
            Rtr::Caps => peer.caps(&caps(Features::READ_V2 | Features::SEND_IMM)),
            Rtr::AnyOf(kinds) => peer.rtr(kinds),
            _ => {}
        }
        peer.take()
    }

    /// The answer to claim number `k`.
    pub(super) fn claim(&self, k: usize) -> Claim {
        let byte = self.claims[k % self.claims.len()];
        match byte & 3 {
            2 => Claim::NotReady { timer: timer() },
            3 => Claim::Drop,
            _ => Claim::Granted {
                capacity: CAPACITIES[usize::from(byte >> 2 & 3)],
            },
        }
    }

    /// After this many discarded messages a receive is posted.
    pub(super) fn discard_limit(&self) -> usize {
        usize::from(self.claims[0] >> 4)
    }

    /// Responses owed when the stream fails are dropped.
    pub(super) fn drops_responses(&self) -> bool {
        bit(self.claims[3], 7)
    }

    /// The outstanding reads: their sinks are those that [`Peer`] names in its responses.
    pub(super) fn reads(&self) -> impl Iterator<Item = Message> + '_ {
        (0..u32::from(self.reads & 7)).map(|k| match self.kinds >> (k % 4 * 2) & 3 {
            1 => Message::ReadV2Request(ReadV2Request {
                size: self.size(k),
                source_stag: Stag::new(1),
                source_to: To::new(0),
            }),
            2 => Message::AtomicRequest(AtomicRequest {
                op: AtomicOp::FetchAdd { add: 1, mask: 0 },
                id: k,
                stag: Stag::new(1),
                to: To::new(0),
            }),
            _ => Message::ReadRequest(ReadRequest {
                sink_stag: Stag::new(Peer::SINK),
                sink_to: To::new(Peer::SINK_TO),
                size: self.size(k),
                source_stag: Stag::new(1),
                source_to: To::new(0),
            }),
        })
    }

    fn size(&self, k: u32) -> u32 {
        SIZES[(usize::from(self.reads >> 3) + k as usize) % SIZES.len()]
    }
}

fn timer() -> RnrTimer {
    RnrTimer::new(12).expect("in range")
}

fn caps(features: Features) -> Caps {
    Caps {
        version: Caps::VERSION,
        max_ulpdu: 1000,
        features,
        personality: Personality::Roce,
        qp_type: QpType::Rc,
        min_rnr_timer: timer(),
        ird: 16,
        nonce: 7,
        same_host: None,
        path: None,
    }
}
