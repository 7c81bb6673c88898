//! The digests that both sides of an iSCSI connection agreed on at login. They apply from the full feature phase on; whether a
//! digest is correct is checked by the decoder.

use core::fmt;

/// The digests of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digests {
    /// After headers.
    pub header: bool,
    /// After data.
    pub data: bool,
}

impl fmt::Display for Digests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.header, self.data) {
            (false, false) => "none",
            (true, false) => "of headers",
            (false, true) => "of data",
            (true, true) => "of headers and data",
        })
    }
}
