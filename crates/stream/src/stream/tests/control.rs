//! Control messages: opening, acknowledgement, receiver not ready, and what is sent and received meanwhile.

use core::time::Duration;

use verbena_wire::ext::Control;
use verbena_wire::rdmap::{Opcode, ReadRequest};
use verbena_wire::{Rsn, Stag, To};

use crate::startup::Role;
use crate::stream::State;
use crate::testing::{Bench, agreement, caps, control, fpdu, settings, tagged, timer, untagged};
use crate::{BeginError, Claim, Delivery, Message, RnrRetry, Time};

fn send(len: u32) -> Message {
    Message::Send {
        solicited: false,
        invalidate: None,
        len,
    }
}

fn write(len: u32) -> Message {
    Message::Write {
        stag: Stag::new(1),
        to: To::new(0),
        len,
    }
}

fn ack(n: u32) -> Control {
    Control::Ack(Rsn::wrapping(n))
}

#[test]
fn a_responder_is_silent_until_the_first_fpdu() {
    // RFC 5044 §7.1.2.
    for extensions in [false, true] {
        let mut bench = Bench::new(&agreement(Role::Responder, extensions), settings());
        assert!(bench.stream.poll_control(true).is_none());
        assert_eq!(
            bench.stream.begin(write(1)).unwrap_err(),
            BeginError::Opening
        );
        let first = if extensions {
            control(&Control::Caps(caps()), 1)
        } else {
            fpdu(tagged(Opcode::Write, 1, 0), b"")
        };
        bench.feed(&first).unwrap();
        assert_eq!(bench.stream.state(), State::Running);
        if extensions {
            assert_eq!(
                bench.stream.begin(write(1)).unwrap_err(),
                BeginError::Opening
            );
            assert_eq!(bench.control(true), control(&Control::Caps(caps()), 1));
        }
        bench.send(write(1));
    }
}

#[test]
fn caps_lower_frame_size_and_read_depth() {
    let mut bench = Bench::new(&agreement(Role::Initiator, true), settings());
    assert_eq!(
        bench.stream.begin(write(1)).unwrap_err(),
        BeginError::Opening
    );
    let _ = bench.control(true);
    let mut small = caps();
    (small.max_ulpdu, small.ird) = (300, 1);
    bench.feed(&control(&Control::Caps(small), 1)).unwrap();
    assert_eq!(bench.stream.max_ulpdu(), 300);
    let read = Message::ReadRequest(ReadRequest {
        sink_stag: Stag::new(1),
        sink_to: To::new(0),
        size: 1,
        source_stag: Stag::new(1),
        source_to: To::new(0),
    });
    bench.send(read.clone());
    assert_eq!(bench.stream.begin(read).unwrap_err(), BeginError::Depth(1));
}

#[test]
fn caps_never_promise_more_reads_than_are_served() {
    let mut settings = settings();
    settings.caps.ird = 100;
    let mut bench = Bench::new(&agreement(Role::Initiator, true), settings);
    // The agreement of the tests has an IRD of four.
    assert_eq!(bench.control(false), control(&Control::Caps(caps()), 1));
}

#[test]
fn acknowledgements_are_sent_once_and_processed() {
    let mut bench = Bench::verbena();
    bench
        .feed(&fpdu(tagged(Opcode::Write, 1, 0), b"abc"))
        .unwrap();
    assert!(bench.stream.poll_control(false).is_none(), "it can wait");
    assert_eq!(bench.control(true), control(&ack(1), 2));
    assert!(bench.control(true).is_empty());
    bench.send(write(3));
    bench.feed(&control(&ack(1), 2)).unwrap();
    assert_eq!(
        bench.delivered.last(),
        Some(&Delivery::Acked(Rsn::wrapping(1)))
    );
    assert_eq!(bench.stream.accounting().requester.unacknowledged(), 0);
}

#[test]
fn a_control_message_may_stand_inside_a_message() {
    let mut bench = Bench::verbena();
    bench.send(write(3));
    let mut open = tagged(Opcode::Write, 1, 0);
    open.last = false;
    bench.feed(&fpdu(open, b"abc")).unwrap();
    bench.feed(&control(&ack(1), 2)).unwrap();
    bench
        .feed(&fpdu(tagged(Opcode::Write, 1, 3), b"def"))
        .unwrap();
    assert!(matches!(bench.delivered[1], Delivery::Write { len: 6, .. }));
}

#[test]
fn rnr_discards_requests_until_resume() {
    let mut bench = Bench::verbena();
    bench.claim = Claim::NotReady { timer: timer() };
    let mut part = untagged(Opcode::Send, 1);
    part.last = false;
    bench.feed(&fpdu(part, b"refused")).unwrap();
    let rnr = Control::Rnr {
        rsn: Rsn::ZERO,
        timer: timer(),
    };
    assert_eq!(bench.control(false), control(&rnr, 2));
    // What follows is discarded, a write and a read request included.
    let mut rest = untagged(Opcode::Send, 1);
    rest.mo = verbena_wire::Mo::new(7);
    bench.feed(&fpdu(rest, b" still")).unwrap();
    bench
        .feed(&fpdu(tagged(Opcode::Write, 1, 0), b"no"))
        .unwrap();
    bench
        .feed(&fpdu(untagged(Opcode::ReadRequest, 1), &[0; 28]))
        .unwrap();
    assert!(bench.stream.accounting().reads_in.is_empty());
    assert!(
        bench
            .placed
            .iter()
            .all(|(place, _)| *place == crate::Place::Discard)
    );

    bench.claim = Claim::Granted { capacity: 100 };
    bench.stream.receive_posted();
    bench.stream.receive_posted();
    assert_eq!(bench.control(false), control(&Control::Ready(Rsn::ZERO), 3));
    bench.delivered.clear();
    bench
        .feed(&control(&Control::Resume(Rsn::ZERO), 2))
        .unwrap();
    // Message numbers also count what was discarded.
    bench
        .feed(&fpdu(untagged(Opcode::Send, 2), b"taken"))
        .unwrap();
    assert_eq!(bench.delivered[0], Delivery::Resumed(Rsn::ZERO));
    assert!(matches!(bench.delivered[1], Delivery::Send { rsn, len: 5, .. } if rsn == Rsn::ZERO));
    bench
        .feed(&fpdu(untagged(Opcode::ReadRequest, 2), &[0; 28]))
        .unwrap();
}

