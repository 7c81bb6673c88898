//! Header prediction and the full receive path have the same results, for any frames in any pieces on any stream.

use proptest::prelude::*;
use verbena_wire::ddp::{Tagged, Untagged};
use verbena_wire::ext::Control;
use verbena_wire::rdmap::{Immediate, Opcode};
use verbena_wire::{Mo, Msn, Rsn, Stag, To};

use crate::startup::{Agreement, Role};
use crate::testing::{
    Bench, agreement, control, fpdu, patterned, settings, tagged, timer, untagged, with_crc,
};
use crate::{Claim, Delivery, Message, Place, Violation};

/// What a peer sends next, valid or not.
#[derive(Debug, Clone)]
enum PeerMessage {
    Send {
        solicited: bool,
        len: u32,
    },
    /// In two segments.
    LongSend {
        len: u32,
    },
    SendInv {
        len: u32,
    },
    Write {
        len: u32,
    },
    LongWrite {
        len: u32,
    },
    /// Segments of a Write with one length, and behind them perhaps its last one. The one at `odd` is not like the others: in a reserved bit, its
    /// length, its STag, its address, its opcode or its checksum.
    Segments {
        len: u32,
        count: usize,
        odd: usize,
        how: u8,
        end: bool,
    },
    /// One segment of a Write; sometimes with the wrong STag or offset.
    Segment {
        len: u32,
        last: bool,
        skew: (u32, u64),
    },
    Immediate,
    Ack(u32),
    Ready(u32),
    /// A Send with a wrong number or offset.
    SkewedSend {
        msn: u32,
        mo: u32,
    },
    /// Any control byte, any opcode byte.
    Garbage {
        ddp: u8,
        rdmap: u8,
        len: u32,
    },
    /// From here on receives are missing, or available again.
    Receives(Claim),
}

fn peer_message() -> impl Strategy<Value = PeerMessage> {
    let len = || 0..90_u32;
    let off = || prop_oneof![15 => Just(0_u32), 1 => Just(1)];
    prop_oneof![
        6 => (any::<bool>(), len()).prop_map(|(solicited, len)| PeerMessage::Send { solicited, len }),
        1 => (2..90_u32).prop_map(|len| PeerMessage::LongSend { len }),
        1 => len().prop_map(|len| PeerMessage::SendInv { len }),
        6 => len().prop_map(|len| PeerMessage::Write { len }),
        1 => (2..90_u32).prop_map(|len| PeerMessage::LongWrite { len }),
        5 => (len(), any::<bool>(), off(), off()).prop_map(|(len, last, stag, to)| PeerMessage::Segment {
            len,
            last,
            skew: (stag, u64::from(to)),
        }),
        4 => (1..90_u32, 1..6_usize, 0..12_usize, 0..6_u8, any::<bool>()).prop_map(|(len, count, odd, how, end)| {
            PeerMessage::Segments { len, count, odd, how, end }
        }),
        1 => Just(PeerMessage::Immediate),
        4 => (0..6_u32).prop_map(PeerMessage::Ack),
        1 => (0..3_u32).prop_map(PeerMessage::Ready),
        1 => (0..3_u32, 0..2_u32).prop_map(|(msn, mo)| PeerMessage::SkewedSend { msn, mo }),
        1 => (any::<u8>(), any::<u8>(), len())
            .prop_map(|(ddp, rdmap, len)| PeerMessage::Garbage { ddp, rdmap, len }),
        1 => prop_oneof![
            Just(Claim::Granted { capacity: 1 << 20 }),
            Just(Claim::Granted { capacity: 40 }),
            Just(Claim::NotReady { timer: timer() }),
            Just(Claim::Drop),
        ]
        .prop_map(PeerMessage::Receives),
    ]
}

/// Numbers the messages as a conforming peer would.
struct Peer {
    sends: u32,
    controls: u32,
    /// The address of a Write's next segment.
    write_at: u64,
    /// The byte of the last frames that is damaged on the wire.
    damage: Option<usize>,
}

