//! Errors: each row of the error table, both sides, both personalities; flushes; overflow; orderly closes.

use core::time::Duration;

use verbena_events::event::Event;
use verbena_mem::{Access, Bind, Buffer, Pd, Policy, WindowType};
use verbena_stream::Time;
use verbena_wire::{Stag, To};

use crate::carrier::MemoryCarrier;
use crate::qp::wqe::Wqe;
use crate::qp::{Acks, QpAccessFlags};
use crate::state::{Personality, QpState, QpType};
use crate::testing::{PD, Pair, SEND, SIZE, Setup, Side, feed, read, transmit, write};
use crate::wc::{Status, WcOp};
use crate::wr::{Data, Flags, RemoteAddr, SendOp, SendWr, Sge};

/// A good write, the bad request, another write: the first succeeds, the second gets the status, the rest is flushed.
fn assert_request_fails(pair: &mut Pair, bad: SendOp, len: u32, status: Status) {
    let good = write(pair.b.remote(0));
    let piece = [pair.a.sge(0, len)];
    pair.b.receive(50, &[]);
    pair.a.post(1, good, &piece);
    pair.a.post(2, bad, &piece);
    pair.a.post(3, good, &piece);
    pair.run();
    let expected = [(1, Status::Success), (2, status), (3, Status::WrFlushErr)];
    assert_eq!(
        pair.a.statuses(),
        expected,
        "{bad:?}: {:?}",
        pair.b.qp.cause()
    );
    assert_eq!(pair.a.qp.state(), QpState::Err);
    assert_eq!(pair.b.qp.state(), QpState::Err);
    let flushed = pair.b.received();
    assert_eq!(flushed.len(), 1, "the receive that waited is flushed");
}

#[test]
fn refused_remote_access_is_rem_access_err() {
    // STag, bounds, domain, right: REM_ACCESS_ERR at the requester, an access event at the responder.
    type BadRemote = fn(&Pair, &Buffer, &Buffer) -> RemoteAddr;
    let ruins: [BadRemote; 4] = [
        |pair, _, _| RemoteAddr {
            stag: Stag::new(pair.b.memory.stag().get() ^ 1),
            ..pair.b.remote(0)
        },
        |pair, _, _| pair.b.remote(crate::testing::SIZE as u64 - 4),
        |_, foreign, _| RemoteAddr {
            stag: foreign.stag(),
            to: To::new(foreign.at()),
        },
        |_, _, closed| RemoteAddr {
            stag: closed.stag(),
            to: To::new(closed.at()),
        },
    ];
    for ruin in ruins {
        for op in [write as fn(RemoteAddr) -> SendOp, read] {
            let mut pair = Pair::roce();
            let foreign = Buffer::new(&pair.b.tpt, 100, Pd(2), Access::ALL).unwrap();
            let closed = Buffer::new(&pair.b.tpt, 100, Pd(1), Access::LOCAL_WRITE).unwrap();
            let remote = ruin(&pair, &foreign, &closed);
            assert_request_fails(&mut pair, op(remote), 8, Status::RemAccessErr);
            assert_eq!(pair.b.events()[0], Event::QpAccess { qp: 2 });
            assert!(
                foreign
                    .read(0, 100)
                    .iter()
                    .chain(&closed.read(0, 100))
                    .all(|b| *b == 0)
            );
        }
    }
}

#[test]
fn disallowed_operations_are_rem_inv_req_err() {
    let none = QpAccessFlags {
        write: false,
        read: false,
        atomic: false,
        flush: false,
    };
    let mut pair = Pair::roce();
    let read = read(pair.b.remote(0));
    pair.b.qp.set_access_flags(
        QpAccessFlags {
            write: true,
            ..none
        },
        &mut pair.b.out,
    );
    assert_request_fails(&mut pair, read, 8, Status::RemInvReqErr);
    assert_eq!(pair.b.events()[0], Event::QpRequest { qp: 2 });
    let mut pair = Pair::roce();
    let atomic = SendOp::FetchAdd {
        remote: pair.b.remote(64 - pair.b.memory.at() % 8 + 1),
        add: 1,
        mask: 0,
    };
    assert_request_fails(&mut pair, atomic, 8, Status::RemInvReqErr);
}

