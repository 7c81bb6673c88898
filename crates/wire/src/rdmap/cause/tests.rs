//! Every triple of codes has a value and writes back; the tables of the RFCs; the texts.

use super::*;

#[test]
fn every_defined_cause_round_trips() {
    let rdmap = RdmapError::ALL.map(Cause::Rdmap);
    let ddp = DdpError::ALL.map(Cause::Ddp);
    let llp = LlpError::ALL.map(Cause::Llp);
    for cause in rdmap.into_iter().chain(ddp).chain(llp) {
        let (layer, etype, code) = cause.codes();
        assert_eq!(Cause::from_codes(layer, etype, code), cause);
    }
}

#[test]
fn every_code_triple_is_parsed() {
    for (layer, etype) in (0..16).flat_map(|layer| (0..16).map(move |etype| (layer, etype))) {
        for code in 0..=u8::MAX {
            let cause = Cause::from_codes(layer, etype, code);
            let same = cause.codes() == (layer, etype, code);
            let local = cause == Cause::Rdmap(RdmapError::LocalCatastrophic);
            let lower = matches!(cause, Cause::Llp(_)) && etype == 3;
            assert!(same || local || lower, "{cause:?}");
        }
    }
}

#[test]
fn cause_codes_match_the_rfcs() {
    let rdmap = [
        (1, 0x00, RdmapError::InvalidStag),
        (1, 0x01, RdmapError::Bounds),
        (1, 0x02, RdmapError::AccessRights),
        (1, 0x03, RdmapError::StagNotAssociated),
        (1, 0x04, RdmapError::ToWrap),
        (1, 0x09, RdmapError::CannotInvalidateProtection),
        (1, 0xff, RdmapError::UnspecifiedProtection),
        (2, 0x05, RdmapError::InvalidVersion),
        (2, 0x06, RdmapError::UnexpectedOpcode),
        (2, 0x07, RdmapError::CatastrophicStream),
        (2, 0x08, RdmapError::CatastrophicGlobal),
        (2, 0x09, RdmapError::CannotInvalidateOperation),
        (2, 0xff, RdmapError::UnspecifiedOperation),
    ];
    for (etype, code, error) in rdmap {
        assert_eq!(Cause::from_codes(0, etype, code), Cause::Rdmap(error));
    }
    let ddp = [
        (0, 0x00, DdpError::LocalCatastrophic),
        (1, 0x00, DdpError::TaggedInvalidStag),
        (1, 0x01, DdpError::TaggedBounds),
        (1, 0x02, DdpError::TaggedNotAssociated),
        (1, 0x03, DdpError::TaggedToWrap),
        (1, 0x04, DdpError::TaggedVersion),
        (2, 0x01, DdpError::UntaggedQn),
        (2, 0x02, DdpError::UntaggedNoBuffer),
        (2, 0x03, DdpError::UntaggedMsnRange),
        (2, 0x04, DdpError::UntaggedMo),
        (2, 0x05, DdpError::UntaggedTooLong),
        (2, 0x06, DdpError::UntaggedVersion),
    ];
    for (etype, code, error) in ddp {
        assert_eq!(Cause::from_codes(1, etype, code), Cause::Ddp(error));
    }
    let llp = LlpError::ALL.into_iter().zip(1..);
    for (error, code) in llp {
        // RFC 6581 §8 says type 0; hardware that sends 3 means the same.
        assert_eq!(Cause::from_codes(2, 0, code), Cause::Llp(error));
        assert_eq!(Cause::from_codes(2, 3, code), Cause::Llp(error));
        assert_eq!(Cause::Llp(error).codes(), (2, 0, code));
    }
}

#[test]
fn a_local_catastrophe_has_any_code() {
    for code in 0..=u8::MAX {
        let cause = Cause::from_codes(0, 0, code);
        assert_eq!(cause, Cause::Rdmap(RdmapError::LocalCatastrophic));
    }
}

#[test]
fn causes_display_layer_and_error() {
    let says = |layer, etype, code| Cause::from_codes(layer, etype, code).to_string();
    assert_eq!(says(1, 1, 0), "DDP tagged buffer: invalid STag");
    assert_eq!(says(0, 2, 6), "RDMAP remote operation: unexpected opcode");
    assert_eq!(says(2, 0, 2), "MPA: checksum mismatch");
    assert_eq!(says(7, 1, 9), "unknown: layer 7 type 1 code 0x09");
}
