//! Header prediction and the full receive path have the same results, for any frames in any pieces on any stream.

use proptest::prelude::*;
use verbena_wire::ddp::{Tagged, Untagged};
use verbena_wire::ext::Control;
use verbena_wire::rdmap::{Immediate, Opcode};
use verbena_wire::{Mo, Msn, Rsn};

use crate::testing::{Bench, control, fpdu, patterned, tagged, timer, untagged};
use crate::{Claim, Message};

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
        ours in any::<bool>(),
        messages in proptest::collection::vec(peer_message(), 1..24),
        piece in 1..200_usize,
    ) {
        let mut long = if ours { Bench::verbena() } else { Bench::standard() };
        // Requests that the peer can acknowledge.
        for _ in 0..3 {
            let _ = long.send(Message::Send { solicited: false, invalidate: None, len: 4 });
        }
        let mut short = long.clone();
        short.uses_prediction = true;
        let mut peer = Peer { sends: 1, controls: if ours { 2 } else { 1 }, write_at: 0 };
        'all: for message in &messages {
            if let PeerMessage::Receives(claim) = message {
                (long.claim, short.claim) = (*claim, *claim);
            }
            for bytes in peer.bytes(message).chunks(piece) {
                let (one, other) = (long.feed(bytes), short.feed(bytes));
                prop_assert_eq!(&one, &other);
                prop_assert_eq!(&long.placed, &short.placed);
                prop_assert_eq!(&long.delivered, &short.delivered);
                prop_assert_eq!(&long.stage, &short.stage);
                if one.is_err() {
                    break 'all;
                }
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

#[test]
fn frames_with_crc_or_markers_take_slow_path() {
    use crate::startup::Role;
    use crate::testing::{agreement, settings};
    for (crc, markers) in [(true, false), (false, true)] {
        let mut agreed = agreement(Role::Initiator, false);
        (agreed.crc, agreed.markers_rx) = (crc, markers);
        let bench = Bench::new(&agreed, settings());
        let frame = fpdu(untagged(Opcode::Send, 1), &[1; 8]);
        assert!(bench.stream.predict(&frame).is_none());
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
