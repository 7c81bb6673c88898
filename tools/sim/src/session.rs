//! One connection to simulate: the two peers, the links between them, their plan, and the faults.
//! The seed determines everything, and the expected result of the startup can be computed from it.

use core::time::Duration;

use verbena_stream::{RnrRetry, Terms};
use verbena_wire::ext::{Features, RnrTimer};
use verbena_wire::mpa::enhanced::RtrKinds;
use verbena_wire::mpa::startup::Revision;

use crate::link::{Chunks, LinkOptions};
use crate::peer::Profile;
use crate::plan::Plan;
use crate::rng::{Ratio, Rng};

/// One connection to simulate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The initiator and the responder.
    pub profiles: [Profile; 2],
    /// From the initiator, from the responder.
    pub links: [LinkOptions; 2],
    /// The connection is reset after this many bytes, in both directions together.
    pub reset_after: Option<u64>,
    /// The plan of the programs.
    pub plan: Plan,
}

impl Session {
    /// Whether no Reply can arrive in time.
    pub fn times_out(&self) -> bool {
        let round_trip = self.links[0].latency.0 + self.links[1].latency.0;
        self.profiles[0].terms.timeout < round_trip
    }

    /// What the two peers can do with each other, over these links.
    pub fn abilities(&self) -> Abilities {
        let can = abilities(&self.profiles);
        Abilities {
            established: can.established && !self.times_out(),
            ..can
        }
    }
}

/// What both peers can do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// Both use docs/extensions.md: requests are acknowledged, a message without a receive waits.
    pub extensions: bool,
    /// Checksums are on.
    pub crc: bool,
    /// RFC 7306: atomics and immediate data.
    pub rfc7306: bool,
    /// Read V2.
    pub read_v2: bool,
    /// Sends with immediate data.
    pub send_imm: bool,
    /// Whether each side may read from the other.
    pub reads: [bool; 2],
    /// The initiator must send something before the responder may.
    pub needs_first_write: bool,
    /// The startup succeeds.
    pub established: bool,
}

/// What the two profiles can do with each other.
pub fn abilities(profiles: &[Profile; 2]) -> Abilities {
    let [a, b] = profiles;
    let extensions = a.terms.extensions && b.terms.extensions;
    let both = |f: Features| extensions && a.features.contains(f) && b.features.contains(f);
    let enhanced = a.terms.revision == Revision::Two;
    let peer_to_peer = enhanced && a.terms.peer_to_peer;
    let (ours, theirs) = (a.terms.rtr, b.terms.rtr);
    let common =
        (ours.send && theirs.send) || (ours.write && theirs.write) || (ours.read && theirs.read);
    Abilities {
        extensions,
        crc: a.terms.crc || b.terms.crc,
        rfc7306: extensions || (a.rfc7306 && b.rfc7306),
        read_v2: both(Features::READ_V2),
        send_imm: both(Features::SEND_IMM),
        reads: [
            a.terms.ord > 0 && b.terms.ird > 0,
            b.terms.ord > 0 && a.terms.ird > 0,
        ],
        needs_first_write: !extensions && !peer_to_peer,
        established: !(b.rejects || b.rfc5044_only && enhanced)
            && (extensions || !peer_to_peer || common),
    }
}

/// Draws two peers.
pub fn draw_profiles(rng: &mut Rng) -> [Profile; 2] {
    let mut pair = [draw_profile(rng), draw_profile(rng)];
    if rng.chance(Ratio::per_mille(600)) {
        pair[0].terms.extensions = true;
        pair[1].terms.extensions = true;
    }
    pair[1].rfc7306 = pair[0].rfc7306;
    agree_depths(&mut pair);
    pair
}

/// Without RFC 6581 or CAPS the peers do not exchange how many reads they serve: the programs must know.
pub fn agree_depths(pair: &mut [Profile; 2]) {
    let extensions = pair[0].terms.extensions && pair[1].terms.extensions;
    if pair[0].terms.revision == Revision::One && !extensions {
        pair[0].terms.ord = pair[0].terms.ord.min(pair[1].terms.ird);
        pair[1].terms.ord = pair[1].terms.ord.min(pair[0].terms.ird);
    }
}

fn draw_profile(rng: &mut Rng) -> Profile {
    let quarter = Ratio::per_mille(250);
    let depths = [0, 1, 1, 2, 4, 16, 128];
    let ulpdus = [
        128, 129, 256, 511, 512, 1400, 1460, 4096, 9000, 65018, 65535,
    ];
    let max_ulpdu = if rng.coin() {
        rng.pick(&ulpdus)
    } else {
        rng.range(128, 4096) as u16
    };
    let private = if rng.chance(quarter) { 508 } else { 40 };
    let private = rng.len(0, private);
    Profile {
        terms: Terms {
            revision: if rng.chance(quarter) {
                Revision::One
            } else {
                Revision::Two
            },
            crc: rng.coin(),
            markers: rng.chance(quarter),
            ird: rng.pick(&depths),
            ord: rng.pick(&depths),
            peer_to_peer: !rng.chance(quarter),
            rtr: RtrKinds {
                send: rng.chance(Ratio::per_mille(400)),
                write: rng.chance(Ratio::per_mille(500)),
                read: rng.chance(Ratio::per_mille(800)),
            },
            extensions: rng.coin(),
            timeout: Duration::from_secs(5),
        },
        private_data: rng.bytes(private),
        rejects: false,
        rfc5044_only: false,
        max_ulpdu,
        rfc7306: rng.chance(Ratio::per_mille(700)),
        features: Features::from_bits(rng.pick(&[0, 1, 2, 3, 3, 3])),
        rnr_timer: RnrTimer::new(rng.range(1, 14) as u8).unwrap_or_else(|| unreachable!()),
        rnr_retry: RnrRetry::Forever,
        direct: rng.coin(),
        gather: rng.coin(),
        ack_delay: Duration::from_micros(rng.pick(&[0, 0, 20, 100, 1000])),
        responses_first: Ratio::per_mille(rng.pick(&[0, 200, 500, 1000])),
    }
}

/// Draws the properties of a link. `bytes` is about how much it will carry: small chunks are for short sessions.
pub fn draw_link(rng: &mut Rng, bytes: usize) -> LinkOptions {
    let least = (bytes / 20_000).max(1);
    let chunks = match rng.below(4) {
        0 => Chunks::Whole,
        1 => Chunks::Fixed(rng.len(least, least + 1500)),
        2 => Chunks::UpTo(rng.len(2 * least, 2 * least + 60)),
        _ => Chunks::UpTo(rng.len(2 * least + 60, 20_000)),
    };
    let micros = |n| Duration::from_micros(n);
    let low = rng.pick(&[0, 1, 10, 50]);
    LinkOptions {
        chunks,
        window: rng.len(200 * least, 200 * least + 100_000),
        short_write: Ratio::per_mille(rng.pick(&[0, 0, 100, 500, 1000])),
        latency: (micros(low), micros(low + rng.pick(&[0, 5, 100, 2000]))),
        stall: Ratio::per_mille(rng.pick(&[0, 0, 1, 10])),
        stall_time: micros(rng.range(100, 50_000)),
        flip: Ratio::NEVER,
    }
}
