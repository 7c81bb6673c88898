//! Bugs that the simulator or a review found, each as the shortest exchange between two streams that shows it.
//! The tests use two streams and a slice of bytes, no adapter; the seeds that found the bugs are in the simulator's own list.

use verbena_stream::startup::Rtr;
use verbena_stream::{
    Agreement, BeginError, Claim, Delivery, Frame, Message, RnrRetry, Role, Settings, Step, Stream,
    Time,
};
use verbena_wire::ext::{Caps, Features, Personality, QpType, RnrTimer};
use verbena_wire::mpa::startup::Revision;
use verbena_wire::rdmap::Immediate;
use verbena_wire::{Stag, To};

fn timer() -> RnrTimer {
    RnrTimer::new(1).unwrap()
}

fn stream(role: Role) -> Stream {
    stream_with(role, false, 128)
}

fn stream_with(role: Role, markers: bool, max_ulpdu: u16) -> Stream {
    let agreement = Agreement {
        role,
        revision: Revision::Two,
        crc: false,
        markers_tx: markers,
        markers_rx: false,
        ird: 4,
        ord: 4,
        rtr: Rtr::Caps,
        extensions: true,
        private_data: Vec::new(),
    };
    let caps = Caps {
        version: Caps::VERSION,
        max_ulpdu,
        features: Features::NONE,
        personality: Personality::Roce,
        qp_type: QpType::Rc,
        min_rnr_timer: timer(),
        ird: 4,
        nonce: 0,
        same_host: None,
        path: None,
    };
    let settings = Settings {
        max_ulpdu,
        rfc7306: true,
        rnr_retry: RnrRetry::Forever,
        drop_overlong: false,
        caps,
    };
    Stream::new(&agreement, settings)
}

/// Two streams that have received each other's CAPS.
fn pair() -> (Stream, Stream) {
    let (mut a, mut b) = (stream(Role::Initiator), stream(Role::Responder));
    let hello = a.poll_control(true).unwrap();
    feed(&mut b, &hello, &[]);
    let hello = b.poll_control(true).unwrap();
    feed(&mut a, &hello, &[]);
    (a, b)
}

/// Feeds one frame to a stream; claims are answered in order, and with "not ready" when there are no answers left.
fn feed(stream: &mut Stream, frame: &Frame, receives: &[u32]) -> Vec<Delivery> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes, |_, hole| hole.fill(7));
    let (mut at, mut receives, mut out) = (0, receives.iter(), Vec::new());
    loop {
        let (used, step) = stream.handle(&bytes[at..], Time::ZERO).unwrap();
        at += used;
        match step {
            Step::More(_) => return out,
            Step::Place(run) => {
                stream.placed(run.len);
                at += run.len as usize;
            }
            Step::Deliver(delivery) => out.push(delivery),
            Step::Claim { .. } => {
                let claim = match receives.next() {
                    Some(&capacity) => Claim::Granted { capacity },
                    None => Claim::NotReady { timer: timer() },
                };
                stream.claim(claim).unwrap();
            }
        }
    }
}

/// Sends a whole message.
fn send_message(
    from: &mut Stream,
    to: &mut Stream,
    message: Message,
    receives: &[u32],
) -> Vec<Delivery> {
    let mut outgoing = from.begin(message).unwrap();
    let mut receives = receives;
    let mut out = Vec::new();
    while let Some(frame) = from.next_frame(&mut outgoing) {
        out.extend(feed(to, &frame, receives));
        // Only the first segment needs a receive.
        receives = &[];
    }
    out
}

fn control(from: &mut Stream, to: &mut Stream) {
    while let Some(frame) = from.poll_control(false) {
        feed(to, &frame, &[]);
    }
}

fn write(len: u32) -> Message {
    Message::Write {
        stag: Stag::new(0x100),
        to: To::new(0),
        len,
    }
}

fn send(len: u32) -> Message {
    Message::Send {
        solicited: false,
        invalidate: None,
        len,
    }
}

const IMMEDIATE: Message = Message::Immediate {
    solicited: false,
    data: Immediate { data: [9; 8] },
};

fn write_len(deliveries: &[Delivery]) -> Option<u32> {
    match deliveries {
        [Delivery::Immediate { write_len, .. }] => *write_len,
        other => panic!("not an Immediate: {other:?}"),
    }
}

/// The length of the Immediate was computed from the offset of the Write's last segment, and was too long for its receive.
#[test]
fn immediate_after_segmented_write_fits_empty_receive() {
    let (mut a, mut b) = pair();
    send_message(&mut a, &mut b, write(1000), &[]);
    let got = send_message(&mut a, &mut b, IMMEDIATE, &[0]);
    assert_eq!(write_len(&got), Some(1000));
}

