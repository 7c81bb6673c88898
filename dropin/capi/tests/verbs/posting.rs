//! Requests that are refused when they are posted: wrong state, full queue, unknown numbers, too many entries. Requests before the
//! refused one are posted, `bad_wr` points to the refused one, and the queue pair is as it was.

use crate::common::*;
use core::ptr;
use std::ffi::c_int;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

const EINVAL: c_int = libc::EINVAL;

#[test]
fn sends_need_rts_and_receives_need_init() {
    let (a, b) = (
        Side::new(SideParams::default()),
        Side::new(SideParams::default()),
    );
    let send = || a.send(1, IBV_WR_SEND, a.sge(0, 8), |_| {});
    assert_eq!((send(), a.receive(1, 0, 8)), (EINVAL, EINVAL), "RESET");
    assert_eq!(a.state(), IBV_QPS_RESET);
    a.to_init();
    assert_eq!((send(), a.receive(1, 0, 8)), (EINVAL, 0), "INIT");
    assert_eq!(a.state(), IBV_QPS_INIT);
    let (mut attr, mask) = a.rtr_attr(b.number());
    assert_eq!(a.modify(&mut attr, mask), 0);
    assert_eq!((send(), a.receive(2, 0, 8)), (EINVAL, 0), "RTR");
    assert_eq!(a.state(), IBV_QPS_RTR);
    assert_eq!(a.to(IBV_QPS_ERR), 0);
    expect_completion(a.cq, 1, IBV_WC_WR_FLUSH_ERR);
    expect_completion(a.cq, 2, IBV_WC_WR_FLUSH_ERR);
    assert_eq!(
        (send(), a.receive(3, 0, 8)),
        (0, 0),
        "ERR takes and flushes"
    );
    let mut ended = [next_completion(a.cq), next_completion(a.cq)].map(|wc| (wc.wr_id, wc.status));
    ended.sort_unstable();
    assert_eq!(ended, [1, 3].map(|id| (id, IBV_WC_WR_FLUSH_ERR)));
}

