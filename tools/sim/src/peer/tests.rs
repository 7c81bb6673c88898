//! What a peer refuses, and what is reported to both programs: one short session per violation.
//! The Terminate is that of the RFCs, and the status that of docs/extensions.md. Valid traffic is covered by the workloads.

use core::time::Duration;

use verbena_stream::{AccessFault, Terms, Time, Violation};
use verbena_wire::rdmap::{AtomicOp, Cause, DdpError, RdmapError};
use verbena_wire::{Stag, To};

use super::{Profile, RegionSpec, Rights};
use crate::link::LinkOptions;
use crate::plan::{Gate, Plan, Posting, Supply};
use crate::rng::Rng;
use crate::session::Session;
use crate::work::{Report, Status, TaggedAddr, Work};
use crate::world::{Transcript, World};

const STAG: Stag = Stag::new(0x900);

fn addr(to: u64) -> TaggedAddr {
    TaggedAddr {
        stag: STAG,
        to: To::new(to),
    }
}

/// The initiator posts `works`; the responder has one region for every use and these receives.
fn run(extensions: bool, works: Vec<Work>, receives: &[u32]) -> Transcript {
    let mut plan = Plan::default();
    let rights = Rights {
        remote_write: true,
        remote_read: true,
        remote_atomic: true,
        local_write: true,
    };
    for side in &mut plan.sides {
        side.depth = usize::MAX;
        side.regions.push(RegionSpec {
            at: addr(0),
            bytes: vec![0; 64],
            rights,
        });
    }
    let gap = Duration::ZERO;
    let gate = Gate::Open;
    plan.sides[0].works = works
        .into_iter()
        .map(|work| Posting {
            work,
            gate,
            gap,
            bad: false,
        })
        .collect();
    plan.sides[1].receives = receives
        .iter()
        .map(|&capacity| Supply {
            capacity,
            gate,
            gap,
        })
        .collect();
    let profile = Profile {
        terms: Terms {
            extensions,
            ..Terms::default()
        },
        ..Profile::default()
    };
    let session = Session {
        profiles: [profile.clone(), profile],
        links: [LinkOptions::without_faults(), LinkOptions::without_faults()],
        reset_after: None,
        plan,
    };
    World::of_peers(session, &mut Rng::new(1), Time::ZERO).run()
}

fn send(len: usize) -> Work {
    Work::Send {
        payload: vec![1; len],
        solicited: false,
        invalidate: None,
        immediate: None,
    }
}

/// The responder reported `violation`, the initiator received `cause` and failed work `id`.
fn refused(t: &Transcript, violation: impl Fn(&Violation) -> bool, cause: Cause, id: u64) {
    let hers = t.reports[1].iter().find_map(|r| match r {
        Report::Violation(v) => Some(v),
        _ => None,
    });
    assert!(hers.is_some_and(violation), "{hers:?}");
    assert!(
        t.reports[0].contains(&Report::Terminated(cause)),
        "{:?}",
        t.reports[0]
    );
    if t.abilities().extensions {
        let blamed = t.completions(0).find(|(_, s)| !s.is_success());
        assert_eq!(blamed, Some((id, Status::Refused(cause))));
    }
    assert!(!t.stalled);
}

#[test]
fn standard_peer_without_a_receive_terminates() {
    let t = run(false, vec![send(5), send(6)], &[5]);
    let no_receive = |v: &Violation| matches!(v, Violation::NoReceive { .. });
    refused(&t, no_receive, Cause::Ddp(DdpError::UntaggedNoBuffer), 1);
    assert_eq!(t.received(1).count(), 1);
}

#[test]
fn extended_peer_without_a_receive_waits() {
    let t = run(true, vec![send(5), send(6)], &[5]);
    assert!(t.stalled);
    assert!(t.reports[1].contains(&Report::NotReady));
    assert_eq!(t.completions(0).collect::<Vec<_>>(), [(0, Status::Acked)]);
}

#[test]
fn a_send_longer_than_its_receive_is_refused() {
    for extensions in [true, false] {
        let t = run(extensions, vec![send(5), send(3000)], &[5, 2999]);
        let too_long = |v: &Violation| matches!(v, Violation::TooLong { capacity: 2999, .. });
        refused(&t, too_long, Cause::Ddp(DdpError::UntaggedTooLong), 1);
    }
}

#[test]
fn a_read_beyond_its_region_is_refused() {
    for v2 in [true, false] {
        let read = Work::Read {
            source: addr(1),
            sink: addr(0),
            len: 64,
            v2,
        };
        let t = run(true, vec![send(5), read], &[5]);
        let bounds = |v: &Violation| {
            let fault = AccessFault::Bounds;
            matches!(v, Violation::Access { fault: f, .. } if *f == fault)
        };
        refused(&t, bounds, Cause::Rdmap(RdmapError::Bounds), 1);
    }
}

#[test]
fn a_read_before_the_refused_request_is_answered() {
    // docs/connections.md: the request that was refused gets the status, however many responses are owed by then.
    for v2 in [true, false] {
        let read = |to| Work::Read {
            source: addr(to),
            sink: addr(0),
            len: 8,
            v2,
        };
        let write = Work::Write {
            at: addr(60),
            payload: vec![1; 8],
            immediate: None,
        };
        let works = vec![send(5), read(0), read(8), read(16), write, read(24)];
        let t = run(true, works, &[5]);
        let bounds = |v: &Violation| {
            let fault = AccessFault::Bounds;
            matches!(v, Violation::Access { fault: f, .. } if *f == fault)
        };
        refused(&t, bounds, Cause::Ddp(DdpError::TaggedBounds), 4);
    }
}

#[test]
fn an_unaligned_atomic_is_refused() {
    let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
    let t = run(true, vec![Work::Atomic { at: addr(4), op }], &[]);
    let unaligned = |v: &Violation| matches!(v, Violation::Unaligned { .. });
    refused(
        &t,
        unaligned,
        Cause::Rdmap(RdmapError::CatastrophicStream),
        0,
    );
}

#[test]
fn invalidating_an_unknown_stag_is_refused() {
    let work = Work::Send {
        payload: vec![1; 9],
        solicited: true,
        invalidate: Some(Stag::new(0x1234)),
        immediate: None,
    };
    let t = run(true, vec![work], &[9]);
    let access = |v: &Violation| matches!(v, Violation::Access { .. });
    let cause = Cause::Rdmap(RdmapError::CannotInvalidateOperation);
    refused(&t, access, cause, 0);
    assert_eq!(t.received(1).count(), 0, "it was not delivered either");
}
