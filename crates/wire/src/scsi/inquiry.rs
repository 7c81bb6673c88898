//! The standard answer to INQUIRY (SPC): what kind of device a unit is and who made it. It promises the 36 bytes that
//! every device has; names are bytes, since nobody forces them to be text. The vital product data is in the pages.

use core::fmt;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::coded::coded;
use crate::{Malformed, raw};

const TYPE: u8 = 0x1f;
const QUALIFIER_SHIFT: u32 = 5;
const REMOVABLE: u8 = 0x80;
/// Bytes before those that the additional length counts.
const FRONT: usize = 5;

coded! {
    /// What a unit is, five bits.
    DeviceType: u8 {
        /// A disk of blocks (SBC).
        Disk = 0x00 "disk",
        /// A tape (SSC).
        Tape = 0x01 "tape",
        /// A printer.
        Printer = 0x02 "printer",
        /// A processor.
        Processor = 0x03 "processor",
        /// A disk that is written once.
        WriteOnce = 0x04 "write-once disk",
        /// A drive for CDs and their successors (MMC).
        Optical = 0x05 "optical drive",
        /// A changer of media (SMC).
        Changer = 0x08 "changer",
        /// A controller of an array.
        Array = 0x0c "array controller",
        /// An enclosure.
        Enclosure = 0x0d "enclosure",
        /// A disk with few commands (RBC).
        SimplifiedDisk = 0x0e "simplified disk",
        /// A disk of zones that the host manages (ZBC).
        ZonedDisk = 0x14 "zoned disk",
        /// A unit that everybody knows without asking.
        WellKnown = 0x1e "well-known unit",
        /// No device, or one that does not say.
        None = 0x1f "no device",
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    peripheral: u8,
    removable: u8,
    version: u8,
    format: u8,
    additional: u8,
    flags: [u8; 3],
    vendor: [u8; 8],
    product: [u8; 16],
    revision: [u8; 4],
}

/// Standard INQUIRY data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inquiry {
    /// 0 if the unit is there, 1 if it could be, 3 if it cannot; three bits.
    pub qualifier: u8,
    /// What it is.
    pub device: DeviceType,
    /// The medium can be taken out.
    pub removable: bool,
    /// The version of SPC it keeps to.
    pub version: u8,
    /// Who made it, filled up with spaces.
    pub vendor: [u8; 8],
    /// What it is called, filled up with spaces.
    pub product: [u8; 16],
    /// Which version of it.
    pub revision: [u8; 4],
}

impl Inquiry {
    /// Bytes that every device has.
    pub const LEN: usize = 36;

    /// Reads the data.
    pub fn parse(bytes: &[u8]) -> Result<Inquiry, Malformed> {
        let raw: Raw = raw::prefix("INQUIRY data", bytes)?;
        Ok(Inquiry {
            qualifier: raw.peripheral >> QUALIFIER_SHIFT,
            device: DeviceType::from_code(raw.peripheral & TYPE),
            removable: raw.removable & REMOVABLE != 0,
            version: raw.version,
            vendor: raw.vendor,
            product: raw.product,
            revision: raw.revision,
        })
    }

    /// The 36 bytes, with a length that says so and the response format 2.
    pub fn emit(&self) -> [u8; Inquiry::LEN] {
        zerocopy::transmute!(Raw {
            peripheral: self.qualifier << QUALIFIER_SHIFT | self.device.code() & TYPE,
            removable: if self.removable { REMOVABLE } else { 0 },
            version: self.version,
            format: 2,
            additional: (Inquiry::LEN - FRONT) as u8,
            vendor: self.vendor,
            product: self.product,
            revision: self.revision,
            ..Raw::new_zeroed()
        })
    }

    /// There is a unit behind this number.
    pub const fn is_connected(&self) -> bool {
        self.qualifier == 0
    }
}

impl fmt::Display for Inquiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [vendor, product, revision] =
            [&self.vendor[..], &self.product, &self.revision].map(<[u8]>::trim_ascii);
        write!(
            f,
            "{} {} {} {}{}",
            self.device,
            vendor.escape_ascii(),
            product.escape_ascii(),
            revision.escape_ascii(),
            if self.is_connected() {
                ""
            } else {
                " not-connected"
            }
        )
    }
}