#[test]
fn send_longer_than_receive_is_loc_len_err() {
    let mut pair = Pair::roce();
    let scatter = [pair.b.sge(0, 10)];
    pair.b.receive(9, &scatter);
    let gather = [pair.a.sge(0, 11)];
    pair.a.post(1, SEND, &gather);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::RemInvReqErr)]);
    let received = pair.b.received();
    assert_eq!((received[0].id, received[0].status), (9, Status::LocLenErr));
    assert_eq!(pair.b.qp.state(), QpState::Err);
}

#[test]
fn deregistered_receive_memory_is_loc_prot_err() {
    let mut pair = Pair::roce();
    let lost = Buffer::new(&pair.b.tpt, 100, Pd(1), Access::LOCAL_WRITE).unwrap();
    let scatter = [crate::wr::Sge {
        addr: lost.at(),
        len: 100,
        stag: lost.stag(),
    }];
    pair.b.receive(9, &scatter);
    drop(lost);
    let gather = [pair.a.sge(0, 11)];
    pair.a.post(1, SEND, &gather);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::RemOpErr)]);
    assert_eq!(pair.b.received()[0].status, Status::LocProtErr);
}

#[test]
fn invalid_local_stag_is_loc_prot_err() {
    for op in [write as fn(RemoteAddr) -> SendOp, read] {
        let mut pair = Pair::roce();
        let mut piece = [pair.a.sge(0, 8)];
        piece[0].stag = Stag::new(piece[0].stag.get() ^ 1);
        let remote = pair.b.remote(0);
        pair.a.post(1, op(remote), &piece);
        pair.a.post(2, SEND, &[]);
        pair.run();
        let expected = [(1, Status::LocProtErr), (2, Status::WrFlushErr)];
        assert_eq!(pair.a.statuses(), expected);
        assert_eq!(pair.a.qp.state(), QpState::Err);
    }
}

#[test]
fn requests_before_an_invalid_one_succeed() {
    let mut pair = Pair::roce();
    let good = write(pair.b.remote(0));
    let piece = [pair.a.sge(0, 4000)];
    pair.a.post(1, good, &piece);
    let mut bad = [pair.a.sge(0, 8)];
    bad[0].stag = Stag::new(bad[0].stag.get() ^ 1);
    let sink = read(pair.b.remote(0));
    pair.a.post(2, sink, &bad);
    pair.a.post(3, good, &piece);
    pair.run();
    let expected = [
        (1, Status::Success),
        (2, Status::LocProtErr),
        (3, Status::WrFlushErr),
    ];
    assert_eq!(pair.a.statuses(), expected);
}

/// Two sides that each sent a request and then began a write whose memory is refused, before either received from the other.
fn both_sides_failing(pieces: fn(&Side) -> Vec<Sge>) -> Pair {
    let mut pair = Pair::roce();
    let remotes = [pair.b.remote(0), pair.a.remote(0)];
    for (side, remote) in [&mut pair.a, &mut pair.b].into_iter().zip(remotes) {
        let (sink, gather) = ([side.sge(4000, 8)], pieces(side));
        side.post(1, read(remote), &sink);
        side.post(2, write(remote), &gather);
    }
    let from_a = transmit(&pair.a.qp, 9000, pair.now, &mut pair.a.out);
    let from_b = transmit(&pair.b.qp, 9000, pair.now, &mut pair.b.out);
    feed(&pair.b.qp, &from_a, pair.now, &mut pair.b.out);
    feed(&pair.a.qp, &from_b, pair.now, &mut pair.a.out);
    pair.run();
    pair
}

fn refused_piece(side: &Side) -> Sge {
    let good = side.sge(0, 8);
    Sge {
        stag: Stag::new(good.stag.get() ^ 1),
        ..good
    }
}

