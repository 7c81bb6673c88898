//! What the target may access, and for how long: a command's memory while the command is outstanding, with the rights that it needs, and
//! nothing before, between and after commands.

use verbena::Status;
use verbena_iscsi::Direction;
use verbena_storage_wire::iscsi::{NO_TAG, Residual};
use verbena_wire::Stag;

use super::hostile::events_to_the_end;
use super::peer::{Peer, pair};
use super::{
    BufferRef, Iser, IserOptions, Link, LinkEvent, OPTIONS, command, logged_in, memory, order,
    response_tasks, settled, wait_events,
};

/// The target's RDMA operation fails because of the STag, its rights or its bounds, and that is the reason of the link's end.
fn assert_refused(link: &mut Iser, status: Status) {
    assert_eq!(status, Status::RemAccessErr);
    let (_, why) = events_to_the_end(link);
    assert!(why.contains("violated the protocol"), "{why}");
}

/// The link sends a command; returns its STag and base, and its tag.
fn begin(
    link: &mut Iser,
    peer: &mut Peer,
    task: u32,
    direction: Direction,
    place: &BufferRef,
) -> ((Stag, u64), u32) {
    order(link, task, direction, Some(place), 512);
    let (header, pdu, _) = peer.receive_pdu();
    let at = header.read.or(header.write).unwrap();
    (at, command(&pdu).itt)
}

#[test]
fn target_closes_the_memory_of_a_command() {
    let (mut link, mut peer) = logged_in();
    let memory = memory(&peer, 512);
    let place = BufferRef::new(&memory, 0);
    let (at, itt) = begin(&mut link, &mut peer, 0, Direction::Read, &place);
    peer.write(at, &[9; 100]);
    peer.respond_invalidating(itt, 1, 2, at.0);
    assert_eq!(response_tasks(&wait_events(&mut link)), [0]);
    let late = peer.write_status(at, &[1; 512]);
    assert_refused(&mut link, late);
    assert_eq!(memory.get::<[u8; 100]>(0).unwrap(), [9; 100]);
}

#[test]
fn link_closes_memory_the_target_left_open() {
    for direction in [Direction::Read, Direction::Write] {
        let (mut link, mut peer) = logged_in();
        let memory = memory(&peer, 512);
        let place = BufferRef::new(&memory, 0);
        let (at, itt) = begin(&mut link, &mut peer, 0, direction, &place);
        peer.respond(itt, 1, 2, Residual::None);
        assert_eq!(response_tasks(&wait_events(&mut link)), [0]);
        let late = match direction {
            Direction::Read => peer.write_status(at, &[1; 512]),
            _ => peer.read_status(at, 512),
        };
        assert_refused(&mut link, late);
        assert_eq!(memory.get::<[u8; 512]>(0).unwrap(), [0; 512]);
    }
}

#[test]
fn memory_is_closed_between_commands() {
    let (mut link, mut peer) = logged_in();
    let memory = memory(&peer, 512);
    let place = BufferRef::new(&memory, 0);
    for round in 0..2 {
        let (at, itt) = begin(&mut link, &mut peer, 0, Direction::Read, &place);
        peer.write(at, &[5; 64]);
        peer.respond(itt, 1 + round, 2 + round, Residual::None);
        assert_eq!(response_tasks(&wait_events(&mut link)), [0]);
    }
    let own = memory.remote_addr(0).unwrap();
    let between = peer.write_status((own.stag, own.to.get()), &[1; 512]);
    assert_refused(&mut link, between);
    assert_eq!(memory.get::<[u8; 64]>(0).unwrap(), [5; 64]);
}

/// A read may be written and a write may be read, each within the command's 512 bytes.
#[test]
fn commands_grant_their_own_right_and_range() {
    for case in 0..6 {
        let (mut link, mut peer) = logged_in();
        let memory = memory(&peer, 4096);
        let place = BufferRef::new(&memory, 1024);
        let direction = match case {
            0..3 => Direction::Read,
            _ => Direction::Write,
        };
        let ((stag, base), _) = begin(&mut link, &mut peer, 0, direction, &place);
        let status = match case {
            0 => peer.read_status((stag, base), 512),
            1 => peer.write_status((stag, base), &[1; 513]),
            2 => peer.write_status((stag, base - 1), &[1; 2]),
            3 => peer.write_status((stag, base), &[1; 512]),
            4 => peer.read_status((stag, base + 1), 512),
            _ => peer.read_status((stag, base + 512), 1),
        };
        assert_refused(&mut link, status);
        let mut after = [0; 4096];
        memory.read_at(0, &mut after).unwrap();
        // What was within the range may have been placed before the violation.
        after[1024..1536].fill(0);
        assert!(after.iter().all(|byte| *byte == 0), "{case}");
    }
}

