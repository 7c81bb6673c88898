//! Every scenario at every split: short exchanges between two peers over links that cut the stream at all
//! chunk sizes from 1 to 400 and at random, with checksums on and off and markers in either direction.
//! The outcome must be that of the unsplit run, byte for byte and report for report.

use core::time::Duration;

use verbena_sim::checker;
use verbena_sim::image::Image;
use verbena_sim::link::{Chunks, LinkOptions};
use verbena_sim::plan::{Builder, Gate};
use verbena_sim::work::Report;
use verbena_sim::{Profile, Rng, Session, World};
use verbena_stream::{Terms, Time};
use verbena_wire::mpa::enhanced::RtrKinds;
use verbena_wire::mpa::startup::Revision;

const CHUNKS: core::ops::RangeInclusive<usize> = 1..=400;
const RANDOM_SEEDS: u64 = 12;

/// Checksums, markers towards the initiator, markers towards the responder.
const FRAMINGS: [[bool; 3]; 8] = [
    [false, false, false],
    [false, false, true],
    [false, true, false],
    [false, true, true],
    [true, false, false],
    [true, false, true],
    [true, true, false],
    [true, true, true],
];

/// What must not depend on how the stream was cut.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    reports: [Vec<Report>; 2],
    images: [Image; 2],
}

fn run_session(session: &Session, chunks: Chunks, direct: bool, seed: u64) -> Outcome {
    let mut session = session.clone();
    for side in 0..2 {
        session.links[side].chunks = chunks;
        session.profiles[side].direct = direct;
        session.profiles[side].gather = direct;
    }
    let transcript = World::of_peers(session, &mut Rng::new(seed), Time::ZERO).run();
    assert_eq!(checker::check(&transcript), Ok(()), "{chunks:?}");
    Outcome {
        reports: transcript.reports.map(in_classes),
        images: transcript.images,
    }
}

/// Completions, deliveries and other reports, each in order. How the three interleave depends on the timing of the two
/// directions, and so does the number of RNRs; nothing else may.
fn in_classes(all: Vec<Report>) -> Vec<Report> {
    let class = |r: &Report| match r {
        Report::Completed(..) => 0,
        Report::Received(_) => 1,
        _ => 2,
    };
    let told = |r: &Report| !matches!(r, Report::NotReady | Report::Rnr(_) | Report::Ready(_));
    let mut told: Vec<Report> = all.into_iter().filter(told).collect();
    told.sort_by_key(class);
    told
}

fn session(terms: &Terms, build: impl Fn(&mut Builder)) -> Session {
    let mut builder = Builder::new(Rng::new(11), 700);
    build(&mut builder);
    let plan = builder.supply(|_, k| match k {
        // Only scenarios with that many messages, all of them between peers with the extensions, meet a missing receive.
        4 | 6 => (Gate::Refused(k / 5 + 1), Duration::ZERO),
        _ => (Gate::Open, Duration::ZERO),
    });
    let profile = |text: &str| Profile {
        terms: terms.clone(),
        private_data: text.into(),
        max_ulpdu: 140,
        ..Profile::default()
    };
    Session {
        profiles: [profile("who is there?"), profile("")],
        links: [LinkOptions::without_faults(), LinkOptions::without_faults()],
        reset_after: None,
        plan,
    }
}

/// Runs one scenario at every split and framing.
fn at_every_split(terms: &Terms, build: impl Fn(&mut Builder)) {
    let scenario = session(terms, build);
    for [crc, to_initiator, to_responder] in FRAMINGS {
        let mut session = scenario.clone();
        session.profiles[0].terms.crc = crc;
        session.profiles[1].terms.crc = crc;
        session.profiles[0].terms.markers = to_initiator;
        session.profiles[1].terms.markers = to_responder;
        let whole = run_session(&session, Chunks::Whole, false, 0);
        assert!(whole == run_session(&session, Chunks::Whole, true, 0));
        let framing = (crc, to_initiator, to_responder);
        for n in CHUNKS {
            let cut = run_session(&session, Chunks::Fixed(n), n % 2 == 0, 0);
            assert!(cut == whole, "chunks of {n}, {framing:?}");
        }
        for seed in 0..RANDOM_SEEDS {
            let most = [3, 20, 90, 600][seed as usize % 4];
            let cut = run_session(&session, Chunks::UpTo(most), seed % 3 == 0, seed);
            assert!(cut == whole, "random splits, seed {seed}, {framing:?}");
        }
    }
}

fn extended() -> Terms {
    Terms::default()
}

fn standard(revision: Revision, peer_to_peer: bool, rtr: RtrKinds) -> Terms {
    Terms {
        revision,
        peer_to_peer,
        rtr,
        extensions: false,
        ..Terms::default()
    }
}

