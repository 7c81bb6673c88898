//! Tests of the read queues: limits, order, and responses that do not fit their request.

use super::*;
use crate::testing::tagged;

fn rsn(n: u32) -> Rsn {
    Rsn::wrapping(n)
}

fn reading(size: u32) -> ReadsOut {
    let mut reads = ReadsOut::new(2);
    let (stag, to) = (Stag::new(9), To::new(0x1000));
    reads.push(rsn(0), Requested::Read { stag, to, size });
    reads
}

fn segment(to: u64, last: bool) -> Tagged {
    Tagged {
        last,
        ..tagged(Opcode::ReadResponse, 9, to)
    }
}

#[test]
fn segmented_response_advances_through_its_request() {
    let mut reads = reading(30);
    assert_eq!(reads.match_response(&segment(0x1000, false), 10), Ok(0));
    assert_eq!(reads.match_response(&segment(0x100a, false), 0), Ok(10));
    assert_eq!(reads.match_response(&segment(0x100a, true), 20), Ok(10));
    assert_eq!(reads.pop().map(|r| r.placed), Some(30));
}

#[test]
fn unsolicited_response_is_a_violation() {
    let unasked = Err(Violation::Unsolicited(Opcode::ReadResponse));
    assert_eq!(
        ReadsOut::new(2).match_response(&segment(0, true), 0),
        unasked
    );
    let mut atomic = ReadsOut::new(2);
    atomic.push(rsn(0), Requested::Atomic { id: 1 });
    assert_eq!(atomic.match_response(&segment(0, true), 0), unasked);
    let v2 = atomic.match_response_v2(0, 0, true);
    assert_eq!(v2, Err(Violation::Unsolicited(Opcode::ReadV2Response)));
}

#[test]
fn response_to_another_sink_is_a_violation() {
    let other = tagged(Opcode::ReadResponse, 8, 0x1000);
    let refused = reading(30).match_response(&other, 30);
    assert!(matches!(refused, Err(Violation::ResponseStag { .. })));
    let shifted = reading(30).match_response(&segment(0x1001, true), 30);
    assert!(matches!(shifted, Err(Violation::ResponseOffset { .. })));
}

#[test]
fn response_of_wrong_length_is_a_violation() {
    let mut reads = reading(30);
    let opcode = Opcode::ReadResponse;
    let long = reads.match_response(&segment(0x1000, true), 31);
    assert_eq!(
        long,
        Err(Violation::ResponseTooLong {
            opcode,
            size: 30,
            end: 31
        })
    );
    let mut reads = reading(30);
    reads.match_response(&segment(0x1000, false), 29).unwrap();
    let cumulative = reads.match_response(&segment(0x101d, true), 2);
    assert_eq!(
        cumulative,
        Err(Violation::ResponseTooLong {
            opcode,
            size: 30,
            end: 31
        })
    );
    let short = reading(30).match_response(&segment(0x1000, true), 29);
    assert_eq!(
        short,
        Err(Violation::ResponseShort {
            opcode,
            size: 30,
            got: 29
        })
    );
}

#[test]
fn zero_length_response_ignores_stag_and_offset() {
    // RFC 5041 §7.2: the address of a zero-length access is not checked.
    let junk = tagged(Opcode::ReadResponse, 0xdead, u64::MAX);
    assert_eq!(reading(0).match_response(&junk, 0), Ok(0));
}

#[test]
fn atomic_response_must_match_request_identifier() {
    let mut reads = ReadsOut::new(2);
    reads.push(rsn(0), Requested::Atomic { id: 5 });
    let answer = |id| AtomicResponse { id, original: 1 };
    let wrong = reads.match_atomic_response(&answer(6));
    assert_eq!(
        wrong,
        Err(Violation::AtomicId {
            expected: 5,
            got: 6
        })
    );
    assert_eq!(reads.match_atomic_response(&answer(5)), Ok(()));
}

#[test]
fn outbound_read_depth_is_limited_and_rewound() {
    let mut reads = ReadsOut::new(3);
    for n in 0..3 {
        assert!(reads.has_room());
        reads.push(rsn(n), Requested::ReadV2 { size: 1 });
    }
    assert!(!reads.has_room());
    assert_eq!(reads.rewind(rsn(1)), Ok(()));
    assert_eq!(reads.len(), 1);
    reads.limit_to(1);
    assert!(!reads.has_room());
}

#[test]
fn inbound_read_depth_is_enforced() {
    let mut reads = ReadsIn::new(2);
    assert_eq!(reads.push(rsn(0)), Ok(()));
    assert_eq!(reads.push(rsn(1)), Ok(()));
    assert_eq!(
        reads.push(rsn(2)),
        Err(Violation::TooManyReads { limit: 2 })
    );
    assert_eq!(reads.pop(), Some(rsn(0)));
    assert_eq!(reads.oldest(), Some(rsn(1)));
}

#[test]
fn partly_answered_read_cannot_be_rewound() {
    let mut reads = reading(30);
    reads.match_response(&segment(0x1000, false), 10).unwrap();
    assert_eq!(reads.rewind(rsn(0)), Err(Violation::OutOfPlace("RNR")));
}
