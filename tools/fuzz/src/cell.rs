//! Cells of channels, as they are in the input and with valid checksums.
//! A cell that parses must be emitted as the same bytes, every prefix of it must fail to parse, and iterating over cells must terminate.
//! A listener without state must reply with no more bytes than it received.

use verbena_cells::Cookies;
use verbena_split_wire::cell::{
    AddressBlock, CRC_LEN, Cell, Cells, Header, IMMEDIATE_LEN, PortAddress,
};
use verbena_stream::Time;
use verbena_wire::crc::{crc32c, crc32c_wire};
use verbena_wire::number::Qpn;

/// Runs one input.
pub fn target(data: &[u8]) {
    walk(data);
    let sealed = sealed(data);
    walk(&sealed);
    for datagram in [data, &sealed] {
        connect_request(datagram);
    }
}

/// A listener that has issued no cookie: it accepts none as proven, and its reply is no longer than the datagram.
fn connect_request(datagram: &[u8]) {
    let address = |at: usize| {
        let bytes = datagram.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map(|bytes| PortAddress(*bytes)).unwrap_or_default()
    };
    let (here, port) = (address(4), address(10));
    let cookies = Cookies::new([7; 32], Time::ZERO);
    let mut answer = Vec::new();
    let is_old = |listener: Qpn| listener.get() < 3;
    let from = (&b"source"[..], port);
    let asked = cookies.check_requests(from, here, is_old, datagram, Time::ZERO, &mut answer);
    assert!(!asked.proven);
    assert!(answer.len() <= datagram.len());
    for cell in Cells::new(&answer) {
        let cell = cell.expect("an answer of cells");
        assert_eq!((cell.route.from, cell.route.to), (here, port));
    }
    let mut padded = datagram.to_vec();
    verbena_cells::cookie::pad(&mut padded);
    assert!(padded.starts_with(datagram));
}

/// The same bytes as cells of the right version with valid checksums, which mutation alone does not find.
pub fn sealed(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let mut at = 0;
    while let Some(cell) = bytes.get_mut(at..).filter(|rest| rest.len() >= Header::LEN) {
        // There are nine kinds.
        cell[0] = 0x10 | ((cell[0] & 0x0f) % 9);
        let (kind, flags) = (cell[0] & 0x0f, cell[1]);
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
        // Every cut of a short cell, and the last cut of a long one.
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