/// A request of which nothing was framed blocks no answer while it waits for its turn to fail.
#[test]
fn failing_requests_do_not_block_answers() {
    let pair = both_sides_failing(|side| vec![refused_piece(side)]);
    // The first answer lets one of them fail, which ends the stream for the other.
    let expected = [(1, Status::Success), (2, Status::LocProtErr)];
    assert_eq!(pair.b.statuses(), expected);
    let expected = [(1, Status::RemOpErr), (2, Status::WrFlushErr)];
    assert_eq!(pair.a.statuses(), expected);
}

/// Where the refused request is half sent no answer can be sent, on either side: they do not wait for each other for ever.
#[test]
fn half_sent_failures_do_not_deadlock() {
    let mut pair = both_sides_failing(|side| vec![side.sge(0, 2000), refused_piece(side)]);
    assert_eq!(pair.a.statuses(), [], "its answer may still come");
    pair.wait();
    let expected = [(1, Status::WrFlushErr), (2, Status::LocProtErr)];
    for side in [&pair.a, &pair.b] {
        assert_eq!(side.statuses(), expected, "{:?}", side.qp.cause());
        assert_eq!(side.qp.state(), QpState::Err);
    }
}

#[test]
fn unreliable_send_succeeds_without_a_peer() {
    let mut pair = Pair::new(Setup {
        qp_type: QpType::Uc,
        ..Setup::default()
    });
    pair.a.qp.handle_eof(true, &mut pair.a.out);
    pair.a.post(1, SEND, &[]);
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    assert_eq!(pair.a.qp.state(), QpState::Rts);
}

#[test]
fn send_with_invalidate_of_region_is_refused() {
    let mut pair = Pair::roce();
    pair.b.receive(9, &[]);
    let op = SendOp::Send {
        invalidate: Some(pair.b.memory.stag()),
        immediate: None,
    };
    pair.a.post(1, op, &[]);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::RemAccessErr)]);
    assert!(pair.b.tpt.find_entry(pair.b.memory.stag()).is_some());
}

#[test]
fn windows_only_policy_refuses_regions() {
    let mut pair = Pair::new(Setup {
        policy: Policy::WindowsOnly,
        ..Setup::default()
    });
    let op = write(pair.b.remote(0));
    let piece = [pair.a.sge(0, 8)];
    pair.a.post(1, op, &piece);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::RemAccessErr)]);
}

#[test]
fn iwarp_ends_in_terminate_on_both_sides() {
    let mut pair = Pair::new(Setup {
        personality: Personality::Iwarp,
        ..Setup::default()
    });
    let bad = write(RemoteAddr {
        stag: Stag::new(0xdead_0000),
        to: To::new(0),
    });
    let piece = [pair.a.sge(0, 8)];
    pair.a.post(1, bad, &piece);
    pair.a.receive(5, &[]);
    pair.run();
    // iWARP completes a write when it was sent; the failure is an event.
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    assert!(pair.a.events().contains(&Event::QpFatal { qp: 1 }));
    assert_eq!(pair.a.received()[0].status, Status::WrFlushErr);
    assert_eq!(pair.b.events()[0], Event::QpAccess { qp: 2 });
    let cause = pair.a.qp.cause().unwrap();
    assert!(
        cause.contains("the peer sent Terminate") && cause.contains("invalid STag"),
        "{cause}"
    );
}

#[test]
fn an_unreliable_connection_survives_a_refused_write() {
    let mut pair = Pair::new(Setup {
        qp_type: QpType::Uc,
        ..Setup::default()
    });
    let bad = write(RemoteAddr {
        stag: Stag::new(0xdead_0000),
        to: To::new(0),
    });
    let piece = [pair.a.sge(0, 3000)];
    pair.a.post(1, bad, &piece);
    pair.a.memory.write(0, b"still here");
    let good = write(pair.b.remote(0));
    let piece = [pair.a.sge(0, 10)];
    pair.a.post(2, good, &piece);
    pair.run();
    assert_eq!(
        pair.a.statuses(),
        [(1, Status::Success), (2, Status::Success)]
    );
    assert_eq!(pair.b.memory.read(0, 10), b"still here");
}

