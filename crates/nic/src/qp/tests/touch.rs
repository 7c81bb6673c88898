//! M9 on streams: what touches a one-touch entry, what the second touch causes, and which of two racing peers is first.

use verbena_events::event::Event;
use verbena_mem::{Access, Bind, Buffer, Policy, WindowType};
use verbena_wire::{Stag, To};

use crate::carrier::MemoryCarrier;
use crate::state::{Personality, QpState, QpType};
use crate::testing::{PD, Pair, SEND, Setup, Side, direct, feed, read, transmit, write};
use crate::wc::{Status, WcOp};
use crate::wr::{RemoteAddr, SendOp, Sge};

/// Staged and direct, with and without extensions, in both personalities.
fn every_setup(test: impl Fn(Setup)) {
    for base in [Setup::default(), direct()] {
        for personality in [Personality::Roce, Personality::Iwarp] {
            for extensions in [false, true] {
                test(Setup {
                    personality,
                    extensions,
                    ..base
                });
            }
        }
    }
}

/// Binds a window that is invalidated by its first touch, by a request of the side's own, to its first 4000 bytes.
fn window(side: &mut Side, ty: WindowType, access: Access) -> Stag {
    let window = side.tpt.allocate_window(ty, PD).unwrap();
    let bind = Bind {
        window,
        region: side.memory.stag(),
        addr: side.memory.at(),
        len: 4000,
        access,
        pd: PD,
        qp: side.qp.number(),
        key: 0x5a,
        zero_based: ty != WindowType::One,
        one_touch: true,
    };
    side.post(90, SendOp::Bind(bind), &[]);
    let key = match ty {
        WindowType::One => window.key().wrapping_add(1),
        WindowType::TwoA | WindowType::TwoB => 0x5a,
    };
    Stag::from_parts(window.index(), key).unwrap()
}

/// Any rights, for peers only.
fn for_peers() -> Access {
    Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

fn zero_based(side: &mut Side) -> RemoteAddr {
    let stag = window(side, WindowType::TwoB, for_peers());
    let to = To::new(0);
    RemoteAddr { stag, to }
}

fn fetch_add(remote: RemoteAddr) -> SendOp {
    SendOp::FetchAdd {
        remote,
        add: 5,
        mask: 0,
    }
}

fn bound(setup: Setup) -> (Pair, RemoteAddr) {
    let mut pair = Pair::new(setup);
    let remote = zero_based(&mut pair.b);
    pair.run();
    assert_eq!(pair.b.statuses(), [(90, Status::Success)]);
    (pair, remote)
}

/// The effect of a second touch on both sides, in every setup.
fn assert_refused(pair: &mut Pair, setup: Setup, id: u64) {
    let cause = pair.b.qp.cause().unwrap();
    assert!(cause.contains("second touch"), "{setup:?}: {cause}");
    assert!(pair.b.events().contains(&Event::QpAccess { qp: 2 }));
    let cause = pair.a.qp.cause().unwrap();
    assert!(
        cause.contains("the peer sent Terminate"),
        "{setup:?}: {cause}"
    );
    assert!(cause.to_lowercase().contains("stag"), "{setup:?}: {cause}");
    let end = match setup.personality {
        Personality::Roce => QpState::Err,
        Personality::Iwarp => QpState::Terminate,
    };
    assert_eq!((pair.a.qp.state(), pair.b.qp.state()), (end, end));
    if setup.personality == Personality::Roce && setup.extensions {
        assert_eq!(pair.a.statuses(), [(id, Status::RemAccessErr)]);
    }
}

#[test]
fn second_write_to_one_touch_entry_fails() {
    every_setup(|setup| {
        let (mut pair, remote) = bound(setup);
        pair.a.memory.write(0, &[7; 3500]);
        let from = [pair.a.sge(0, 3500)];
        pair.a.post(1, write(remote), &from);
        pair.run();
        // The peer notices nothing.
        assert_eq!(pair.a.statuses(), [(1, Status::Success)], "{setup:?}");
        assert_eq!(pair.b.memory.read(0, 3501)[3499..], [7, 0]);
        assert!(pair.b.tpt.find_entry(remote.stag).is_none(), "{setup:?}");
        assert_eq!(pair.b.qp.state(), QpState::Rts);
        pair.a.memory.write(0, &[8; 3500]);
        pair.a.post(2, write(remote), &from);
        pair.run();
        assert_refused(&mut pair, setup, 2);
        assert_eq!(pair.b.memory.read(0, 3500), [7; 3500], "{setup:?}");
    });
}

#[test]
fn one_touch_region_accepts_one_remote_access() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        let region = Buffer::one_touch(&pair.b.tpt, 100, PD, Access::ALL).unwrap();
        let remote = RemoteAddr {
            stag: region.stag(),
            to: To::new(region.at()),
        };
        // Local use is not a touch.
        let own = Sge {
            addr: region.at(),
            len: 10,
            stag: region.stag(),
        };
        pair.b.receive(5, &[own]);
        pair.a.memory.write(0, &[3; 200]);
        let from = [pair.a.sge(0, 10)];
        pair.a.post(1, SEND, &from);
        let from = [pair.a.sge(0, 100)];
        pair.a.post(2, write(remote), &from);
        pair.run();
        let done = [(1, Status::Success), (2, Status::Success)];
        assert_eq!(pair.a.statuses(), done, "{setup:?}");
        assert_eq!(region.read(0, 100), [3; 100]);
        pair.a.post(3, write(remote), &from);
        pair.run();
        assert_refused(&mut pair, setup, 3);
    });
}

