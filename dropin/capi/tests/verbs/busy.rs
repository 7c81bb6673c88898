//! Objects that are in use are not destroyed: the call fails with the original's error, and everything works as before.

use crate::common::*;
use core::ptr;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

#[test]
fn protection_domain_in_use_is_not_deallocated() {
    let side = Side::new(SideParams::default());
    let pd = call!(ibv_alloc_pd(side.context));
    let held = || assert_eq!(call!(ibv_dealloc_pd(pd)), libc::EBUSY);

    let mut memory = [0_u8; 64];
    let mr = call!(ibv_reg_mr(pd, memory.as_mut_ptr().cast(), 64, 0));
    held();
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);

    let mw = alloc_mw(pd, IBV_MW_TYPE_1);
    held();
    assert_eq!(dealloc_mw(mw), 0);

    let mut attr = ibv_srq_init_attr::zeroed();
    attr.attr.max_wr = 1;
    let srq = call!(ibv_create_srq(pd, &raw mut attr));
    held();
    assert_eq!(call!(ibv_destroy_srq(srq)), 0);

    let mut init = side.init();
    let qp = call!(ibv_create_qp(pd, &raw mut init));
    held();
    assert_eq!(call!(ibv_destroy_qp(qp)), 0);

    let mut attr = side.rtr_attr(0).0.ah_attr;
    let ah = call!(ibv_create_ah(pd, &raw mut attr));
    assert!(!ah.is_null());
    held();
    assert_eq!(call!(ibv_destroy_ah(ah)), 0);

    assert_eq!(call!(ibv_dealloc_pd(pd)), 0);
}

#[test]
fn queues_stay_while_queue_pairs_use_them() {
    let mut side = Side::new(SideParams {
        shared: 4,
        with_channel: true,
        ..SideParams::default()
    });
    let channel = side.channel;
    // SAFETY: `channel` is destroyed when `side` is dropped; its queues are created and destroyed on this thread.
    let users = || unsafe { (*channel).refcnt };
    assert_eq!(call!(ibv_destroy_cq(side.cq)), libc::EBUSY);
    assert_eq!(call!(ibv_destroy_srq(side.srq)), libc::EBUSY);
    assert_eq!(call!(ibv_destroy_comp_channel(channel)), libc::EBUSY);
    assert_eq!(users(), 1);
    side.destroy_qp();
    // Only the queue of the channel is left.
    assert_eq!(call!(ibv_destroy_comp_channel(channel)), libc::EBUSY);
    let second = call!(ibv_create_cq(side.context, 4, ptr::null_mut(), channel, 0));
    assert_eq!(users(), 2);
    assert_eq!(call!(ibv_destroy_cq(second)), 0);
    assert_eq!(users(), 1);
}

#[test]
fn a_refused_destruction_changes_nothing() {
    let (a, b) = pair(SideParams {
        shared: 4,
        ..SideParams::default()
    });
    assert_eq!(call!(ibv_destroy_cq(b.cq)), libc::EBUSY);
    assert_eq!(call!(ibv_destroy_srq(b.srq)), libc::EBUSY);
    assert_eq!(call!(ibv_dealloc_pd(b.pd)), libc::EBUSY);
    assert_eq!(b.receive(1, 0, 8), 0);
    assert_eq!(a.send(2, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    expect_completion(b.cq, 1, IBV_WC_SUCCESS);
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
}

#[test]
fn memory_under_a_window_stays_registered() {
    let (a, b) = pair(SideParams::default());
    let mw = alloc_mw(b.pd, IBV_MW_TYPE_1);
    let mut bind = ibv_mw_bind {
        wr_id: 1,
        send_flags: IBV_SEND_SIGNALED,
        bind_info: ibv_mw_bind_info {
            mr: b.mr,
            addr: b.at(0),
            length: 64,
            mw_access_flags: IBV_ACCESS_REMOTE_WRITE,
        },
    };
    assert_eq!(bind_mw(b.qp, mw, &raw mut bind), 0);
    assert_eq!(
        expect_completion(b.cq, 1, IBV_WC_SUCCESS).opcode,
        IBV_WC_BIND_MW
    );
    assert_eq!(call!(ibv_dereg_mr(b.mr)), libc::EBUSY);
    let code = call!(ibv_rereg_mr(
        b.mr,
        IBV_REREG_MR_CHANGE_ACCESS as i32,
        ptr::null_mut(),
        ptr::null_mut(),
        0,
        ALL,
    ));
    assert_eq!((code, errno()), (IBV_REREG_MR_ERR_CMD, libc::EBUSY));
    // It works as before.
    let rkey = window_key(mw);
    let code = a.send(2, IBV_WR_RDMA_WRITE, a.sge(0, 8), |wr| {
        rdma(wr, b.at(0), rkey);
    });
    assert_eq!(code, 0);
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
    assert_eq!(dealloc_mw(mw), 0);
}

/// The original leaves the objects to the kernel and frees the context; a program that goes on using it has undefined behaviour.
/// Here the context stays, so that no pointer in these objects dangles.
#[test]
fn a_closed_device_leaves_its_objects_usable() {
    let context = open();
    let pd = call!(ibv_alloc_pd(context));
    let cq = call!(ibv_create_cq(
        context,
        4,
        ptr::null_mut(),
        ptr::null_mut(),
        0
    ));
    assert_eq!(call!(ibv_close_device(context)), 0);
    assert_eq!(poll_cq(cq, &mut [ibv_wc::zeroed()]), 0);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
    assert_eq!(call!(ibv_dealloc_pd(pd)), 0);
}

#[test]
fn completions_of_a_destroyed_queue_pair_are_gone() {
    let (mut a, b) = pair(SideParams::default());
    assert_eq!(b.receive(1, 0, 8), 0);
    assert_eq!(a.send(2, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    expect_completion(b.cq, 1, IBV_WC_SUCCESS);
    assert_eq!(a.to(IBV_QPS_ERR), 0);
    a.destroy_qp();
    assert_no_completion(a.cq);
}
