//! Valid streams: each kind of message, in one and several segments, with every framing.

use verbena_wire::ddp::Tagged;
use verbena_wire::ext::ReadV2Request;
use verbena_wire::rdmap::{
    AtomicOp, AtomicRequest, AtomicResponse, Immediate, Opcode, ReadRequest,
};
use verbena_wire::{Rsn, Stag, To};

use crate::startup::Role;
use crate::testing::{Bench, agreement, fpdu, patterned, settings, tagged, untagged};
use crate::{BeginError, Delivery, Message, Place};

/// Two benches; the tests carry the bytes between them.
pub(super) struct Pair {
    pub(super) a: Bench,
    pub(super) b: Bench,
}

impl Pair {
    fn new(extensions: bool, crc: bool, markers: [bool; 2]) -> Pair {
        let side = |role, tx, rx| {
            let mut agreed = agreement(role, extensions);
            (agreed.crc, agreed.markers_tx, agreed.markers_rx) = (crc, tx, rx);
            Bench::new(&agreed, settings())
        };
        let mut pair = Pair {
            a: side(Role::Initiator, markers[0], markers[1]),
            b: side(Role::Responder, markers[1], markers[0]),
        };
        pair.settle();
        pair.a.delivered.clear();
        pair.b.delivered.clear();
        pair
    }

    /// Carries control messages until neither side has any.
    pub(super) fn settle(&mut self) {
        loop {
            let (to_b, to_a) = (self.a.control(true), self.b.control(true));
            if to_b.is_empty() && to_a.is_empty() {
                return;
            }
            self.b.feed(&to_b).unwrap();
            self.a.feed(&to_a).unwrap();
        }
    }

    fn a_sends(&mut self, message: Message) {
        let bytes = self.a.send(message);
        self.b.feed(&bytes).unwrap();
    }
}

pub(super) fn every_framing(test: impl Fn(&mut Pair)) {
    for extensions in [false, true] {
        for crc in [false, true] {
            for markers in [[false, false], [true, false], [false, true], [true, true]] {
                test(&mut Pair::new(extensions, crc, markers));
            }
        }
    }
}

/// The payload as it was placed, checked to be contiguous.
fn gathered(bench: &Bench) -> Vec<u8> {
    let mut at: Option<Place> = None;
    let mut bytes = Vec::new();
    for (place, run) in &bench.placed {
        if let Some(expected) = at {
            assert_eq!(*place, expected, "runs follow one another");
        }
        at = Some(place.forward(run.len() as u32));
        bytes.extend(run);
    }
    bytes
}

#[test]
fn a_write_arrives_where_it_was_sent() {
    for len in [0, 1, 3, 985, 986, 987, 5000] {
        every_framing(|pair| {
            let (stag, to) = (Stag::new(0x1234), To::new(0x7000));
            pair.a_sends(Message::Write { stag, to, len });
            assert_eq!(gathered(&pair.b), patterned(len));
            let first = pair.b.placed.first().map(|p| p.0);
            assert_eq!(first, (len > 0).then_some(Place::Write { stag, to }));
            let rsn = Rsn::ZERO;
            assert_eq!(pair.b.delivered, [Delivery::Write { rsn, stag, len }]);
        });
    }
}

#[test]
fn a_send_of_each_kind_consumes_one_receive() {
    let stag = Some(Stag::new(77));
    for (solicited, invalidate, opcode) in [
        (false, None, Opcode::Send),
        (false, stag, Opcode::SendInv),
        (true, None, Opcode::SendSe),
        (true, stag, Opcode::SendSeInv),
    ] {
        every_framing(|pair| {
            let len = 2500;
            pair.a_sends(Message::Send {
                solicited,
                invalidate,
                len,
            });
            assert_eq!(gathered(&pair.b), patterned(len));
            let (rsn, immediate) = (Rsn::ZERO, None);
            let expected = Delivery::Send {
                rsn,
                opcode,
                len,
                invalidate,
                immediate,
            };
            assert_eq!(pair.b.delivered, [expected]);
        });
    }
}

#[test]
fn send_immediate_is_stripped_from_payload() {
    for len in [0, 5, 973, 974, 975, 3000] {
        let mut pair = Pair::new(true, true, [true, false]);
        let immediate = Immediate::from_imm(0xfeed);
        let invalidate = Some(Stag::new(3));
        pair.a_sends(Message::SendImm {
            solicited: true,
            invalidate,
            immediate,
            len,
        });
        assert_eq!(gathered(&pair.b), patterned(len));
        let expected = Delivery::Send {
            rsn: Rsn::ZERO,
            opcode: Opcode::SendImm {
                solicited: true,
                invalidate: true,
            },
            len,
            invalidate,
            immediate: Some(immediate),
        };
        assert_eq!(pair.b.delivered, [expected], "{len} bytes");
    }
}

