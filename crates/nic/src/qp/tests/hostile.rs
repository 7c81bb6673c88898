//! Tests of unusual peers and timing: payload without an owner, revoked memory, a peer that is gone, settings of zero.

use verbena_events::event::{Event, Outbox};
use verbena_mem::{Access, Sources, Targets};
use verbena_wire::{Stag, To};

use crate::carrier::{Carrier, IoOutcome};
use crate::qp::{Qp, Receiving, Transfer};
use crate::state::{Personality, QpState, QpType};
use crate::testing::{PD, Pair, SEND, Setup, Side, direct, feed, read, transmit, write};
use crate::wc::Status;
use crate::wr::{Data, Flags, RemoteAddr, SendOp, SendWr, Sge};

/// The longest run of a byte: headers carry addresses, so that a single one may have any value.
fn run(bytes: &[u8], byte: u8) -> usize {
    let runs = bytes.chunk_by(|a, b| a == b);
    runs.filter(|r| r[0] == byte)
        .map(<[u8]>::len)
        .max()
        .unwrap_or(0)
}

/// A peer that acknowledges what it has not received does not make this side read memory that was released, or another's.
#[test]
fn premature_acknowledgement_frees_no_memory() {
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
    // What would come to the front: a read, whose sink must not be sent.
    let (op, sink) = (read(pair.b.remote(0)), [pair.a.sge(4000, 900)]);
    pair.a.post(2, op, &sink);
    sent.extend(transmit(&pair.a.qp, 5000, pair.now, &mut pair.a.out));
    assert!(run(&sent, 99) < 8, "memory of another request went out");
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
}

/// An unreliable connection completes its requests when its peer is gone; a frame that was begun is finished nevertheless.
#[test]
fn completed_unreliable_request_releases_its_memory() {
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
    assert!(run(&sent, 98) < 8 && run(&sent, 99) < 8);
}

/// Another STag of a side's memory, which can be deregistered.
fn revocable(side: &Side, access: Access) -> Stag {
    let (of, start) = (side.memory.stag(), To::new(side.memory.at()));
    side.tpt.register_shared(of, start, PD, access).unwrap()
}

/// Control messages are numbered: none may be missing when frames before them are dropped.
#[test]
fn acknowledgements_survive_a_dropped_frame() {
    for flush in [false, true] {
        let mut pair = Pair::new(direct());
        let stag = revocable(&pair.a, Access::LOCAL_READ);
        let (op, at, len) = (write(pair.b.remote(0)), pair.a.memory.at(), 900);
        pair.a.post(
            1,
            op,
            &[Sge {
                addr: at,
                len,
                stag,
            }],
        );
        transmit(&pair.a.qp, 0, pair.now, &mut pair.a.out);
        let (to, from) = ([pair.a.sge(2000, 50)], [pair.b.sge(2000, 50)]);
        pair.a.receive(5, &to);
        pair.b.post(7, SEND, &from);
        let bytes = transmit(&pair.b.qp, 500, pair.now, &mut pair.b.out);
        feed(&pair.a.qp, &bytes, pair.now, &mut pair.a.out);
        transmit(&pair.a.qp, 0, pair.now, &mut pair.a.out);
        pair.a.receive(6, &to);
        pair.b.post(8, SEND, &from);
        let bytes = transmit(&pair.b.qp, 500, pair.now, &mut pair.b.out);
        feed(&pair.a.qp, &bytes, pair.now, &mut pair.a.out);
        pair.a.tpt.deregister(stag).unwrap();
        if flush {
            pair.a.qp.modify(QpState::Err, &mut pair.a.out).unwrap();
        }
        pair.run();
        match pair.b.qp.cause() {
            // A queue pair moved to the error state by its program sends no Terminate.
            None => assert!(flush),
            Some(cause) => assert!(cause.contains("the peer sent Terminate"), "{flush} {cause}"),
        }
        let expected = [(7, Status::Success), (8, Status::Success)];
        assert_eq!(pair.b.statuses(), expected, "{flush}");
    }
}