#[test]
fn unsupported_immediate_is_loc_qp_op_err() {
    let mut pair = Pair::new(Setup {
        extensions: false,
        rfc7306: false,
        ..Setup::default()
    });
    let op = SendOp::Write {
        remote: pair.b.remote(0),
        immediate: Some(1),
    };
    pair.a.post(1, op, &[]);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::LocQpOpErr)]);
}

#[test]
fn grace_period_delays_retry_exc_err() {
    let mut pair = Pair::roce();
    let grace = Duration::from_millis(500);
    pair.a.qp.set_grace(grace, &mut pair.a.out);
    pair.a.post(1, SEND, &[]);
    pair.a.qp.handle_eof(true, &mut pair.a.out);
    assert_eq!(pair.a.statuses(), []);
    assert!(!pair.a.qp.wants_close(), "its timer is set");
    let until = pair.a.qp.deadline().unwrap();
    pair.a.post(2, SEND, &[]);
    let shortly = Time::from_nanos(until.nanos() - 1);
    pair.a.qp.handle_timeout(shortly, &mut pair.a.out);
    assert_eq!(pair.a.statuses(), []);
    pair.a.qp.handle_timeout(until, &mut pair.a.out);
    let expected = [(1, Status::RetryExcErr), (2, Status::WrFlushErr)];
    assert_eq!(pair.a.statuses(), expected);
    assert!(pair.a.qp.wants_close());
}

#[test]
fn peer_disconnect_fails_next_roce_request() {
    // InfiniBand's rules: nothing happens until a request needs the peer.
    let mut pair = Pair::roce();
    pair.a.receive(5, &[]);
    pair.a.qp.handle_eof(true, &mut pair.a.out);
    assert_eq!(pair.a.events(), [Event::Disconnected { qp: 1 }]);
    assert_eq!(pair.a.qp.state(), QpState::Rts);
    assert!(pair.a.received().is_empty(), "nothing is flushed");
    pair.a.post(1, SEND, &[]);
    assert_eq!(pair.a.statuses(), [(1, Status::RetryExcErr)]);
    assert_eq!(pair.a.qp.state(), QpState::Err);
    assert_eq!(pair.a.received()[0].status, Status::WrFlushErr);

    let iwarp = Setup {
        personality: Personality::Iwarp,
        ..Setup::default()
    };
    let mut pair = Pair::new(iwarp);
    pair.a.receive(5, &[]);
    pair.a.qp.handle_eof(false, &mut pair.a.out);
    assert_eq!(pair.a.qp.state(), QpState::Closing);
    assert_eq!(pair.a.received()[0].status, Status::WrFlushErr);
}

#[test]
fn graceful_iwarp_close_returns_to_init() {
    let mut pair = Pair::new(Setup {
        personality: Personality::Iwarp,
        ..Setup::default()
    });
    pair.a.qp.modify(QpState::Sqd, &mut pair.a.out).unwrap();
    pair.run();
    assert_eq!(pair.a.qp.state(), QpState::Closing);
    assert_eq!(pair.b.qp.state(), QpState::Closing);
    for side in [&mut pair.a, &mut pair.b] {
        side.qp.handle_closed(&mut side.out);
        assert_eq!(side.qp.state(), QpState::Init);
    }
    let mut pair = Pair::new(Setup {
        personality: Personality::Iwarp,
        ..Setup::default()
    });
    pair.a
        .qp
        .modify(QpState::Terminate, &mut pair.a.out)
        .unwrap();
    pair.run();
    pair.a.qp.handle_closed(&mut pair.a.out);
    assert_eq!(pair.a.qp.state(), QpState::Err);
}

