//! Each checker can fail: a transcript without faults passes, and every kind of falsification is found by the right checker.
//! Nothing here depends on a drawn seed.

use core::time::Duration;

use verbena_stream::{Outcome, Time};

use super::{Verdict, bytes, leaks, once, order, startup};
use crate::link::LinkOptions;
use crate::peer::Profile;
use crate::plan::{Builder, Gate};
use crate::rng::Rng;
use crate::run::run_session;
use crate::session::Session;
use crate::work::{Report, Status};
use crate::world::Transcript;

fn session(build: impl Fn(&mut Builder)) -> Session {
    let mut builder = Builder::new(Rng::new(5), 3000);
    build(&mut builder);
    let plan = builder.supply(|_, k| match k {
        2 => (Gate::Refused(1), Duration::from_micros(10)),
        _ => (Gate::Open, Duration::ZERO),
    });
    let profile = |text: &str| Profile {
        private_data: text.into(),
        ..Profile::default()
    };
    Session {
        profiles: [profile("hello"), profile("welcome")],
        links: [LinkOptions::without_faults(), LinkOptions::without_faults()],
        reset_after: None,
        plan,
    }
}

fn run(session: &Session) -> Transcript {
    run_session(session, &mut Rng::new(6), Time::ZERO).expect("no panic")
}

/// A run without faults, with every kind of work and one RNR.
fn healthy() -> Transcript {
    run(&session(|b| {
        b.send_as(0, 100, false, true, true);
        b.write_imm(0, 2500);
        b.atomic(0);
        b.send_as(0, 30, true, false, false);
        b.atomic(0);
        b.atomic(0);
        b.write_then_read(0, 700, true);
        b.read(1, 900, false);
        b.send(1, 10);
    }))
}

/// The checker reports the falsified transcript and accepts the original.
fn finds(check: fn(&Transcript) -> Verdict, damage: impl Fn(&mut Transcript)) -> String {
    let mut transcript = healthy();
    assert_eq!(super::check(&transcript), Ok(()));
    damage(&mut transcript);
    check(&transcript).expect_err("the damage goes unnoticed")
}

/// The indices of a side's matching reports, to be falsified.
fn at(t: &Transcript, side: usize, fits: impl Fn(&Report) -> bool) -> Vec<usize> {
    let reports = t.reports[side].iter().enumerate();
    reports.filter(|(_, r)| fits(r)).map(|(k, _)| k).collect()
}

fn completed(report: &Report) -> bool {
    matches!(report, Report::Completed(..))
}

fn received(report: &Report) -> bool {
    matches!(report, Report::Received(_))
}

#[test]
fn healthy_run_contains_a_missing_receive() {
    let t = healthy();
    assert_eq!(at(&t, 1, |r| *r == Report::NotReady).len(), 1);
}

#[test]
fn bytes_finds_one_wrong_byte_in_any_region() {
    for region in 0..5 {
        for side in 0..2 {
            let why = finds(bytes::check, |t| {
                t.images[side].regions[region].memory.bytes_mut(17, 1)[0] ^= 0x10;
            });
            assert!(why.contains("byte 17"), "{why}");
        }
    }
}

#[test]
fn bytes_finds_a_touched_guard() {
    let why = finds(bytes::check, |t| {
        let memory = &mut t.images[1].regions[0].memory;
        memory.bytes_mut(memory.len(), 1)[0] = 0;
    });
    assert!(why.contains("guard"), "{why}");
    let why = finds(bytes::check, |t| {
        let memory = &mut t.images[1].receives[0].memory;
        memory.bytes_mut(memory.len(), 1)[0] = 0;
    });
    assert!(why.contains("guard"), "{why}");
}

#[test]
fn bytes_finds_a_wrong_byte_in_a_receive() {
    finds(bytes::check, |t| {
        t.images[1].receives[0].memory.bytes_mut(99, 1)[0] ^= 1;
    });
}

#[test]
fn bytes_finds_a_region_that_was_not_invalidated() {
    let why = finds(bytes::check, |t| {
        let spent = t.images[1].regions.iter_mut().find(|r| !r.valid);
        spent.expect("one was invalidated").valid = true;
    });
    assert!(why.contains("still valid"), "{why}");
    finds(bytes::check, |t| t.images[0].regions[1].valid = false);
}

#[test]
fn order_finds_swapped_deliveries() {
    finds(order::check, |t| {
        let found = at(t, 1, received);
        t.reports[1].swap(found[0], found[1]);
    });
}

#[test]
fn order_finds_swapped_completions() {
    finds(order::check, |t| {
        let found = at(t, 0, completed);
        t.reports[0].swap(found[2], found[3]);
    });
}

