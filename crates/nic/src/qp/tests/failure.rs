//! What is recorded when a queue pair fails: kind, blame, request and access, once.

use verbena_events::event::Wake;
use verbena_mem::{Access, Buffer};
use verbena_wire::{Stag, To};

use crate::qp::{Blame, Failure, FailureKind};
use crate::state::{Personality, QpState};
use crate::testing::{PD, Pair, Setup, write};
use crate::wc::{Status, WcOp};
use crate::wr::RemoteAddr;

fn failure_of(qp: &crate::Qp) -> Failure {
    qp.view().failure.unwrap()
}

#[test]
fn refused_write_is_recorded_at_both_ends() {
    let mut pair = Pair::new(Setup::default());
    let closed = Buffer::new(&pair.b.tpt, 64, PD, Access::LOCAL_WRITE).unwrap();
    let remote = RemoteAddr {
        stag: closed.stag(),
        to: To::new(closed.at() + 8),
    };
    let piece = [pair.a.sge(0, 16)];
    pair.a.post(1, write(pair.b.remote(0)), &piece);
    pair.a.post(7, write(remote), &piece);
    pair.a.post(8, write(remote), &piece);
    pair.run();
    let requester = failure_of(&pair.a.qp);
    assert_eq!(requester.kind, FailureKind::AccessRefused);
    assert_eq!(requester.kind.blame(), Blame::Program);
    let (request, status) = requester.request.unwrap();
    assert_eq!(
        (request.id, request.number, request.op),
        (7, 1, WcOp::Write)
    );
    assert_eq!((request.len, status), (16, Status::RemAccessErr));
    assert_eq!(request.remote, Some((remote.stag, remote.to)));
    assert_eq!(requester.flushed, 2, "the failed one and the one behind");
    let responder = failure_of(&pair.b.qp);
    assert_eq!(responder.kind, FailureKind::Access);
    let access = responder.access.unwrap();
    assert_eq!((access.at, access.len), (closed.at() + 8, 16));
    assert_eq!(access.needs, Access::REMOTE_WRITE);
    let entry = access.entry.unwrap();
    assert_eq!((entry.start.get(), entry.len), (closed.at(), 64));
    assert_eq!(entry.access, Access::LOCAL_WRITE);
}

#[test]
fn key_without_a_region_has_no_entry() {
    let mut pair = Pair::new(Setup::default());
    let remote = RemoteAddr {
        stag: Stag::new(0xdead_0000),
        to: To::new(64),
    };
    let piece = [pair.a.sge(0, 8)];
    pair.a.post(1, write(remote), &piece);
    pair.run();
    let access = failure_of(&pair.b.qp).access.unwrap();
    assert_eq!((access.stag, access.at), (remote.stag, 64));
    assert_eq!(access.entry, None);
}

#[test]
fn failure_is_reported_once() {
    let mut pair = Pair::new(Setup::default());
    let piece = [pair.a.sge(0, 8)];
    pair.a.post(1, write(pair.b.remote(0)), &piece);
    pair.a.qp.handle_peer_dead(&mut pair.a.out);
    let woken = pair.a.out.take_woken();
    assert_eq!(woken, [Wake::Failed(pair.a.qp.number())]);
    let first = failure_of(&pair.a.qp);
    assert_eq!(first.kind, FailureKind::PeerSilent);
    assert_eq!(first.kind.blame(), Blame::Network);
    pair.a.qp.modify(QpState::Err, &mut pair.a.out).unwrap();
    assert!(pair.a.out.take_woken().is_empty());
    assert_eq!(failure_of(&pair.a.qp), first);
}

#[test]
fn requested_end_is_not_reported() {
    for personality in [Personality::Roce, Personality::Iwarp] {
        let mut pair = Pair::new(Setup {
            personality,
            ..Setup::default()
        });
        pair.a.qp.modify(QpState::Err, &mut pair.a.out).unwrap();
        assert!(pair.a.out.take_woken().is_empty(), "{personality:?}");
        assert_eq!(failure_of(&pair.a.qp).kind, FailureKind::Requested);
    }
}

#[test]
fn outstanding_request_is_what_is_waited_for() {
    let mut pair = Pair::new(Setup::default());
    assert_eq!(pair.a.qp.view().waits.oldest, None);
    let piece = [pair.a.sge(0, 8)];
    pair.a.post(3, write(pair.b.remote(0)), &piece);
    let waits = pair.a.qp.view().waits;
    let oldest = waits.oldest.unwrap();
    assert_eq!((oldest.id, oldest.len), (3, 8));
    pair.run();
    assert_eq!(pair.a.qp.view().waits.oldest, None);
}