#[test]
fn resume_drops_a_message_the_sender_left_unfinished() {
    let mut bench = Bench::verbena();
    bench.claim = Claim::NotReady { timer: timer() };
    let mut part = untagged(Opcode::Send, 1);
    part.last = false;
    bench.feed(&fpdu(part, b"left open")).unwrap();
    bench.claim = Claim::Granted { capacity: 100 };
    bench.stream.receive_posted();
    assert!(!bench.control(false).is_empty(), "RNR and READY leave");
    bench
        .feed(&control(&Control::Resume(Rsn::ZERO), 2))
        .unwrap();
    bench
        .feed(&fpdu(untagged(Opcode::Send, 2), b"again"))
        .unwrap();
    assert!(matches!(
        bench.delivered.last(),
        Some(Delivery::Send { len: 5, .. })
    ));
}

#[test]
fn a_response_may_follow_a_request_left_unfinished() {
    // Responses must be sent while requests wait for READY, or both sides could deadlock.
    let mut bench = Bench::verbena();
    let read = Message::ReadRequest(ReadRequest {
        sink_stag: Stag::new(9),
        sink_to: To::new(0),
        size: 4,
        source_stag: Stag::new(1),
        source_to: To::new(0),
    });
    bench.send(read);
    bench.claim = Claim::NotReady { timer: timer() };
    let mut part = untagged(Opcode::Send, 1);
    part.last = false;
    bench.feed(&fpdu(part, b"left open")).unwrap();
    let answer = fpdu(tagged(Opcode::ReadResponse, 9, 0), b"data");
    bench.feed(&answer).unwrap();
    assert!(matches!(
        bench.delivered.last(),
        Some(Delivery::ReadDone(_))
    ));
}

#[test]
fn rnr_stops_sender_and_ready_restarts_message() {
    let mut bench = Bench::verbena();
    bench.send(write(10));
    let mut outgoing = bench.stream.begin(send(5000)).unwrap();
    assert_eq!(outgoing.rsn(), Some(Rsn::wrapping(1)));
    assert!(bench.stream.next_frame(&mut outgoing).is_some());
    let rsn = Rsn::wrapping(1);
    bench
        .feed(&control(
            &Control::Rnr {
                rsn,
                timer: timer(),
            },
            2,
        ))
        .unwrap();
    assert!(bench.stream.next_frame(&mut outgoing).is_none());
    assert!(!outgoing.is_done(), "abandoned, not finished");
    assert_eq!(
        bench.stream.begin(send(1)).unwrap_err(),
        BeginError::NotReady
    );
    bench.feed(&control(&Control::Ready(rsn), 3)).unwrap();
    assert_eq!(bench.delivered.last(), Some(&Delivery::Ready(rsn)));
    assert_eq!(
        bench.stream.begin(send(1)).unwrap_err(),
        BeginError::NotReady,
        "RESUME leaves first"
    );
    assert_eq!(bench.control(false), control(&Control::Resume(rsn), 2));
    let again = bench.stream.begin(send(5000)).unwrap();
    assert_eq!(again.rsn(), Some(rsn));
}

#[test]
fn rnr_removes_reads_the_peer_discarded() {
    let mut bench = Bench::verbena();
    let read = Message::ReadRequest(ReadRequest {
        sink_stag: Stag::new(9),
        sink_to: To::new(0),
        size: 4,
        source_stag: Stag::new(1),
        source_to: To::new(0),
    });
    bench.send(read.clone());
    bench.send(send(1));
    bench.send(read);
    let rsn = Rsn::wrapping(1);
    bench
        .feed(&control(
            &Control::Rnr {
                rsn,
                timer: timer(),
            },
            2,
        ))
        .unwrap();
    assert_eq!(
        bench.stream.accounting().reads_out.len(),
        1,
        "the one before the refusal stays"
    );
}

#[test]
fn rnr_retry_deadline_expires() {
    let mut impatient = settings();
    impatient.rnr_retry = RnrRetry::Times(1);
    let mut bench = Bench::new(&agreement(Role::Initiator, true), impatient);
    let _ = bench.control(true);
    bench.feed(&control(&Control::Caps(caps()), 1)).unwrap();
    bench.send(send(1));
    let rnr = Control::Rnr {
        rsn: Rsn::ZERO,
        timer: timer(),
    };
    bench.feed(&control(&rnr, 2)).unwrap();
    let deadline = bench.stream.deadline().unwrap();
    assert_eq!(deadline, Time::ZERO + Duration::from_millis(100));
    assert!(!bench.stream.handle_timeout(Time::ZERO));
    assert!(bench.stream.handle_timeout(deadline));
}

#[test]
fn a_dropped_message_counts_as_executed() {
    let mut bench = Bench::verbena();
    bench.claim = Claim::Drop;
    bench
        .feed(&fpdu(untagged(Opcode::Send, 1), b"no one"))
        .unwrap();
    assert_eq!(bench.delivered, [Delivery::Discarded(Opcode::Send)]);
    assert_eq!(bench.control(true), control(&ack(1), 2));
}
