//! RoCEv2: packets of hardware adapters over UDP, and the messages of InfiniBand's connection manager. Each file is one header, one message
//! or the checksum. XRC, reliable datagrams and the link layer of InfiniBand are not part of it.

pub mod aeth;
pub mod atomic_eth;
pub mod bth;
pub mod cm;
pub mod deth;
pub mod icrc;
pub mod mad;
pub mod packet;
pub mod reth;
pub mod ud;

pub use crate::number::{Psn, Qpn};
pub use aeth::{Aeth, Nak, Syndrome};
pub use atomic_eth::AtomicEth;
pub use bth::Bth;
pub use deth::Deth;
pub use icrc::{
    ICRC_LEN, IcrcChecker, Path, crc32_ieee, icrc, icrc_of_segment, icrc_over_socket, is_icrc_valid,
};
pub use mad::MadHeader;
pub use packet::{DEFAULT_PKEY, Immediate, Operation, Packet, Service, Tail, pad_of};
pub use reth::Reth;
pub use ud::UdPacket;

/// The UDP port of RoCEv2.
pub const PORT: u16 = 4791;
