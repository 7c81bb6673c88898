//! P3: a bad cell is not placed, its packet never delivered or completed, and the error is counted and reported.

use std::sync::Arc;

use verbena_mem::{Access, Buffer, Pd};
use verbena_nic::wr::{Data, RemoteAddr};
use verbena_nic::{Cq, Status};
use verbena_split_wire::cell::{Body, Cell, Cells, Tail};
use verbena_wire::{Stag, To};

use crate::testing::*;
use crate::{Config, Counters, EndReason, Error, Notice, Refused, State};

/// A write to memory that refuses, on each kind: nothing is placed, and only an acknowledged sender is told.
fn refused(
    remote: impl Fn(&Side) -> (RemoteAddr, Option<Buffer>),
    why: Refused,
    count: fn(&Counters) -> u64,
) {
    for kind in KINDS {
        let mut pair = Pair::new(kind);
        pair.b.receive(1, 0, 100);
        let (to, other) = remote(&pair.b);
        pair.a
            .send(1, Some(to), Some(7), Data::Inline(&[9; 16]))
            .unwrap();
        pair.carry();
        assert_eq!(count(&pair.b.counters()), 1, "{kind:?}");
        assert_eq!(pair.b.port.view(WQP).unwrap().refused, Some(why));
        assert_eq!(
            pair.b
                .received()
                .iter()
                .filter(|wc| wc.status == Status::Success)
                .count(),
            0
        );
        assert!(pair.b.memory.read(0, 1 << 16).iter().all(|byte| *byte == 0));
        if let Some(other) = other {
            assert!(other.read(0, other.len()).iter().all(|byte| *byte == 0));
        }
        let status = if kind.acknowledged {
            Status::RemAccessErr
        } else {
            Status::Success
        };
        assert_eq!(pair.a.sent(), [(1, status)], "{kind:?}");
        // An acknowledged, connected channel fails on both sides; the others continue.
        let fails = kind.acknowledged && kind.connected;
        assert_eq!(pair.a.state() == State::Ended, fails);
        assert_eq!(pair.b.state() == State::Ended, fails);
    }
}

#[test]
fn an_unknown_handle_is_refused() {
    let to = |_: &Side| {
        let remote = RemoteAddr {
            stag: Stag::new(0x1234),
            to: To::new(0),
        };
        (remote, None)
    };
    refused(to, Refused::Handle, |counters| counters.handle);
    // A handle of another protection domain is treated as unknown.
    let foreign = |side: &Side| {
        let other = Buffer::new(&side.tpt, 100, Pd(2), Access::ALL).unwrap();
        let remote = RemoteAddr {
            stag: other.stag(),
            to: To::new(other.at()),
        };
        (remote, Some(other))
    };
    refused(foreign, Refused::Handle, |counters| counters.handle);
}

#[test]
fn write_outside_the_region_is_refused() {
    for offset in [(1 << 16) - 15, 1 << 16, u64::MAX] {
        let to = |side: &Side| {
            let at = side.memory.at().wrapping_add(offset);
            let remote = RemoteAddr {
                stag: side.memory.stag(),
                to: To::new(at),
            };
            (remote, None)
        };
        refused(to, Refused::Bounds, |counters| counters.bounds);
    }
}

#[test]
fn write_without_remote_write_right_is_refused() {
    let to = |side: &Side| {
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let other = Buffer::new(&side.tpt, 100, PD, access).unwrap();
        let remote = RemoteAddr {
            stag: other.stag(),
            to: To::new(other.at()),
        };
        (remote, Some(other))
    };
    refused(to, Refused::Right, |counters| counters.right);
}

/// A packet that does not fit its receive: the receive stays for one that does.
#[test]
fn a_send_longer_than_its_receive_is_refused() {
    for kind in KINDS {
        let mut pair = Pair::new(kind);
        pair.b.receive(1, 0, 10);
        pair.a.send(1, None, None, Data::Inline(&[9; 11])).unwrap();
        pair.carry();
        assert_eq!(pair.b.counters().bounds, 1);
        assert_eq!(pair.b.memory.read(0, 100), [0; 100]);
        if kind.acknowledged {
            assert_eq!(pair.a.sent(), [(1, Status::RemInvReqErr)]);
        }
        if pair.b.state() != State::Ended {
            pair.a.send(2, None, None, Data::Inline(&[9; 10])).unwrap();
            pair.carry();
            assert_eq!(pair.b.received().len(), 1, "{kind:?}");
        }
    }
}