/// docs/connections.md: a read that fails while it is answered gets the status itself, even on a failing stream.
#[test]
fn no_response_follows_a_failed_one() {
    for lone in [false, true] {
        let mut pair = Pair::new(Setup {
            transfer: Transfer {
                direct_min: 100,
                batch: 1,
                ..Transfer::default()
            },
            ..direct()
        });
        let stag = revocable(&pair.b, Access::REMOTE_READ);
        let to = To::new(pair.b.memory.at());
        pair.b.memory.write(0, &[1; 500]);
        let sink = [pair.a.sge(0, 500)];
        pair.a.post(1, read(RemoteAddr { stag, to }), &sink);
        if !lone {
            let op = read(pair.b.remote(0));
            pair.a.post(2, op, &sink);
        }
        let bytes = transmit(&pair.a.qp, 5000, pair.now, &mut pair.a.out);
        feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
        // The first answer is framed, nothing of it has been sent, and the second is owed.
        transmit(&pair.b.qp, 0, pair.now, &mut pair.b.out);
        pair.b.tpt.deregister(stag).unwrap();
        // Another request ends the stream, for another reason.
        let long = [pair.a.sge(0, 600)];
        let short = [pair.b.sge(4000, 10)];
        pair.b.receive(9, &short);
        pair.a.post(3, SEND, &long);
        let bytes = transmit(&pair.a.qp, 5000, pair.now, &mut pair.a.out);
        feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
        pair.run();
        let mut expected = vec![
            (1, Status::RemAccessErr),
            (2, Status::WrFlushErr),
            (3, Status::WrFlushErr),
        ];
        if lone {
            expected.remove(1);
        }
        assert_eq!(pair.a.statuses(), expected, "{:?}", pair.a.qp.cause());
        assert!(!pair.b.qp.wants_reset());
    }
}

/// A lookahead of zero is allowed; a read without room would look like the end of the stream.
#[test]
fn zero_lookahead_receives_long_payloads() {
    let mut pair = Pair::new(Setup {
        transfer: Transfer {
            direct_min: 100,
            lookahead: 0,
            ..Transfer::default()
        },
        ..direct()
    });
    pair.a.memory.write(0, &[3; 4000]);
    let (op, gather) = (write(pair.b.remote(0)), [pair.a.sge(0, 4000)]);
    pair.a.post(1, op, &gather);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    assert_eq!(pair.b.memory.read(0, 4000), vec![3; 4000]);
}

/// A socket without received bytes.
struct Socket;

impl Carrier for Socket {
    fn read(&mut self, targets: &mut Targets<'_>) -> IoOutcome {
        if targets.bytes() == 0 {
            IoOutcome::Eof
        } else {
            IoOutcome::WouldBlock
        }
    }

    fn write(&mut self, _: &Sources<'_>) -> IoOutcome {
        IoOutcome::WouldBlock
    }
}

/// Asked for zero bytes, a socket answers as at its end: a reader without room does not ask.
#[test]
fn empty_scratch_buffer_is_not_end_of_stream() {
    let mut pair = Pair::new(direct());
    let (op, gather) = (write(pair.b.remote(0)), [pair.a.sge(0, 900)]);
    pair.a.post(1, op, &gather);
    let bytes = transmit(&pair.a.qp, 5000, pair.now, &mut pair.a.out);
    let (now, out) = (pair.now, &mut pair.b.out);
    let receiving = pair.b.qp.receive(&mut Socket, &mut [], now, out);
    assert_eq!(receiving.receiving, Receiving::WouldBlock);
    feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
}

/// Posts while the end of the stream is being read.
struct Late<'a>(&'a Qp);

impl Carrier for Late<'_> {
    fn read(&mut self, _: &mut Targets<'_>) -> IoOutcome {
        let wr = SendWr {
            id: 4,
            op: SEND,
            flags: Flags::SIGNALED,
            data: Data::Inline(&[]),
        };
        self.0.post_send(&wr, &mut Outbox::new()).unwrap();
        IoOutcome::Eof
    }

    fn write(&mut self, _: &Sources<'_>) -> IoOutcome {
        IoOutcome::WouldBlock
    }
}

