//! Logical unit numbers, eight bytes of up to four levels. Numbers of one level (peripheral addressing on bus 0, and flat
//! addressing) are decoded; every other form is kept as bytes.

use core::fmt;

/// The address method in the top two bits of the first byte: 0 is peripheral, 1 is flat.
const METHOD_SHIFT: u32 = 62;
const NUMBER_SHIFT: u32 = 48;
const FLAT: u64 = 1;
/// One past the largest number of either method.
const PERIPHERAL_END: u64 = 1 << 8;
const FLAT_END: u64 = 1 << 14;

/// A logical unit number in its encoded form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Lun(u64);

impl Lun {
    /// The unit with this number: below 256 by peripheral, below 16384 by flat addressing; `None` above.
    pub const fn new(number: u16) -> Option<Lun> {
        let number = number as u64;
        if number < PERIPHERAL_END {
            Some(Lun(number << NUMBER_SHIFT))
        } else if number < FLAT_END {
            Some(Lun(FLAT << METHOD_SHIFT | number << NUMBER_SHIFT))
        } else {
            None
        }
    }

    /// The number with this encoding, of any form.
    pub const fn from_bytes(bytes: [u8; 8]) -> Lun {
        Lun(u64::from_be_bytes(bytes))
    }

    /// The encoded form.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// The number of a unit of one level; `None` for every other form. A flat address below 256 is a number too, though
    /// [`new`](Lun::new) writes it otherwise.
    pub const fn number(self) -> Option<u16> {
        let below = self.0 & ((1 << NUMBER_SHIFT) - 1);
        let number = self.0 >> NUMBER_SHIFT & (FLAT_END - 1);
        match self.0 >> METHOD_SHIFT {
            0 if below == 0 && number < PERIPHERAL_END => Some(number as u16),
            FLAT if below == 0 => Some(number as u16),
            _ => None,
        }
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => write!(f, "{number}"),
            None => write!(f, "{:#018x}", self.0),
        }
    }
}
