//! Byte formats: MPA, DDP and RDMAP as the RFCs define them, Verbena's own extensions, and the RoCEv2
//! datagrams of unreliable queue pairs. Each header is one file with a `parse` that turns bytes into
//! a validated value and an `emit` that writes the value back. The crate keeps no connection state
//! and does no I/O. `verbena-split-wire` and `verbena-storage-wire` keep the same contract for cells
//! and push-push messages, and for iSCSI.
//!
//! # Contract
//!
//! * No function panics, for any bytes and any values. A `parse` that rejects its input returns an
//!   error that names the problem and the numbers involved.
//! * `parse` reads a prefix of its input and ignores what lies behind, unless its documentation
//!   says that the length must match exactly.
//! * `emit` followed by `parse` returns an equal value, provided the value is one that `parse`
//!   can return; where a public field is wider than its place on the wire, the surplus bits are
//!   not sent. The other direction also holds for bytes sent by a conforming peer; reserved bits
//!   are ignored on receive and sent as zero. Terminate documents its two exceptions: error codes
//!   that decode to the same value, and the layout of a message without returned headers.
//! * Integers are big-endian on the wire. The exceptions are checksums: the CRC field of an FPDU and
//!   the ICRC of a RoCEv2 packet are stored least significant byte first.
//! * `Display` prints one line for logs.
//!
//! # Reading order
//!
//! [`number`] for the types of the fields, [`mpa`] for framing, [`ddp`] for segments, [`rdmap`] for
//! messages, then [`ext`] and [`roce`].

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod crc;
pub mod ddp;
pub mod ext;
pub mod malformed;
pub mod mpa;
pub mod number;
pub mod raw;
pub mod rdmap;
pub mod roce;

#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "assertions of tests"
)]
pub mod testing;

pub use malformed::Malformed;
pub use number::{Mo, Msn, Psn, Qn, Qpn, Rsn, Srqn, Stag, To};