/// A few messages each way that any pair of peers can exchange.
fn basic_messages(b: &mut Builder) {
    b.send_as(0, 50, false, false, false);
    b.write(0, 130);
    b.after(Gate::Received(1), Duration::ZERO);
    b.send_as(1, 150, true, false, false);
}

const SEND: RtrKinds = RtrKinds {
    send: true,
    write: false,
    read: false,
};
const WRITE: RtrKinds = RtrKinds {
    send: false,
    write: true,
    read: false,
};
const READ: RtrKinds = RtrKinds {
    send: false,
    write: false,
    read: true,
};

#[test]
fn revision_one_startup_survives_every_split() {
    at_every_split(&standard(Revision::One, false, WRITE), basic_messages);
}

#[test]
fn client_server_startup_survives_every_split() {
    at_every_split(&standard(Revision::Two, false, WRITE), basic_messages);
}

#[test]
fn each_rtr_startup_survives_every_split() {
    for rtr in [SEND, WRITE, READ] {
        at_every_split(&standard(Revision::Two, true, rtr), basic_messages);
    }
}

#[test]
fn startup_without_common_rtr_is_terminated() {
    let mut terms = standard(Revision::Two, true, SEND);
    terms.timeout = Duration::from_secs(1);
    let mut scenario = session(&terms, |_| {});
    scenario.profiles[1].terms.rtr = READ;
    for n in CHUNKS {
        let cut = run_session(&scenario, Chunks::Fixed(n), false, 0);
        assert!(matches!(cut.reports[0][0], Report::NotEstablished(_)));
        let terminated = |r: &Report| matches!(r, Report::Terminated(_));
        assert!(cut.reports[1].iter().any(terminated), "chunks of {n}");
    }
}

#[test]
fn all_sends_survive_every_split() {
    at_every_split(&extended(), |b| {
        b.send_as(0, 0, false, false, false);
        b.send_as(0, 300, true, false, false);
        b.send_as(0, 122, false, true, false);
        b.send_as(0, 113, true, true, true);
        b.send_as(1, 250, false, false, true);
    });
}

#[test]
fn segmented_writes_survive_every_split() {
    at_every_split(&extended(), |b| {
        b.write(0, 700);
        b.write(1, 400);
        b.write(0, 126);
        b.write(0, 127);
        b.write(0, 0);
        b.write(1, 1);
    });
}

#[test]
fn reads_survive_every_split() {
    at_every_split(&extended(), |b| {
        b.read(0, 600, false);
        b.write_then_read(0, 200, false);
        b.read(1, 1, false);
        b.read(1, 0, false);
    });
}

#[test]
fn reads_v2_survive_every_split() {
    at_every_split(&extended(), |b| {
        b.read(0, 600, true);
        b.write_then_read(1, 200, true);
        b.read(0, 122, true);
        b.read(0, 0, true);
    });
}

#[test]
fn atomics_survive_every_split() {
    at_every_split(&extended(), |b| {
        for _ in 0..6 {
            b.atomic(0);
            b.atomic(1);
        }
    });
}

#[test]
fn immediates_survive_every_split() {
    at_every_split(&extended(), |b| {
        b.write_imm(0, 300);
        b.write_imm(0, 0);
        b.write_imm(1, 20);
        b.send_as(0, 0, true, false, true);
    });
}

#[test]
fn missing_receives_survive_every_split() {
    let late = |b: &mut Builder| {
        b.send_as(0, 30, false, false, false);
        b.write_imm(0, 20);
        b.send_as(0, 31, false, false, false);
        b.send_as(0, 32, false, true, false);
        // The receives of the fifth and the seventh message are posted too late.
        b.write_imm(0, 250);
        b.atomic(0);
        b.send_as(0, 200, false, false, false);
        b.send_as(0, 290, false, false, true);
        b.atomic(0);
        b.read(0, 100, false);
        b.read(1, 300, false);
    };
    let scenario = session(&extended(), late);
    let transcript = World::of_peers(scenario, &mut Rng::new(0), Time::ZERO).run();
    let refusals = transcript.reports[1].iter();
    let refusals = refusals.filter(|r| **r == Report::NotReady).count();
    assert!(refusals >= 2, "the scenario tests nothing");
    at_every_split(&extended(), late);
}

#[test]
fn write_to_invalid_stag_survives_every_split() {
    at_every_split(&extended(), |b| {
        b.send_as(0, 30, false, false, false);
        b.write_unregistered(0);
    });
}

#[test]
fn standard_peer_messages_survive_every_split() {
    at_every_split(&standard(Revision::Two, true, WRITE), |b| {
        b.send_as(0, 200, true, true, false);
        b.write_imm(0, 150);
        b.atomic(0);
        b.read(0, 300, false);
        b.read(1, 140, false);
        b.send_as(1, 128, false, false, false);
    });
}
