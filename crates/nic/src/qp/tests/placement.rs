//! Atomic Write and Flush (docs/extensions.md): what they do, their order behind earlier requests, the rights that they need, and that a
//! peer without them is never sent one. A refused request changes no memory.

use verbena_mem::{Access, Buffer};
use verbena_wire::ext::Features;
use verbena_wire::rdmap::FlushScope;
use verbena_wire::{Stag, To};

use crate::qp::{PostError, QpAccessFlags};
use crate::state::{Personality, QpState};
use crate::testing::{PD, Pair, Setup, direct, feed, read, transmit, write};
use crate::wc::{Status, WcOp};
use crate::wr::{Data, Flags, RemoteAddr, SendOp, SendWr, Sge};

/// Staged and direct, in both personalities, with and without MPA markers.
fn every_setup(test: impl Fn(Setup)) {
    for base in [Setup::default(), direct()] {
        for personality in [Personality::Roce, Personality::Iwarp] {
            for markers in [false, true] {
                test(Setup {
                    personality,
                    markers,
                    ..base
                });
            }
        }
    }
}

/// The offset of an aligned word of `b`'s memory.
fn aligned(pair: &Pair) -> u64 {
    64 - pair.b.memory.at() % 8
}

fn atomic_write(remote: RemoteAddr) -> SendOp {
    SendOp::AtomicWrite { remote }
}

fn flush(remote: RemoteAddr, len: u64) -> SendOp {
    let scope = FlushScope::Range { len };
    SendOp::Flush { remote, scope }
}

fn flush_region(remote: RemoteAddr) -> SendOp {
    let scope = FlushScope::Region;
    SendOp::Flush { remote, scope }
}

/// The elements of a request's data in `a`'s memory.
fn data(pair: &Pair, op: SendOp) -> Vec<Sge> {
    let len = op.fixed_len().unwrap();
    vec![pair.a.sge(16, len)]
}

#[test]
fn atomic_write_places_gathered_and_inline_bytes() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        let at = aligned(&pair);
        pair.a.memory.write(0, b"0123");
        pair.a.memory.write(100, b"4567");
        let pieces = [pair.a.sge(0, 4), pair.a.sge(100, 4)];
        let op = atomic_write(pair.b.remote(at));
        pair.a.post(1, op, &pieces);
        let inline = SendWr {
            id: 2,
            op: atomic_write(pair.b.remote(at + 8)),
            flags: Flags::SIGNALED,
            data: Data::Inline(b"89abcdef"),
        };
        pair.a.qp.post_send(&inline, &mut pair.a.out).unwrap();
        pair.run();
        assert_eq!(pair.b.memory.read(at as usize, 16), b"0123456789abcdef");
        let seen: Vec<_> = pair.a.sent().iter().map(|w| (w.id, w.op, w.len)).collect();
        let op = WcOp::AtomicWrite;
        assert_eq!(seen, [(1, op, 8), (2, op, 8)], "{setup:?}");
        // The previous value is not returned to the source.
        assert_eq!(pair.a.memory.read(0, 4), b"0123");
        assert_eq!(pair.a.memory.read(100, 4), b"4567");
    });
}

#[test]
fn flush_of_range_and_region_completes() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        let remote = pair.b.remote(0);
        pair.a.memory.write(0, &[7; 3000]);
        let source = [pair.a.sge(0, 3000)];
        pair.a.post(1, write(remote), &source);
        pair.a.post(2, flush(remote, 3000), &[]);
        pair.a.post(3, flush(pair.b.remote(8192), 0), &[]);
        pair.a.post(4, flush_region(remote), &[]);
        pair.run();
        assert_eq!(pair.b.memory.read(0, 3000), [7; 3000]);
        let seen: Vec<_> = pair.a.sent().iter().map(|w| (w.id, w.op, w.len)).collect();
        let flushed = |id| (id, WcOp::Flush, 0);
        let expected = [(1, WcOp::Write, 3000), flushed(2), flushed(3), flushed(4)];
        assert_eq!(seen, expected, "{setup:?}");
    });
}