/// More commands than an STag has keys, closed by the target and by the link in turn.
#[test]
fn every_command_has_a_new_stag() {
    let (mut link, mut peer) = logged_in();
    let memory = memory(&peer, 512);
    let place = BufferRef::new(&memory, 0);
    let mut last = None;
    for round in 1..=600 {
        let (at, itt) = begin(&mut link, &mut peer, 3, Direction::Read, &place);
        assert_ne!(last.replace(at.0), Some(at.0));
        peer.write(at, &[round as u8; 64]);
        match round % 3 {
            0 => peer.respond(itt, round, round + 1, Residual::None),
            _ => peer.respond_invalidating(itt, round, round + 1, at.0),
        }
        assert_eq!(response_tasks(&wait_events(&mut link)), [3]);
        assert_eq!(memory.get::<[u8; 64]>(0).unwrap(), [round as u8; 64]);
    }
}

/// M9: the first operation of the target closes the memory; the response then may invalidate it or not.
#[test]
fn one_touch_commands_allow_one_operation() {
    let (mut link, mut peer) = pair(IserOptions {
        one_touch: true,
        ..OPTIONS
    });
    link.begin(&settled(0));
    let memory = memory(&peer, 512);
    let place = BufferRef::new(&memory, 0);
    for round in 1..=4 {
        let direction = match round {
            1 | 2 => Direction::Read,
            _ => Direction::Write,
        };
        let (at, itt) = begin(&mut link, &mut peer, 0, direction, &place);
        match direction {
            Direction::Read => peer.write(at, &[round as u8; 512]),
            _ => assert_eq!(peer.read(at, 512), [2; 512]),
        }
        match round % 2 {
            0 => peer.respond(itt, round, round + 1, Residual::None),
            _ => peer.respond_invalidating(itt, round, round + 1, at.0),
        }
        assert_eq!(response_tasks(&wait_events(&mut link)), [0]);
    }
    let (at, _) = begin(&mut link, &mut peer, 0, Direction::Read, &place);
    peer.write(at, &[8; 512]);
    let second = peer.write_status(at, &[9; 512]);
    assert_refused(&mut link, second);
    assert_eq!(memory.get::<[u8; 512]>(0).unwrap(), [8; 512]);
}

/// A command that was sent is cancelled alone: it ends once its memory is closed, and another continues.
#[test]
fn cancelled_command_loses_its_memory() {
    let (mut link, mut peer) = logged_in();
    peer.pong(NO_TAG, 1, 8);
    assert!(matches!(
        wait_events(&mut link)[..],
        [LinkEvent::Pdu { .. }]
    ));
    let memory = memory(&peer, 1024);
    let [one, other] = [0, 512].map(|offset| BufferRef::new(&memory, offset));
    let (closed, _) = begin(&mut link, &mut peer, 0, Direction::Read, &one);
    let (open, itt) = begin(&mut link, &mut peer, 1, Direction::Read, &other);
    assert!(link.cancel(0));
    assert!(!link.cancel(0), "once");
    let ended = wait_events(&mut link);
    assert!(
        matches!(
            ended[..],
            [LinkEvent::Failed {
                task: 0,
                status: Status::WrFlushErr
            }]
        ),
        "{ended:?}"
    );
    peer.write(open, &[6; 512]);
    peer.respond(itt, 1, 8, Residual::None);
    assert_eq!(response_tasks(&wait_events(&mut link)), [1]);
    assert_eq!(memory.get::<[u8; 512]>(512).unwrap(), [6; 512]);
    let late = peer.write_status(closed, &[1; 512]);
    assert_refused(&mut link, late);
    assert_eq!(memory.get::<[u8; 512]>(0).unwrap(), [0; 512]);
}

/// A response whose memory is still to be closed is not overtaken by what the target sends after it.
#[test]
fn events_keep_the_order_of_the_target() {
    let (mut link, mut peer) = logged_in();
    let memory = memory(&peer, 512);
    let place = BufferRef::new(&memory, 0);
    for round in 0..50 {
        let (_, itt) = begin(&mut link, &mut peer, 0, Direction::Read, &place);
        peer.respond(itt, 2 * round + 1, round + 2, Residual::None);
        peer.pong(7, 2 * round + 2, round + 2);
        let mut events = Vec::new();
        while events.len() < 2 {
            events.extend(wait_events(&mut link));
        }
        assert!(
            matches!(
                events[..],
                [LinkEvent::Response { task: 0, .. }, LinkEvent::Pdu { .. }]
            ),
            "{events:?}"
        );
    }
}

#[test]
fn ended_command_keeps_no_memory() {
    let (mut link, mut peer) = logged_in();
    let before = peer.device.used().stags;
    let place = BufferRef::new(&memory(&peer, 512), 0);
    for stat_sn in 1..=2 {
        let (at, itt) = begin(&mut link, &mut peer, 0, Direction::Read, &place);
        match stat_sn {
            1 => peer.respond(itt, 1, 2, Residual::None),
            _ => peer.respond_invalidating(itt, 2, 2, at.0),
        }
        assert_eq!(response_tasks(&wait_events(&mut link)), [0]);
        assert_eq!(peer.device.used().stags, before + 2);
    }
    drop(place);
    // The STag of the task number is left.
    assert_eq!(peer.device.used().stags, before + 1);
}
