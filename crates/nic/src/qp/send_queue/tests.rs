//! Tests of the send queue alone: order of completion, restart at READY, draining, and requests that fail in their turn.

use super::*;
use crate::wr::{Data, SendOp, SendWr};

const SEND: SendOp = SendOp::Send {
    invalidate: None,
    immediate: None,
};

/// A queue of `posted` Sends, the first `sent` of which end at offsets 10, 20 and so on of the stream, with numbers from 1.
fn queue(posted: u64, sent: u32) -> SendQueue {
    let mut queue = SendQueue::default();
    for id in 0..posted {
        let wr = SendWr {
            id,
            op: SEND,
            flags: Flags::NONE,
            data: Data::Inline(b"x"),
        };
        queue.push(Wqe::new(&wr, 1));
    }
    for n in 1..=sent {
        let wqe = queue.next_unbegun(QpState::Rts).unwrap();
        wqe.rsn[0] = Rsn::new(n);
        let end = u64::from(n) * 10;
        wqe.progress = Progress::Sent { end };
        queue.advance();
    }
    assert!(queue.invariants());
    queue
}

fn rsn(n: u32) -> Rsn {
    Rsn::new(n).unwrap()
}

fn completed_ids(queue: &mut SendQueue, point: CompletionPoint) -> Vec<u64> {
    core::iter::from_fn(|| queue.pop_ended(point).map(|(wqe, _)| wqe.id)).collect()
}

#[test]
fn requests_complete_when_acknowledged_and_accepted() {
    let mut queue = queue(4, 3);
    // Acknowledged before 3, but the carrier has only the first.
    let point = CompletionPoint::Acked(rsn(3), 10);
    assert_eq!(completed_ids(&mut queue, point), [0]);
    assert_eq!((queue.completed(), queue.begun(), queue.len()), (1, 2, 3));
    let point = CompletionPoint::Acked(rsn(3), 30);
    assert_eq!(completed_ids(&mut queue, point), [1]);
    assert_eq!(
        completed_ids(&mut queue, CompletionPoint::Accepted(30)),
        [2]
    );
    assert!(queue.invariants() && !queue.has_begun_all());
    // The last one was not begun, and its number is known.
    assert_eq!((queue.position(3), queue.number(0)), (0, 3));
    assert_eq!(queue.position(2), usize::MAX);
}

#[test]
fn ended_request_waits_for_earlier_ones() {
    let mut queue = queue(2, 2);
    assert!(queue.end(1, Status::Success));
    assert!(!queue.end(2, Status::Success));
    assert_eq!(
        completed_ids(&mut queue, CompletionPoint::Accepted(0)),
        [0; 0]
    );
    assert!(!queue.is_first(1));
    assert_eq!(
        completed_ids(&mut queue, CompletionPoint::Accepted(10)),
        [0, 1]
    );
}

#[test]
fn rewind_restarts_from_the_refused_request() {
    let mut queue = queue(4, 3);
    queue.rewind(rsn(2));
    assert_eq!(queue.begun(), 1);
    assert_eq!(queue.next_to_begin(QpState::Rts), Some(1));
    assert_eq!(queue.find(rsn(2)), None);
    assert_eq!(queue.find(rsn(1)), Some(0));
    assert!(queue.invariants());
}

#[test]
fn draining_queue_finishes_what_it_began() {
    let mut queue = queue(3, 2);
    queue.drain();
    assert_eq!(queue.next_to_begin(QpState::Sqd), None);
    assert!(!queue.notice_drained(QpState::Sqd));
    queue.rewind(rsn(2));
    assert_eq!(queue.next_to_begin(QpState::Sqd), Some(1));
    queue[1].progress = Progress::Sent { end: 20 };
    queue.advance();
    assert_eq!(queue.next_to_begin(QpState::Sqd), None);
    queue.end(0, Status::Success);
    queue.end(1, Status::Success);
    assert_eq!(
        completed_ids(&mut queue, CompletionPoint::Accepted(0)),
        [0, 1]
    );
    assert!(!queue.notice_drained(QpState::Rts));
    assert!(queue.notice_drained(QpState::Sqd));
    assert!(!queue.notice_drained(QpState::Sqd), "raised once");
    assert_eq!(queue.next_to_begin(QpState::Rts), Some(0));
}

#[test]
fn nothing_begins_behind_a_failing_request() {
    let mut queue = queue(3, 2);
    queue.set_failing(1);
    queue.set_failing(2);
    assert_eq!(queue.failing(), Some(1), "the first one counts");
    assert_eq!(queue.next_to_begin(QpState::Rts), None);
    assert!(queue.next_unbegun(QpState::Rts).is_none());
    queue.clear_failing();
    assert_eq!(queue.next_to_begin(QpState::Rts), Some(2));
}

#[test]
fn flush_keeps_the_status_of_ended_requests() {
    let mut queue = queue(3, 2);
    queue.mark_executed(CompletionPoint::Accepted(10));
    queue.end_first(Status::RetryExcErr);
    let flushed: Vec<_> =
        core::iter::from_fn(|| queue.pop_flushed().map(|(_, status)| status)).collect();
    let expected = [Status::Success, Status::RetryExcErr, Status::WrFlushErr];
    assert_eq!(flushed, expected);
    assert!(queue.is_empty() && queue.invariants());
    assert_eq!(queue.completed(), 3);
}

#[test]
fn invariants_find_a_sent_request_behind_begun() {
    let mut queue = queue(2, 1);
    queue[1].progress = Progress::Sent { end: 20 };
    assert!(!queue.invariants());
}