#[test]
fn atomic_write_follows_earlier_writes_at_every_split() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        let at = aligned(&pair);
        pair.a.memory.write(0, &[9; 700]);
        let source = [pair.a.sge(0, 700)];
        let (record, flag) = (pair.b.remote(1000), pair.b.remote(at));
        pair.a.post(1, write(record), &source);
        let word = [pair.a.sge(0, 8)];
        pair.a.post(2, atomic_write(flag), &word);
        pair.a.post(3, flush(record, 700), &[]);
        let bytes = transmit(&pair.a.qp, 1 << 20, pair.now, &mut pair.a.out);
        for byte in bytes {
            assert_eq!(feed(&pair.b.qp, &[byte], pair.now, &mut pair.b.out), 1);
            let flag = pair.b.memory.read(at as usize, 8);
            if flag != [0; 8] {
                assert_eq!(flag, [9; 8], "written in one piece");
                assert_eq!(pair.b.memory.read(1000, 700), [9; 700], "{setup:?}");
            }
            // In the personality iwarp the Write has completed: it was handed to the connection.
            let done = pair.a.sent();
            assert!(done.iter().all(|wc| wc.id == 1), "no response was sent");
        }
        pair.run();
        let ends = pair.a.statuses();
        let last = [2, 3].map(|id| (id, Status::Success));
        assert!(ends.ends_with(&last), "{setup:?}: {ends:?}");
    });
}

#[test]
fn earlier_read_is_unaffected_by_atomic_write() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        let at = aligned(&pair);
        pair.b.memory.write(0, &[1; 500]);
        pair.a.memory.write(1000, &[2; 8]);
        let (from, sink) = (pair.b.remote(0), [pair.a.sge(0, 500)]);
        pair.a.post(1, read(from), &sink);
        let (to, word) = (pair.b.remote(at), [pair.a.sge(1000, 8)]);
        pair.a.post(2, atomic_write(to), &word);
        let bytes = transmit(&pair.a.qp, 1 << 20, pair.now, &mut pair.a.out);
        feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
        assert_eq!(pair.b.memory.read(at as usize, 8), [2; 8], "executed");
        pair.run();
        let expected = [1, 2].map(|id| (id, Status::Success));
        assert_eq!(pair.a.statuses(), expected, "{setup:?}");
        assert_eq!(pair.a.memory.read(0, 500), [1; 500], "{setup:?}");
    });
}

#[test]
fn peer_without_the_feature_is_not_asked() {
    let without = Features::READ_V2 | Features::SEND_IMM;
    for (extensions, features) in [(true, without), (false, Setup::default().features)] {
        let ops: [fn(RemoteAddr) -> SendOp; 3] = [atomic_write, |to| flush(to, 8), flush_region];
        for op in ops {
            let mut pair = Pair::new(Setup {
                extensions,
                features,
                ..Setup::default()
            });
            let op = op(pair.b.remote(aligned(&pair)));
            let data = data(&pair, op);
            pair.a.post(1, op, &data);
            pair.run();
            assert_eq!(pair.a.statuses(), [(1, Status::LocQpOpErr)], "{op:?}");
            assert_eq!(pair.a.qp.state(), QpState::Err);
        }
    }
}

/// `b` refuses the request, and its memory is as before.
fn assert_refused(mut pair: Pair, op: SendOp, status: Status) {
    let before = pair.b.memory.read(0, 8192);
    pair.a.memory.write(16, &[5; 8]);
    let data = data(&pair, op);
    pair.a.post(1, op, &data);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, status)], "{op:?}");
    assert_eq!(pair.b.qp.state(), QpState::Err);
    assert_eq!(pair.b.memory.read(0, 8192), before, "{op:?}");
}

/// Memory of `b` with these rights only.
fn limited(pair: &Pair, access: Access) -> (Buffer, RemoteAddr) {
    let buffer = Buffer::new(&pair.b.tpt, 64, PD, access).unwrap();
    let to = To::new(buffer.at().next_multiple_of(8));
    let stag = buffer.stag();
    (buffer, RemoteAddr { stag, to })
}

#[test]
fn atomic_write_needs_alignment_bounds_and_write_right() {
    let pair = Pair::roce();
    let op = atomic_write(pair.b.remote(aligned(&pair) + 4));
    assert_refused(pair, op, Status::RemInvReqErr);

    let pair = Pair::roce();
    let op = atomic_write(pair.b.remote(8192 - 4));
    assert_refused(pair, op, Status::RemAccessErr);

    let pair = Pair::roce();
    let all_but_write = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC | Access::REMOTE_FLUSH;
    let (buffer, remote) = limited(&pair, all_but_write);
    assert_refused(pair, atomic_write(remote), Status::RemAccessErr);
    assert_eq!(buffer.read(0, 64), [0; 64]);

    let mut pair = Pair::roce();
    let closed = QpAccessFlags {
        write: false,
        ..QpAccessFlags::default()
    };
    pair.b.qp.set_access_flags(closed, &mut pair.b.out);
    let op = atomic_write(pair.b.remote(aligned(&pair)));
    assert_refused(pair, op, Status::RemInvReqErr);
}