#[test]
fn immediate_reports_length_of_preceding_write() {
    every_framing(|pair| {
        let data = Immediate::from_imm(5);
        let immediate = |solicited| Message::Immediate { solicited, data };
        pair.a_sends(Message::Write {
            stag: Stag::new(1),
            to: To::new(0),
            len: 2000,
        });
        pair.a_sends(immediate(false));
        pair.a_sends(immediate(true));
        let seen: Vec<_> = pair.b.delivered.iter().skip(1).cloned().collect();
        let expected = |rsn, opcode, write_len| Delivery::Immediate {
            rsn: Rsn::wrapping(rsn),
            opcode,
            data,
            write_len,
        };
        let first = expected(1, Opcode::Immediate, Some(2000));
        assert_eq!(seen, [first, expected(2, Opcode::ImmediateSe, None)]);
    });
}

#[test]
fn a_read_is_answered_into_its_sink() {
    every_framing(|pair| {
        let size = 3333;
        let request = ReadRequest {
            sink_stag: Stag::new(8),
            sink_to: To::new(0x50),
            size,
            source_stag: Stag::new(9),
            source_to: To::new(0x60),
        };
        pair.a_sends(Message::ReadRequest(request));
        assert!(matches!(&pair.b.delivered[..],
            [Delivery::ReadRequest { request: r, .. }] if *r == request));
        assert_eq!(pair.b.stream.accounting().reads_in.len(), 1);
        let answer = pair.b.send(Message::ReadResponse {
            stag: request.sink_stag,
            to: request.sink_to,
            len: size,
        });
        pair.a.feed(&answer).unwrap();
        assert_eq!(gathered(&pair.a), patterned(size));
        assert!(matches!(pair.a.delivered[..], [Delivery::ReadDone(_)]));
        assert!(pair.a.stream.accounting().reads_out.is_empty());
        assert!(pair.b.stream.accounting().reads_in.is_empty());
        assert_eq!(pair.a.stream.accounting().requester.unacknowledged(), 0);
    });
}

#[test]
fn a_read_v2_names_no_sink() {
    let mut pair = Pair::new(true, true, [false, true]);
    let request = ReadV2Request {
        size: 4000,
        source_stag: Stag::new(9),
        source_to: To::new(0),
    };
    pair.a_sends(Message::ReadV2Request(request));
    let answer = pair.b.send(Message::ReadV2Response { len: 4000 });
    pair.a.feed(&answer).unwrap();
    assert_eq!(pair.a.placed[0].0, Place::Sink { offset: 0 });
    assert_eq!(gathered(&pair.a), patterned(4000));
    assert!(matches!(pair.a.delivered[..], [Delivery::ReadDone(_)]));
}

#[test]
fn an_atomic_is_answered_once() {
    every_framing(|pair| {
        let request = AtomicRequest {
            op: AtomicOp::FetchAdd { add: 5, mask: 0 },
            id: 0x11,
            stag: Stag::new(1),
            to: To::new(8),
        };
        pair.a_sends(Message::AtomicRequest(request));
        let original = 37;
        let answer = AtomicResponse { id: 0x11, original };
        let bytes = pair.b.send(Message::AtomicResponse(answer));
        pair.a.feed(&bytes).unwrap();
        assert!(matches!(&pair.a.delivered[..], [Delivery::AtomicDone(_, a)] if *a == answer));
    });
}

#[test]
fn segmentation_matches_rfc_5041_example() {
    // RFC 5041 §5.2.2: 2048 bytes at MULPDU 1500 go as 1482 + 566 untagged, 1486 + 562 tagged.
    let mut settings = settings();
    settings.max_ulpdu = 1500;
    let mut bench = Bench::new(&agreement(Role::Initiator, false), settings);
    let mut lens = |message| {
        let mut outgoing = bench.stream.begin(message).unwrap();
        let mut lens = Vec::new();
        while let Some(frame) = bench.stream.next_frame(&mut outgoing) {
            lens.push((frame.payload_offset(), frame.payload_len()));
        }
        lens
    };
    let send = Message::Send {
        solicited: false,
        invalidate: None,
        len: 2048,
    };
    assert_eq!(lens(send), [(0, 1482), (1482, 566)]);
    let write = Message::Write {
        stag: Stag::new(1),
        to: To::new(16384),
        len: 2048,
    };
    assert_eq!(lens(write), [(0, 1486), (1486, 562)]);
}

