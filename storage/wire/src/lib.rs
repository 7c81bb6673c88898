//! Byte formats of storage: iSCSI, iSER and the SCSI data they carry. The contract is that of `verbena-wire`: no function panics,
//! `parse` reads a prefix, and `emit` followed by `parse` returns an equal value.
//!
//! Sense data and the pages of SCSI are read in every form and written in one, or not at all. An iSCSI header announces what follows
//! it; [`iscsi::Lengths`] reads that from any header, also from one that `parse` rejects, and no length is trusted beyond the bytes
//! that are there. The digests are stored least significant byte first.
//!
//! Reading order: [`iscsi`] for the headers and [`iscsi::text`] for the login, [`scsi`] for what commands carry, [`iser`] for the
//! header in front of both on an RDMA connection.

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

mod coded;
pub mod iscsi;
pub mod iser;
pub mod scsi;