/// The state is checked before a request is queued, and the connection may close in between.
#[test]
fn late_request_is_flushed_after_graceful_close() {
    for state in [QpState::Closing, QpState::Init] {
        let mut pair = Pair::new(Setup {
            personality: Personality::Iwarp,
            ..Setup::default()
        });
        pair.a.qp.handle_eof(false, &mut pair.a.out);
        if state == QpState::Init {
            pair.a.qp.handle_closed(&mut pair.a.out);
        }
        assert_eq!(pair.a.qp.state(), state);
        // As `queue_send` does after its check.
        let wr = SendWr {
            id: 1,
            op: SEND,
            flags: Flags::SIGNALED,
            data: Data::Gather(&[]),
        };
        assert!(pair.a.qp.tails.post_send(Wqe::new(&wr, 0), 16));
        pair.a.qp.ring_doorbell(&mut pair.a.out);
        assert_eq!(pair.a.statuses(), [(1, Status::WrFlushErr)], "{state:?}");
        assert_eq!(pair.a.qp.state(), state);
    }
}

#[test]
fn dead_peer_fails_waiting_requests() {
    let mut pair = Pair::roce();
    pair.a.qp.handle_peer_dead(&mut pair.a.out);
    assert_eq!(pair.a.qp.state(), QpState::Rts, "nothing waits");
    assert!(!pair.a.qp.awaits_peer());
    pair.a.post(1, SEND, &[]);
    pair.a.post(2, SEND, &[]);
    transmit(&pair.a.qp, 10_000, pair.now, &mut pair.a.out);
    assert!(pair.a.qp.awaits_peer());
    pair.a.qp.handle_peer_dead(&mut pair.a.out);
    let expected = [(1, Status::RetryExcErr), (2, Status::WrFlushErr)];
    assert_eq!(pair.a.statuses(), expected);
    assert_eq!(pair.a.qp.state(), QpState::Err);
    assert_eq!(pair.a.qp.cause().unwrap(), "the peer does not answer");
}

#[test]
fn posts_to_failed_queue_pair_are_flushed() {
    let mut pair = Pair::roce();
    pair.a.qp.modify(QpState::Err, &mut pair.a.out).unwrap();
    pair.a.post(1, SEND, &[]);
    pair.a.receive(2, &[]);
    assert_eq!(pair.a.statuses(), [(1, Status::WrFlushErr)]);
    let received = pair.a.received();
    assert_eq!((received[0].id, received[0].op), (2, WcOp::Receive));
    pair.a.qp.modify(QpState::Reset, &mut pair.a.out).unwrap();
    assert_eq!(pair.a.qp.outstanding(), (0, 0));
    assert_eq!(pair.a.qp.cause(), None);
}

#[test]
fn cq_overflow_fails_its_queue_pair() {
    let mut pair = Pair::new(Setup {
        cq_size: 2,
        ..Setup::default()
    });
    let op = write(pair.b.remote(0));
    for id in 0..4 {
        pair.a.post(id, op, &[]);
    }
    pair.run();
    let events = pair.a.events();
    assert!(
        events.contains(&Event::CqOverflow { cq: 10 })
            && events.contains(&Event::QpFatal { qp: 1 })
    );
    assert_eq!(
        pair.a.statuses(),
        [(0, Status::Success), (1, Status::Success)]
    );
    assert_eq!(pair.a.qp.state(), QpState::Err);
    assert_eq!(pair.a.qp.cause().unwrap(), "a completion queue overflowed");
}

#[test]
fn error_state_raises_last_wqe_without_srq_flush() {
    let mut pair = Pair::new(Setup {
        shared: true,
        ..Setup::default()
    });
    pair.b.receive(1, &[]);
    pair.b.qp.modify(QpState::Err, &mut pair.b.out).unwrap();
    assert!(pair.b.received().is_empty());
    assert!(pair.b.events().contains(&Event::LastWqe { qp: 2 }));
    assert_eq!(pair.b.srq.as_ref().unwrap().len(), 1);
}

