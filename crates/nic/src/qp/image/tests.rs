//! Tests of images: moved at every byte, rejected where they must be, decoded only if they are complete and of this format.

use std::sync::Arc;

use verbena_mem::{Access, Buffer};
use verbena_wire::ext::Features;

use super::*;
use crate::cq::Cq;
use crate::state::{Personality, QpState};
use crate::testing::{PD, Pair, SEND, Setup, Side, direct, feed, read, transmit, write};
use crate::wc::Status;
use crate::wr::{Data, Flags, SendOp, SendWr};

/// Moves a side to a new queue pair through bytes.
fn migrate(side: &mut Side) {
    let image = side
        .qp
        .export_image(|| (), &mut side.out)
        .expect("it moves");
    let bytes = image.encode().expect("it has a form");
    let qp = Qp::new(side.qp.init().clone());
    let image = Image::decode(&bytes).expect("of our own");
    qp.import_image(image, &mut side.out).expect("it fits");
    side.qp = qp;
}

/// Everything a connection does, both ways at once: more than fits the read depth, and one message without a receive.
fn begin(pair: &mut Pair) {
    let pattern: Vec<u8> = (0..2000_u32).map(|i| (i * 7) as u8).collect();
    for (from, to) in [(true, false), (false, true)] {
        let (remote, word) = {
            let other = if to { &pair.a } else { &pair.b };
            (other.remote(4096), other.remote(8184))
        };
        let side = if from { &mut pair.a } else { &mut pair.b };
        side.memory.write(0, &pattern);
        for id in 0..3 {
            let scatter = [side.sge(7000, 300), side.sge(7400, 300)];
            side.receive(100 + id, &scatter);
        }
        let out = [side.sge(0, 2000)];
        let sink = [side.sge(2000, 1500)];
        let small = [side.sge(0, 500)];
        let value = [side.sge(6144, 8)];
        side.post(1, write(remote), &out);
        side.post(2, read(remote), &sink);
        side.post(3, SEND, &small);
        let add = SendOp::FetchAdd {
            remote: word,
            add: 5,
            mask: 0,
        };
        for id in 4..7 {
            side.post(id, add, &value);
        }
        side.post(7, SEND, &small);
        side.post(8, SEND, &small);
        side.post(9, SEND, &small);
    }
}

/// Carries at most `room` bytes each way; returns how many.
fn carry(pair: &mut Pair, room: usize, inboxes: &mut [Vec<u8>; 2]) -> usize {
    let mut moved = 0;
    for (from, inbox) in inboxes.iter_mut().enumerate() {
        let (from, to) = match from {
            0 => (&mut pair.a, &mut pair.b),
            _ => (&mut pair.b, &mut pair.a),
        };
        let bytes = transmit(&from.qp, room, pair.now, &mut from.out);
        inbox.extend_from_slice(&bytes);
        let read = feed(&to.qp, inbox, pair.now, &mut to.out);
        inbox.drain(..read);
        moved += bytes.len() + read;
    }
    moved
}

/// The whole scenario, with both sides moving between any two transfers or never; returns what each side saw.
fn run_scenario(setup: Setup, room: usize, moving: bool) -> Vec<(Vec<Wc>, Vec<Wc>, Vec<u8>)> {
    let mut pair = Pair::new(setup);
    begin(&mut pair);
    let mut inboxes = [Vec::new(), Vec::new()];
    let mut supplied = false;
    loop {
        let moved = carry(&mut pair, room, &mut inboxes);
        if moving {
            migrate(&mut pair.a);
            migrate(&mut pair.b);
        }
        if moved > 0 {
            continue;
        }
        if supplied {
            break;
        }
        // The fourth message of each side found no receive.
        supplied = true;
        for side in [&mut pair.a, &mut pair.b] {
            let scatter = [side.sge(7000, 600)];
            side.receive(103, &scatter);
        }
    }
    let look = |side: &Side| {
        let memory = side.memory.read(0, side.memory.len());
        (side.sent(), side.received(), memory)
    };
    vec![look(&pair.a), look(&pair.b)]
}

/// The setups that change the contents of an image.
fn setups() -> Vec<(&'static str, Setup)> {
    let standard = Setup {
        extensions: false,
        ..Setup::default()
    };
    vec![
        ("summed", Setup::default()),
        ("direct", direct()),
        (
            "marked",
            Setup {
                markers: true,
                ..Setup::default()
            },
        ),
        ("standard", standard),
        (
            "classic reads",
            Setup {
                features: Features::NONE,
                ..direct()
            },
        ),
        (
            "shared receives",
            Setup {
                shared: true,
                ..direct()
            },
        ),
    ]
}