#[test]
fn served_read_invalidates_one_touch_entry() {
    every_setup(|setup| {
        let (mut pair, remote) = bound(setup);
        pair.b.memory.write(0, &[9; 3900]);
        let to = [pair.a.sge(100, 3900)];
        pair.a.post(1, read(remote), &to);
        pair.run();
        assert_eq!(pair.a.statuses(), [(1, Status::Success)], "{setup:?}");
        assert_eq!(pair.a.memory.read(100, 3901)[3899..], [9, 0]);
        assert!(pair.b.tpt.find_entry(remote.stag).is_none(), "{setup:?}");
        pair.a.post(2, read(remote), &to);
        pair.run();
        assert_refused(&mut pair, setup, 2);
    });
}

#[test]
fn first_of_simultaneous_requests_is_served() {
    every_setup(|setup| {
        for second in 0..2 {
            let (mut pair, remote) = bound(setup);
            pair.b.memory.write(0, &[9; 3900]);
            let (to, from) = ([pair.a.sge(0, 3900)], [pair.a.sge(4000, 10)]);
            pair.a.post(1, read(remote), &to);
            match second {
                0 => pair.a.post(2, read(remote), &to),
                _ => pair.a.post(2, write(remote), &from),
            }
            pair.run();
            let cause = pair.b.qp.cause().unwrap();
            assert!(cause.contains("second touch"), "{setup:?} {cause}");
            if setup.personality == Personality::Roce && setup.extensions && second == 0 {
                let ends = [(1, Status::Success), (2, Status::RemAccessErr)];
                assert_eq!(pair.a.statuses(), ends);
                assert_eq!(pair.a.memory.read(0, 3900), [9; 3900]);
            }
            assert!(pair.b.tpt.find_entry(remote.stag).is_none());
        }
    });
}

#[test]
fn only_an_executed_atomic_invalidates_the_entry() {
    let (mut pair, remote) = bound(Setup::default());
    pair.b.memory.write(0, &7_u64.to_ne_bytes());
    let to = [pair.a.sge(0, 8)];
    pair.a.post(1, fetch_add(remote), &to);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    assert_eq!(pair.a.memory.read(0, 8), 7_u64.to_ne_bytes());
    assert_eq!(pair.b.memory.read(0, 8), 12_u64.to_ne_bytes());
    assert!(pair.b.tpt.find_entry(remote.stag).is_none());
    pair.a.post(2, fetch_add(remote), &to);
    pair.run();
    assert_refused(&mut pair, Setup::default(), 2);
    assert_eq!(pair.b.memory.read(0, 8), 12_u64.to_ne_bytes());

    let (mut pair, remote) = bound(Setup::default());
    let to = [pair.a.sge(0, 8)];
    let unaligned = RemoteAddr {
        to: To::new(4),
        ..remote
    };
    pair.a.post(1, fetch_add(unaligned), &to);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::RemInvReqErr)]);
    assert!(
        pair.b.tpt.find_entry(remote.stag).is_some(),
        "nothing was done"
    );
}

#[test]
fn zero_length_access_does_not_count_as_touch() {
    let (mut pair, remote) = bound(Setup::default());
    pair.a.post(1, write(remote), &[]);
    pair.a.post(2, read(remote), &[]);
    let from = [pair.a.sge(0, 10)];
    pair.a.post(3, write(remote), &from);
    pair.run();
    assert_eq!(pair.a.statuses().len(), 3);
    assert_eq!(pair.b.qp.state(), QpState::Rts);
}

