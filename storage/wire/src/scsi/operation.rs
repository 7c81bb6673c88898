//! Operation codes: their names, and which of them a type of device may have (M12: "opcode valid for the device type").
//! The tables are from the SCSI standards; vendor-specific codes, 0xc0 and above, are valid for no type. A unit may support
//! fewer.

use super::DeviceType;

/// A bit per operation code, since every command of an initiator is looked up. Codes from 0x80 on are in the second half.
struct Set(u128, u128);

impl Set {
    const fn of(mut codes: &[u8]) -> Set {
        let mut all = Set(0, 0);
        while let [code, rest @ ..] = codes {
            all = all.with(&Set::one(*code));
            codes = rest;
        }
        all
    }

    const fn one(code: u8) -> Set {
        let bit = 1 << (code & 0x7f);
        if code < 0x80 {
            Set(bit, 0)
        } else {
            Set(0, bit)
        }
    }

    const fn with(&self, other: &Set) -> Set {
        Set(self.0 | other.0, self.1 | other.1)
    }

    const fn has(&self, code: u8) -> bool {
        let one = Set::one(code);
        self.0 & one.0 | self.1 & one.1 != 0
    }
}

/// SPC: commands that every type of device may have.
const COMMON: Set = Set::of(&[
    0x00, 0x03, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x1c, 0x1d, 0x3b, 0x3c, 0x4c, 0x4d, 0x55, 0x56, 0x57,
    0x5a, 0x5e, 0x5f, 0x83, 0x84, 0x86, 0x87, 0x8c, 0x8d, 0x9b, 0xa0, 0xa2, 0xa3, 0xa4, 0xb5,
]);

/// SBC, and the ATA commands that SAT carries.
const DISK: Set = Set::of(&[
    0x04, 0x07, 0x08, 0x0a, 0x1b, 0x1e, 0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x37, 0x3e, 0x3f,
    0x41, 0x42, 0x48, 0x50, 0x51, 0x53, 0x7f, 0x85, 0x88, 0x89, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91,
    0x93, 0x9a, 0x9c, 0x9d, 0x9e, 0x9f, 0xa1, 0xa8, 0xaa, 0xae, 0xaf, 0xb7,
]);

/// ZBC: the commands of a disk and two more.
const ZONED: Set = DISK.with(&Set::of(&[0x94, 0x95]));

/// SSC.
const TAPE: Set = Set::of(&[
    0x01, 0x04, 0x05, 0x08, 0x0a, 0x0b, 0x0f, 0x10, 0x11, 0x13, 0x14, 0x19, 0x1b, 0x1e, 0x2b, 0x34,
    0x44, 0x80, 0x81, 0x82, 0x88, 0x8a, 0x8f, 0x91, 0x92, 0x93,
]);

/// MMC.
const OPTICAL: Set = Set::of(&[
    0x04, 0x1b, 0x1e, 0x23, 0x25, 0x28, 0x2a, 0x2b, 0x2e, 0x2f, 0x35, 0x42, 0x43, 0x46, 0x4a, 0x51,
    0x52, 0x53, 0x54, 0x58, 0x5b, 0x5c, 0x5d, 0xa1, 0xa6, 0xa8, 0xaa, 0xac, 0xad, 0xb6, 0xb9, 0xbb,
    0xbe, 0xbf,
]);

/// SMC.
const CHANGER: Set = Set::of(&[0x07, 0x1b, 0x1e, 0x2b, 0x37, 0xa5, 0xa6, 0xb6, 0xb8]);

/// RBC.
const SIMPLIFIED: Set = Set::of(&[0x04, 0x1b, 0x1e, 0x25, 0x28, 0x2a, 0x2f, 0x35]);

/// Whether a device of this type may have the operation (M12). Types without a table have the common ones.
pub fn is_valid_for(device: DeviceType, opcode: u8) -> bool {
    let own = match device {
        DeviceType::Disk => &DISK,
        DeviceType::ZonedDisk => &ZONED,
        DeviceType::Tape => &TAPE,
        DeviceType::Optical => &OPTICAL,
        DeviceType::Changer => &CHANGER,
        DeviceType::SimplifiedDisk => &SIMPLIFIED,
        _ => &COMMON,
    };
    own.has(opcode) || COMMON.has(opcode)
}

/// The name of an operation, for those this crate can build.
pub const fn name(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        0x00 => "TEST UNIT READY",
        0x03 => "REQUEST SENSE",
        0x12 => "INQUIRY",
        0x1a => "MODE SENSE(6)",
        0x25 => "READ CAPACITY(10)",
        0x28 => "READ(10)",
        0x2a => "WRITE(10)",
        0x35 => "SYNCHRONIZE CACHE(10)",
        0x42 => "UNMAP",
        0x88 => "READ(16)",
        0x8a => "WRITE(16)",
        0x91 => "SYNCHRONIZE CACHE(16)",
        0x93 => "WRITE SAME(16)",
        // Other service actions share the code.
        0x9e => "SERVICE ACTION IN(16)",
        0xa0 => "REPORT LUNS",
        _ => return None,
    })
}
