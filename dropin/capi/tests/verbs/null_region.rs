//! The null region: requests read zeros from it, what they write is discarded, and peers cannot access it.
//! It is used beside other regions in one scatter/gather list.

use crate::common::*;
use core::ptr;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

#[track_caller]
fn null_region(side: &Side) -> *mut ibv_mr {
    let mr = call_alloc(side, side.pd);
    assert!(!mr.is_null(), "{}", errno());
    mr
}

fn call_alloc(side: &Side, pd: *mut ibv_pd) -> *mut ibv_mr {
    let alloc = verbs_of(side.context).alloc_null_mr.unwrap();
    call!(alloc(pd))
}

fn piece(mr: *mut ibv_mr, length: u32) -> ibv_sge {
    ibv_sge {
        // Any address.
        addr: 0xdead_0000,
        length,
        // SAFETY: the test has not deregistered the region.
        lkey: unsafe { (*mr).lkey },
    }
}

#[test]
fn gathered_zeros_and_discarded_bytes() {
    let (mut a, mut b) = pair(SideParams::default());
    let (null_a, null_b) = (null_region(&a), null_region(&b));
    a.fill(0, &[1; 64]);
    b.fill(0, &[9; 256]);
    // 16 bytes, 16 zeros, 16 bytes; of which the peer keeps 8, discards 16 and keeps the rest.
    let mut into = [b.sge(0, 8), piece(null_b, 16), b.sge(8, 64)];
    let mut receive = ibv_recv_wr {
        wr_id: 5,
        sg_list: into.as_mut_ptr(),
        num_sge: 3,
        ..ibv_recv_wr::zeroed()
    };
    assert_eq!(post_recv(b.qp, &raw mut receive, &mut ptr::null_mut()), 0);
    let mut from = [a.sge(0, 16), piece(null_a, 16), a.sge(16, 16)];
    let mut send = request(1, IBV_WR_SEND);
    (send.sg_list, send.num_sge) = (from.as_mut_ptr(), 3);
    assert_eq!(post_send(a.qp, &raw mut send, &mut ptr::null_mut()), 0);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    let wc = expect_completion(b.cq, 5, IBV_WC_SUCCESS);
    assert_eq!(wc.byte_len, 48);
    let expected = [[1; 8], [0; 8], [1; 8], [1; 8], [9; 8]].concat();
    assert_eq!(b.read(0, 40), expected);
    // What was written to it is not read from it.
    let remote = |wr: &mut ibv_send_wr| rdma(wr, a.at(1024), a.rkey());
    assert_eq!(b.send(2, IBV_WR_RDMA_WRITE, piece(null_b, 64), remote), 0);
    expect_completion(b.cq, 2, IBV_WC_SUCCESS);
    assert_eq!(a.read(1024, 64), [0; 64]);
    assert_eq!(call!(ibv_dereg_mr(null_a)), 0);
    assert_eq!(call!(ibv_dereg_mr(null_b)), 0);
}

#[test]
fn long_messages_from_and_to_nothing() {
    const LONG_MESSAGE: u32 = (5 << 20) + 3;
    let (a, b) = pair(SideParams::default());
    let (null_a, null_b) = (null_region(&a), null_region(&b));
    assert_eq!(b.receive_into(5, piece(null_b, LONG_MESSAGE)), 0);
    assert_eq!(
        a.send(1, IBV_WR_SEND, piece(null_a, LONG_MESSAGE), |_| {}),
        0
    );
    let wc = expect_completion(b.cq, 5, IBV_WC_SUCCESS);
    assert_eq!(wc.byte_len, LONG_MESSAGE);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    // A read whose bytes are of no interest.
    let remote = |wr: &mut ibv_send_wr| rdma(wr, b.at(0), b.rkey());
    assert_eq!(
        a.send(2, IBV_WR_RDMA_READ, piece(null_a, SIZE as u32), remote),
        0
    );
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
    assert_eq!(call!(ibv_dereg_mr(null_a)), 0);
    assert_eq!(call!(ibv_dereg_mr(null_b)), 0);
}

#[test]
fn peers_cannot_access_the_null_region() {
    for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
        let (a, b) = pair(SideParams::default());
        let null = null_region(&b);
        let remote = |wr: &mut ibv_send_wr| rdma(wr, 0, piece(null, 0).lkey);
        assert_eq!(a.send(1, opcode, a.sge(0, 64), remote), 0);
        expect_completion(a.cq, 1, IBV_WC_REM_ACCESS_ERR);
        assert_eq!(call!(ibv_dereg_mr(null)), 0);
    }
}

#[test]
fn null_region_cannot_be_registered_anew() {
    let mut side = Side::new(SideParams::default());
    let null = null_region(&side);
    let before = piece(null, 0).lkey;
    let memory = side.memory.as_mut_ptr().cast();
    let flags = IBV_REREG_MR_CHANGE_TRANSLATION as i32;
    let code = call!(ibv_rereg_mr(null, flags, ptr::null_mut(), memory, 64, 0));
    assert_eq!((code, errno()), (IBV_REREG_MR_ERR_INPUT, libc::EOPNOTSUPP));
    let after = piece(null, 0).lkey;
    assert_eq!(after, before);
    assert_eq!(call!(ibv_dealloc_pd(side.pd)), libc::EBUSY);
    assert_eq!(call!(ibv_dereg_mr(null)), 0);
    assert_refused(
        call_alloc(&side, ptr::null_mut()),
        libc::EINVAL,
        "no domain",
    );
}