#[test]
fn spent_entry_may_still_be_invalidated() {
    every_setup(|setup| {
        let (mut pair, remote) = bound(setup);
        pair.b.receive(5, &[]);
        let from = [pair.a.sge(0, 10)];
        pair.a.post(1, write(remote), &from);
        let invalidate = Some(remote.stag);
        let send = SendOp::Send {
            invalidate,
            immediate: None,
        };
        pair.a.post(2, send, &[]);
        pair.run();
        assert_eq!(pair.b.received()[0].invalidated, invalidate, "{setup:?}");
        // So may the side itself, not knowing what its peer has done.
        let own = SendOp::LocalInvalidate(remote.stag);
        pair.b.post(3, own, &[]);
        pair.run();
        assert_eq!(pair.b.statuses(), [(3, Status::Success)]);
        assert_eq!(pair.a.qp.state(), QpState::Rts);
    });
}

#[test]
fn an_unreliable_connection_drops_the_second_touch() {
    let (mut pair, remote) = bound(Setup {
        qp_type: QpType::Uc,
        ..Setup::default()
    });
    pair.a.memory.write(0, &[7; 2000]);
    pair.a.memory.write(2000, &[8; 2000]);
    let (first, second) = ([pair.a.sge(0, 2000)], [pair.a.sge(2000, 2000)]);
    pair.a.post(1, write(remote), &first);
    pair.a.post(2, write(remote), &second);
    let elsewhere = write(pair.b.remote(5000));
    pair.a.post(3, elsewhere, &second);
    pair.run();
    assert_eq!(pair.a.statuses().len(), 3);
    assert_eq!(pair.b.memory.read(0, 2000), [7; 2000]);
    assert_eq!(pair.b.memory.read(5000, 2000), [8; 2000]);
    assert_eq!(pair.b.qp.state(), QpState::Rts);
}

/// Two connections of one adapter and a type 1 window that both may use.
fn two(setup: Setup) -> (Pair, Pair, RemoteAddr) {
    let mut first = Pair::new(setup);
    let second = Pair::sharing(setup, &first.b.tpt, 3);
    let stag = window(&mut first.b, WindowType::One, for_peers());
    first.run();
    first.b.statuses();
    let to = To::new(first.b.memory.at());
    (first, second, RemoteAddr { stag, to })
}

/// However much of the first one's last segment has arrived, the second is refused and the first is placed in full.
#[test]
fn first_touch_wins_at_every_split() {
    for base in [Setup::default(), direct()] {
        for cut in [1, 20, 986, 1000, 1020, 1100, 1500, 2000] {
            let (mut first, mut second, remote) = two(base);
            first.a.memory.write(0, &[1; 1500]);
            second.a.memory.write(0, &[2; 1500]);
            let from = [first.a.sge(0, 1500)];
            first.a.post(1, write(remote), &from);
            let from = [second.a.sge(0, 1500)];
            second.a.post(2, write(remote), &from);
            let bytes = transmit(&first.a.qp, 9000, first.now, &mut first.a.out);
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            feed(&first.b.qp, head, first.now, &mut first.b.out);
            second.run();
            feed(&first.b.qp, tail, first.now, &mut first.b.out);
            first.run();
            let winners = [&first, &second].map(|p| p.b.qp.state() == QpState::Rts);
            assert!(winners[0] != winners[1], "cut at {cut}: {winners:?}");
            // One byte of the last segment is enough if bytes are placed as they arrive; with a checksum it takes all.
            let first_was_there = cut >= if base.crc { bytes.len() } else { 1100 };
            assert_eq!(winners[0], first_was_there, "cut at {cut}");
            let byte = if winners[0] { 1 } else { 2 };
            if winners[0] {
                // A part of a message that never ended may have been placed, but not of its end.
                assert_eq!(first.b.memory.read(986, 514), [byte; 514], "cut at {cut}");
            } else {
                assert_eq!(first.b.memory.read(0, 1500), [byte; 1500], "cut at {cut}");
            }
            assert!(first.b.tpt.find_entry(remote.stag).is_none());
        }
    }
}

