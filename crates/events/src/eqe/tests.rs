//! Tests of event entries: every code both ways, both forms, the ranges of the classes.

use super::*;

/// One of every cause, with `number` where it has one.
fn causes(number: u32) -> Vec<Cause> {
    let small = number as u16;
    let mut all: Vec<Cause> = [Reason::Next, Reason::Solicited, Reason::Failure]
        .map(|reason| completion(number, reason))
        .to_vec();
    all.extend(
        [
            Event::CqOverflow { cq: number },
            Event::SrqLimit { srq: number },
            Event::QpRequest { qp: number },
            Event::QpAccess { qp: number },
            Event::QpFatal { qp: number },
            Event::Established { qp: number },
            Event::SqDrained { qp: number },
            Event::LastWqe { qp: number },
            Event::Disconnected { qp: number },
            Event::Missed { count: number },
            Event::DeviceFatal,
        ]
        .map(Cause::Rdma),
    );
    all.extend([
        Cause::Rdma(Event::SrqError { srq: number }),
        Cause::CommandDone { command: number },
        Cause::GeneralPurpose { pin: small },
        Cause::Overflow { queue: small },
        Cause::Management { parameter: number },
    ]);
    for flag in [false, true] {
        all.push(Cause::MemoryError {
            internal: flag,
            bank: small,
        });
        all.push(Cause::Link {
            port: small,
            up: flag,
        });
    }
    for channel in 0..CHANNELS {
        for what in [
            ChannelEvent::BuffersLow,
            ChannelEvent::Returned,
            ChannelEvent::IllegalPost,
        ] {
            all.push(Cause::Channel {
                channel,
                what,
                count: number,
            });
        }
    }
    all
}

#[test]
fn causes_round_trip_in_both_forms() {
    for number in [
        0,
        1,
        0xffff,
        0x1_0000,
        SHORT_LIMIT,
        SHORT_LIMIT + 1,
        u32::MAX,
    ] {
        for cause in causes(number) {
            let eqe = Eqe::new(cause).with_context(7);
            let long = Eqe::from_words(eqe.words(), Form::Long).unwrap();
            assert_eq!((long, long.cause()), (eqe, Ok(cause)));
            if eqe.fits(Form::Short) {
                let word = [eqe.words()[0], 0, 0, 0];
                let short = Eqe::from_words(word, Form::Short).unwrap();
                assert_eq!(short.cause(), Ok(cause));
            } else {
                assert!(eqe.number() > SHORT_LIMIT);
            }
        }
    }
}

/// E1: code in byte 3, parameters in 2 to 0.
#[test]
fn code_occupies_the_top_byte() {
    let eqe = Eqe::new(completion(0x0012_3456, Reason::Next));
    assert_eq!(eqe.words()[0].to_be_bytes(), [0x01, 0x12, 0x34, 0x56]);
    let cause = Cause::Channel {
        channel: 5,
        what: ChannelEvent::Returned,
        count: 9,
    };
    assert_eq!(Eqe::new(cause).words()[0], 0x6500_0009);
}

/// All codes: each has a meaning in one class, is empty, or is unknown; what is decoded encodes to itself.
#[test]
fn every_code_decodes_or_is_unknown() {
    let mut known = 0;
    for code in 0..=255u8 {
        for number in [0, 1, 0xffff, 0x1_0000, SHORT_LIMIT] {
            let word = u32::from(code) << 24 | number;
            let words = [word, number, 0, 0];
            let Some(eqe) = Eqe::from_words(words, Form::Long) else {
                assert_eq!(code, 0);
                continue;
            };
            match eqe.cause() {
                Ok(cause) => {
                    known += 1;
                    assert_eq!(Eqe::new(cause).words(), words);
                    let range = match code {
                        0x01..0x40 => Class::Rdma,
                        0x40..0xa0 => Class::Channel,
                        0xa0..0xc0 => Class::Global,
                        _ => Class::Management,
                    };
                    assert_eq!(cause.class(), range);
                }
                Err(unknown) => assert_eq!(unknown, Unknown { code, number }),
            }
        }
    }
    // One cause has no number.
    assert_eq!(known, (15 + 96 + 1) * 5 + 6 * 3 + 1);
    assert!(Eqe::moved().cause().is_err(), "not for consumers");
}

#[test]
fn no_two_causes_share_an_entry() {
    let words: std::collections::HashSet<_> =
        causes(3).iter().map(|c| Eqe::new(*c).words()).collect();
    assert_eq!(words.len(), causes(3).len());
}
