//! Requests of a peer execute in order of arrival: a Read is checked on arrival, and its response has the bytes from
//! before any later request of the same queue pair.

use core::time::Duration;

use verbena_mem::{Access, Bind, Buffer, WindowType};
use verbena_wire::{Stag, To};

use crate::carrier::MemoryCarrier;
use crate::qp::{Receiving, Transfer};
use crate::state::{Personality, QpState};
use crate::testing::{PD, Pair, SEND, Setup, Side, direct, feed, read, transmit, write};
use crate::wc::Status;
use crate::wr::{Flags, RemoteAddr, SendOp};

/// Staged and direct, to Verbena and to standard peers, in both personalities, with and without MPA markers.
fn every_setup(test: impl Fn(Setup)) {
    for base in [Setup::default(), direct()] {
        for personality in [Personality::Roce, Personality::Iwarp] {
            for extensions in [false, true] {
                for markers in [false, true] {
                    test(Setup {
                        personality,
                        extensions,
                        markers,
                        ..base
                    });
                }
            }
        }
    }
}

/// Everything that `a` sends now reaches `b`, which sends nothing meanwhile; returns how much `b` left unread.
fn deliver(pair: &mut Pair) -> usize {
    let bytes = transmit(&pair.a.qp, 1 << 20, pair.now, &mut pair.a.out);
    let read = feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
    bytes.len() - read
}

fn is_all(bytes: &[u8], value: u8) -> bool {
    bytes.iter().all(|byte| *byte == value)
}

fn fetch_add(remote: RemoteAddr) -> SendOp {
    SendOp::FetchAdd {
        remote,
        add: 5,
        mask: 0,
    }
}

/// A window on the first bytes of a side's memory that a peer may invalidate.
fn window(side: &mut Side, len: u64) -> RemoteAddr {
    let window = side.tpt.allocate_window(WindowType::TwoB, PD).unwrap();
    let bind = Bind {
        window,
        region: side.memory.stag(),
        addr: side.memory.at(),
        len,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
        pd: PD,
        qp: side.qp.number(),
        key: 0x5a,
        zero_based: true,
        one_touch: false,
    };
    side.post(90, SendOp::Bind(bind), &[]);
    RemoteAddr {
        stag: Stag::from_parts(window.index(), 0x5a).unwrap(),
        to: To::new(0),
    }
}

#[test]
fn read_returns_bytes_from_before_later_write() {
    every_setup(|setup| {
        for len in [1_u32, 90, 700, 2500] {
            let mut pair = Pair::new(setup);
            pair.b.memory.write(0, &[1; 3000]);
            pair.a.memory.write(4000, &[2; 3000]);
            let (from, sink) = (pair.b.remote(0), [pair.a.sge(0, len)]);
            pair.a.post(1, read(from), &sink);
            let source = [pair.a.sge(4000, len)];
            pair.a.post(2, write(from), &source);
            assert_eq!(deliver(&mut pair), 0, "{setup:?} {len}");
            // The Write is executed, though no byte of the response has been sent.
            assert!(is_all(&pair.b.memory.read(0, len as usize), 2));
            pair.run();
            assert_eq!(
                pair.a.statuses(),
                [(1, Status::Success), (2, Status::Success)]
            );
            let got = pair.a.memory.read(0, len as usize);
            assert!(is_all(&got, 1), "{setup:?} {len}");
        }
    });
}

/// The response is cut at every few bytes by a carrier without room, and the later Write overlaps only in part.
#[test]
fn a_response_under_way_keeps_its_bytes() {
    every_setup(|setup| {
        for room in (0..2700).step_by(190) {
            for (at, len) in [(0_u64, 2500_u32), (300, 50), (990, 20), (1700, 800)] {
                let mut pair = Pair::new(setup);
                pair.b.memory.write(0, &[1; 4000]);
                pair.a.memory.write(4000, &[2; 3000]);
                let (from, sink) = (pair.b.remote(0), [pair.a.sge(0, 2500)]);
                pair.a.post(1, read(from), &sink);
                deliver(&mut pair);
                let begun = transmit(&pair.b.qp, room, pair.now, &mut pair.b.out);
                let (to, source) = (pair.b.remote(at), [pair.a.sge(4000, len)]);
                pair.a.post(2, write(to), &source);
                assert_eq!(deliver(&mut pair), 0, "{setup:?} {room}");
                feed(&pair.a.qp, &begun, pair.now, &mut pair.a.out);
                pair.run();
                assert_eq!(
                    pair.a.statuses(),
                    [(1, Status::Success), (2, Status::Success)],
                    "{setup:?} {room}"
                );
                assert!(is_all(&pair.a.memory.read(0, 2500), 1), "{setup:?} {room}");
                let placed = pair.b.memory.read(at as usize, len as usize);
                assert!(is_all(&placed, 2));
            }
        }
    });
}

