//! Options of an identifier that are set before it is used (`set_option`).
//! Their defaults are those of the original.

/// The options that were set.
#[derive(Default)]
pub(crate) struct Options {
    /// `RDMA_OPTION_ID_REUSEADDR`: others with this option may bind the same address, as long as none of them listens.
    pub(crate) reuse_address: bool,
    /// `RDMA_OPTION_ID_AFONLY`: an IPv6 wildcard does not bind IPv4.
    pub(crate) family_only: bool,
    /// `RDMA_OPTION_ID_ACK_TIMEOUT`: 4.096 µs · 2^n.
    pub(crate) ack_timeout: Option<u8>,
    /// `RDMA_OPTION_ID_TOS`; connections of a listener have the listener's.
    pub(crate) tos: Option<u8>,
}

/// The ACK timeout if the program sets none: 67 ms.
const ACK_TIMEOUT: u8 = 14;

impl Options {
    /// The ACK timeout that the queue pair's attributes show.
    pub(crate) fn timeout(&self) -> u8 {
        self.ack_timeout.unwrap_or(ACK_TIMEOUT)
    }
}
