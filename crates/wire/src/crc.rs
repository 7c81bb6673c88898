//! CRC-32C (Castagnoli) over one slice or several: the checksum of FPDUs (RFC 5044 §4.4), of cells and
//! of iSCSI digests (RFC 7143 §13.1).
//! The callers decide which bytes it covers and whether it is in use.

use core::fmt;

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

#[cfg(test)]
mod tests;

/// CRC-32C of one run of bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// The four bytes that stand on the wire: least significant first, unlike every other field
/// (RFC 5044 §4.4 and the byte order of its figures).
pub const fn crc32c_wire(crc: u32) -> [u8; 4] {
    crc.to_le_bytes()
}

/// CRC-32C of bytes that arrive in pieces.
#[derive(Clone)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// The state before the first byte.
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds the next piece to the checksum.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all pieces.
    pub fn finish(self) -> u32 {
        // `Digest` returns 64 bits for every algorithm; a 32-bit checksum is the lower half.
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Crc32c {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Crc32c({:#010x})", self.0.finalize() as u32)
    }
}
