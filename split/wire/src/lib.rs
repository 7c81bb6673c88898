//! Byte formats of channels: cells, and the push-push messages they carry. The contract is that of `verbena-wire`: no function
//! panics, `parse` reads a prefix, and `emit` followed by `parse` returns an equal value.
//!
//! Unlike there, a set reserved bit is an error. Both CRCs of a cell are stored least significant byte first.

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

pub mod cell;
pub mod push;