#[test]
fn bad_wr_names_request_beyond_full_queue() {
    let (a, b) = pair(SideParams {
        sends: 20,
        receives: 20,
        ..SideParams::default()
    });
    // Nothing is received, so nothing completes: 17 fit behind the first three, in two batches of sixteen.
    for id in 0..3 {
        assert_eq!(a.send(id, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    }
    let mut list: Vec<ibv_send_wr> = (3..40).map(|id| request(id, IBV_WR_SEND)).collect();
    for at in 0..list.len() - 1 {
        list[at].next = &raw mut list[at + 1];
    }
    let mut bad = ptr::null_mut();
    assert_eq!(
        post_send(a.qp, &raw mut list[0], &raw mut bad),
        libc::ENOMEM
    );
    assert_eq!(bad, &raw mut list[17], "three and seventeen are twenty");
    // With a null `bad_wr`.
    let code = post_send(a.qp, &raw mut list[0], ptr::null_mut());
    assert_eq!(code, libc::ENOMEM);

    let mut list: Vec<ibv_recv_wr> = (0..40)
        .map(|wr_id| ibv_recv_wr {
            wr_id,
            ..ibv_recv_wr::zeroed()
        })
        .collect();
    for at in 0..list.len() - 1 {
        list[at].next = &raw mut list[at + 1];
    }
    let mut bad = ptr::null_mut();
    // The waiting messages are eight bytes long for the first three receives: give those room.
    let mut rooms: Vec<ibv_sge> = (0..3).map(|at| b.sge(at * 8, 8)).collect();
    for (wr, room) in list.iter_mut().zip(&mut rooms) {
        wr.sg_list = room;
        wr.num_sge = 1;
    }
    let code = post_recv(b.qp, &raw mut list[0], &raw mut bad);
    // Waiting messages may take some of them at once, so that more fit.
    assert_eq!(code, libc::ENOMEM);
    // SAFETY: the call failed, so `bad` points to the request of `list` that was refused.
    let refused = unsafe { (*bad).wr_id };
    assert!((20..=40).contains(&refused), "{refused}");
    for id in 0..20 {
        expect_completion(b.cq, id, IBV_WC_SUCCESS);
        expect_completion(a.cq, id, IBV_WC_SUCCESS);
    }
    assert_no_completion(a.cq);
}

#[test]
fn bad_wr_names_receive_beyond_full_srq() {
    let side = Side::new(SideParams {
        shared: 20,
        ..SideParams::default()
    });
    let mut list: Vec<ibv_recv_wr> = (0..40).map(|_| ibv_recv_wr::zeroed()).collect();
    for at in 0..list.len() - 1 {
        list[at].next = &raw mut list[at + 1];
    }
    let mut bad = ptr::null_mut();
    let code = post_srq_recv(side.srq, &raw mut list[0], &raw mut bad);
    assert_eq!(code, libc::ENOMEM);
    assert_eq!(bad, &raw mut list[20]);
}

/// A list whose middle request is invalid: the first is posted, the last is not.
#[test]
fn requests_before_refused_one_are_posted() {
    let (a, b) = pair(SideParams::default());
    for id in 0..3 {
        assert_eq!(b.receive(id, 0, 64), 0);
    }
    let mut list = [0, 1, 2].map(|id| request(id, IBV_WR_SEND));
    list[0].next = &raw mut list[1];
    list[1].next = &raw mut list[2];
    list[1].opcode = 77;
    let mut bad = ptr::null_mut();
    assert_eq!(post_send(a.qp, &raw mut list[0], &raw mut bad), EINVAL);
    assert_eq!(bad, &raw mut list[1]);
    expect_completion(a.cq, 0, IBV_WC_SUCCESS);
    expect_completion(b.cq, 0, IBV_WC_SUCCESS);
    assert_no_completion(a.cq);
    let mut list = [0, 1, 2].map(|wr_id| ibv_recv_wr {
        wr_id,
        ..ibv_recv_wr::zeroed()
    });
    list[0].next = &raw mut list[1];
    list[1].next = &raw mut list[2];
    list[1].num_sge = -1;
    let mut bad = ptr::null_mut();
    assert_eq!(post_recv(b.qp, &raw mut list[0], &raw mut bad), EINVAL);
    assert_eq!(bad, &raw mut list[1]);
}

#[test]
fn unknown_opcodes_flags_and_counts_are_refused() {
    let (a, b) = pair(SideParams::default());
    let mut many = [a.sge(0, 1); 32];
    let many = many.as_mut_ptr();
    let huge = ibv_sge {
        length: u32::MAX,
        ..a.sge(0, 0)
    };
    let mut huge = [huge; 2];
    let huge = huge.as_mut_ptr();
    type Change = Box<dyn Fn(&mut ibv_send_wr)>;
    let wrong: Vec<(&str, Change)> = vec![
        ("opcode", Box::new(|wr| wr.opcode = 77)),
        ("opcode", Box::new(|wr| wr.opcode = u32::MAX)),
        ("TSO", Box::new(|wr| wr.opcode = IBV_WR_TSO)),
        ("DRIVER1", Box::new(|wr| wr.opcode = IBV_WR_DRIVER1)),
        ("flags", Box::new(|wr| wr.send_flags = 1 << 20)),
        ("checksum", Box::new(|wr| wr.send_flags = IBV_SEND_IP_CSUM)),
        ("negative", Box::new(|wr| wr.num_sge = -1)),
        ("lowest", Box::new(|wr| wr.num_sge = c_int::MIN)),
        (
            "too many",
            Box::new(move |wr| (wr.sg_list, wr.num_sge) = (many, 5)),
        ),
        ("no list", Box::new(|wr| wr.sg_list = ptr::null_mut())),
        (
            "longer than any message",
            Box::new(move |wr| (wr.sg_list, wr.num_sge) = (huge, 2)),
        ),
        (
            "inline too long",
            Box::new(move |wr| {
                wr.send_flags |= IBV_SEND_INLINE;
                // SAFETY: `wr.sg_list` is the entry of the test, which outlives the request.
                unsafe { (*wr.sg_list).length = 65 };
            }),
        ),
        (
            "inline read",
            Box::new(|wr| {
                wr.opcode = IBV_WR_RDMA_READ;
                wr.send_flags |= IBV_SEND_INLINE;
            }),
        ),
        (
            "an atomic of nine bytes",
            Box::new(|wr| {
                wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
                // SAFETY: `wr.sg_list` points to an entry of the test, and nothing has been posted yet.
                unsafe { (*wr.sg_list).length = 9 };
            }),
        ),
        (
            "binding nothing",
            Box::new(|wr| {
                wr.opcode = IBV_WR_BIND_MW;
                wr.bind_or_tso.bind_mw.mw = ptr::null_mut();
            }),
        ),
    ];
    for (what, change) in &wrong {
        let code = a.send(1, IBV_WR_SEND, a.sge(0, 8), |wr| change(wr));
        assert_eq!(code, EINVAL, "{what}");
    }
    let mut wr = ibv_recv_wr::zeroed();
    for (count, list) in [
        (-1, many),
        (c_int::MIN, many),
        (5, many),
        (1, ptr::null_mut()),
    ] {
        (wr.sg_list, wr.num_sge) = (list, count);
        let code = post_recv(b.qp, &raw mut wr, &mut ptr::null_mut());
        assert_eq!(code, EINVAL, "{count} pieces");
    }
    let null = ptr::null_mut();
    // SAFETY: null pointers, which the functions must check before they dereference them.
    unsafe {
        let ops = &(*a.context).ops;
        assert_eq!(
            ops.post_send.unwrap()(null, ptr::null_mut(), ptr::null_mut()),
            EINVAL
        );
        assert_eq!(
            ops.poll_cq.unwrap()(ptr::null_mut(), 1, ptr::null_mut()),
            -EINVAL
        );
        assert_eq!(ops.poll_cq.unwrap()(a.cq, 0, ptr::null_mut()), 0);
        assert!(ops.poll_cq.unwrap()(a.cq, -1, ptr::null_mut()) <= 0);
    }
    // The connection is not affected.
    assert_eq!(b.receive(1, 0, 8), 0);
    assert_eq!(a.send(2, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    expect_completion(b.cq, 1, IBV_WC_SUCCESS);
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
    assert_eq!((a.state(), b.state()), (IBV_QPS_RTS, IBV_QPS_RTS));
}

/// Entries are limited for each direction.
#[test]
fn each_direction_has_own_sge_limit() {
    let side = Side::new(SideParams::default());
    let mut init = side.init();
    (init.cap.max_send_sge, init.cap.max_recv_sge) = (4, 2);
    let qp = call!(ibv_create_qp(side.pd, &raw mut init));
    let (mut attr, mask) = side.init_attr();
    assert_eq!(call!(ibv_modify_qp(qp, &raw mut attr, mask as c_int)), 0);
    let mut pieces = [side.sge(0, 8); 4];
    let mut wr = ibv_recv_wr::zeroed();
    wr.sg_list = pieces.as_mut_ptr();
    wr.num_sge = init.cap.max_recv_sge as c_int + 1;
    let mut bad = ptr::null_mut();
    assert_eq!(post_recv(qp, &raw mut wr, &raw mut bad), EINVAL);
    assert_eq!(bad, &raw mut wr);
    wr.num_sge -= 1;
    assert_eq!(post_recv(qp, &raw mut wr, &raw mut bad), 0);
    assert_eq!(call!(ibv_destroy_qp(qp)), 0);
}

#[test]
fn invalid_transitions_are_refused_without_effect() {
    let (a, b) = (
        Side::new(SideParams::default()),
        Side::new(SideParams::default()),
    );
    for state in [
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        IBV_QPS_RTS,
        IBV_QPS_SQD,
        9,
        u32::MAX,
    ] {
        assert_eq!(a.to(state), EINVAL, "RESET to {state} with nothing");
    }
    type Change = fn(&mut ibv_qp_attr, &mut u32);
    let check = |good: (ibv_qp_attr, u32), wrong: &[Change]| {
        let before = a.state();
        for (at, change) in wrong.iter().enumerate() {
            let (mut attr, mut mask) = good;
            change(&mut attr, &mut mask);
            assert_eq!(a.modify(&mut attr, mask), EINVAL, "from {before}: {at}");
            assert_eq!(a.state(), before);
        }
        let (mut attr, mask) = good;
        assert_eq!(a.modify(&mut attr, mask), 0, "from {before}");
    };
    check(
        a.init_attr(),
        &[
            |attr, _| attr.port_num = 2,
            |attr, _| attr.port_num = 0,
            |attr, _| attr.pkey_index = 1,
            |_, mask| *mask &= !IBV_QP_PORT,
            |_, mask| *mask |= IBV_QP_AV,
            |_, mask| *mask |= 1 << 30,
            |_, mask| *mask |= 1 << 31,
            |attr, mask| {
                *mask |= IBV_QP_CUR_STATE;
                attr.cur_qp_state = IBV_QPS_INIT;
            },
        ],
    );
    check(
        a.rtr_attr(b.number()),
        &[
            |attr, _| attr.ah_attr.is_global = 0,
            |attr, _| attr.ah_attr.port_num = 2,
            |attr, _| attr.ah_attr.grh.sgid_index = 255,
            |attr, _| attr.path_mtu = 0,
            |attr, _| attr.path_mtu = 6,
            |attr, _| attr.max_dest_rd_atomic = 255,
            |attr, _| attr.min_rnr_timer = 32,
            |_, mask| *mask &= !IBV_QP_DEST_QPN,
            |_, mask| *mask |= IBV_QP_QKEY,
        ],
    );
    check(
        a.rts_attr(),
        &[
            |attr, _| attr.timeout = 32,
            |attr, _| attr.retry_cnt = 8,
            |attr, _| attr.rnr_retry = 8,
            |attr, _| attr.max_rd_atomic = 255,
            |_, mask| *mask &= !IBV_QP_SQ_PSN,
            |attr, _| attr.qp_state = IBV_QPS_INIT,
        ],
    );
    assert_eq!(a.state(), IBV_QPS_RTS);
    let mut attr = ibv_qp_attr::zeroed();
    let mut init = ibv_qp_init_attr::zeroed();
    let code = call!(ibv_query_qp(a.qp, &raw mut attr, c_int::MAX, &raw mut init));
    assert_eq!(code, 0);
    assert_eq!((attr.timeout, attr.retry_cnt, attr.rnr_retry), (14, 7, 7));
    assert_eq!(
        (attr.dest_qp_num, attr.path_mtu),
        (b.number(), IBV_MTU_1024)
    );
    assert_eq!((attr.sq_psn, attr.rq_psn, attr.port_num), (7, 7, 1));
    assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic), (8, 8));
    assert_eq!(attr.ah_attr.is_global, 1);
}
