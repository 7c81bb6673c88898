//! The transfer indication in the immediate data of an RDMA write (P7): 8 bits of pool, 8 of element, 16 of length. A transfer
//! that does not fit all three fields has no indication and is announced by a BufferRDMAIndicate message; nothing is truncated.

use core::fmt;

/// Which element of which pool was written, and how many bytes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Indication {
    /// The pool.
    pub pool: u8,
    /// The element in it.
    pub element: u8,
    /// Bytes stored there.
    pub length: u16,
}

impl Indication {
    /// The indication of this transfer; `None` if it needs a BufferRDMAIndicate instead.
    pub fn fit(pool: u32, element: u32, length: u32) -> Option<Indication> {
        Some(Indication {
            pool: u8::try_from(pool).ok()?,
            element: u8::try_from(element).ok()?,
            length: u16::try_from(length).ok()?,
        })
    }

    /// Reads immediate data; every value is an indication.
    pub const fn from_immediate(word: u32) -> Indication {
        let [pool, element, high, low] = word.to_be_bytes();
        Indication {
            pool,
            element,
            length: u16::from_be_bytes([high, low]),
        }
    }

    /// The immediate data.
    pub const fn immediate(self) -> u32 {
        let [high, low] = self.length.to_be_bytes();
        u32::from_be_bytes([self.pool, self.element, high, low])
    }
}

impl fmt::Display for Indication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Indication {
            pool,
            element,
            length,
        } = self;
        write!(f, "pool={pool} element={element} length={length}")
    }
}