#[test]
fn request_posted_during_peer_close_is_flushed() {
    let mut pair = Pair::new(Setup {
        personality: Personality::Iwarp,
        ..Setup::default()
    });
    let (qp, out) = (&pair.a.qp, &mut pair.a.out);
    qp.receive(&mut Late(qp), &mut [0; 10], pair.now, out);
    assert_eq!(qp.state(), QpState::Closing);
    assert_eq!(pair.a.statuses(), [(4, Status::WrFlushErr)]);
    assert_eq!(pair.a.qp.outstanding(), (0, 0));
}

/// A broken connection takes no bytes: framed bytes do not keep it open.
#[test]
fn broken_connection_can_be_closed() {
    for failing in [false, true] {
        let mut pair = Pair::new(direct());
        let (op, gather) = (write(pair.b.remote(0)), [pair.a.sge(0, 900)]);
        pair.a.post(1, op, &gather);
        transmit(&pair.a.qp, 300, pair.now, &mut pair.a.out);
        if failing {
            pair.a.qp.modify(QpState::Err, &mut pair.a.out).unwrap();
        }
        struct Broken;
        impl Carrier for Broken {
            fn read(&mut self, _: &mut Targets<'_>) -> IoOutcome {
                IoOutcome::Broken
            }
            fn write(&mut self, _: &Sources<'_>) -> IoOutcome {
                IoOutcome::Broken
            }
        }
        let (now, out) = (pair.now, &mut pair.a.out);
        pair.a.qp.transmit(&mut Broken, now, out);
        let status = if failing {
            Status::WrFlushErr
        } else {
            Status::RetryExcErr
        };
        assert_eq!(pair.a.statuses(), [(1, status)]);
        assert!(pair.a.qp.wants_close(), "{failing}");
    }
}

/// A receive of a shared queue that a message took and did not finish is returned to the queue.
#[test]
fn unfinished_shared_receive_returns_to_srq() {
    for destroy in [false, true] {
        let mut pair = Pair::new(Setup {
            shared: true,
            ..Setup::default()
        });
        let to = [pair.b.sge(0, 3000)];
        pair.b.receive(1, &to);
        pair.b.receive(2, &to);
        let from = [pair.a.sge(0, 3000)];
        pair.a.post(1, SEND, &from);
        let bytes = transmit(&pair.a.qp, 1500, pair.now, &mut pair.a.out);
        feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
        let srq = pair.b.srq.clone().unwrap();
        assert_eq!(srq.len(), 1);
        if destroy {
            pair.b.qp.retire(&mut pair.b.out);
        } else {
            pair.b.qp.modify(QpState::Reset, &mut pair.b.out).unwrap();
        }
        assert_eq!(srq.len(), 2);
        let first = srq.take(77, &mut pair.b.out);
        assert_eq!(first.map(|r| r.id), Some(1), "in its old place");
    }
}

/// Memory that is revoked between two reads of one run is not written, and the fault is the peer's.
#[test]
fn deregistering_stops_placement_mid_message() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut pair = Pair::new(Setup {
            qp_type,
            ..direct()
        });
        let stag = revocable(&pair.b, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let to = To::new(pair.b.memory.at());
        pair.a.memory.write(0, &[1; 2500]);
        let gather = [pair.a.sge(0, 2500)];
        let op = SendOp::Write {
            remote: RemoteAddr { stag, to },
            immediate: Some(5),
        };
        pair.a.post(1, op, &gather);
        let begun = transmit(&pair.a.qp, 300, pair.now, &mut pair.a.out);
        feed(&pair.b.qp, &begun, pair.now, &mut pair.b.out);
        assert_eq!(pair.b.memory.read(0, 200), [1; 200]);
        pair.b.tpt.deregister(stag).unwrap();
        pair.b.memory.write(0, &[0; 300]);
        let (scatter, small) = ([pair.b.sge(4000, 10)], [pair.a.sge(0, 10)]);
        pair.b.receive(9, &scatter);
        pair.run();
        assert_eq!(pair.b.memory.read(0, 2500), [0; 2500]);
        if qp_type == QpType::Rc {
            assert_eq!(pair.a.statuses(), [(1, Status::RemAccessErr)]);
            continue;
        }
        // Nothing is reported, not even the immediate data, and the next message is received normally.
        assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
        assert!(pair.b.received().is_empty());
        pair.a.post(2, SEND, &small);
        pair.run();
        assert_eq!(pair.b.received().len(), 1);
        assert_eq!(pair.b.memory.read(4000, 10), [1; 10]);
    }
}

