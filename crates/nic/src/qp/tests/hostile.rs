//! Tests of peers and moments that want payload sent which is nobody's any more, and of what is left when a connection breaks.

use crate::qp::Transfer;
use crate::state::QpType;
use crate::testing::{Pair, Setup, feed, transmit};
use crate::wc::Status;
use crate::wr::{Remote, SendOp};

fn write(remote: Remote) -> SendOp {
    let immediate = None;
    SendOp::Write { remote, immediate }
}

fn read(remote: Remote) -> SendOp {
    let local_invalidate = None;
    SendOp::Read {
        remote,
        local_invalidate,
    }
}

/// Every run of at least 100 bytes goes directly.
fn direct() -> Setup {
    Setup {
        crc: false,
        transfer: Transfer {
            direct_min: 100,
            ..Transfer::default()
        },
        ..Setup::default()
    }
}

/// A peer that acknowledges what it has not got does not make us read memory that was given back, or another's.
#[test]
fn an_acknowledgement_that_comes_too_early_frees_no_memory() {
    let ack = {
        let mut honest = Pair::new(direct());
        let (op, gather) = (write(honest.b.remote(0)), [honest.a.sge(0, 900)]);
        honest.a.post(1, op, &gather);
        let bytes = transmit(&honest.a.qp, 2000, honest.now, &mut honest.a.out);
        feed(&honest.b.qp, &bytes, honest.now, &mut honest.b.out);
        transmit(&honest.b.qp, 2000, honest.now, &mut honest.b.out)
    };
    let mut pair = Pair::new(direct());
    pair.a.memory.write(0, &[1; 900]);
    pair.a.memory.write(4000, &[99; 900]);
    let (op, gather) = (write(pair.b.remote(0)), [pair.a.sge(0, 900)]);
    pair.a.post(1, op, &gather);
    let mut sent = transmit(&pair.a.qp, 300, pair.now, &mut pair.a.out);
    feed(&pair.a.qp, &ack, pair.now, &mut pair.a.out);
    assert!(pair.a.sent().is_empty(), "its memory is still needed");
    // What would come to the front: a read, whose sink is nobody's to see.
    let (op, sink) = (read(pair.b.remote(0)), [pair.a.sge(4000, 900)]);
    pair.a.post(2, op, &sink);
    sent.extend(transmit(&pair.a.qp, 5000, pair.now, &mut pair.a.out));
    assert!(!sent.contains(&99), "memory of another request went out");
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
}

/// An unreliable connection completes what it has when its peer is gone; a frame that was begun is finished all the same.
#[test]
fn what_succeeded_without_a_peer_needs_its_memory_no_more() {
    let mut pair = Pair::new(Setup {
        qp_type: QpType::Uc,
        ..direct()
    });
    pair.a.memory.write(0, &[1; 900]);
    pair.a.memory.write(4000, &[99; 900]);
    let (op, gather) = (write(pair.b.remote(0)), [pair.a.sge(0, 900)]);
    pair.a.post(1, op, &gather);
    let mut sent = transmit(&pair.a.qp, 300, pair.now, &mut pair.a.out);
    pair.a.qp.handle_eof(false, &mut pair.a.out);
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    pair.a.memory.write(0, &[98; 900]);
    let other = [pair.a.sge(4000, 900)];
    pair.a.post(2, op, &other);
    sent.extend(transmit(&pair.a.qp, 5000, pair.now, &mut pair.a.out));
    let count = |byte| sent.iter().filter(|b| **b == byte).count();
    assert!(count(1) >= 900, "{}", count(1));
    assert_eq!((count(98), count(99)), (0, 0));
}
