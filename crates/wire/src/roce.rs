//! The part of RoCEv2 that UD queue pairs use: unreliable datagrams over UDP in the format of
//! hardware adapters. Each file is one header, or the checksum; the reliable services of RoCEv2 are
//! not implemented.

pub mod bth;
pub mod deth;
pub mod icrc;
pub mod ud;

pub use crate::number::{Psn, Qpn};
pub use bth::Bth;
pub use deth::Deth;
pub use icrc::{ICRC_LEN, Path, crc32_ieee, icrc, icrc_over_socket};
pub use ud::UdPacket;