/// Draining ends even if the peer is gone: on an unreliable connection what was begun has succeeded.
#[test]
fn an_unreliable_connection_drains_without_its_peer() {
    for reset in [false, true] {
        let mut pair = Pair::new(Setup {
            qp_type: QpType::Uc,
            ..direct()
        });
        let (op, gather) = (write(pair.b.remote(0)), [pair.a.sge(0, 2500)]);
        pair.a.post(1, op, &gather);
        transmit(&pair.a.qp, 300, pair.now, &mut pair.a.out);
        pair.a.qp.modify(QpState::Sqd, &mut pair.a.out).unwrap();
        pair.a.post(2, op, &gather);
        pair.a.qp.handle_eof(reset, &mut pair.a.out);
        assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
        assert!(pair.a.events().contains(&Event::SqDrained { qp: 1 }));
        pair.a.qp.modify(QpState::Rts, &mut pair.a.out).unwrap();
        assert_eq!(pair.a.statuses(), [(2, Status::Success)]);
    }
}

/// Markers are at fixed positions of the stream: what was framed must be sent, so no payload stays in place.
#[test]
fn with_markers_framed_payload_is_always_sent() {
    for lead in 0..40 {
        let mut pair = Pair::new(Setup {
            markers: true,
            ..direct()
        });
        let (op, small) = (write(pair.b.remote(0)), [pair.a.sge(0, 5)]);
        for id in 0..lead {
            pair.a.post(100 + id, op, &small);
        }
        pair.run();
        pair.a.sent();
        let stag = revocable(&pair.a, Access::LOCAL_READ);
        let at = pair.a.memory.at();
        pair.a.post(
            1,
            op,
            &[Sge {
                addr: at,
                len: 300,
                stag,
            }],
        );
        transmit(&pair.a.qp, 0, pair.now, &mut pair.a.out);
        pair.a.tpt.deregister(stag).unwrap();
        pair.a.qp.modify(QpState::Err, &mut pair.a.out).unwrap();
        pair.run();
        // Complete frames without errors.
        assert_eq!(pair.b.qp.cause(), None, "{lead}");
    }
}

/// All settings zero: everything is transferred directly, one frame at a time. A read of zero bytes still accesses no memory.
#[test]
fn zero_transfer_settings_are_valid() {
    let mut pair = Pair::new(Setup {
        transfer: Transfer {
            direct_min: 0,
            lookahead: 0,
            batch: 0,
            ..Transfer::default()
        },
        ..direct()
    });
    pair.a.memory.write(0, &[3; 2500]);
    let nowhere = RemoteAddr {
        stag: Stag::new(0xdead_0000),
        to: To::new(0),
    };
    pair.a.post(1, read(nowhere), &[]);
    pair.a.post(2, write(nowhere), &[]);
    let (op, gather) = (write(pair.b.remote(0)), [pair.a.sge(0, 2500)]);
    pair.a.post(3, op, &gather);
    pair.run();
    let expected = [1, 2, 3].map(|id| (id, Status::Success));
    assert_eq!(pair.a.statuses(), expected, "{:?}", pair.b.qp.cause());
    assert_eq!(pair.b.memory.read(0, 2500), [3; 2500]);
}

/// A drained queue raises its event once, whatever is posted to it before it continues.
#[test]
fn drained_queue_raises_one_event() {
    let mut pair = Pair::roce();
    let (op, gather) = (write(pair.b.remote(0)), [pair.a.sge(0, 10)]);
    let drained = |events: Vec<Event>| {
        let fatal = Event::SqDrained { qp: 1 };
        events.iter().filter(|event| **event == fatal).count()
    };
    for id in [1, 3] {
        pair.a.qp.modify(QpState::Sqd, &mut pair.a.out).unwrap();
        pair.a.post(id, op, &gather);
        pair.run();
        pair.a.post(id + 1, op, &gather);
        pair.run();
        assert_eq!(drained(pair.a.events()), 1);
        pair.a.qp.modify(QpState::Rts, &mut pair.a.out).unwrap();
        pair.run();
        assert_eq!(pair.a.statuses().len(), 2);
        assert_eq!(drained(pair.a.events()), 0);
    }
}