#[test]
fn each_read_sees_the_writes_before_it() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        pair.b.memory.write(0, &[0; 2000]);
        let to = pair.b.remote(0);
        for round in 0..4_u8 {
            pair.a
                .memory
                .write(usize::from(round) * 100, &[round + 1; 100]);
            let source = [pair.a.sge(u64::from(round) * 100, 100)];
            let sink = [pair.a.sge(4000 + u64::from(round) * 200, 200)];
            pair.a.post(u64::from(round) * 2, write(to), &source);
            pair.a.post(u64::from(round) * 2 + 1, read(to), &sink);
        }
        deliver(&mut pair);
        pair.run();
        assert_eq!(pair.a.statuses().len(), 8);
        for round in 0..4_u8 {
            let got = pair.a.memory.read(4000 + usize::from(round) * 200, 200);
            assert_eq!(got[..100], [round + 1; 100], "{setup:?} {round}");
            assert_eq!(got[100..], [0; 100], "{setup:?} {round}");
        }
    });
}

/// The same bytes by another STag: a second region on the same memory has the same effect.
#[test]
fn write_by_another_stag_changes_no_earlier_read() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        let other = window(&mut pair.b, 4000);
        pair.run();
        assert_eq!(pair.b.statuses(), [(90, Status::Success)]);
        pair.b.memory.write(0, &[1; 2000]);
        pair.a.memory.write(4000, &[2; 2000]);
        let (from, sink) = (pair.b.remote(0), [pair.a.sge(0, 1000)]);
        pair.a.post(1, read(from), &sink);
        let source = [pair.a.sge(4000, 700)];
        let into = RemoteAddr {
            to: To::new(500),
            ..other
        };
        pair.a.post(2, write(into), &source);
        deliver(&mut pair);
        pair.run();
        assert!(is_all(&pair.a.memory.read(0, 1000), 1), "{setup:?}");
        assert!(is_all(&pair.b.memory.read(500, 700), 2));
    });
}

#[test]
fn receive_placement_changes_no_earlier_read() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        pair.b.memory.write(0, &[1; 2000]);
        pair.a.memory.write(4000, &[2; 600]);
        let scatter = [pair.b.sge(3000, 50), pair.b.sge(400, 700)];
        pair.b.receive(7, &scatter);
        let (from, sink) = (pair.b.remote(0), [pair.a.sge(0, 1500)]);
        pair.a.post(1, read(from), &sink);
        let source = [pair.a.sge(4000, 600)];
        pair.a.post(2, SEND, &source);
        deliver(&mut pair);
        let received = pair.b.received();
        assert_eq!((received[0].id, received[0].status), (7, Status::Success));
        assert!(is_all(&pair.b.memory.read(400, 550), 2));
        pair.run();
        assert!(is_all(&pair.a.memory.read(0, 1500), 1), "{setup:?}");
    });
}

#[test]
fn an_atomic_is_executed_when_it_arrives() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        pair.b.memory.write(0, &100_u64.to_ne_bytes());
        pair.a.memory.write(4000, &[9; 8]);
        let scatter = [pair.b.sge(3000, 50)];
        pair.b.receive(7, &scatter);
        let word = pair.b.remote(0);
        let sink = |pair: &Pair, at: u64| [pair.a.sge(at, 8)];
        let (before, add, after) = (sink(&pair, 0), sink(&pair, 8), sink(&pair, 16));
        pair.a.post(1, read(word), &before);
        pair.a.post(2, fetch_add(word), &add);
        pair.a.post(3, read(word), &after);
        pair.a.post(4, SEND, &[]);
        deliver(&mut pair);
        // The message is delivered, so the word has its new value.
        assert_eq!(pair.b.received().len(), 1, "{setup:?}");
        assert_eq!(pair.b.memory.read(0, 8), 105_u64.to_ne_bytes(), "{setup:?}");
        let over = [pair.a.sge(4000, 8)];
        pair.a.post(5, write(word), &over);
        deliver(&mut pair);
        pair.run();
        let word_at = |at| pair.a.memory.read(at, 8);
        assert_eq!(word_at(0), 100_u64.to_ne_bytes(), "{setup:?}");
        assert_eq!(word_at(8), 100_u64.to_ne_bytes(), "{setup:?}");
        assert_eq!(word_at(16), 105_u64.to_ne_bytes(), "{setup:?}");
        assert!(is_all(&pair.b.memory.read(0, 8), 9));
    });
}