impl Peer {
    fn bytes(&mut self, message: &PeerMessage) -> Vec<u8> {
        match *message {
            PeerMessage::Send { solicited, len } => {
                let opcode = if solicited {
                    Opcode::SendSe
                } else {
                    Opcode::Send
                };
                fpdu(untagged(opcode, self.next_send()), &patterned(len))
            }
            PeerMessage::LongSend { len } => {
                let head = untagged(Opcode::Send, self.next_send());
                let (cut, all) = (len / 2, patterned(len));
                let first = Untagged {
                    last: false,
                    ..head
                };
                let second = Untagged {
                    mo: Mo::new(cut),
                    ..head
                };
                let mut out = fpdu(first, &all[..cut as usize]);
                out.extend(fpdu(second, &all[cut as usize..]));
                out
            }
            PeerMessage::SendInv { len } => {
                let head = untagged(Opcode::SendInv, self.next_send());
                fpdu(Untagged { ulp: 0x100, ..head }, &patterned(len))
            }
            PeerMessage::Write { len } => fpdu(tagged(Opcode::Write, 0x100, 64), &patterned(len)),
            PeerMessage::Segment {
                len,
                last,
                skew: (stag, to),
            } => {
                let head = tagged(Opcode::Write, 0x300 + stag, self.write_at + to);
                self.write_at = if last {
                    0
                } else {
                    self.write_at + u64::from(len)
                };
                fpdu(Tagged { last, ..head }, &patterned(len))
            }
            PeerMessage::Segments {
                len,
                count,
                odd,
                how,
                end,
            } => {
                let mut out = Vec::new();
                for at in 0..count {
                    let is_odd = |kind| at == odd && how == kind;
                    let len = len + u32::from(is_odd(0));
                    let stag = 0x300 + u32::from(is_odd(1));
                    let to = self.write_at + u64::from(is_odd(2));
                    let opcode = if is_odd(3) {
                        Opcode::ReadResponse
                    } else {
                        Opcode::Write
                    };
                    let last = end && at + 1 == count;
                    let head = Tagged {
                        last,
                        ..tagged(opcode, stag, to)
                    };
                    let mut frame = fpdu(head, &patterned(len));
                    if is_odd(4) {
                        // Reserved, and not looked at.
                        frame[2] |= 0x04;
                    }
                    out.extend(frame);
                    if is_odd(5) {
                        self.damage = Some(out.len() - 1);
                    }
                    self.write_at = if last {
                        0
                    } else {
                        self.write_at + u64::from(len)
                    };
                }
                out
            }
            PeerMessage::LongWrite { len } => {
                let head = tagged(Opcode::Write, 0x200, 0);
                let (cut, all) = (len / 2, patterned(len));
                let first = Tagged {
                    last: false,
                    ..head
                };
                let second = tagged(Opcode::Write, 0x200, u64::from(cut));
                let mut out = fpdu(first, &all[..cut as usize]);
                out.extend(fpdu(second, &all[cut as usize..]));
                out
            }
            PeerMessage::Immediate => {
                let head = untagged(Opcode::Immediate, self.next_send());
                fpdu(head, &Immediate::from_imm(7).emit())
            }
            PeerMessage::Ack(n) => control(&Control::Ack(Rsn::wrapping(n)), self.next_control()),
            PeerMessage::Ready(n) => {
                control(&Control::Ready(Rsn::wrapping(n)), self.next_control())
            }
            PeerMessage::SkewedSend { msn, mo } => {
                let head = untagged(Opcode::Send, 0);
                let msn = Msn::new(self.sends.wrapping_add(msn));
                let mo = Mo::new(mo);
                fpdu(Untagged { msn, mo, ..head }, &patterned(8))
            }
            PeerMessage::Garbage { ddp, rdmap, len } => {
                let mut out = fpdu(untagged(Opcode::Send, self.sends), &patterned(len));
                (out[2], out[3]) = (ddp, rdmap);
                out
            }
            PeerMessage::Receives(_) => Vec::new(),
        }
    }

    fn next_send(&mut self) -> u32 {
        self.sends += 1;
        self.sends - 1
    }

