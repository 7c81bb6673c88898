//! Standard INQUIRY data (SPC): type, vendor and product of a unit. `parse` requires the 36 bytes that every device
//! returns; names are bytes, since devices may put anything there. Vital product data is in the other files.

use core::fmt;

use verbena_wire::{Malformed, raw};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::coded::coded;

const TYPE: u8 = 0x1f;
const QUALIFIER_SHIFT: u32 = 5;
const REMOVABLE: u8 = 0x80;
/// Bytes up to and including the additional length, which it does not count.
const HEADER_LEN: usize = 5;

coded! {
    /// Peripheral device type, five bits.
    DeviceType: u8 {
        /// A disk of blocks (SBC).
        Disk = 0x00 "disk",
        /// A tape (SSC).
        Tape = 0x01 "tape",
        /// A printer.
        Printer = 0x02 "printer",
        /// A processor.
        Processor = 0x03 "processor",
        /// A write-once disk.
        WriteOnce = 0x04 "write-once disk",
        /// A CD, DVD or Blu-ray drive (MMC).
        Optical = 0x05 "optical drive",
        /// A media changer (SMC).
        Changer = 0x08 "changer",
        /// A storage array controller.
        Array = 0x0c "array controller",
        /// An enclosure.
        Enclosure = 0x0d "enclosure",
        /// A disk with a reduced command set (RBC).
        SimplifiedDisk = 0x0e "simplified disk",
        /// A host-managed zoned disk (ZBC).
        ZonedDisk = 0x14 "zoned disk",
        /// A well-known logical unit.
        WellKnown = 0x1e "well-known unit",
        /// No device, or one of unknown type.
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
    /// Peripheral qualifier: 0 if the unit is connected, 1 if it is supported and not connected, 3 if not supported; three bits.
    pub qualifier: u8,
    /// Peripheral device type.
    pub device: DeviceType,
    /// The medium is removable.
    pub removable: bool,
    /// The version of SPC that it claims.
    pub version: u8,
    /// Vendor, padded with spaces.
    pub vendor: [u8; 8],
    /// Product, padded with spaces.
    pub product: [u8; 16],
    /// Product revision.
    pub revision: [u8; 4],
}

impl Inquiry {
    /// Bytes that every device returns.
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

    /// The 36 bytes, with the matching additional length and response format 2.
    pub fn emit(&self) -> [u8; Inquiry::LEN] {
        zerocopy::transmute!(Raw {
            peripheral: self.qualifier << QUALIFIER_SHIFT | self.device.code() & TYPE,
            removable: if self.removable { REMOVABLE } else { 0 },
            version: self.version,
            format: 2,
            additional: (Inquiry::LEN - HEADER_LEN) as u8,
            vendor: self.vendor,
            product: self.product,
            revision: self.revision,
            ..Raw::new_zeroed()
        })
    }

    /// Whether there is a unit with this number.
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