/// Changes data cells on their way, with correct cell checksums.
fn alter_data_cells(pair: &mut Pair, bend: impl Fn(&mut Cell<'_>)) {
    while let Some(datagram) = pair.a.transmit(pair.now) {
        let mut bent = Vec::new();
        for mut cell in Cells::new(&datagram).map(Result::unwrap) {
            bend(&mut cell);
            cell.emit(&mut bent);
        }
        pair.b.port.handle_cells(&bent, pair.now, &mut pair.b.out);
    }
}

/// Both checksums: that of the cell, and that of the packet when all its cells were correct.
#[test]
fn a_wrong_checksum_is_refused() {
    for kind in KINDS {
        let mut pair = Pair::new(kind);
        pair.b.receive(1, 0, 100);
        pair.a.send(1, None, Some(1), Data::Inline(b"sum")).unwrap();
        alter_data_cells(&mut pair, |cell| {
            if let Body::Data(data) = &mut cell.body
                && let Tail::Last { crc, .. } = &mut data.tail
            {
                *crc ^= 0x10;
            }
        });
        assert_eq!(pair.b.counters().packet_crc, 1, "{kind:?}");
        assert_eq!(pair.b.received().len(), 0);
        assert_eq!(pair.b.memory.read(0, 3), [0; 3], "not even placed");
        // An acknowledged packet is retransmitted unchanged.
        pair.carry();
        assert_eq!(pair.b.received().len(), usize::from(kind.acknowledged));

        pair.b.receive(2, 200, 100);
        pair.a.send(2, None, None, Data::Inline(b"sum")).unwrap();
        let mut datagram = pair.a.transmit(pair.now).unwrap();
        let last = datagram.len() - 9;
        datagram[last] ^= 1;
        pair.b
            .port
            .handle_cells(&datagram, pair.now, &mut pair.b.out);
        assert_eq!(pair.b.port.counters().cell_crc, 1);
        assert_eq!(pair.b.received().len(), 0);
    }
}

/// Immediate data is covered by the checksums of both the cell and the packet.
#[test]
fn changed_immediate_data_is_refused() {
    let mut pair = Pair::new(kind(false, true));
    pair.b.receive(1, 0, 100);
    let remote = pair.b.remote(100);
    pair.a
        .send(1, Some(remote), Some(1), Data::Inline(b"x"))
        .unwrap();
    alter_data_cells(&mut pair, |cell| {
        if let Body::Data(data) = &mut cell.body
            && let Tail::Last { immediate, .. } = &mut data.tail
        {
            *immediate = Some(2);
        }
    });
    assert_eq!(pair.b.counters().packet_crc, 1);
    assert_eq!(pair.b.received().len(), 0);
}

/// A write that announces 16 bytes and contains 15 or 17.
#[test]
fn wrong_announced_length_is_refused() {
    for brought in [15_usize, 17] {
        let mut pair = Pair::new(kind(false, true));
        let remote = pair.b.remote(0);
        pair.a
            .send(1, Some(remote), None, Data::Inline(&[9; 16]))
            .unwrap();
        let payload = [9; 17];
        alter_data_cells(&mut pair, |cell| {
            if let Body::Data(data) = &mut cell.body {
                // A static payload outlives the cell.
                let bytes: &'static [u8] = &[9; 17];
                assert_eq!(bytes, payload);
                data.payload = &bytes[..brought];
            }
        });
        assert_eq!(pair.b.counters().bounds, 1, "{brought}");
        assert_eq!(pair.b.memory.read(0, 32), [0; 32]);
    }
}

/// A cell that is larger than negotiated.
#[test]
fn a_cell_that_is_too_large_is_refused() {
    let mut pair = Pair::unconnected(kind(false, false), Config::default());
    let jumbo = Config {
        cell: 1000,
        ..Config::default()
    };
    pair.a = Pair::unconnected(kind(false, false), jumbo).a;
    pair.b.receive(1, 0, 1000);
    let piece = [pair.a.sge(0, 257)];
    pair.a.send(1, None, None, Data::Gather(&piece)).unwrap();
    pair.carry();
    assert_eq!(pair.b.counters().bounds, 1);
    assert_eq!(pair.b.received().len(), 0);
}

/// Cells of other channels: another peer, other attributes, fragments on a connectionless channel.
#[test]
fn cells_of_other_channels_are_refused() {
    let mut pair = Pair::new(kind(true, true));
    pair.b.receive(1, 0, 100);
    pair.a.send(1, None, None, Data::Inline(b"x")).unwrap();
    alter_data_cells(&mut pair, |cell| cell.route.from = address(9));
    assert_eq!(pair.b.counters().channel, 1);
    let mut pair = Pair::new(kind(false, false));
    pair.b.receive(1, 0, 100);
    pair.a.send(1, None, None, Data::Inline(b"x")).unwrap();
    alter_data_cells(&mut pair, |cell| {
        if let Body::Data(data) = &mut cell.body {
            data.tail = Tail::More;
        }
    });
    assert_eq!(pair.b.counters().fragment, 1);
    pair.a.send(2, None, None, Data::Inline(b"x")).unwrap();
    alter_data_cells(&mut pair, |cell| cell.route.to = address(7));
    assert_eq!(pair.b.port.counters().wrong_destination, 1);
    pair.b
        .port
        .handle_cells(b"no cell at all", pair.now, &mut pair.b.out);
    assert_eq!(pair.b.port.counters().malformed, 1);
    assert_eq!(pair.b.received().len(), 0);
}

/// A connectionless queue that is restricted to one source: packets of others are neither placed nor answered.
#[test]
fn packets_of_other_sources_are_refused() {
    for acknowledged in [true, false] {
        let mut pair = Pair::new(kind(acknowledged, false));
        pair.b.receive(1, 0, 100);
        pair.b.port.set_source(WQP, peer(9)).unwrap();
        pair.a.send(1, None, None, Data::Inline(b"x")).unwrap();
        pair.carry();
        assert_eq!(pair.b.counters().channel, 1);
        assert_eq!(pair.b.received().len(), 0);
        assert_eq!(pair.a.sent().len(), usize::from(!acknowledged));
        pair.b.port.set_source(WQP, peer(1)).unwrap();
        pair.a.send(2, None, None, Data::Inline(b"x")).unwrap();
        pair.carry();
        assert_eq!(pair.b.received().len(), 1);
    }
    let mut connected = Pair::new(kind(true, true));
    let refused = connected.b.port.set_source(WQP, peer(1));
    assert_eq!(refused, Err(Error::Kind));
}

/// A local protection error completes the descriptor. A connected channel fails with it, a connectionless one continues.
#[test]
fn local_protection_error_fails_connected_channel() {
    for kind in KINDS {
        let mut pair = Pair::new(kind);
        pair.b.receive(1, 0, 100);
        let mut bad = pair.a.sge(0, 10);
        bad.stag = Stag::new(0x999);
        pair.a.send(1, None, None, Data::Gather(&[bad])).unwrap();
        pair.a.send(2, None, None, Data::Inline(b"next")).unwrap();
        pair.carry();
        let second = if kind.connected {
            Status::WrFlushErr
        } else {
            Status::Success
        };
        assert_eq!(
            pair.a.sent(),
            [(1, Status::LocProtErr), (2, second)],
            "{kind:?}"
        );
        assert_eq!(
            pair.b.state() == State::Ended,
            kind.connected,
            "the peer is told"
        );
    }
    let mut pair = Pair::new(kind(true, true));
    let gone = Buffer::new(&pair.b.tpt, 100, PD, Access::LOCAL_WRITE).unwrap();
    let scatter = [verbena_nic::Sge {
        addr: gone.at(),
        len: 100,
        stag: gone.stag(),
    }];
    let wr = verbena_nic::ReceiveWr {
        id: 5,
        scatter: &scatter,
    };
    pair.b.port.post_receive(WQP, &wr).unwrap();
    pair.b.port.ring_receive(WQP, &mut pair.b.out).unwrap();
    drop(gone);
    pair.a.send(1, None, None, Data::Inline(b"x")).unwrap();
    pair.carry();
    let failed = pair.b.received();
    assert_eq!((failed[0].id, failed[0].status), (5, Status::LocProtErr));
    let ended = Notice::Ended {
        wqp: WQP,
        reason: EndReason::LocalMemory,
    };
    assert_eq!(pair.b.notices(), [ended]);
    assert_eq!(pair.a.sent(), [(1, Status::WrFlushErr)]);
}

/// M9: a one-touch region is invalid after the packet that ends in it, however often its cells arrive.
#[test]
fn one_touch_memory_takes_one_packet() {
    let mut pair = Pair::new(kind(true, true));
    let once = Buffer::one_touch(&pair.b.tpt, 600, PD, Access::ALL).unwrap();
    let remote = RemoteAddr {
        stag: once.stag(),
        to: To::new(once.at()),
    };
    assert!(pair.a.memory.write(0, &[3; 600]));
    let piece = [pair.a.sge(0, 600)];
    pair.a
        .send(1, Some(remote), None, Data::Gather(&piece))
        .unwrap();
    pair.a
        .send(2, Some(remote), None, Data::Gather(&piece))
        .unwrap();
    pair.carry();
    assert_eq!(
        pair.a.sent(),
        [(1, Status::Success), (2, Status::RemAccessErr)]
    );
    assert_eq!(once.read(0, 600), [3; 600]);
}

/// A completion queue that loses entries fails the channel.
#[test]
fn completion_queue_overflow_fails_the_channel() {
    for kind in KINDS {
        let mut pair = Pair::unconnected(kind, Config::default());
        let few = Arc::new(Cq::new(8, 1).unwrap());
        pair.b.receives = few;
        let mut init = pair.b.init(WQP);
        init.recv_cq = pair.b.receives.clone();
        pair.b.port.destroy(WQP, &mut pair.b.out).unwrap();
        pair.b.port.create(init).unwrap();
        pair.connect();
        for id in 0..3 {
            pair.b.receive(id, 100 * id, 100);
            pair.a.send(id, None, None, Data::Inline(b"x")).unwrap();
        }
        pair.carry();
        assert_eq!(pair.b.state(), State::Ended, "{kind:?}");
        let ended = Notice::Ended {
            wqp: WQP,
            reason: EndReason::Overflow,
        };
        assert_eq!(pair.b.notices(), [ended]);
    }
}

/// V5: memory with a pending registration is waited for, by local sends and by acknowledged writes of a peer.
#[test]
fn acknowledged_packets_wait_for_pending_registrations() {
    for kind in KINDS {
        let mut pair = Pair::new(kind);
        let (source, soon) = Buffer::pending(&pair.a.tpt, 8, PD, Access::ALL).unwrap();
        let (target, later) = Buffer::pending(&pair.b.tpt, 8, PD, Access::ALL).unwrap();
        assert!(source.write(0, b"patience"));
        let piece = [verbena_nic::Sge {
            addr: source.at(),
            len: 8,
            stag: source.stag(),
        }];
        let remote = RemoteAddr {
            stag: target.stag(),
            to: To::new(target.at()),
        };
        pair.a
            .send(1, Some(remote), None, Data::Gather(&piece))
            .unwrap();
        pair.carry();
        assert_eq!(pair.a.counters().cells_sent, 0);
        drop(soon.complete());
        assert!(pair.wait());
        pair.carry();
        assert_eq!(pair.b.counters().no_buffer, 1, "{kind:?}");
        assert_eq!(target.read(0, 8), [0; 8]);
        drop(later.complete());
        while pair.wait() {
            pair.carry();
        }
        assert_eq!(pair.a.sent(), [(1, Status::Success)]);
        let arrived = target.read(0, 8) == b"patience";
        assert_eq!(arrived, kind.acknowledged, "{kind:?}");
    }
}