/// Elements of this side's own memory that break one check of M6 each; the last lacks a right that only writers need.
fn bad_pieces(side: &Side) -> Vec<(&'static str, Sge, Option<Buffer>)> {
    let good = side.sge(0, 8);
    let of = |buffer: &Buffer| Sge {
        addr: buffer.at(),
        len: 8,
        stag: buffer.stag(),
    };
    let window = side.tpt.allocate_window(WindowType::One, PD).unwrap();
    let bind = Bind {
        window,
        region: good.stag,
        addr: good.addr,
        len: 8,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
        pd: PD,
        qp: side.qp.number(),
        key: 0,
        zero_based: false,
        one_touch: false,
    };
    let window = side.tpt.bind(&bind).unwrap();
    let foreign = Buffer::new(&side.tpt, 8, Pd(2), Access::ALL).unwrap();
    let read_only = Buffer::new(&side.tpt, 8, PD, Access::LOCAL_READ).unwrap();
    let stag = |stag| Sge { stag, ..good };
    let at = |at| Sge { addr: at, ..good };
    vec![
        ("no entry", stag(Stag::new(0xff_ff00)), None),
        ("old instance", stag(Stag::new(good.stag.get() ^ 1)), None),
        ("a window", stag(window), None),
        ("another domain", of(&foreign), Some(foreign)),
        ("begins too early", at(good.addr - 1), None),
        ("ends too late", at(good.addr + SIZE as u64 - 7), None),
        ("wraps", at(u64::MAX - 3), None),
        ("no right to write", of(&read_only), Some(read_only)),
    ]
}

#[test]
fn failed_local_check_touches_no_memory() {
    let rows = bad_pieces(&Pair::roce().a).len();
    for row in 0..rows {
        // A gather, the sink of a read, and the scatter list of a receive.
        for way in 0..3 {
            let mut pair = Pair::roce();
            pair.a.memory.write(0, &[1; SIZE]);
            pair.b.memory.write(0, &[2; SIZE]);
            let side = if way == 2 { &pair.b } else { &pair.a };
            let (name, piece, keep) = bad_pieces(side).remove(row);
            if way == 0 && name == "no right to write" {
                continue;
            }
            let remote = pair.b.remote(0);
            match way {
                0 => pair.a.post(1, write(remote), &[piece]),
                1 => pair.a.post(1, read(remote), &[piece]),
                _ => {
                    pair.b.receive(9, &[piece]);
                    let gather = [pair.a.sge(0, 8)];
                    pair.a.post(1, SEND, &gather);
                }
            }
            pair.run();
            if way == 2 {
                let status = pair.b.received().first().map(|wc| (wc.id, wc.status));
                assert_eq!(status, Some((9, Status::LocProtErr)), "{name}");
                assert_eq!(pair.a.statuses().len(), 1, "{name}: the sender is told");
            } else {
                let expected = [(1, Status::LocProtErr)];
                assert_eq!(pair.a.statuses(), expected, "{name}");
            }
            assert!(pair.a.memory.read(0, SIZE).iter().all(|b| *b == 1));
            assert!(pair.b.memory.read(0, SIZE).iter().all(|b| *b == 2));
            assert!(keep.is_none_or(|k| k.read(0, 8) == [0; 8]), "{name}");
        }
    }
}

/// An acknowledgement that could have waited is sent with the last frames: the peer has no other way to know.
#[test]
fn error_state_sends_pending_acknowledgements() {
    let mut pair = Pair::roce();
    pair.b.receive(5, &[]);
    pair.a.post(1, SEND, &[]);
    let bytes = transmit(&pair.a.qp, 9000, pair.now, &mut pair.a.out);
    feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
    pair.b.qp.modify(QpState::Err, &mut pair.b.out).unwrap();
    let mut io = MemoryCarrier::with_room(9000);
    let (qp, out) = (&pair.b.qp, &mut pair.b.out);
    let sent = qp.try_transmit(&mut io, Acks::Piggyback, pair.now, out);
    assert!(sent.is_some(), "no other thread held the lock");
    feed(&pair.a.qp, &io.output, pair.now, &mut pair.a.out);
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
}
