//! A path in a connection request: the addresses of both ports and how packets travel between them. RoCE uses the GIDs, hop limit,
//! traffic class and timeout; local identifiers and service levels belong to InfiniBand's link layer.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const FLOW_LABEL_SHIFT: u32 = 12;
const RATE_MASK: u32 = 0x3f;
const SL_SHIFT: u32 = 4;
const SUBNET_LOCAL: u8 = 0x08;
const TIMEOUT_SHIFT: u32 = 3;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawPath {
    local_lid: U16,
    remote_lid: U16,
    local_gid: [u8; 16],
    remote_gid: [u8; 16],
    flow_label_and_rate: U32,
    traffic_class: u8,
    hop_limit: u8,
    sl: u8,
    ack_timeout: u8,
}

/// A path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CmPath {
    /// Local identifier of the sender's port.
    pub local_lid: u16,
    /// Local identifier of the receiver's port.
    pub remote_lid: u16,
    /// GID of the sender's port.
    pub local_gid: [u8; 16],
    /// GID of the receiver's port.
    pub remote_gid: [u8; 16],
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Static rate, six bits.
    pub rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level, four bits.
    pub sl: u8,
    /// Both ports are in one subnet.
    pub subnet_local: bool,
    /// Exponent of the time for an acknowledgement, five bits.
    pub ack_timeout: u8,
}

impl From<RawPath> for CmPath {
    fn from(raw: RawPath) -> CmPath {
        let flow = raw.flow_label_and_rate.get();
        CmPath {
            local_lid: raw.local_lid.get(),
            remote_lid: raw.remote_lid.get(),
            local_gid: raw.local_gid,
            remote_gid: raw.remote_gid,
            flow_label: flow >> FLOW_LABEL_SHIFT,
            rate: (flow & RATE_MASK) as u8,
            traffic_class: raw.traffic_class,
            hop_limit: raw.hop_limit,
            sl: raw.sl >> SL_SHIFT,
            subnet_local: raw.sl & SUBNET_LOCAL != 0,
            ack_timeout: raw.ack_timeout >> TIMEOUT_SHIFT,
        }
    }
}

impl From<CmPath> for RawPath {
    fn from(path: CmPath) -> RawPath {
        let flow = path.flow_label << FLOW_LABEL_SHIFT | u32::from(path.rate) & RATE_MASK;
        let local = if path.subnet_local { SUBNET_LOCAL } else { 0 };
        RawPath {
            local_lid: U16::new(path.local_lid),
            remote_lid: U16::new(path.remote_lid),
            local_gid: path.local_gid,
            remote_gid: path.remote_gid,
            flow_label_and_rate: U32::new(flow),
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            sl: path.sl << SL_SHIFT | local,
            ack_timeout: path.ack_timeout << TIMEOUT_SHIFT,
        }
    }
}