#[test]
fn two_connections_race_in_threads_and_one_wins() {
    for round in 0..50 {
        let (mut first, mut second, remote) = two(Setup::default());
        for (pair, byte) in [(&mut first, 1), (&mut second, 2)] {
            pair.a.memory.write(0, &[byte; 900]);
            let from = [pair.a.sge(0, 900)];
            pair.a.post(1, write(remote), &from);
        }
        std::thread::scope(|scope| {
            scope.spawn(|| first.run());
            scope.spawn(|| second.run());
        });
        let winners = [&first, &second].map(|p| p.b.qp.state() == QpState::Rts);
        assert!(winners[0] != winners[1], "round {round}: {winners:?}");
        let byte = if winners[0] { 1 } else { 2 };
        assert_eq!(first.b.memory.read(0, 900), [byte; 900], "round {round}");
        let loser = if winners[0] { &second } else { &first };
        assert_eq!(loser.a.statuses(), [(1, Status::RemAccessErr)]);
    }
}

#[test]
fn disconnect_in_last_segment_invalidates_the_entry() {
    for reset in [false, true] {
        let (mut pair, remote) = bound(direct());
        pair.a.memory.write(0, &[1; 1500]);
        let from = [pair.a.sge(0, 1500)];
        pair.a.post(1, write(remote), &from);
        let bytes = transmit(&pair.a.qp, 9000, pair.now, &mut pair.a.out);
        feed(&pair.b.qp, &bytes[..200], pair.now, &mut pair.b.out);
        assert!(pair.b.tpt.find_entry(remote.stag).is_some());
        feed(&pair.b.qp, &bytes[200..1300], pair.now, &mut pair.b.out);
        assert!(
            pair.b.tpt.find_entry(remote.stag).is_some(),
            "not all is here"
        );
        pair.b.qp.handle_eof(reset, &mut pair.b.out);
        assert!(pair.b.tpt.find_entry(remote.stag).is_none(), "{reset}");
    }
}

/// A peer may put the end of a message into a segment of its own without payload (RFC 5041 §4.1).
#[test]
fn empty_last_segment_invalidates_the_entry() {
    let setup = Setup {
        extensions: false,
        ..direct()
    };
    let (mut pair, remote) = bound(setup);
    pair.a.memory.write(0, &[7; 50]);
    let from = [pair.a.sge(0, 50)];
    pair.a.post(1, write(remote), &from);
    let mut bytes = transmit(&pair.a.qp, 9000, pair.now, &mut pair.a.out);
    assert_eq!(bytes[2] & 0x40, 0x40, "the last bit");
    bytes[2] &= !0x40;
    feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
    assert!(pair.b.tpt.find_entry(remote.stag).is_some(), "it goes on");
    let mut end = vec![0, 14, 0xc1, 0x40];
    end.extend(remote.stag.get().to_be_bytes());
    end.extend(50_u64.to_be_bytes());
    end.extend([0; 4]);
    let mut io = MemoryCarrier::with_input(&end);
    let (qp, out) = (&pair.b.qp, &mut pair.b.out);
    qp.receive(&mut io, &mut [0; 100], pair.now, out);
    assert_eq!(pair.b.qp.state(), QpState::Rts, "{:?}", pair.b.qp.cause());
    assert_eq!(pair.b.memory.read(0, 50), [7; 50]);
    assert!(pair.b.tpt.find_entry(remote.stag).is_none());
}

/// M7: where peers may name windows only, the response to a classic read is a tagged message that ends in a window.
#[test]
fn one_touch_sink_takes_one_classic_read() {
    let mut pair = Pair::new(Setup {
        policy: Policy::WindowsOnly,
        extensions: false,
        ..Setup::default()
    });
    let source = window(&mut pair.b, WindowType::TwoB, Access::REMOTE_READ);
    let sink = window(&mut pair.a, WindowType::TwoB, Access::REMOTE_WRITE);
    pair.run();
    let sge = Sge {
        addr: 0,
        len: 2500,
        stag: sink,
    };
    let remote = RemoteAddr {
        stag: source,
        to: To::new(0),
    };
    pair.b.memory.write(0, &[6; 2500]);
    pair.a.post(1, read(remote), &[sge]);
    pair.run();
    let ends = [(90, Status::Success), (1, Status::Success)];
    assert_eq!(pair.a.statuses(), ends);
    assert_eq!(pair.a.memory.read(0, 2500), [6; 2500]);
    assert!(pair.a.tpt.find_entry(sink).is_none());
    assert!(pair.b.tpt.find_entry(source).is_none());
    assert_eq!(pair.b.sent()[0].op, WcOp::Bind);
}
