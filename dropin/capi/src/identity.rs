//! Vendor, part and versions of the adapter, the same in `ibv_query_device` and in sysfs.
//! Public, so that other code that shows the adapter to programs uses the same values.

/// The vendor: an OUI with the bit that marks it as locally administered, which no manufacturer has. Programs that look for the
/// OUI of an adapter they know do not find it.
pub const VENDOR_ID: u32 = 0x02_5642;

/// The number of the only port.
pub const PORT: u8 = 1;

/// The part number: there is one part.
pub const VENDOR_PART_ID: u32 = 1;

/// The firmware version is the crate's.
pub const FW_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The hardware's version: the crate's as one number, a byte each for major, minor and patch.
pub const HW_VERSION: u32 = version(FW_VERSION);

/// `major.minor.patch` as one number.
const fn version(text: &str) -> u32 {
    let (bytes, mut at) = (text.as_bytes(), 0);
    let (mut packed, mut part) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            digit @ b'0'..=b'9' => part = part * 10 + (digit - b'0') as u32,
            b'.' => (packed, part) = ((packed << 8) | part, 0),
            // What follows is the name of a pre-release.
            _ => break,
        }
        at += 1;
    }
    (packed << 8) | part
}

#[cfg(test)]
mod tests {
    //! Versions as one number.

    use super::*;

    #[test]
    fn versions_are_packed_into_bytes() {
        assert_eq!(version("0.1.0"), 0x00_01_00);
        assert_eq!(version("12.34.56"), 0x0c_22_38);
        assert_eq!(version("1.2.3-rc.4"), 0x01_02_03);
    }
}