#[test]
fn standard_peer_may_interleave_send_and_write() {
    let mut bench = Bench::standard();
    let open = Tagged {
        last: false,
        ..tagged(Opcode::Write, 1, 100)
    };
    bench.feed(&fpdu(open, b"01234")).unwrap();
    bench
        .feed(&fpdu(untagged(Opcode::Send, 1), b"inside"))
        .unwrap();
    bench
        .feed(&fpdu(tagged(Opcode::Write, 1, 105), b"567"))
        .unwrap();
    let kinds: Vec<_> = bench
        .delivered
        .iter()
        .map(core::mem::discriminant)
        .collect();
    assert_eq!(kinds.len(), 2);
    assert!(matches!(bench.delivered[1], Delivery::Write { len: 8, .. }));
}

#[test]
fn a_plain_frame_needs_no_stage() {
    let mut bench = Bench::standard();
    let message = Message::Write {
        stag: Stag::new(1),
        to: To::new(0),
        len: 21,
    };
    let mut outgoing = bench.stream.begin(message).unwrap();
    let frame = bench.stream.next_frame(&mut outgoing).unwrap();
    assert!(frame.is_plain());
    let mut staged = Vec::new();
    frame.write(&mut staged, crate::testing::pattern);
    let pieces = [frame.head(), &patterned(21), frame.trailer()].concat();
    assert_eq!(
        pieces, staged,
        "three pieces or one, the bytes are the same"
    );
}

#[test]
fn direct_placement_bypasses_the_stage() {
    let mut pair = Pair::new(false, false, [false, false]);
    let (stag, to, len) = (Stag::new(1), To::new(0), 900);
    let bytes = pair.a.send(Message::Write { stag, to, len });
    let head = 16;
    let (used, _) = pair.b.stream.handle(&bytes[..head], pair.b.now).unwrap();
    assert_eq!(used, head);
    let run = pair.b.stream.pending().expect("payload stands next");
    assert_eq!((run.place, run.len), (Place::Write { stag, to }, len));
    pair.b.stream.placed(600);
    let run = pair.b.stream.pending().expect("and goes on");
    assert_eq!(
        run.place,
        Place::Write {
            stag,
            to: To::new(600)
        }
    );
    assert_eq!(run.len, 300);
    pair.b.stream.placed(300);
    assert!(pair.b.stream.pending().is_none());
    pair.b.feed(&bytes[head + 900..]).unwrap();
    assert!(matches!(pair.b.delivered[..], [Delivery::Write { .. }]));
}

#[test]
fn begin_enforces_one_message_and_read_depth() {
    let mut bench = Bench::standard();
    let write = Message::Write {
        stag: Stag::new(1),
        to: To::new(0),
        len: 5000,
    };
    let mut outgoing = bench.stream.begin(write.clone()).unwrap();
    assert_eq!(
        bench.stream.begin(write.clone()).unwrap_err(),
        BeginError::Busy
    );
    while bench.stream.next_frame(&mut outgoing).is_some() {}
    let read = Message::ReadRequest(ReadRequest {
        sink_stag: Stag::new(1),
        sink_to: To::new(0),
        size: 0,
        source_stag: Stag::new(1),
        source_to: To::new(0),
    });
    for _ in 0..4 {
        bench.send(read.clone());
    }
    assert_eq!(bench.stream.begin(read).unwrap_err(), BeginError::Depth(4));
    let wrapping = Message::Write {
        stag: Stag::new(1),
        to: To::new(u64::MAX),
        len: 2,
    };
    assert_eq!(
        bench.stream.begin(wrapping).unwrap_err(),
        BeginError::TooLong
    );
    bench.send(write);
}

#[test]
fn rfc_7306_is_not_sent_when_unsupported() {
    let mut settings = settings();
    settings.rfc7306 = false;
    let mut bench = Bench::new(&agreement(Role::Initiator, false), settings);
    let atomic = Message::AtomicRequest(AtomicRequest {
        id: 1,
        stag: Stag::new(1),
        to: To::new(8),
        op: AtomicOp::FetchAdd { add: 1, mask: 0 },
    });
    let immediate = Message::Immediate {
        solicited: false,
        data: Immediate { data: [1; 8] },
    };
    for message in [atomic, immediate] {
        let refused = bench.stream.begin(message.clone()).unwrap_err();
        assert_eq!(refused, BeginError::Unsupported(message.opcode()));
        // With the extensions no setting is needed.
        let mut ours = Bench::verbena();
        ours.stream.begin(message).unwrap();
    }
}

#[test]
fn extensions_are_refused_towards_a_standard_peer() {
    let mut bench = Bench::standard();
    let v2 = Message::ReadV2Request(ReadV2Request {
        size: 1,
        source_stag: Stag::new(1),
        source_to: To::new(0),
    });
    let refused = bench.stream.begin(v2).unwrap_err();
    assert_eq!(refused, BeginError::Unsupported(Opcode::ReadV2Request));
}
