//! The part of RoCEv2 that Verbena speaks itself: unreliable datagrams over UDP, so that UD queue
//! pairs look on the wire like anybody's. Each file promises one header, or the checksum, in both
//! directions. Connections and reliability never use these formats here.

pub mod bth;
pub mod deth;
pub mod icrc;
pub mod ud;

pub use crate::number::{Psn, Qpn};
pub use bth::Bth;
pub use deth::Deth;
pub use icrc::{ICRC_LEN, Path, crc32_ieee, icrc, icrc_over_socket};
pub use ud::UdPacket;
