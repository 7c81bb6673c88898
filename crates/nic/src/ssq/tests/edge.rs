//! What a shared send queue rejects, and what is left when a part of it is destroyed.

use super::*;
use crate::error::Error;
use crate::state::QpType;

#[test]
fn post_to_foreign_channel_is_refused() {
    let mut world = World::new(2);
    let wr = World::wr(1, b"x");
    for number in [0, 1, 60, u32::MAX] {
        assert_eq!(world.ssq.post(number, &wr), Err(PostError::Channel(number)));
    }
    // A queue pair that is not a channel, one of another queue, and one that only another function has.
    let plain = world.ours.create_qp(new_qp(world.pd, 2)).unwrap().number();
    let other = world.ours.create_ssq(world.pd, 1, limits()).unwrap();
    let new = new_qp(world.pd, 2);
    let others = world.ours.create_channel(other.number(), new).unwrap();
    let spare = world.theirs.allocate_pd().unwrap();
    let far = (0..9).map(|_| world.theirs.create_qp(new_qp(spare, 1)).unwrap().number());
    let far = far.last().unwrap();
    for number in [plain, others.number(), far] {
        assert_eq!(world.ssq.post(number, &wr), Err(PostError::Channel(number)));
    }
    let refused = world.ours.post_shared_send(9, 2, &wr, &mut world.out);
    assert!(matches!(refused, Err(Error::NoSuch { .. })));
    assert_eq!(world.ssq.history(None), []);
}

#[test]
fn channel_must_be_reliable_and_same_domain() {
    let world = World::new(1);
    let other = world.ours.allocate_pd().unwrap();
    let ssq = world.ssq.number();
    let refused = world.ours.create_channel(ssq, new_qp(other, 2)).err();
    let (owner, asker) = (world.pd, other);
    assert_eq!(
        refused,
        Some(Error::ChannelDomain {
            ssq,
            owner,
            requester: asker
        })
    );
    let unreliable = NewQp {
        qp_type: QpType::Uc,
        ..new_qp(world.pd, 2)
    };
    let refused = world.ours.create_channel(ssq, unreliable).err();
    assert_eq!(refused, Some(Error::Unreliable { ssq }));
    assert_eq!(world.ours.query_ssq(ssq).unwrap().channels, 1);
    assert!(world.ours.create_channel(7, new_qp(world.pd, 2)).is_err());
    let most = world.ours.attributes().shared_sends;
    let too_many = SsqLimits {
        requests: most + 1,
        ..limits()
    };
    let refused = world.ours.create_ssq(world.pd, 1, too_many).err();
    assert!(matches!(refused, Some(Error::TooLarge { .. })));
}

#[test]
fn channel_refuses_direct_sends() {
    let mut world = World::new(1);
    let posted = world.pairs[0]
        .0
        .post_send(&World::wr(0, b"x"), &mut world.out);
    assert_eq!(posted, Err(PostError::Shared));
    world.run();
    assert_eq!(world.wires.sent, []);
}

#[test]
fn full_queue_accepts_posts_after_completion() {
    let small = SsqLimits {
        requests: 2,
        ..limits()
    };
    let mut world = World::with(2, small, Setup::default(), Limits::default());
    world.send(0, 1);
    world.send(1, 2);
    let wr = World::wr(3, b"x");
    assert_eq!(
        world.ssq.post(world.channel(0), &wr),
        Err(PostError::Full(2))
    );
    world.receives(0, 1);
    world.receives(1, 1);
    world.pump();
    world.run();
    assert_eq!(world.ids(), [1, 2]);
    assert_eq!(world.ssq.post(world.channel(0), &wr), Ok(()));
}

#[test]
fn post_checks_channel_limits_and_state() {
    let world = World::new(1);
    let long = vec![0; 257];
    let posted = world.ssq.post(world.channel(0), &World::wr(0, &long));
    let (got, limit) = (257, 256);
    assert_eq!(posted, Err(PostError::Inline { got, limit }));
    let fresh = world
        .ours
        .create_channel(world.ssq.number(), new_qp(world.pd, 2));
    let posted = world.ssq.post(fresh.unwrap().number(), &World::wr(0, b""));
    assert_eq!(posted, Err(PostError::State(QpState::Reset)));
}

#[test]
fn queue_with_channels_cannot_be_destroyed() {
    let mut world = World::new(2);
    world.send(0, 1);
    world.send(1, 2);
    world.pump();
    world.send(0, 3);
    let ssq = world.ssq.number();
    let refused = world.ours.destroy_ssq(ssq, &mut world.out);
    assert!(matches!(refused, Err(Error::InUse { users: 2, .. })));
    let in_use = world.ours.destroy_cq(world.cq.number());
    assert!(matches!(in_use, Err(Error::InUse { users: 1, .. })));
    for at in [0, 1] {
        let number = world.channel(at);
        world.ours.destroy_qp(number, &mut world.out).unwrap();
    }
    world.ours.destroy_ssq(ssq, &mut world.out).unwrap();
    let flushed = Status::WrFlushErr;
    assert_eq!(world.ends(), [(1, flushed), (2, flushed), (3, flushed)]);
    assert!(world.ours.ssq(ssq).is_err());
    assert_eq!(world.ours.used().ssqs, 0);
}

#[test]
fn destroyed_channel_keeps_order_of_others() {
    let mut world = World::new(3);
    for at in [0, 2] {
        world.receives(at, 2);
    }
    for id in 0..6 {
        world.send(id as usize % 3, id);
    }
    world.pump();
    let gone = world.channel(1);
    world.ours.destroy_qp(gone, &mut world.out).unwrap();
    world.settle();
    world.pairs.remove(1);
    world.run();
    let (well, flushed) = (Status::Success, Status::WrFlushErr);
    let expected = [well, flushed, well, well, flushed, well];
    assert_eq!(world.ends(), Vec::from_iter((0..).zip(expected)));
    let posted = world.ssq.post(gone, &World::wr(9, b""));
    assert_eq!(posted, Err(PostError::Channel(gone)));
    let of_gone = world.ssq.history(Some(gone));
    let flushed = SsqOutcome::Completed(Status::WrFlushErr);
    assert!(of_gone.iter().all(|record| record.outcome == flushed));
}

#[test]
fn detached_channel_finishes_but_accepts_no_more() {
    let mut world = World::new(2);
    world.receives(0, 2);
    world.send(0, 1);
    let (ssq, channel) = (world.ssq.number(), world.channel(0));
    world.ours.set_channel_open(ssq, channel, false).unwrap();
    let wr = World::wr(2, b"x");
    assert_eq!(
        world.ssq.post(channel, &wr),
        Err(PostError::Channel(channel))
    );
    world.pump();
    world.run();
    assert_eq!(world.ends(), [(1, Status::Success)]);
    world.ours.set_channel_open(ssq, channel, true).unwrap();
    assert_eq!(world.ssq.post(channel, &wr), Ok(()));
    let unknown = world.ours.set_channel_open(ssq, 63, true);
    assert_eq!(unknown, Err(Error::NoChannel { ssq, channel: 63 }));
}

#[test]
fn a_completion_queue_without_room_fails_the_channels() {
    let mut world = World::new(2);
    world.ours.resize_cq(world.cq.number(), 1).unwrap();
    for at in [0, 1] {
        world.receives(at, 1);
        world.send(at, at as u64);
    }
    world.pump();
    world.run();
    for (ours, _) in &world.pairs {
        assert_eq!(ours.state(), QpState::Err);
    }
}