#[test]
fn order_finds_every_wrong_field_of_a_delivery() {
    let tamper: [fn(&mut crate::work::Received); 5] = [
        |r| r.len += 1,
        |r| r.immediate = None,
        |r| r.receive += 1,
        |r| r.write_len = None,
        |r| r.invalidated = None,
    ];
    for (k, tamper) in tamper.iter().enumerate() {
        finds(order::check, |t| {
            // The Write with immediate is the second delivery, the Send that invalidates the first.
            let which = at(t, 1, received)[usize::from(k == 3)];
            if let Report::Received(r) = &mut t.reports[1][which] {
                tamper(r);
            }
        });
    }
}

#[test]
fn order_finds_a_delivery_too_many() {
    finds(order::check, |t| {
        let last = *at(t, 1, received).last().expect("deliveries");
        let again = t.reports[1][last].clone();
        t.reports[1].push(again);
    });
}

#[test]
fn once_finds_a_missing_and_a_second_completion() {
    finds(once::check, |t| {
        let found = at(t, 0, completed);
        t.reports[0].remove(found[0]);
    });
    finds(once::check, |t| {
        let found = at(t, 0, completed);
        let again = t.reports[0][found[0]].clone();
        t.reports[0].push(again);
    });
}

#[test]
fn once_finds_an_atomic_that_ran_twice() {
    let why = finds(once::check, |t| {
        let fetched = |r: &Report| matches!(r, Report::Completed(_, Status::Fetched(_)));
        let found = at(t, 0, fetched);
        if let Report::Completed(_, Status::Fetched(word)) = &mut t.reports[0][found[1]] {
            *word = word.wrapping_add(1);
        }
    });
    assert!(why.contains("fetched"), "{why}");
}

#[test]
fn once_finds_impossible_statuses() {
    for status in [
        Status::Accepted,
        Status::Fetched(0),
        Status::Flushed,
        Status::Unsupported,
    ] {
        finds(once::check, |t| {
            let found = at(t, 0, completed);
            t.reports[0][found[0]] = Report::Completed(0, status);
        });
    }
}

#[test]
fn once_finds_a_success_without_a_delivery() {
    finds(once::check, |t| {
        let last = *at(t, 1, received).last().expect("deliveries");
        t.reports[1].remove(last);
    });
}

#[test]
fn leaks_finds_every_leftover() {
    let leave: [fn(&mut crate::actor::Leftovers); 8] = [
        |l| l.works = 1,
        |l| l.unacknowledged = 1,
        |l| l.reads_out = 1,
        |l| l.reads_in = 1,
        |l| l.staged = 1,
        |l| l.outbox = 1,
        |l| l.claimed = 1,
        |l| l.discarding = 1,
    ];
    for leave in leave {
        finds(leaks::check, |t| leave(&mut t.leftovers[1]));
    }
}

#[test]
fn leaks_finds_stalls_and_abnormal_ends() {
    finds(leaks::check, |t| t.stalled = true);
    finds(leaks::check, |t| {
        t.reports[0].push(Report::Closed(false));
    });
    finds(leaks::check, |t| t.posted[0] -= 1);
    finds(leaks::check, |t| {
        let report = Report::NotEstablished(Outcome::Refused);
        t.reports[1].insert(0, report);
    });
}

#[test]
fn leaks_finds_unnoticed_flips_and_unexplained_stalls() {
    let why = finds(leaks::check, |t| t.flipped[0].push(200));
    assert!(why.contains("neither side reported it"), "{why}");
    // Position 200 is in the payload of a frame; the first length field is right behind the startup frame.
    let stall = |position: u64| {
        let mut t = healthy();
        t.flipped[0].push(position);
        t.stalled = true;
        leaks::check(&t)
    };
    let startup = 20 + 4 + "hello".len() as u64;
    assert!(stall(200).is_err());
    assert_eq!(stall(startup), Ok(()));
    assert_eq!(stall(startup + 1), Ok(()));
    assert!(stall(startup + 2).is_err());
}

#[test]
fn leaks_finds_a_missing_refusal() {
    let bad = run(&session(|b| {
        b.send(0, 5);
        b.write_unregistered(0);
    }));
    assert_eq!(super::check(&bad), Ok(()));
    for (side, fits) in [
        (
            1,
            (|r| matches!(r, Report::Violation(_))) as fn(&Report) -> bool,
        ),
        (0, |r| matches!(r, Report::Terminated(_))),
    ] {
        let mut t = bad.clone();
        t.reports[side].retain(|r| !fits(r));
        assert!(leaks::check(&t).is_err());
    }
}

#[test]
fn startup_finds_parameters_not_negotiated() {
    let tamper: [fn(&mut Report); 3] = [
        |r| {
            if let Report::Established { crc, .. } = r {
                *crc = !*crc;
            }
        },
        |r| {
            if let Report::Established { extensions, .. } = r {
                *extensions = false;
            }
        },
        |r| {
            if let Report::Established { private_data, .. } = r {
                private_data.push(0);
            }
        },
    ];
    for tamper in tamper {
        finds(startup::check, |t| tamper(&mut t.reports[1][0]));
    }
    finds(startup::check, |t| {
        t.reports[0].remove(0);
    });
}
