//! DDP headers, tagged and untagged (RFC 5041 §4), with the RDMAP control byte they carry.
//! A header that parses must be emitted as it came, apart from the bits that the RFCs reserve, and every prefix must be truncated.

use verbena_wire::Malformed;
use verbena_wire::ddp::{Header, MAX_LEN, MIN_LEN, Tagged, Untagged, peek_len};
use verbena_wire::rdmap::{EchoHeader, Opcode};

/// Between L and DV of the DDP control byte (RFC 5041 §4.1).
const DDP_RESERVED: u8 = 0x3c;
/// Between RV and the opcode (RFC 5040 §4.1); Send with Immediate selects its kind with them.
const RDMAP_RESERVED: u8 = 0x30;

/// Runs one input.
pub fn target(data: &[u8]) {
    opcode(data.first().copied().unwrap_or_default());
    let parsed = Header::parse(data);
    let (tagged, untagged) = (Tagged::parse(data), Untagged::parse(data));
    assert!(tagged.is_err() || untagged.is_err(), "of both classes");
    let header = match parsed {
        Ok(header) => header,
        Err(error) => {
            assert!(tagged.is_err() && untagged.is_err());
            return drop(error.to_string());
        }
    };
    assert_eq!(header.is_tagged(), tagged.is_ok());
    assert_eq!(header.len(), peek_len(data[0]));
    let emitted = header.emit();
    assert_eq!(emitted.len(), header.len());
    assert_eq!(Header::parse(&emitted), Ok(header));
    assert_eq!(*emitted, *without_reserved(&header, data));
    for cut in 0..header.len() {
        let need_more = Header::parse(&data[..cut]);
        assert!(matches!(need_more, Err(Malformed::Truncated { .. })));
    }
    let echo = EchoHeader::copy_from(data).expect("all there");
    assert_eq!(echo.parse(), Ok(header));
    assert_eq!(EchoHeader::from(header).parse(), Ok(header));
    let _ = (header.to_string(), emitted.to_string(), echo.to_string());
}

fn without_reserved(header: &Header, data: &[u8]) -> Vec<u8> {
    assert!((MIN_LEN..=MAX_LEN).contains(&header.len()));
    let mut bytes = data[..header.len()].to_vec();
    bytes[0] &= !DDP_RESERVED;
    if !matches!(header.opcode(), Opcode::SendImm { .. }) {
        bytes[1] &= !RDMAP_RESERVED;
    }
    bytes
}

fn opcode(byte: u8) {
    let Ok(opcode) = Opcode::parse(byte) else {
        return;
    };
    assert_eq!(Opcode::parse(opcode.emit()), Ok(opcode));
    assert_eq!(opcode.code(), byte & 0x0f);
    assert_eq!(opcode.tagged(), opcode.qn().is_none());
    assert!(Opcode::ALL.contains(&opcode));
}