#[test]
fn write_right_suffices_for_an_atomic_write() {
    let mut pair = Pair::roce();
    let (buffer, remote) = limited(&pair, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    pair.a.memory.write(16, b"allowed!");
    let op = atomic_write(remote);
    let data = data(&pair, op);
    pair.a.post(1, op, &data);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
    let at = (remote.to.get() - buffer.at()) as usize;
    assert_eq!(buffer.read(at, 8), b"allowed!");
}

#[test]
fn flush_needs_its_right_and_the_bounds() {
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let ops: [fn(RemoteAddr) -> SendOp; 2] = [|to| flush(to, 8), flush_region];
    for op in ops {
        let pair = Pair::roce();
        let (_buffer, remote) = limited(&pair, rights);
        assert_refused(pair, op(remote), Status::RemAccessErr);

        let pair = Pair::roce();
        let (buffer, remote) = limited(&pair, Access::ALL);
        drop(buffer);
        assert_refused(pair, op(remote), Status::RemAccessErr);

        let pair = Pair::roce();
        let unknown = RemoteAddr {
            stag: Stag::new(0x00ff_ff00),
            ..pair.b.remote(0)
        };
        assert_refused(pair, op(unknown), Status::RemAccessErr);

        let mut pair = Pair::roce();
        let closed = QpAccessFlags {
            flush: false,
            ..QpAccessFlags::default()
        };
        pair.b.qp.set_access_flags(closed, &mut pair.b.out);
        let op = op(pair.b.remote(0));
        assert_refused(pair, op, Status::RemInvReqErr);
    }
    for (offset, len) in [(0, 8193), (8192, 1), (1, u64::MAX), (1, 8192)] {
        let pair = Pair::roce();
        let op = flush(pair.b.remote(offset), len);
        assert_refused(pair, op, Status::RemAccessErr);
    }
}

#[test]
fn wrong_data_length_is_not_posted() {
    let mut pair = Pair::roce();
    let remote = pair.b.remote(aligned(&pair));
    let refuse = |pair: &mut Pair, op, data: Data<'_>| {
        let wr = SendWr {
            id: 1,
            op,
            flags: Flags::SIGNALED,
            data,
        };
        pair.a.qp.post_send(&wr, &mut pair.a.out).unwrap_err()
    };
    for len in [0, 4, 7, 9, 16] {
        let pieces = [pair.a.sge(0, len)];
        let refused = refuse(&mut pair, atomic_write(remote), Data::Gather(&pieces));
        assert_eq!(refused, PostError::Length, "{len}");
    }
    let refused = refuse(&mut pair, atomic_write(remote), Data::Inline(b"nine byte"));
    assert_eq!(refused, PostError::Inline { got: 9, limit: 8 });
    let piece = [pair.a.sge(0, 1)];
    let refused = refuse(&mut pair, flush(remote, 8), Data::Gather(&piece));
    assert_eq!(refused, PostError::Length);
    let refused = refuse(&mut pair, flush(remote, 8), Data::Inline(b""));
    assert_eq!(refused, PostError::Inline { got: 0, limit: 0 });
    pair.run();
    assert!(pair.a.sent().is_empty());
    assert_eq!(pair.a.qp.state(), QpState::Rts);
}

#[test]
fn lost_atomic_write_source_is_loc_prot_err() {
    let mut pair = Pair::roce();
    let source = Buffer::new(&pair.a.tpt, 8, PD, Access::LOCAL_READ).unwrap();
    let piece = [Sge {
        addr: source.at(),
        len: 8,
        stag: source.stag(),
    }];
    drop(source);
    let at = aligned(&pair);
    let op = atomic_write(pair.b.remote(at));
    pair.a.post(1, op, &piece);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::LocProtErr)]);
    assert_eq!(pair.b.memory.read(at as usize, 8), [0; 8]);
}

#[test]
fn more_flushes_than_the_depth_wait_their_turn() {
    let mut pair = Pair::roce();
    let remote = pair.b.remote(0);
    for id in 0..20 {
        pair.a.post(id, flush(remote, 64), &[]);
    }
    pair.run();
    let expected: Vec<_> = (0..20).map(|id| (id, Status::Success)).collect();
    assert_eq!(pair.a.statuses(), expected);
}