#[test]
fn nothing_behind_a_refused_read_takes_effect() {
    every_setup(|setup| {
        let bad = |pair: &Pair| {
            let whole = pair.b.remote(0);
            let beyond = pair.b.remote(8000);
            let unknown = RemoteAddr {
                stag: Stag::new(0x7777_7777),
                ..whole
            };
            [read(beyond), read(unknown), fetch_add(unknown)]
        };
        for at in 0..3 {
            let mut pair = Pair::new(setup);
            pair.b.memory.write(0, &[1; 2000]);
            pair.a.memory.write(4000, &[2; 2000]);
            let scatter = [pair.b.sge(6000, 500)];
            pair.b.receive(7, &scatter);
            let op = bad(&pair)[at];
            let (good, sink) = (pair.b.remote(0), [pair.a.sge(0, 1000)]);
            pair.a.post(1, read(good), &sink);
            let len = if at == 2 { 8 } else { 1000 };
            let sink = [pair.a.sge(1000, len)];
            pair.a.post(2, op, &sink);
            let source = [pair.a.sge(4000, 500)];
            pair.a.post(3, SEND, &source);
            pair.a.post(4, write(good), &source);
            pair.a.post(5, fetch_add(good), &[pair.a.sge(2000, 8)]);
            deliver(&mut pair);
            let flushed = pair.b.received();
            assert_eq!(flushed[0].status, Status::WrFlushErr, "{setup:?} {at}");
            assert!(is_all(&pair.b.memory.read(6000, 500), 0), "{setup:?} {at}");
            assert!(is_all(&pair.b.memory.read(0, 2000), 1), "{setup:?} {at}");
            pair.run();
            let statuses = pair.a.statuses();
            assert_eq!(statuses[0], (1, Status::Success), "{setup:?} {at}");
            assert!(is_all(&pair.a.memory.read(0, 1000), 1));
            assert_eq!(statuses[1].0, 2);
            assert_ne!(statuses[1].1, Status::Success, "{setup:?} {at}");
            if setup.personality == Personality::Roce {
                assert_eq!(statuses[1].1, Status::RemAccessErr, "{setup:?} {at}");
            }
        }
    });
}

#[test]
fn disabled_read_ends_the_stream_immediately() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        let enabled = crate::qp::QpAccessFlags {
            read: false,
            ..crate::qp::QpAccessFlags::default()
        };
        pair.b.qp.set_access_flags(enabled, &mut pair.b.out);
        let scatter = [pair.b.sge(6000, 500)];
        pair.b.receive(7, &scatter);
        let (from, sink) = (pair.b.remote(0), [pair.a.sge(0, 10)]);
        pair.a.post(1, read(from), &sink);
        pair.a.post(2, SEND, &sink);
        deliver(&mut pair);
        assert_eq!(pair.b.received()[0].status, Status::WrFlushErr, "{setup:?}");
    });
}

#[test]
fn invalidation_does_not_change_earlier_reads() {
    every_setup(|setup| {
        for room in [0, 150, 1300] {
            let mut pair = Pair::new(setup);
            let remote = window(&mut pair.b, 4000);
            pair.run();
            assert_eq!(pair.b.statuses(), [(90, Status::Success)]);
            pair.b.memory.write(0, &[1; 3000]);
            let scatter = [pair.b.sge(6000, 10)];
            pair.b.receive(7, &scatter);
            let sink = [pair.a.sge(0, 2500)];
            pair.a.post(1, read(remote), &sink);
            deliver(&mut pair);
            let begun = transmit(&pair.b.qp, room, pair.now, &mut pair.b.out);
            let invalidate = SendOp::Send {
                invalidate: Some(remote.stag),
                immediate: None,
            };
            pair.a.post(2, invalidate, &[]);
            deliver(&mut pair);
            let received = pair.b.received();
            assert_eq!(received[0].invalidated, Some(remote.stag), "{setup:?}");
            assert!(pair.b.tpt.find_entry(remote.stag).is_none());
            // Its owner uses the memory for something else.
            pair.b.memory.write(0, &[9; 3000]);
            feed(&pair.a.qp, &begun, pair.now, &mut pair.a.out);
            pair.run();
            assert_eq!(
                pair.a.statuses(),
                [(1, Status::Success), (2, Status::Success)],
                "{setup:?} {room}"
            );
            assert!(is_all(&pair.a.memory.read(0, 2500), 1), "{setup:?} {room}");
        }
    });
}