    fn next_control(&mut self) -> u32 {
        self.controls += 1;
        self.controls - 1
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn fast_and_slow_receive_paths_agree(
        (ours, crc) in prop_oneof![Just((true, false)), Just((false, false)), Just((false, true))],
        messages in proptest::collection::vec(peer_message(), 1..24),
        piece in prop_oneof![1..200_usize, 200..1000_usize],
    ) {
        let mut long = if ours { Bench::verbena() } else { standard(crc) };
        // Requests that the peer can acknowledge.
        for _ in 0..3 {
            let _ = long.send(Message::Send { solicited: false, invalidate: None, len: 4 });
        }
        let mut short = long.clone();
        short.uses_prediction = true;
        let mut peer = Peer { sends: 1, controls: if ours { 2 } else { 1 }, write_at: 0, damage: None };
        'all: for message in &messages {
            if let PeerMessage::Receives(claim) = message {
                (long.claim, short.claim) = (*claim, *claim);
            }
            let mut bytes = peer.bytes(message);
            if crc {
                bytes = with_crc(bytes);
            }
            if let Some(at) = peer.damage.take() {
                bytes[at] ^= 1;
            }
            for bytes in bytes.chunks(piece) {
                let (one, other) = (long.feed(bytes), short.feed(bytes));
                prop_assert_eq!(&one, &other);
                prop_assert_eq!(&long.placed, &short.placed);
                prop_assert_eq!(&long.delivered, &short.delivered);
                // At a violation the slow path may still have the end of the frame before it.
                if one.is_err() {
                    break 'all;
                }
                prop_assert_eq!(&long.stage, &short.stage);
            }
            // Acknowledgements are flushed sometimes.
            let flush = matches!(message, PeerMessage::Ack(_));
            prop_assert_eq!(long.control(flush), short.control(flush));
        }
        prop_assert_eq!(format!("{:?}", long.stream.accounting()), format!("{:?}", short.stream.accounting()));
        prop_assert_eq!(long.stream.cause(), short.stream.cause());
        prop_assert_eq!(long.stream.state(), short.stream.state());
        prop_assert_eq!(long.control(true), short.control(true));
    }
}

/// A stream with a standard peer, past its opening.
fn standard(crc: bool) -> Bench {
    let agreed = Agreement {
        crc,
        ..agreement(Role::Initiator, false)
    };
    Bench::new(&agreed, settings())
}

#[test]
fn frames_with_markers_take_slow_path() {
    let agreed = Agreement {
        markers_rx: true,
        ..agreement(Role::Initiator, false)
    };
    let bench = Bench::new(&agreed, settings());
    let frame = fpdu(untagged(Opcode::Send, 1), &[1; 8]);
    assert!(bench.stream.predict(&frame).is_none());
}

#[test]
fn frames_with_wrong_crc_take_slow_path() {
    let mut bench = standard(true);
    bench
        .feed(&with_crc(fpdu(tagged(Opcode::Write, 0x100, 0), &[1; 8])))
        .unwrap();
    let mut frame = with_crc(fpdu(untagged(Opcode::Send, 1), &[1; 8]));
    let foreseen = bench.stream.predict(&frame).unwrap();
    assert!(bench.stream.is_intact(&frame, &foreseen));
    frame[20] ^= 1;
    let foreseen = bench.stream.predict(&frame).unwrap();
    assert!(!bench.stream.is_intact(&frame, &foreseen));
    assert!(matches!(
        bench.expect_violation(&frame),
        Violation::Crc { .. }
    ));
}

#[test]
fn segments_of_a_write_are_taken_together() {
    let segment = |at: u64, last| {
        let head = tagged(Opcode::Write, 0x100, 80 * at);
        fpdu(Tagged { last, ..head }, &patterned(80))
    };
    for crc in [false, true] {
        let mut bench = standard(crc);
        bench.uses_prediction = true;
        let mut frames = fpdu(tagged(Opcode::Write, 0x200, 0), &[1; 8]);
        frames.extend((0..5).flat_map(|at| segment(at, at == 4)));
        if crc {
            frames = with_crc(frames);
        }
        // The last segment and an unfinished frame are no part of the run.
        frames.extend(&segment(0, false)[..10]);
        bench.feed(&frames).unwrap();
        assert_eq!(bench.runs, 1);
        let places: Vec<Place> = bench.placed.iter().map(|(place, _)| *place).collect();
        let expected = (0..5).map(|at| Place::Write {
            stag: Stag::new(0x100),
            to: To::new(80 * at),
        });
        assert_eq!(places[1..], expected.collect::<Vec<_>>());
        let len = |delivery: &Delivery| match delivery {
            Delivery::Write { len, .. } => Some(*len),
            _ => None,
        };
        let lens: Vec<u32> = bench.delivered.iter().filter_map(len).collect();
        assert_eq!(lens, [8, 400]);
    }
}

#[test]
fn common_frames_take_the_fast_path() {
    let mut bench = Bench::verbena();
    let _ = bench.send(Message::Send {
        solicited: false,
        invalidate: None,
        len: 4,
    });
    let frames = [
        fpdu(untagged(Opcode::Send, 1), &[1; 8]),
        fpdu(tagged(Opcode::Write, 0x100, 0), &[1; 8]),
        control(&Control::Ack(Rsn::wrapping(1)), 2),
    ];
    for frame in frames {
        let foreseen = bench.stream.predict(&frame).expect("had to come next");
        assert_eq!(foreseen.size, frame.len());
        let cut = &frame[..frame.len() - 1];
        assert!(bench.stream.predict(cut).is_none(), "not all there");
    }
}
