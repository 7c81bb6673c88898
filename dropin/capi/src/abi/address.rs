//! InfiniBand addresses: GIDs, routes, address handles and path records.
//! Fields in network order are marked.

#![allow(
    missing_docs,
    reason = "fields are the original's, whose manual pages say what each means"
)]

use std::ffi::c_int;

use super::context::ibv_context;
use super::layout::layouts;
use super::memory::ibv_pd;

/// `global` of [`ibv_gid`].
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_gid__global {
    pub subnet_prefix: u64,
    pub interface_id: u64,
}

/// A global identifier, in network order.
#[derive(Clone, Copy)]
#[repr(C)]
pub union ibv_gid {
    pub raw: [u8; 16],
    pub global: ibv_gid__global,
}

/// An entry of a GID table; its length is an argument of the call.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_gid_entry {
    pub gid: ibv_gid,
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

/// A route between subnets.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_global_route {
    pub dgid: ibv_gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

/// The global route header, as it precedes a received datagram.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_grh {
    /// In network order.
    pub version_tclass_flow: u32,
    /// In network order.
    pub paylen: u16,
    pub next_hdr: u8,
    pub hop_limit: u8,
    pub sgid: ibv_gid,
    pub dgid: ibv_gid,
}

/// The attributes of an address handle.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_ah_attr {
    pub grh: ibv_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// An address handle.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}

/// A path record as the subnet administrator returns it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_sa_path_rec {
    pub dgid: ibv_gid,
    pub sgid: ibv_gid,
    /// In network order, as are `slid`, `flow_label` and `pkey`.
    pub dlid: u16,
    pub slid: u16,
    pub raw_traffic: c_int,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reversible: c_int,
    pub numb_path: u8,
    pub pkey: u16,
    pub sl: u8,
    pub mtu_selector: u8,
    pub mtu: u8,
    pub rate_selector: u8,
    pub rate: u8,
    pub packet_life_time_selector: u8,
    pub packet_life_time: u8,
    pub preference: u8,
}

/// A path record as on the wire, all in network order.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_path_record {
    pub service_id: u64,
    pub dgid: ibv_gid,
    pub sgid: ibv_gid,
    pub dlid: u16,
    pub slid: u16,
    pub flowlabel_hoplimit: u32,
    pub tclass: u8,
    pub reversible_numpath: u8,
    pub pkey: u16,
    pub qosclass_sl: u16,
    pub mtu: u8,
    pub rate: u8,
    pub packetlifetime: u8,
    pub preference: u8,
    pub reserved: [u8; 6],
}

/// A path record and its flags.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ibv_path_data {
    pub flags: u32,
    pub reserved: u32,
    pub path: ibv_path_record,
}

layouts! {
    union ibv_gid [16] {
        raw: 0, global: 0, global.subnet_prefix: 0, global.interface_id: 8,
    }
    struct ibv_gid_entry [32] {
        gid: 0, gid_index: 16, port_num: 20, gid_type: 24, ndev_ifindex: 28,
    }
    struct ibv_global_route [24] {
        dgid: 0, flow_label: 16, sgid_index: 20, hop_limit: 21, traffic_class: 22,
    }
    struct ibv_grh [40] {
        version_tclass_flow: 0, paylen: 4, next_hdr: 6, hop_limit: 7, sgid: 8, dgid: 24,
    }
    struct ibv_ah_attr [32] {
        grh: 0, dlid: 24, sl: 26, src_path_bits: 27, static_rate: 28, is_global: 29, port_num: 30,
    }
    struct ibv_ah [24] {
        context: 0, pd: 8, handle: 16,
    }
    struct ibv_sa_path_rec [64] {
        dgid: 0, sgid: 16, dlid: 32, slid: 34, raw_traffic: 36, flow_label: 40, hop_limit: 44,
        traffic_class: 45, reversible: 48, numb_path: 52, pkey: 54, sl: 56, mtu_selector: 57,
        mtu: 58, rate_selector: 59, rate: 60, packet_life_time_selector: 61, packet_life_time: 62,
        preference: 63,
    }
    struct ibv_path_record [64] {
        service_id: 0, dgid: 8, sgid: 24, dlid: 40, slid: 42, flowlabel_hoplimit: 44, tclass: 48,
        reversible_numpath: 49, pkey: 50, qosclass_sl: 52, mtu: 54, rate: 55, packetlifetime: 56,
        preference: 57, reserved: 58,
    }
    struct ibv_path_data [72] {
        flags: 0, reserved: 4, path: 8,
    }
}