/// A Send that was discarded after a refused Immediate cleared the length of the Write before it.
#[test]
fn discarded_send_keeps_immediate_write_length() {
    let (mut a, mut b) = pair();
    send_message(&mut a, &mut b, write(50), &[]);
    let refused = send_message(&mut a, &mut b, IMMEDIATE, &[]);
    assert!(matches!(refused[..], [Delivery::Discarded(_)]));
    send_message(&mut a, &mut b, send(10), &[]);
    control(&mut b, &mut a);
    b.receive_posted();
    control(&mut b, &mut a);
    control(&mut a, &mut b);
    let got = send_message(&mut a, &mut b, IMMEDIATE, &[0]);
    assert_eq!(write_len(&got), Some(50));
}

/// RNR and READY between two frames of one message: it continued in its middle after RESUME.
#[test]
fn message_restarts_after_rnr_between_frames() {
    let (mut a, mut b) = pair();
    let mut outgoing = a.begin(send(500)).unwrap();
    let first = a.next_frame(&mut outgoing).unwrap();
    feed(&mut b, &first, &[]);
    b.receive_posted();
    control(&mut b, &mut a);
    assert!(a.next_frame(&mut outgoing).is_none());
    assert_eq!(a.begin(send(500)).unwrap_err(), BeginError::NotReady);
    control(&mut a, &mut b);
    let got = send_message(&mut a, &mut b, send(500), &[500]);
    assert!(
        matches!(got[..], [Delivery::Send { len: 500, .. }]),
        "{got:?}"
    );
}

/// A message that was begun but never framed had taken a message number: the peer saw a gap and ended the stream.
#[test]
fn rnr_before_first_frame_leaves_no_gap() {
    let (mut a, mut b) = pair();
    send_message(&mut a, &mut b, send(10), &[]);
    let mut outgoing = a.begin(send(20)).unwrap();
    control(&mut b, &mut a);
    assert!(a.next_frame(&mut outgoing).is_none());
    b.receive_posted();
    control(&mut b, &mut a);
    control(&mut a, &mut b);
    for len in [10, 20] {
        let got = send_message(&mut a, &mut b, send(len), &[100]);
        assert!(matches!(got[..], [Delivery::Send { .. }]), "{got:?}");
    }
}

/// A message that was given up continued when its number was assigned again.
#[test]
fn abandoned_message_is_never_continued() {
    let (mut a, mut b) = pair();
    let mut stale = a.begin(send(500)).unwrap();
    feed(&mut b, &a.next_frame(&mut stale).unwrap(), &[]);
    b.receive_posted();
    control(&mut b, &mut a);
    assert!(a.next_frame(&mut stale).is_none());
    control(&mut a, &mut b);
    let again = a.begin(send(500)).unwrap();
    assert_eq!(again.rsn(), stale.rsn());
    assert!(a.next_frame(&mut stale).is_none());
    assert_eq!(a.begin(send(1)).unwrap_err(), BeginError::Busy);
}

/// After a Write that was dropped, the Immediate got the length of an older one.
#[test]
fn immediate_after_dropped_write_has_no_length() {
    let (mut a, mut b) = pair();
    send_message(&mut a, &mut b, write(50), &[]);
    let mut outgoing = a.begin(write(60)).unwrap();
    let mut bytes = Vec::new();
    let frame = a.next_frame(&mut outgoing).unwrap();
    frame.write(&mut bytes, |_, hole| hole.fill(7));
    let (used, _) = b.handle(&bytes, Time::ZERO).unwrap();
    b.drop_message();
    b.placed(60);
    let end = b.handle(&bytes[used + 60..], Time::ZERO).unwrap();
    assert!(matches!(end.1, Step::Deliver(Delivery::Discarded(_))));
    let got = send_message(&mut a, &mut b, IMMEDIATE, &[0]);
    assert!(matches!(got[..], [Delivery::Immediate { .. }]));
    assert_eq!(write_len(&got), None);
}

/// Answering a claim twice lost the RNR of the first answer.
#[test]
fn claim_answered_twice_still_sends_rnr() {
    let (mut a, mut b) = pair();
    let mut outgoing = a.begin(send(10)).unwrap();
    feed(&mut b, &a.next_frame(&mut outgoing).unwrap(), &[]);
    b.claim(Claim::NotReady { timer: timer() }).unwrap();
    let frame = b.poll_control(false).unwrap();
    assert!(matches!(feed(&mut a, &frame, &[])[..], [Delivery::Rnr(_)]));
}

/// With markers the longest ULPDU was used as well, and its last marker could not point to the frame's start.
#[test]
fn max_ulpdu_with_markers_is_65018() {
    assert_eq!(stream_with(Role::Initiator, true, 65535).max_ulpdu(), 65018);
    assert_eq!(
        stream_with(Role::Initiator, false, 65535).max_ulpdu(),
        65535
    );
}
