//! What a stream may still send: control frames while it runs; after a violation the responses it owes and one Terminate, then nothing.
//! Each frame must parse as what it should be (RFC 5040 §4.8, RFC 5044 §4.4).

use verbena_stream::terminate::cause_of;
use verbena_stream::{Agreement, BeginError, Message, Step, Stream, Time, Violation};
use verbena_wire::crc::crc32c;
use verbena_wire::ddp::{Header, Untagged};
use verbena_wire::ext::Control;
use verbena_wire::rdmap::{Cause, Opcode, Phase, Terminate};
use verbena_wire::{Stag, To};

/// Limit of control frames that are pending at once: one of each kind.
const MAX_CONTROL_FRAMES: usize = 8;

/// Checks that only acknowledgements, the first of `answers` while they are owed, and at most one Terminate, which names
/// the violation, are sent.
pub(super) fn after_violation(
    stream: &mut Stream,
    violation: &Violation,
    agreement: &Agreement,
    answers: &[Message],
) {
    assert_eq!(
        stream.handle(b"more bytes", Time::ZERO),
        Ok((10, Step::More(1))),
        "what follows an error is dropped"
    );
    assert_eq!(stream.pending(), None);
    let nothing = Message::Write {
        stag: Stag::new(0),
        to: To::new(0),
        len: 0,
    };
    assert!(matches!(stream.begin(nothing), Err(BeginError::Closed)));
    let owed = stream.accounting().reads_in.len();
    assert_eq!(stream.owes_responses(), owed > 0);
    assert!(owed <= answers.len(), "owes what was not delivered");
    for message in &answers[..owed] {
        let acks = control_frames(stream, agreement);
        assert!(
            acks.iter().all(|(h, p)| is_ack(h, p)),
            "sent a frame too early"
        );
        let mut outgoing = stream.begin(message.clone()).expect("it is owed");
        while let Some(frame) = stream.next_frame(&mut outgoing) {
            frame.write(&mut Vec::new(), |_, _| {});
        }
        assert!(outgoing.is_done(), "an answer was cut");
    }
    assert!(!stream.owes_responses());
    let late = Message::ReadV2Response { len: 0 };
    assert!(matches!(stream.begin(late), Err(BeginError::Closed)));
    let mut said = control_frames(stream, agreement);
    let terminate = said.pop_if(|(header, _)| header.opcode == Opcode::Terminate);
    let expected = cause_of(violation);
    assert_eq!(terminate.is_some(), expected.is_some());
    if let (Some((_, payload)), Some(cause)) = (terminate, expected) {
        check_cause(&payload, cause);
    }
    let acks = said.iter().all(|(h, p)| is_ack(h, p));
    assert!(acks, "a failing stream acknowledges more than it executed");
    assert!(!stream.state().is_open());
    assert!(
        stream.poll_control(true).is_none(),
        "sent a frame after its end"
    );
    assert_eq!(stream.cause(), Some(violation), "the first cause is kept");
}

/// The Terminate parses with the right cause; the phase decides where the codes are ambiguous.
fn check_cause(payload: &[u8], cause: Cause) {
    let phase = match cause {
        Cause::Llp(_) => Phase::Startup,
        _ => Phase::Running,
    };
    let (terminate, _) = Terminate::parse(payload, phase).expect("our own Terminate");
    assert_eq!(terminate.cause, cause);
}

fn is_ack(header: &Untagged, payload: &[u8]) -> bool {
    header.opcode == Opcode::Control
        && matches!(Control::parse(header.ulp, payload), Ok(Control::Ack(_)))
}

/// Checks that only control frames are sent.
pub(super) fn while_running(stream: &mut Stream, agreement: &Agreement) {
    for (header, payload) in control_frames(stream, agreement) {
        assert_eq!(header.opcode, Opcode::Control);
        Control::parse(header.ulp, &payload).expect("our own control message");
    }
}

fn control_frames(stream: &mut Stream, agreement: &Agreement) -> Vec<(Untagged, Vec<u8>)> {
    let mut said = Vec::new();
    while let Some(frame) = stream.poll_control(true) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes, |_, _| {
            unreachable!("control carries no payload")
        });
        assert_eq!(bytes.len(), frame.size());
        said.push(read(&bytes, agreement.crc));
        assert!(said.len() <= MAX_CONTROL_FRAMES, "endless control frames");
    }
    said
}

fn read(bytes: &[u8], crc: bool) -> (Untagged, Vec<u8>) {
    let (body, field) = bytes.split_last_chunk::<4>().expect("a frame");
    let sum = if crc { crc32c(body) } else { 0 };
    assert_eq!(u32::from_le_bytes(*field), sum);
    let (length, rest) = body.split_first_chunk::<2>().expect("a frame");
    let ulpdu = &rest[..usize::from(u16::from_be_bytes(*length))];
    match Header::parse(ulpdu) {
        Ok(Header::Untagged(header)) => (header, ulpdu[Untagged::LEN..].to_vec()),
        other => panic!("control frame with header {other:?}"),
    }
}
