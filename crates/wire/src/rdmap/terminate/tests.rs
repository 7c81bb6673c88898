//! Terminate messages in both layouts: the bits, the codes that are defined in both, and every
//! length at which a message can be cut.

use proptest::prelude::*;

use super::*;
use crate::rdmap::cause::{DdpError, LlpError, RdmapError};
use crate::testing::{hex, ignores_bits, refuses_every_prefix};
use crate::{Stag, To};

const PHASES: [Phase; 2] = [Phase::Startup, Phase::Running];

fn running(bytes: &[u8]) -> Result<(Terminate, Dialect), Malformed> {
    Terminate::parse(bytes, Phase::Running)
}

fn emitted(terminate: &Terminate, dialect: Dialect) -> Vec<u8> {
    let mut out = Vec::new();
    terminate.emit(dialect, &mut out);
    out
}

fn request() -> ReadRequest {
    ReadRequest {
        sink_stag: Stag::new(1),
        sink_to: To::new(2),
        size: 3,
        source_stag: Stag::new(4),
        source_to: To::new(5),
    }
}

fn tagged() -> EchoHeader {
    EchoHeader::copy_from(&hex("c140 0badf00d 0000000000001000")).expect("fourteen bytes")
}

fn untagged() -> EchoHeader {
    EchoHeader::copy_from(&hex("4141 00000000 00000001 00000005 00000000")).expect("eighteen")
}

fn echo(header: Option<EchoHeader>, read_request: Option<ReadRequest>) -> Option<Echo> {
    Some(Echo {
        segment_len: 46,
        header,
        read_request,
    })
}

/// Every combination of parts that a message can have.
fn shapes(cause: Cause) -> Vec<Terminate> {
    let mut segments = vec![None, echo(None, None)];
    for header in [tagged(), untagged()] {
        segments.push(echo(Some(header), None));
        segments.push(echo(Some(header), Some(request())));
    }
    let with = |segment| Terminate { cause, segment };
    segments.into_iter().map(with).collect()
}

#[test]
fn control_words_match_both_dialects() {
    let ddp = |error| Cause::Ddp(error);
    let none = (None, None);
    let rows = [
        (Cause::Llp(LlpError::Crc), none, "20020000", "02020000"),
        (
            ddp(DdpError::UntaggedNoBuffer),
            (Some(untagged()), None),
            "1202c000",
            "21020300",
        ),
        (
            Cause::Rdmap(RdmapError::AccessRights),
            (Some(untagged()), Some(request())),
            "0102e000",
            "10020700",
        ),
        (
            ddp(DdpError::TaggedInvalidStag),
            (Some(tagged()), None),
            "1100c000",
            "11000300",
        ),
    ];
    for (cause, (header, read_request), rfc, siw) in rows {
        let segment = header.and_then(|header| echo(Some(header), read_request));
        let terminate = Terminate { cause, segment };
        for (dialect, word) in [(Dialect::Rfc, rfc), (Dialect::Siw, siw)] {
            let bytes = emitted(&terminate, dialect);
            assert_eq!(bytes[..4], hex(word));
            for phase in PHASES {
                assert_eq!(Terminate::parse(&bytes, phase), Ok((terminate, dialect)));
            }
        }
    }
}

#[test]
fn ambiguous_codes_are_settled_by_phase() {
    let read = |word: &str, phase| {
        let (terminate, dialect) = Terminate::parse(&hex(word), phase).expect("four bytes");
        (terminate.cause, dialect)
    };
    let pairs = [
        (5, LlpError::LocalCatastrophic, RdmapError::InvalidVersion),
        (6, LlpError::InsufficientIrd, RdmapError::UnexpectedOpcode),
        (7, LlpError::NoMatchingRtr, RdmapError::CatastrophicStream),
    ];
    for (code, llp, rdmap) in pairs {
        let (llp, rdmap) = (Cause::Llp(llp), Cause::Rdmap(rdmap));
        let (high, low) = (format!("20{code:02x}0000"), format!("02{code:02x}0000"));
        assert_eq!(read(&high, Phase::Startup), (llp, Dialect::Rfc));
        assert_eq!(read(&high, Phase::Running), (rdmap, Dialect::Siw));
        assert_eq!(read(&low, Phase::Startup), (llp, Dialect::Siw));
        assert_eq!(read(&low, Phase::Running), (rdmap, Dialect::Rfc));
    }
}

#[test]
fn unambiguous_codes_need_no_phase() {
    let cases = [
        // siw's checksum error: RDMAP has no operation error 2.
        ("02020000", Cause::Llp(LlpError::Crc), Dialect::Siw),
        // siw's "no buffer" without headers: MPA has no type 1.
        (
            "21020000",
            Cause::Ddp(DdpError::UntaggedNoBuffer),
            Dialect::Siw,
        ),
        // siw's "cannot invalidate": MPA has no code 9.
        (
            "20090000",
            Cause::Rdmap(RdmapError::CannotInvalidateOperation),
            Dialect::Siw,
        ),
        // Hardware that sends MPA errors under type 3.
        ("23020000", Cause::Llp(LlpError::Crc), Dialect::Rfc),
        // The same nibbles swapped are undefined, since siw does not use type 3.
        (
            "32020000",
            Cause::Unknown {
                layer: 3,
                etype: 2,
                code: 2,
            },
            Dialect::Rfc,
        ),
        // Both readings are defined and neither is an MPA error: the RFC's is taken.
        (
            "01000000",
            Cause::Rdmap(RdmapError::InvalidStag),
            Dialect::Rfc,
        ),
        (
            "10000000",
            Cause::Ddp(DdpError::LocalCatastrophic),
            Dialect::Rfc,
        ),
    ];
    for (word, cause, dialect) in cases {
        for phase in PHASES {
            let want = Terminate {
                cause,
                segment: None,
            };
            assert_eq!(
                Terminate::parse(&hex(word), phase),
                Ok((want, dialect)),
                "{word}"
            );
        }
    }
}

