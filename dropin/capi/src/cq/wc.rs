//! Completions as `ibv_wc` and its constants. Of a failed request only `wr_id`, `status` and `qp_num` are meaningful, as in the original.
//! `vendor_err` is always 0.

use verbena::low::{Header, Wc, WcOp};

use crate::abi::*;

/// The opcode of a completion.
pub(super) fn opcode(wc: &Wc) -> u32 {
    match wc.op {
        WcOp::Send => IBV_WC_SEND,
        WcOp::Write => IBV_WC_RDMA_WRITE,
        WcOp::Read => IBV_WC_RDMA_READ,
        WcOp::CompSwap => IBV_WC_COMP_SWAP,
        WcOp::FetchAdd => IBV_WC_FETCH_ADD,
        WcOp::AtomicWrite => IBV_WC_ATOMIC_WRITE,
        WcOp::Flush => IBV_WC_FLUSH,
        WcOp::Bind => IBV_WC_BIND_MW,
        WcOp::LocalInvalidate => IBV_WC_LOCAL_INV,
        // The user-space verbs have no registration by work request, so it cannot be posted.
        WcOp::Register => IBV_WC_DRIVER2,
        WcOp::Receive => IBV_WC_RECV,
        WcOp::ReceiveWriteImm => IBV_WC_RECV_RDMA_WITH_IMM,
        // Not seen in a queue of a C program, which has no control queue pair.
        WcOp::Control(_) => IBV_WC_DRIVER1,
    }
}

/// The flags of a completion.
pub(super) fn flags(wc: &Wc) -> u32 {
    let mut flags = 0;
    if wc.immediate.is_some() {
        flags |= IBV_WC_WITH_IMM;
    }
    if wc.grh.is_some() {
        flags |= IBV_WC_GRH;
    }
    if wc.invalidated.is_some() {
        flags |= IBV_WC_WITH_INV;
    }
    flags
}

/// Immediate data in network order, or the key that the peer invalidated.
pub(super) fn immediate(wc: &Wc) -> u32 {
    match (wc.immediate, wc.invalidated) {
        (Some(data), _) => data.to_be(),
        (None, Some(stag)) => stag.get(),
        (None, None) => 0,
    }
}

/// The service level of a datagram: as adapters do, it shows the kind of header, which programs look for. 8 stands for UDP, with 2 for
/// IPv4 or 1 for IPv6.
pub(super) fn service_level(wc: &Wc) -> u8 {
    match wc.grh {
        None => 0,
        Some(Header::V4) => 8 | 2,
        Some(Header::V6) => 8 | 1,
    }
}

/// A whole completion.
pub(super) fn of(wc: &Wc) -> ibv_wc {
    ibv_wc {
        wr_id: wc.id,
        status: wc.status as u32,
        opcode: opcode(wc),
        vendor_err: 0,
        byte_len: wc.len,
        imm_data: immediate(wc),
        qp_num: wc.qpn,
        src_qp: wc.src_qp,
        wc_flags: flags(wc),
        pkey_index: 0,
        slid: 0,
        sl: service_level(wc),
        dlid_path_bits: 0,
    }
}
