//! Direct data placement segments (RFC 5041): the tagged and the untagged header, and the choice
//! between them by the T bit. Parsing checks only what the header's own bytes show, not whether a
//! buffer, queue or sequence number exists.

pub mod header;
pub mod tagged;
pub mod untagged;

pub use header::{Header, HeaderBytes, MAX_LEN, MIN_LEN, peek_len};
pub use tagged::Tagged;
pub use untagged::Untagged;

/// T: the segment is tagged.
const TAGGED: u8 = 0x80;
/// L: the segment is the last of its message.
const LAST: u8 = 0x40;
/// DV: the version, which is 1.
const VERSION_MASK: u8 = 0x03;
const VERSION: u8 = 1;

/// The DDP control byte. The bits between L and DV are reserved and sent as zero.
const fn control(tagged: bool, last: bool) -> u8 {
    let class = if tagged { TAGGED } else { 0 };
    let end = if last { LAST } else { 0 };
    class | end | VERSION
}

/// Checks class and version of a control byte and returns whether L is set.
fn check_control(byte: u8, expected_tagged: bool) -> Result<bool, crate::Malformed> {
    if (byte & TAGGED != 0) != expected_tagged {
        return Err(crate::Malformed::DdpClass { expected_tagged });
    }
    // RFC 5041 §7: any other version is an error; reserved bits are not looked at (§4.1).
    let got = byte & VERSION_MASK;
    if got != VERSION {
        let tagged = expected_tagged;
        return Err(crate::Malformed::DdpVersion { tagged, got });
    }
    Ok(byte & LAST != 0)
}