/// No byte may be kept for responses, and one frame is made ahead of the carrier.
fn keeps_nothing(setup: Setup) -> Setup {
    let transfer = Transfer {
        snapshot_max: 0,
        batch: 1,
        ..setup.transfer
    };
    Setup { transfer, ..setup }
}

#[test]
fn above_limit_overlapping_write_is_held() {
    every_setup(|setup| {
        let setup = keeps_nothing(setup);
        let mut pair = Pair::new(setup);
        pair.b.memory.write(0, &[1; 4000]);
        pair.a.memory.write(4000, &[2; 3000]);
        let (from, sink) = (pair.b.remote(0), [pair.a.sge(0, 2500)]);
        pair.a.post(1, read(from), &sink);
        let source = [pair.a.sge(4000, 500)];
        pair.a.post(2, write(pair.b.remote(2500)), &source);
        pair.a.post(3, write(pair.b.remote(2000)), &source);
        pair.a.post(4, write(pair.b.remote(5000)), &source);
        let bytes = transmit(&pair.a.qp, 1 << 20, pair.now, &mut pair.a.out);
        let mut io = MemoryCarrier::with_input(&bytes);
        let mut scratch = [0; 600];
        let end = loop {
            let got = pair
                .b
                .qp
                .receive(&mut io, &mut scratch, pair.now, &mut pair.b.out);
            match got.receiving {
                Receiving::Some(_) => {}
                end => break end,
            }
        };
        let left = io.input.to_vec();
        assert_eq!(end, Receiving::Held, "{setup:?}");
        // Bytes beside the read are placed, bytes in it are not, and nothing is reordered.
        assert!(is_all(&pair.b.memory.read(2500, 500), 2), "{setup:?}");
        assert!(is_all(&pair.b.memory.read(2000, 500), 1), "{setup:?}");
        assert!(is_all(&pair.b.memory.read(5000, 500), 0), "{setup:?}");
        assert!(pair.b.qp.deadline().is_some());
        // It continues when the response has been sent.
        let mut went = Vec::new();
        for _ in 0..100 {
            let some = transmit(&pair.b.qp, 100, pair.now, &mut pair.b.out);
            went.extend_from_slice(&some);
        }
        assert!(
            pair.b.out.take_woken().iter().any(|w| w.qp() == Some(2)),
            "the reader of the carrier is told"
        );
        feed(&pair.b.qp, &left, pair.now, &mut pair.b.out);
        assert!(is_all(&pair.b.memory.read(2000, 500), 2), "{setup:?}");
        assert!(is_all(&pair.b.memory.read(5000, 500), 2), "{setup:?}");
        feed(&pair.a.qp, &went, pair.now, &mut pair.a.out);
        pair.run();
        assert_eq!(pair.a.statuses().len(), 4, "{setup:?}");
        assert!(is_all(&pair.a.memory.read(0, 2500), 1), "{setup:?}");
        assert_eq!(pair.b.qp.deadline(), None, "{setup:?}");
    });
}

#[test]
fn above_limit_invalidation_waits_for_the_response() {
    every_setup(|setup| {
        let mut pair = Pair::new(keeps_nothing(setup));
        let remote = window(&mut pair.b, 4000);
        pair.run();
        pair.b.statuses();
        pair.b.memory.write(0, &[1; 3000]);
        let scatter = [pair.b.sge(6000, 10)];
        pair.b.receive(7, &scatter);
        let sink = [pair.a.sge(0, 2500)];
        pair.a.post(1, read(remote), &sink);
        let invalidate = SendOp::Send {
            invalidate: Some(remote.stag),
            immediate: None,
        };
        pair.a.post(2, invalidate, &[]);
        deliver(&mut pair);
        assert!(pair.b.received().is_empty(), "{setup:?}");
        assert!(pair.b.tpt.find_entry(remote.stag).is_some());
        // It is not acknowledged before it is executed.
        let begun = transmit(&pair.b.qp, 50, pair.now, &mut pair.b.out);
        feed(&pair.a.qp, &begun, pair.now, &mut pair.a.out);
        if setup.personality == Personality::Roce && setup.extensions {
            assert!(pair.a.statuses().is_empty(), "{setup:?}");
        }
        pair.run();
        assert_eq!(pair.b.received()[0].invalidated, Some(remote.stag));
        assert!(is_all(&pair.a.memory.read(0, 2500), 1), "{setup:?}");
        assert_eq!(pair.b.qp.state(), QpState::Rts);
    });
}

