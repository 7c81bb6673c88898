//! A connection request over cells whose source address may be any: its sender has no cookie of the unit.

use verbena_split::Arrangement;
use verbena_split::hello::Hello;
use verbena_split::lane::Lane;
use verbena_wire::crc::{crc32c, crc32c_wire};

/// Listeners for acknowledged channels of hosts with support for cookies, and without.
pub(crate) const LISTENER: u32 = 3;
pub(crate) const OLD_LISTENER: u32 = 1;

/// A connection request, byte by byte as in docs/cells.md, without a cookie.
pub(crate) fn connect(listener: u32, service: u32) -> Vec<u8> {
    let hello = Hello {
        service: u64::from(service),
        arrangement: Arrangement::Single,
        channel: 0,
        lane: Lane::ONLY,
        kinds: None,
        data_pair: None,
        name: "x".to_owned(),
    };
    let private = hello.to_bytes();
    let mut cell = vec![0x14, 0x18];
    cell.extend((4 + private.len() as u16).to_be_bytes());
    cell.extend([0xff; 6]);
    cell.extend([2, 7]);
    cell.extend(service.to_be_bytes());
    cell.extend(listener.to_be_bytes());
    cell.extend(20_u32.to_be_bytes());
    cell.extend(service.to_be_bytes());
    cell.extend([0; 4]);
    cell.extend([1, 0, 0, 0]);
    cell.extend(private);
    let crc = crc32c(&cell);
    cell.extend(crc32c_wire(crc));
    assert_eq!(cell.len(), 57);
    cell
}
