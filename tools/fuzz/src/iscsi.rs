//! iSCSI headers with the text behind them, and iSER headers.
//! A header that parses must be emitted so that it parses as the same, with the same lengths; so must text pairs and binary values.

use verbena_storage_wire::iscsi::text::{self, Pairs};
use verbena_storage_wire::iscsi::{
    BHS_LEN, Bhs, FromInitiator, FromTarget, Lengths, Lun, Opcode, Reject, ScsiResponse, pad,
};
use verbena_storage_wire::iser::{IserMessage, PrivateData};

/// Runs one input: a header and its data segment.
pub fn target(data: &[u8]) {
    if let Some((bhs, behind)) = data.split_first_chunk::<BHS_LEN>() {
        header(bhs);
        segment(behind);
    }
    segment(data);
    if let Ok(opening) = IserMessage::parse(data) {
        assert_eq!(
            IserMessage::parse(&opening.emit()),
            Ok(opening),
            "{opening}"
        );
    }
    if let Ok(private) = PrivateData::parse(data) {
        assert_eq!(PrivateData::parse(&private.emit()), Ok(private));
    }
}

fn header(bhs: &Bhs) {
    let lengths = Lengths::of(bhs);
    let total = lengths.total(true, true);
    assert!(total >= BHS_LEN && total.is_multiple_of(4) && pad(lengths.data) < 4);
    let ours = FromInitiator::parse(bhs);
    let theirs = FromTarget::parse(bhs);
    assert!(ours.is_err() || theirs.is_err(), "both sides send it");
    if let Ok(pdu) = ours {
        let again = pdu.emit();
        assert_eq!(FromInitiator::parse(&again), Ok(pdu), "{pdu}");
        assert_eq!(Lengths::of(&again), lengths, "{pdu}");
        assert!(!pdu.opcode().is_from_target());
        assert_eq!(Opcode::of(bhs), Some(pdu.opcode()));
    }
    if let Ok(pdu) = theirs {
        let again = pdu.emit();
        assert_eq!(FromTarget::parse(&again), Ok(pdu), "{pdu}");
        assert_eq!(Lengths::of(&again), lengths, "{pdu}");
        assert!(pdu.opcode().is_from_target());
        assert_eq!(Opcode::of(bhs), Some(pdu.opcode()));
    }
    for error in [ours.err(), theirs.err()].into_iter().flatten() {
        assert!(!error.to_string().is_empty());
    }
    let lun = bhs[8..16].try_into().map(Lun::from_bytes);
    if let Some(number) = lun.ok().and_then(Lun::number) {
        assert_eq!(Lun::new(number).and_then(Lun::number), Some(number));
    }
}

/// The data behind a header: text, sense data, or a header that was rejected.
fn segment(data: &[u8]) {
    if let Ok(sense) = ScsiResponse::sense(data) {
        assert!(sense.len() <= data.len());
    }
    if let Ok(rejected) = Reject::header(data) {
        assert!(data.starts_with(rejected));
    }
    let mut again = Vec::new();
    let mut read = Vec::new();
    for pair in Pairs::new(data) {
        let Ok((key, value)) = pair else {
            break;
        };
        text::push(&mut again, key, value);
        read.push((key, value));
        if let Ok(number) = text::number(value) {
            assert_eq!(text::number(&number.to_string()), Ok(number));
            assert_eq!(text::number(&format!("{number:#x}")), Ok(number));
        }
        if let Ok(bytes) = text::binary(value) {
            assert_eq!(text::binary(&text::hex(&bytes)).as_ref(), Ok(&bytes));
            assert_eq!(text::binary(&text::base64(&bytes)).as_ref(), Ok(&bytes));
        }
        if let Ok(yes) = text::yes_no(value) {
            assert_eq!(text::from_bool(yes), value);
        }
    }
    let pairs: Result<Vec<_>, _> = Pairs::new(&again).collect();
    assert_eq!(pairs, Ok(read));
}
