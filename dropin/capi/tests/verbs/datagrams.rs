//! Datagram queue pairs with bad input: no address, wrong numbers, operations that only connections have, addresses that are no group.

use crate::common::*;
use core::ptr;
use std::ffi::c_int;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

const EINVAL: c_int = libc::EINVAL;
pub(crate) const QKEY: u32 = 0x1111_1111;

pub(crate) fn side() -> Side {
    let side = Side::new(SideParams {
        kind: IBV_QPT_UD,
        ..SideParams::default()
    });
    let mut attr = ibv_qp_attr {
        qp_state: IBV_QPS_INIT,
        port_num: 1,
        qkey: QKEY,
        ..ibv_qp_attr::zeroed()
    };
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    assert_eq!(side.modify(&mut attr, mask & !IBV_QP_QKEY), EINVAL);
    assert_eq!(side.modify(&mut attr, mask), 0);
    assert_eq!(side.to(IBV_QPS_RTR), 0);
    attr.qp_state = IBV_QPS_RTS;
    assert_eq!(side.modify(&mut attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    side
}

#[test]
fn invalid_address_handles_are_refused() {
    let side = side();
    let good = side.rtr_attr(0).0.ah_attr;
    type Change = fn(&mut ibv_ah_attr);
    let wrong: [Change; 4] = [
        |attr| attr.is_global = 0,
        |attr| attr.port_num = 0,
        |attr| attr.port_num = 2,
        |attr| attr.grh.sgid_index = 255,
    ];
    for (at, change) in wrong.into_iter().enumerate() {
        let mut attr = good;
        change(&mut attr);
        let ah = call!(ibv_create_ah(side.pd, &raw mut attr));
        assert_refused(ah, EINVAL, &format!("case {at}"));
    }
    // A completion without a header has no sender's address.
    let (mut wc, mut grh) = (ibv_wc::zeroed(), ibv_grh::zeroed());
    let ah = call!(ibv_create_ah_from_wc(side.pd, &raw mut wc, &raw mut grh, 1));
    assert_refused(ah, EINVAL, "no header");
    wc.wc_flags = IBV_WC_GRH;
    let ah = call!(ibv_create_ah_from_wc(side.pd, &raw mut wc, &raw mut grh, 2));
    assert_refused(ah, EINVAL, "port");
    let ah = call!(ibv_create_ah_from_wc(
        side.pd,
        ptr::null_mut(),
        ptr::null_mut(),
        1
    ));
    assert_refused(ah, EINVAL, "null");
}

#[test]
fn ud_requests_need_address_and_send_opcode() {
    let (a, b) = (side(), side());
    let mut attr = a.rtr_attr(0).0.ah_attr;
    let ah = call!(ibv_create_ah(a.pd, &raw mut attr));
    assert!(!ah.is_null());
    let to = ibv_send_wr__wr__ud {
        ah,
        remote_qpn: b.number(),
        remote_qkey: QKEY,
    };
    let send = |id, change: fn(&mut ibv_send_wr)| {
        a.send(id, IBV_WR_SEND, a.sge(0, 8), |wr| {
            wr.wr.ud = to;
            change(wr);
        })
    };
    assert_eq!(send(1, |wr| wr.wr.ud.ah = ptr::null_mut()), EINVAL);
    assert_eq!(send(1, |wr| wr.wr.ud.remote_qpn = 1 << 24), EINVAL);
    for opcode in [
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_SEND_WITH_INV,
        IBV_WR_BIND_MW,
        IBV_WR_LOCAL_INV,
        77,
    ] {
        let code = a.send(1, opcode, a.sge(0, 8), |wr| wr.wr.ud = to);
        assert_eq!(code, EINVAL, "opcode {opcode}");
    }
    let code = a.send(1, IBV_WR_SEND, a.sge(0, 4097), |wr| wr.wr.ud = to);
    assert_eq!(code, EINVAL, "longer than a packet");
    assert_no_completion(a.cq);
    // Received behind forty bytes for the header.
    assert_eq!(b.receive(2, 0, 48), 0);
    assert_eq!(send(3, |_| {}), 0);
    expect_completion(a.cq, 3, IBV_WC_SUCCESS);
    let wc = expect_completion(b.cq, 2, IBV_WC_SUCCESS);
    assert_eq!((wc.byte_len, wc.src_qp), (48, a.number()));
    assert_eq!(wc.wc_flags & IBV_WC_GRH, IBV_WC_GRH);
    // Nothing is received from a sender without the key.
    assert_eq!(b.receive(4, 0, 48), 0);
    assert_eq!(send(5, |wr| wr.wr.ud.remote_qkey = 1), 0);
    expect_completion(a.cq, 5, IBV_WC_SUCCESS);
    assert_no_completion(b.cq);
    // RESET removes completions that were not polled.
    assert_eq!(send(6, |_| {}), 0);
    assert_eq!((a.to(IBV_QPS_RESET), b.to(IBV_QPS_RESET)), (0, 0));
    assert_no_completion(a.cq);
    assert_no_completion(b.cq);
    assert_eq!(call!(ibv_destroy_ah(ah)), 0);
}

#[test]
fn only_ud_queue_pairs_attach_to_multicast() {
    let (ud, rc) = (side(), Side::new(SideParams::default()));
    let mut group = ibv_gid { raw: [0; 16] };
    let raw = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];
    assert_eq!(
        call!(ibv_attach_mcast(ud.qp, &raw const group, 0)),
        EINVAL,
        "no group"
    );
    assert_eq!(call!(ibv_attach_mcast(ud.qp, ptr::null(), 0)), EINVAL);
    assert_eq!(
        call!(ibv_attach_mcast(ptr::null_mut(), &raw const group, 0)),
        EINVAL
    );
    group.raw = raw;
    assert_eq!(call!(ibv_attach_mcast(rc.qp, &raw const group, 0)), EINVAL);
    assert_eq!(
        call!(ibv_detach_mcast(ud.qp, &raw const group, 0)),
        EINVAL,
        "not joined"
    );
}
