//! Cells of channels, as they came and with checksums that hold.
//! What parses must be written back as the same bytes, every prefix must be refused, and a walk must come to an end.
//! It refuses to know channels.

use verbena_wire::cell::{AddressBlock, CRC_LEN, Cell, Cells, Header, IMMEDIATE_LEN};
use verbena_wire::crc::{crc32c, crc32c_wire};

/// Runs one input.
pub fn target(data: &[u8]) {
    walk(data);
    walk(&sealed(data));
}

/// The same bytes as cells of the right version whose checksums hold: a fuzzer never finds one by itself.
pub fn sealed(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let mut at = 0;
    while let Some(cell) = bytes.get_mut(at..).filter(|rest| rest.len() >= Header::LEN) {
        cell[0] = 0x10 | cell[0] & 7;
        let (kind, flags) = (cell[0] & 7, cell[1]);
        let payload = usize::from(u16::from_be_bytes([cell[2], cell[3]]));
        let optional = [
            (kind == 1 && flags & 1 != 0, AddressBlock::LEN),
            (flags & 2 != 0, CRC_LEN),
            (flags & 4 != 0, IMMEDIATE_LEN),
        ];
        let around: usize = optional
            .iter()
            .filter(|(is, _)| *is)
            .map(|(_, len)| len)
            .sum();
        let summed = Header::LEN + around + payload;
        let Some((front, crc)) = cell.split_at_mut_checked(summed) else {
            break;
        };
        let Some(crc) = crc.first_chunk_mut::<CRC_LEN>() else {
            break;
        };
        *crc = crc32c_wire(crc32c(front));
        at += summed + CRC_LEN;
    }
    bytes
}

fn walk(data: &[u8]) {
    let mut rest = data;
    while let Ok((cell, len)) = Cell::parse(rest) {
        let (came, behind) = rest.split_at(len);
        let mut out = Vec::new();
        cell.emit(&mut out);
        assert_eq!(out, came, "{cell}");
        assert_eq!(cell.len(), len);
        // Every cut of a short cell, and one of a long one.
        let cuts = if len < 100 { 0 } else { len - 1 };
        for cut in cuts..len {
            assert!(Cell::parse(&came[..cut]).is_err());
        }
        rest = behind;
    }
    let cells = Cells::new(data);
    assert!(cells.count() <= data.len() / (Header::LEN + CRC_LEN) + 1);
    if let Err(error) = Cell::parse(rest) {
        let _ = error.to_string();
    }
}