#[test]
fn migration_at_every_byte_changes_nothing() {
    for (name, setup) in setups() {
        for room in [1, 13, 777] {
            let stayed = run_scenario(setup, room, false);
            let moved = run_scenario(setup, room, true);
            for (at, (stayed, moved)) in stayed.iter().zip(&moved).enumerate() {
                assert_eq!(moved.0, stayed.0, "{name}, {room}: sent by {at}");
                assert_eq!(moved.1, stayed.1, "{name}, {room}: received by {at}");
                assert_eq!(moved.2, stayed.2, "{name}, {room}: memory of {at}");
            }
            let all_well = |wc: &Wc| wc.status == Status::Success;
            assert_eq!(stayed[0].0.len(), 9, "{name}, {room}: not all was done");
            assert!(stayed[0].0.iter().all(all_well), "{name}, {room}");
        }
    }
}

/// One that would fail if a receive were missing.
#[test]
fn iwarp_connection_survives_migration_at_every_byte() {
    let setup = Setup {
        personality: Personality::Iwarp,
        ..direct()
    };
    let mut pair = Pair::new(setup);
    let (out, to) = ([pair.a.sge(0, 3000)], write(pair.b.remote(0)));
    pair.a.memory.write(0, &[7; 3000]);
    pair.a.post(1, to, &out);
    let mut inboxes = [Vec::new(), Vec::new()];
    while carry(&mut pair, 5, &mut inboxes) > 0 {
        migrate(&mut pair.a);
        migrate(&mut pair.b);
    }
    assert_eq!(pair.b.memory.read(0, 3000), [7; 3000]);
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
}

#[test]
fn unpolled_completions_move_to_the_new_number() {
    let mut pair = Pair::roce();
    let (out, to) = ([pair.a.sge(0, 10)], write(pair.b.remote(0)));
    pair.a.post(1, to, &out);
    pair.run();
    let image = pair.a.qp.export_image(|| (), &mut pair.a.out).unwrap();
    assert_eq!(image.completions(), 1);
    assert_eq!(pair.a.sent(), [], "nothing is left behind");
    let init = QpInit {
        number: 77,
        wc_qpn: 78,
        ..pair.a.qp.init().clone()
    };
    let qp = Qp::new(init);
    qp.import_image(image, &mut pair.a.out).unwrap();
    pair.a.qp = qp;
    let sent = pair.a.sent();
    assert_eq!((sent.len(), sent[0].id, sent[0].qpn), (1, 1, 78));
}

#[test]
fn departed_queue_pair_refuses_posts_until_restored() {
    let mut pair = Pair::roce();
    let image = pair.a.qp.export_image(|| (), &mut pair.a.out).unwrap();
    assert_eq!(pair.a.qp.state(), QpState::Reset);
    let wr = SendWr {
        id: 1,
        op: SEND,
        flags: Flags::NONE,
        data: Data::Inline(b"late"),
    };
    assert!(pair.a.qp.post_send(&wr, &mut pair.a.out).is_err());
    pair.a.qp.import_image(image, &mut pair.a.out).unwrap();
    pair.b.receive(5, &[pair.b.sge(0, 10)]);
    pair.a.qp.post_send(&wr, &mut pair.a.out).unwrap();
    pair.run();
    assert_eq!(pair.b.received()[0].id, 5);
}

#[test]
fn departure_callback_runs_only_on_success() {
    let mut pair = Pair::roce();
    let mut called = false;
    pair.a
        .qp
        .export_image(|| called = true, &mut pair.a.out)
        .unwrap();
    assert!(called);
    called = false;
    let refused = pair.a.qp.export_image(|| called = true, &mut pair.a.out);
    assert_eq!(refused.unwrap_err(), MigrateRefusal::State(QpState::Reset));
    assert!(!called, "who stays is not told to go");
}

#[test]
fn refused_departure_leaves_queue_pair_working() {
    // Without a connection, or with one that is over.
    let mut fresh = Pair::unconnected(Setup::default());
    let refused = fresh
        .a
        .qp
        .export_image(|| (), &mut fresh.a.out)
        .unwrap_err();
    assert_eq!(refused, MigrateRefusal::State(QpState::Reset));
    let mut failed = Pair::roce();
    failed.a.qp.modify(QpState::Err, &mut failed.a.out).unwrap();
    let refused = failed
        .a
        .qp
        .export_image(|| (), &mut failed.a.out)
        .unwrap_err();
    assert_eq!(refused, MigrateRefusal::State(QpState::Err));
    // While a registration is pending.
    let mut pair = Pair::roce();
    let (buffer, reserved) = Buffer::pending(&pair.a.tpt, 64, PD, Access::ALL).unwrap();
    let refused = pair.a.qp.export_image(|| (), &mut pair.a.out).unwrap_err();
    assert_eq!(refused, MigrateRefusal::Pending);
    let _settled = reserved.complete();
    migrate(&mut pair.a);
    drop(buffer);
    let (out, to) = ([pair.a.sge(0, 10)], write(pair.b.remote(0)));
    pair.a.post(1, to, &out);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
}

