//! The peer's process dies before it has acknowledged what it executed: which requests succeed nevertheless.

use verbena_mem::{Sources, Targets};
use verbena_stream::Time;
use verbena_wire::ext::Features;

use crate::carrier::{Carrier, IoOutcome, MemoryCarrier};
use crate::state::{QpState, QpType};
use crate::testing::{Pair, SEND, Setup, feed, read, transmit};
use crate::wc::Status;

/// A connection whose peer has closed its direction, after these bytes.
struct Closed {
    input: Vec<u8>,
    undelivered: Option<u64>,
    /// A write fails, as it does after a reset.
    reset: bool,
}

impl Carrier for Closed {
    fn read(&mut self, targets: &mut Targets<'_>) -> IoOutcome {
        let n = targets.fill(&self.input).unwrap();
        self.input.drain(..n);
        match n {
            0 if self.reset => IoOutcome::Broken,
            0 => IoOutcome::Eof,
            n => IoOutcome::Bytes(n),
        }
    }

    fn write(&mut self, _: &Sources<'_>) -> IoOutcome {
        IoOutcome::Broken
    }

    fn undelivered(&self) -> Option<u64> {
        self.undelivered
    }
}

fn closed(undelivered: Option<u64>) -> Closed {
    Closed {
        input: Vec::new(),
        undelivered,
        reset: false,
    }
}

/// Three sends of one byte each have been sent, and the peer has executed `receives` of them; also returns the bytes of one.
fn executed(setup: Setup, receives: u64) -> (Pair, u64) {
    let mut pair = Pair::new(setup);
    for id in 0..receives {
        let scatter = [pair.b.sge(id, 1)];
        pair.b.receive(id, &scatter);
    }
    let mut each = 0;
    for id in 0..3 {
        let gather = [pair.a.sge(id, 1)];
        pair.a.post(id, SEND, &gather);
        let bytes = transmit(&pair.a.qp, usize::MAX, pair.now, &mut pair.a.out);
        each = bytes.len() as u64;
        feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
    }
    assert!(each > 0 && pair.a.statuses().is_empty(), "unacknowledged");
    (pair, each)
}

/// Ends the first side's connection so; returns the statuses of its requests.
fn end(pair: &mut Pair, mut connection: Closed) -> Vec<Status> {
    let (qp, out, mut scratch) = (&pair.a.qp, &mut pair.a.out, [0; 600]);
    while let crate::Receiving::Some(_) = qp
        .receive(&mut connection, &mut scratch, pair.now, out)
        .receiving
    {}
    qp.handle_timeout(Time::from_nanos(u64::MAX / 2), out);
    let statuses = pair.a.statuses();
    statuses.into_iter().map(|(_, status)| status).collect()
}

const SUCCESS: [Status; 3] = [Status::Success; 3];
const LOST: [Status; 3] = [Status::RetryExcErr, Status::WrFlushErr, Status::WrFlushErr];

#[test]
fn fin_acknowledges_bytes_the_peer_read() {
    let (mut pair, _) = executed(Setup::default(), 3);
    assert_eq!(end(&mut pair, closed(Some(0))), SUCCESS);
    for (undelivered, succeed) in [(1, 2), (2, 1), (3, 0)] {
        let (mut pair, each) = executed(Setup::default(), 3);
        let mut expected = LOST;
        expected.rotate_right(succeed);
        expected[..succeed].fill(Status::Success);
        // One byte that was not read is enough.
        let bytes = each * (undelivered - 1) + 1;
        assert_eq!(end(&mut pair, closed(Some(bytes))), expected);
    }
}

#[test]
fn an_orderly_close_acknowledges_nothing_more() {
    for way in [QpState::Err, QpState::Reset] {
        let (mut pair, _) = executed(Setup::default(), 0);
        // The peer lives and has executed nothing: its queue pair ends before it has reported that there was no receive.
        let mut pair_b = Pair::new(Setup::default());
        core::mem::swap(&mut pair.b, &mut pair_b.b);
        pair.b.qp.modify(way, &mut pair.b.out).unwrap();
        let words = pair.b.qp.closing_bytes(&mut pair.b.out);
        assert!(!words.is_empty(), "{way:?}");
        let connection = Closed {
            input: words,
            ..closed(Some(0))
        };
        assert_eq!(end(&mut pair, connection), LOST, "{way:?}");
    }
}