#[test]
fn every_shape_round_trips_and_refuses_prefixes() {
    for terminate in shapes(Cause::Ddp(DdpError::TaggedBounds)) {
        for dialect in [Dialect::Rfc, Dialect::Siw] {
            let bytes = emitted(&terminate, dialect);
            assert!(bytes.len() <= Terminate::MAX_LEN);
            let (got, _) = running(&bytes).expect("what was emitted");
            assert_eq!(got, terminate);
            refuses_every_prefix(&bytes, running);
            let mut longer = bytes.clone();
            longer.extend_from_slice(&[0xff; 40]);
            assert_eq!(running(&longer), running(&bytes));
        }
    }
    let longest = shapes(Cause::Llp(LlpError::Crc))
        .pop()
        .expect("some shapes");
    assert_eq!(emitted(&longest, Dialect::Rfc).len(), Terminate::MAX_LEN);
}

#[test]
fn truncated_message_reports_announced_length() {
    let bytes = hex("1100c000 0016 c140");
    assert_eq!(
        running(&bytes),
        Err(Malformed::TerminateTruncated { need: 20, got: 8 })
    );
    let bytes = hex("1100c000 0016 4141");
    assert_eq!(
        running(&bytes),
        Err(Malformed::TerminateTruncated { need: 24, got: 8 })
    );
}

#[test]
fn reserved_bits_are_ignored() {
    let terminate = Terminate {
        cause: Cause::Ddp(DdpError::TaggedBounds),
        segment: echo(Some(tagged()), None),
    };
    let rfc = emitted(&terminate, Dialect::Rfc);
    ignores_bits(&rfc, &[(2, 0x1f), (3, 0xff)], running);
    let siw = emitted(&terminate, Dialect::Siw);
    ignores_bits(&siw, &[(2, 0x18), (3, 0xff)], running);
}

#[test]
fn either_bit_implies_the_length_field() {
    for (word, header) in [("11008000", None), ("11004000", Some(tagged()))] {
        let mut bytes = hex(word);
        bytes.extend_from_slice(&46u16.to_be_bytes());
        bytes.extend_from_slice(&hex("c140 0badf00d 0000000000001000"));
        let (got, _) = running(&bytes).expect("all there");
        assert_eq!(got.segment, echo(header, None));
    }
}

#[test]
fn read_request_needs_its_ddp_header() {
    let (got, _) = running(&hex("11002000")).expect("only the control word is announced");
    assert_eq!(got.segment, None);
    let lone = Terminate {
        cause: got.cause,
        segment: echo(None, Some(request())),
    };
    assert_eq!(emitted(&lone, Dialect::Rfc), hex("11008000 002e"));
}

#[test]
fn malformed_returned_header_is_kept() {
    // DDP version 3 in the returned header: kept as bytes, an error only when parsed.
    let bytes = hex("1104c000 0016 c340 0badf00d 0000000000001000");
    let (got, _) = running(&bytes).expect("a sound message");
    let header = got.segment.and_then(|echo| echo.header).expect("a header");
    assert_eq!(header.bytes(), &bytes[6..]);
    let (tagged, version) = (true, 3);
    assert_eq!(
        header.parse(),
        Err(Malformed::DdpVersion {
            tagged,
            got: version
        })
    );
    assert_eq!(emitted(&got, Dialect::Rfc), bytes);
}

#[test]
fn headers_are_copied_by_their_class() {
    for header in [tagged(), untagged()] {
        let parsed = header.parse().expect("sound");
        assert_eq!(EchoHeader::from(parsed), header);
        assert_eq!(header.bytes().len(), parsed.len());
        for cut in 0..header.bytes().len() {
            assert_eq!(EchoHeader::copy_from(&header.bytes()[..cut]), None);
        }
    }
}

#[test]
fn prints_one_line() {
    let terminate = Terminate {
        cause: Cause::Ddp(DdpError::TaggedInvalidStag),
        segment: echo(Some(tagged()), None),
    };
    assert_eq!(
        terminate.to_string(),
        "Terminate DDP tagged buffer: invalid STag segment_len=46 \
         [Write stag=0x0badf00d to=0x1000 last]"
    );
}

proptest! {
    #[test]
    fn round_trip_with_headers(
        codes in (0u8..16, 0u8..16, any::<u8>()),
        segment_len: u16,
        shape in 0usize..5,
        siw: bool,
    ) {
        let (layer, etype, code) = codes;
        let cause = Cause::from_codes(layer, etype, code);
        let mut terminate = shapes(cause)[shape + 1];
        terminate.segment.as_mut().expect("a segment").segment_len = segment_len;
        let dialect = if siw { Dialect::Siw } else { Dialect::Rfc };
        let bytes = emitted(&terminate, dialect);
        prop_assert_eq!(running(&bytes), Ok((terminate, dialect)));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        for phase in PHASES {
            if let Ok((terminate, dialect)) = Terminate::parse(&bytes, phase) {
                let again = Terminate::parse(&emitted(&terminate, dialect), phase);
                prop_assert_eq!(again.map(|(terminate, _)| terminate.segment), Ok(terminate.segment));
            }
        }
    }
}