#[test]
fn local_invalidate_cannot_be_encoded() {
    let mut pair = Pair::roce();
    // Behind a read that is not answered, so that it waits.
    let (sink, from) = ([pair.a.sge(0, 10)], read(pair.b.remote(0)));
    pair.a.post(1, from, &sink);
    let invalidate = SendOp::LocalInvalidate(pair.a.memory.stag());
    pair.a
        .post_flagged(2, invalidate, &[], Flags::SIGNALED | Flags::LOCAL_FENCE);
    let image = pair.a.qp.export_image(|| (), &mut pair.a.out).unwrap();
    assert_eq!(
        image.encode().unwrap_err(),
        MigrateRefusal::Request { id: 2 }
    );
    // Within the process it can be moved.
    assert!(pair.a.qp.import_image(image, &mut pair.a.out).is_ok());
}

#[test]
fn image_is_refused_by_different_queue_pair() {
    let mut pair = Pair::roce();
    let image = pair.a.qp.export_image(|| (), &mut pair.a.out).unwrap();
    let other = Qp::new(QpInit {
        limits: Limits {
            sends: 1,
            ..Limits::default()
        },
        ..pair.a.qp.init().clone()
    });
    let back = other.import_image(image, &mut pair.a.out).unwrap_err();
    assert_eq!(back.traits().limits, Limits::default());
    assert!(
        pair.b.qp.import_image(*back, &mut pair.b.out).is_err(),
        "it has a life of its own"
    );
}

/// V6: a channel has no send queue of its own, and its connection continues in a queue pair that has one, or the other way round.
#[test]
fn image_fits_channel_only_without_sends() {
    let mut pair = Pair::roce();
    let init = pair.a.qp.init().clone();
    let with_limit = |sends, send_cq: Arc<Cq>| {
        let limits = Limits {
            sends,
            ..init.limits
        };
        Qp::new(QpInit {
            limits,
            send_cq,
            ..init.clone()
        })
    };
    let plain = |sends| with_limit(sends, init.send_cq.clone());
    let channel = || with_limit(0, Arc::new(Cq::for_ssq(1, 8).unwrap()));
    let image = pair.a.qp.export_image(|| (), &mut pair.a.out).unwrap();
    let first = channel();
    first.import_image(image, &mut pair.a.out).unwrap();
    let mut image = first.export_image(|| (), &mut pair.a.out).unwrap();
    assert_eq!((image.traits().limits.sends, image.sends()), (0, 0));
    image.set_send_limit(7);
    let image = plain(8).import_image(image, &mut pair.a.out).unwrap_err();
    pair.a.qp = plain(7);
    pair.a.qp.import_image(*image, &mut pair.a.out).unwrap();
    // The peer has no receive, so that a request is not done.
    pair.a.post(1, SEND, &[]);
    pair.run();
    let image = pair.a.qp.export_image(|| (), &mut pair.a.out).unwrap();
    assert_eq!(image.sends(), 1);
    let image = channel().import_image(image, &mut pair.a.out).unwrap_err();
    pair.a.qp.import_image(*image, &mut pair.a.out).unwrap();
    pair.b.receive(2, &[]);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
}

fn some_bytes() -> Vec<u8> {
    let mut pair = Pair::roce();
    let wr = SendWr {
        id: 9,
        op: SEND,
        flags: Flags::SIGNALED,
        data: Data::Inline(b"on its way"),
    };
    // The peer has no receive.
    pair.a.qp.post_send(&wr, &mut pair.a.out).unwrap();
    pair.run();
    let image = pair.a.qp.export_image(|| (), &mut pair.a.out).unwrap();
    image.encode().unwrap()
}

#[test]
fn damaged_image_bytes_are_refused() {
    let bytes = some_bytes();
    assert!(Image::decode(&bytes).is_ok());
    for len in 0..bytes.len() {
        assert!(Image::decode(&bytes[..len]).is_err(), "cut at {len}");
    }
    let mut newer = bytes.clone();
    newer[4] += 1;
    let refused = Image::decode(&newer).unwrap_err();
    assert_eq!(refused, ImageError::Version { got: VERSION + 1 });
    assert!(
        refused
            .to_string()
            .contains(&format!("version {}", VERSION + 1)),
        "{refused}"
    );
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert!(Image::decode(&damaged).is_err(), "damaged at {at}");
        // With a valid checksum: any result but a panic.
        if at >= HEAD {
            let _ = Image::decode(&with_checksum(damaged));
        }
    }
}

/// A change of the contents of an image changes its format: then `VERSION` must grow, and this checksum with it.
#[test]
fn image_format_matches_its_version() {
    let bytes = some_bytes();
    let form = format!("{VERSION}: {} bytes, {:08x}", bytes.len(), crc32c(&bytes));
    assert_eq!(form, "5: 235 bytes, 075bff1a");
}