#[test]
fn peer_taking_no_response_times_out() {
    every_setup(|setup| {
        let setup = keeps_nothing(setup);
        let mut pair = Pair::new(setup);
        let (from, sink) = (pair.b.remote(0), [pair.a.sge(0, 2500)]);
        pair.a.post(1, read(from), &sink);
        let source = [pair.a.sge(4000, 500)];
        pair.a.post(2, write(pair.b.remote(2000)), &source);
        deliver(&mut pair);
        let first = pair.b.qp.deadline().expect("it waits");
        // As long as bytes are sent, it is only slow.
        let some = transmit(&pair.b.qp, 20, first, &mut pair.b.out);
        assert_eq!(some.len(), 20);
        pair.b.qp.handle_timeout(first, &mut pair.b.out);
        assert_eq!(pair.b.qp.state(), QpState::Rts, "{setup:?}");
        let second = pair.b.qp.deadline().expect("it waits");
        assert!(second > first, "{setup:?}");
        pair.b.qp.handle_timeout(second, &mut pair.b.out);
        assert_ne!(pair.b.qp.state(), QpState::Rts, "{setup:?}");
        let cause = pair.b.qp.cause().unwrap();
        assert!(cause.contains("response"), "{cause}");
        assert!(is_all(&pair.b.memory.read(0, 500), 0));
    });
}

#[test]
fn pending_read_holds_later_requests() {
    every_setup(|setup| {
        for fails in [false, true] {
            let mut pair = Pair::new(setup);
            let (memory, reserved) = Buffer::pending(&pair.b.tpt, 1000, PD, Access::ALL).unwrap();
            memory.write(0, &[1; 1000]);
            let remote = RemoteAddr {
                stag: memory.stag(),
                to: To::new(memory.at()),
            };
            let scatter = [pair.b.sge(6000, 500)];
            pair.b.receive(7, &scatter);
            let sink = [pair.a.sge(0, 1000)];
            pair.a.post(1, read(remote), &sink);
            let source = [pair.a.sge(4000, 500)];
            pair.a.post(2, SEND, &source);
            pair.run();
            assert!(pair.b.received().is_empty(), "{setup:?}");
            let waiters = if fails {
                reserved.fail()
            } else {
                reserved.complete().waiters
            };
            assert_eq!(waiters, [2]);
            let wake = verbena_events::event::Wake::Memory(2);
            pair.b.qp.wake(wake, &mut pair.b.out);
            pair.run();
            let end = if fails {
                Status::WrFlushErr
            } else {
                Status::Success
            };
            assert_eq!(pair.b.received()[0].status, end, "{setup:?}");
            if !fails {
                assert!(is_all(&pair.a.memory.read(0, 1000), 1), "{setup:?}");
            }
        }
    });
}

/// Deregistering memory ends the read that needs it, whatever was kept of other bytes.
#[test]
fn deregistered_source_fails_the_read() {
    let mut pair = Pair::new(Setup::default());
    let region = Buffer::new(&pair.b.tpt, 3000, PD, Access::ALL).unwrap();
    let remote = RemoteAddr {
        stag: region.stag(),
        to: To::new(region.at()),
    };
    let sink = [pair.a.sge(0, 2500)];
    pair.a.post(1, read(remote), &sink);
    let source = [pair.a.sge(4000, 500)];
    pair.a.post_flagged(2, write(remote), &source, Flags::NONE);
    deliver(&mut pair);
    drop(region);
    pair.run();
    assert_eq!(pair.a.statuses()[0], (1, Status::RemAccessErr));
    assert!(pair.now < verbena_stream::Time::ZERO + Duration::from_secs(1));
}