/// Two threads may find at the same time that the connection has to be closed: the first one sends the bytes that both were
/// given, and an acknowledgement that became due in between must not overtake them.
#[test]
fn closing_frames_are_last_and_unchanged() {
    let (mut pair, _) = executed(Setup::default(), 3);
    pair.b.qp.modify(QpState::Err, &mut pair.b.out).unwrap();
    let words = pair.b.qp.closing_bytes(&mut pair.b.out);
    assert!(!words.is_empty());
    assert!(transmit(&pair.b.qp, 777, pair.now, &mut pair.b.out).is_empty());
    assert_eq!(pair.b.qp.closing_bytes(&mut pair.b.out), words);
    let connection = Closed {
        input: words,
        ..closed(None)
    };
    assert_eq!(end(&mut pair, connection), SUCCESS);
}

#[test]
fn a_reset_queue_pair_acknowledges_what_it_executed() {
    let (mut pair, _) = executed(Setup::default(), 3);
    pair.b.qp.modify(QpState::Reset, &mut pair.b.out).unwrap();
    let words = pair.b.qp.closing_bytes(&mut pair.b.out);
    let connection = Closed {
        input: words,
        ..closed(None)
    };
    assert_eq!(end(&mut pair, connection), SUCCESS);
}

#[test]
fn refused_requests_do_not_succeed() {
    let (mut pair, _) = executed(Setup::default(), 2);
    let rnr = transmit(&pair.b.qp, usize::MAX, pair.now, &mut pair.b.out);
    let connection = Closed {
        input: rnr,
        ..closed(Some(0))
    };
    let expected = [Status::Success, Status::Success, Status::RetryExcErr];
    assert_eq!(end(&mut pair, connection), expected);
}

#[test]
fn ambiguous_ends_acknowledge_nothing() {
    // The carrier cannot tell; the connection was reset; the peer announces no orderly close; there may be a proxy.
    let old = Setup {
        features: Features::READ_V2 | Features::SEND_IMM,
        ..Setup::default()
    };
    let proxied = Setup {
        direct: false,
        ..Setup::default()
    };
    let reset = Closed {
        reset: true,
        ..closed(Some(0))
    };
    let ends = [
        (Setup::default(), closed(None)),
        (Setup::default(), reset),
        (old, closed(Some(0))),
        (proxied, closed(Some(0))),
    ];
    for (setup, connection) in ends {
        let (mut pair, _) = executed(setup, 3);
        assert_eq!(end(&mut pair, connection), LOST);
    }
}

#[test]
fn unanswered_read_does_not_succeed() {
    let (mut pair, _) = executed(Setup::default(), 3);
    let (remote, sink) = (pair.b.remote(0), [pair.a.sge(9, 1)]);
    pair.a.post(3, read(remote), &sink);
    transmit(&pair.a.qp, usize::MAX, pair.now, &mut pair.a.out);
    let statuses = end(&mut pair, closed(Some(0)));
    assert_eq!(statuses[..3], SUCCESS);
    assert_eq!(statuses[3], Status::RetryExcErr);
}

#[test]
fn acknowledgements_are_read_after_failed_write() {
    let (mut pair, _) = executed(Setup::default(), 3);
    let acks = transmit(&pair.b.qp, usize::MAX, pair.now, &mut pair.b.out);
    let mut connection = Closed {
        input: acks,
        undelivered: None,
        reset: true,
    };
    // The next request finds the reset before anything was read.
    let gather = [pair.a.sge(3, 1)];
    pair.a.post(3, SEND, &gather);
    let (qp, out) = (&pair.a.qp, &mut pair.a.out);
    qp.transmit(&mut connection, pair.now, out);
    qp.handle_timeout(Time::from_nanos(u64::MAX / 2), out);
    let statuses: Vec<_> = pair.a.statuses().into_iter().map(|(_, s)| s).collect();
    assert_eq!(statuses[..3], SUCCESS);
    assert_eq!(statuses[3], Status::RetryExcErr);
}

#[test]
fn unreliable_sends_succeed_after_peer_death() {
    let setup = Setup {
        qp_type: QpType::Uc,
        ..Setup::default()
    };
    let mut pair = Pair::new(setup);
    let gather = [pair.a.sge(0, 1)];
    pair.a.post(0, SEND, &gather);
    let mut io = MemoryCarrier::with_room(usize::MAX);
    pair.a.qp.transmit(&mut io, pair.now, &mut pair.a.out);
    assert_eq!(end(&mut pair, closed(Some(0))), [Status::Success]);
}
