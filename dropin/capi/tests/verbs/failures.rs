//! Requests that fail, and what follows: statuses, asynchronous events with the right element, flushing, draining,
//! and a queue pair that is used again.

use crate::common::*;
use core::ptr;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

/// The next event of a side, which must be this one and about its queue pair; acknowledged.
#[track_caller]
fn expect_qp_event(side: &Side, what: u32) {
    let mut event = side.event();
    assert_eq!(event.event_type, what);
    assert_eq!(event_object(&event), side.qp.cast());
    call!(ibv_ack_async_event(&raw mut event));
}

#[test]
fn wrong_rkey_fails_request_and_connection() {
    for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
        let (a, b) = pair(SideParams::default());
        assert_eq!(a.receive(9, 0, 8), 0);
        assert_eq!(b.receive(9, 0, 8), 0);
        let code = a.send(1, opcode, a.sge(0, 8), |wr| {
            rdma(wr, b.at(0), b.rkey() ^ 1);
        });
        assert_eq!(code, 0);
        // Behind a read, a send would be delivered before the read is looked at; a write is not seen.
        let after = if opcode == IBV_WR_RDMA_READ {
            IBV_WR_RDMA_WRITE
        } else {
            IBV_WR_SEND
        };
        let code = a.send(2, after, a.sge(0, 8), |wr| {
            wr.send_flags = 0;
            rdma(wr, b.at(64), b.rkey());
        });
        assert_eq!(code, 0);
        expect_completion(a.cq, 1, IBV_WC_REM_ACCESS_ERR);
        let mut ids =
            [next_completion(a.cq), next_completion(a.cq)].map(|wc| (wc.wr_id, wc.status));
        ids.sort_unstable();
        assert_eq!(
            ids,
            [2, 9].map(|id| (id, IBV_WC_WR_FLUSH_ERR)),
            "even unsignalled"
        );
        expect_completion(b.cq, 9, IBV_WC_WR_FLUSH_ERR);
        expect_qp_event(&b, IBV_EVENT_QP_ACCESS_ERR);
        assert_eq!((a.state(), b.state()), (IBV_QPS_ERR, IBV_QPS_ERR));
    }
}

#[test]
fn out_of_bounds_or_unpermitted_access_is_refused() {
    type Change = fn(&mut ibv_send_wr, &Side);
    let wrong: [(u32, u32, Change); 3] = [
        (ALL as u32, IBV_WR_RDMA_WRITE, |wr, b| {
            rdma(wr, b.at(SIZE - 4), b.rkey());
        }),
        (ALL as u32, IBV_WR_RDMA_READ, |wr, b| {
            rdma(wr, u64::MAX - 3, b.rkey());
        }),
        (ALL as u32, IBV_WR_RDMA_WRITE, |wr, b| {
            rdma(wr, b.at(0) - 1, b.rkey());
        }),
    ];
    for (at, (rights, opcode, change)) in wrong.into_iter().enumerate() {
        let (a, b) = pair(SideParams {
            rights,
            ..SideParams::default()
        });
        assert_eq!(a.send(1, opcode, a.sge(0, 8), |wr| change(wr, &b)), 0);
        let wc = next_completion(a.cq);
        assert_eq!(
            (wc.wr_id, wc.status),
            (1, IBV_WC_REM_ACCESS_ERR),
            "case {at}"
        );
        expect_qp_event(&b, IBV_EVENT_QP_ACCESS_ERR);
    }
    // An operation that the queue pair's own access flags do not enable.
    let (a, b) = pair(SideParams {
        rights: 0,
        ..SideParams::default()
    });
    let code = a.send(1, IBV_WR_RDMA_WRITE, a.sge(0, 8), |wr| {
        rdma(wr, b.at(0), b.rkey());
    });
    assert_eq!(code, 0);
    expect_completion(a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
    expect_qp_event(&b, IBV_EVENT_QP_REQ_ERR);
}

#[test]
fn unregistered_local_memory_fails_request() {
    let (a, b) = pair(SideParams::default());
    assert_eq!(b.receive(1, 0, 8), 0);
    let piece = ibv_sge {
        lkey: a.rkey() ^ 1,
        ..a.sge(0, 8)
    };
    assert_eq!(a.send(1, IBV_WR_SEND, piece, |_| {}), 0);
    expect_completion(a.cq, 1, IBV_WC_LOC_PROT_ERR);
    assert_eq!(a.state(), IBV_QPS_ERR);
}

#[test]
fn too_long_message_fails_send_and_receive() {
    let (a, b) = pair(SideParams::default());
    assert_eq!(b.receive(1, 0, 4), 0);
    assert_eq!(a.send(2, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    expect_completion(b.cq, 1, IBV_WC_LOC_LEN_ERR);
    expect_completion(a.cq, 2, IBV_WC_REM_INV_REQ_ERR);
}

#[test]
fn rnr_retry_decides_wait_for_missing_receive() {
    let (a, b) = pair(SideParams::default());
    assert_eq!(a.send(1, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    assert_no_completion(a.cq);
    assert_eq!(b.receive(2, 0, 8), 0);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    expect_completion(b.cq, 2, IBV_WC_SUCCESS);
    for rnr_retry in [0, 1] {
        let (a, _b) = pair(SideParams {
            rnr_retry,
            ..SideParams::default()
        });
        assert_eq!(a.send(1, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
        expect_completion(a.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
        assert_eq!(a.state(), IBV_QPS_ERR);
    }
}

#[test]
fn reset_queue_pair_can_be_reconnected() {
    let (a, b) = pair(SideParams::default());
    for round in 0..3 {
        assert_eq!(b.receive(round, 0, 8), 0);
        assert_eq!(a.send(round, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
        expect_completion(a.cq, round, IBV_WC_SUCCESS);
        expect_completion(b.cq, round, IBV_WC_SUCCESS);
        assert_eq!(b.receive(100, 0, 8), 0);
        for side in [&a, &b] {
            assert_eq!(side.to(IBV_QPS_RESET), 0);
            assert_eq!(side.state(), IBV_QPS_RESET);
        }
        // Posted requests are gone without a completion.
        assert_no_completion(b.cq);
        join(&a, &b);
    }
    // Also by way of the error state.
    assert_eq!(b.receive(7, 0, 8), 0);
    assert_eq!(b.to(IBV_QPS_ERR), 0);
    expect_completion(b.cq, 7, IBV_WC_WR_FLUSH_ERR);
    assert_eq!((a.to(IBV_QPS_RESET), b.to(IBV_QPS_RESET)), (0, 0));
    join(&a, &b);
    assert_eq!(b.receive(8, 0, 8), 0);
    assert_eq!(a.send(9, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    expect_completion(b.cq, 8, IBV_WC_SUCCESS);
    expect_completion(a.cq, 9, IBV_WC_SUCCESS);
}

/// Two queue pairs complete in the queue of `b`, in turns. One of them is moved to RESET: its entries are removed, those
/// of the other stay in order.
#[test]
fn reset_removes_completions_of_that_queue_pair() {
    for shared in [0, 16] {
        let (a, mut b) = pair(SideParams {
            shared,
            ..SideParams::default()
        });
        let other = Side::new(SideParams::default());
        let second = b.another_qp();
        let first = core::mem::replace(&mut b.qp, second);
        join(&other, &b);
        b.qp = first;
        let deliver = |from: &Side, b: &Side, id| {
            assert_eq!(b.receive(id, 0, 8), 0);
            assert_eq!(from.send(id, IBV_WR_SEND, from.sge(0, 8), |_| {}), 0);
            expect_completion(from.cq, id, IBV_WC_SUCCESS);
        };
        for id in 0..4 {
            deliver(&a, &b, id);
            b.qp = second;
            deliver(&other, &b, 100 + id);
            b.qp = first;
        }
        // Also of the send queue.
        assert_eq!(a.receive(4, 0, 8), 0);
        assert_eq!(b.send(4, IBV_WR_SEND, b.sge(0, 8), |_| {}), 0);
        expect_completion(a.cq, 4, IBV_WC_SUCCESS);
        assert_eq!(b.to(IBV_QPS_RESET), 0);
        for id in 0..4 {
            expect_completion(b.cq, 100 + id, IBV_WC_SUCCESS);
        }
        assert_no_completion(b.cq);
        assert_eq!(call!(ibv_destroy_qp(second)), 0);
    }
}

/// Receives in the error state are flushed into the queue; RESET removes these entries as well, and a thread that polls
/// at the same time sees no entry after the call returned.
#[test]
fn reset_removes_flushed_work_under_a_poller() {
    for _ in 0..50 {
        let (a, b) = pair(SideParams::default());
        for id in 0..16 {
            assert_eq!(b.receive(id, 0, 8), 0);
        }
        for id in 0..8 {
            assert_eq!(a.send(id, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
        }
        let emptied = core::sync::atomic::AtomicBool::new(false);
        let started = std::sync::Barrier::new(2);
        let cq = b.cq as usize;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                started.wait();
                let mut wc = [ibv_wc::zeroed()];
                loop {
                    let over = emptied.load(core::sync::atomic::Ordering::SeqCst);
                    let n = poll_cq(cq as *mut ibv_cq, &mut wc);
                    if over {
                        assert_eq!(n, 0, "request {} after RESET", wc[0].wr_id);
                        break;
                    }
                }
            });
            started.wait();
            assert_eq!(b.to(IBV_QPS_ERR), 0);
            assert_eq!(b.to(IBV_QPS_RESET), 0);
            emptied.store(true, core::sync::atomic::Ordering::SeqCst);
        });
        assert_no_completion(b.cq);
    }
}

#[test]
fn drained_send_queue_raises_event_and_resumes() {
    let (a, b) = pair(SideParams::default());
    for id in 0..2 {
        assert_eq!(b.receive(id, 0, 8), 0);
    }
    // A request that has not begun would wait, too.
    assert_eq!(a.send(0, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    expect_completion(a.cq, 0, IBV_WC_SUCCESS);
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    assert_eq!(
        a.modify(&mut attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
        0
    );
    expect_qp_event(&a, IBV_EVENT_SQ_DRAINED);
    assert_eq!(a.state(), IBV_QPS_SQD);
    // What is posted now waits.
    assert_eq!(a.send(1, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    assert_no_completion(a.cq);
    assert_eq!(a.to(IBV_QPS_RTS), 0);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    assert_eq!(a.state(), IBV_QPS_RTS);
}

#[test]
fn cq_overflow_raises_cq_err_event() {
    let (a, b) = pair(SideParams {
        entries: 2,
        ..SideParams::default()
    });
    for id in 0..8 {
        assert_eq!(b.receive(id, 0, 8), 0);
    }
    for id in 0..8 {
        let code = a.send(id, IBV_WR_SEND, a.sge(0, 8), |wr| wr.send_flags = 0);
        assert_eq!(code, 0);
    }
    let mut event = b.event();
    while event.event_type != IBV_EVENT_CQ_ERR {
        call!(ibv_ack_async_event(&raw mut event));
        event = b.event();
    }
    assert_eq!(event_object(&event), b.cq.cast());
    call!(ibv_ack_async_event(&raw mut event));
}

#[test]
fn regions_accept_iova_and_reregistration() {
    let (mut a, b) = pair(SideParams::default());
    a.fill(0, b"moved up");
    let mut memory = vec![0_u8; 8192].into_boxed_slice();
    let at = memory.as_mut_ptr();
    let rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    let seen = |offset: usize| {
        let bytes = &memory[offset..offset + 8];
        // SAFETY: `b` is a byte of `memory`; the adapter writes it, so it is read as volatile.
        bytes
            .iter()
            .map(|b| unsafe { ptr::read_volatile(b) })
            .collect::<Vec<u8>>()
    };
    let write = |id, to, key| {
        let code = a.send(id, IBV_WR_RDMA_WRITE, a.sge(0, 8), |wr| rdma(wr, to, key));
        assert_eq!(code, 0);
        expect_completion(a.cq, id, IBV_WC_SUCCESS);
    };
    // SAFETY: `memory` outlives its registrations, each of which ends with `ibv_dereg_mr`, the last use of `mr`.
    unsafe {
        let mr = ibv_reg_mr_iova(b.pd, at.cast(), 4096, 0x10_0000, rights as i32);
        write(1, 0x10_0010, (*mr).rkey);
        assert_eq!(seen(16), b"moved up");
        assert_eq!(ibv_dereg_mr(mr), 0);

        let mr = ibv_reg_mr_iova2(b.pd, at.cast(), 4096, 0x20_0000, rights);
        write(2, 0x20_0020, (*mr).rkey);
        assert_eq!(seen(32), b"moved up");
        assert_eq!(ibv_dereg_mr(mr), 0);

        let zero = (rights | IBV_ACCESS_ZERO_BASED) as i32;
        let mr = ibv_reg_mr(b.pd, at.cast(), 4096, zero);
        write(3, 48, (*mr).rkey);
        assert_eq!(seen(48), b"moved up");
        assert_eq!(ibv_dereg_mr(mr), 0);

        // Another address, then fewer rights; the fields of the region follow.
        let mr = ibv_reg_mr(b.pd, at.cast(), 4096, rights as i32);
        let (later, none) = (at.add(4096), ptr::null_mut());
        let code = ibv_rereg_mr(mr, 1, ptr::null_mut(), later.cast(), 64, 0);
        assert_eq!(code, 0);
        assert_eq!(((*mr).addr, (*mr).length), (later.cast(), 64));
        write(4, later as u64, (*mr).rkey);
        assert_eq!(seen(4096), b"moved up");
        let second = ibv_alloc_pd(b.context);
        assert_eq!(ibv_rereg_mr(mr, 2 | 4, second, none, 0, 1), 0);
        assert_eq!((*mr).pd, second);
        assert_eq!(ibv_dealloc_pd(second), libc::EBUSY);
        let code = a.send(5, IBV_WR_RDMA_WRITE, a.sge(0, 8), |wr| {
            rdma(wr, later as u64, (*mr).rkey);
        });
        assert_eq!(code, 0);
        expect_completion(a.cq, 5, IBV_WC_REM_ACCESS_ERR);
        assert_eq!(ibv_dereg_mr(mr), 0);
        assert_eq!(ibv_dealloc_pd(second), 0);
    }
    expect_qp_event(&b, IBV_EVENT_QP_ACCESS_ERR);
}

#[test]
fn access_change_keeps_region_keys() {
    let (mut a, b) = pair(SideParams::default());
    a.fill(0, b"same key");
    let (all, read) = (
        ALL,
        (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE) as i32,
    );
    let change = |access| {
        // SAFETY: `b.mr` is registered until `b` is dropped; only this thread reads its fields.
        unsafe {
            let before = ((*b.mr).lkey, (*b.mr).rkey, (*b.mr).handle);
            let flags = IBV_REREG_MR_CHANGE_ACCESS as i32;
            let code = ibv_rereg_mr(b.mr, flags, ptr::null_mut(), ptr::null_mut(), 0, access);
            assert_eq!(((*b.mr).lkey, (*b.mr).rkey, (*b.mr).handle), before);
            code
        }
    };
    let post = |id, opcode| {
        let code = a.send(id, opcode, a.sge(0, 8), |wr| {
            rdma(wr, b.at(64), b.rkey());
        });
        assert_eq!(code, 0);
    };
    assert_eq!(change(read), 0);
    post(1, IBV_WR_RDMA_READ);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    assert_eq!(change(all), 0);
    post(2, IBV_WR_RDMA_WRITE);
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
    // Rights that contradict each other or do not exist change nothing.
    assert!(change(IBV_ACCESS_REMOTE_WRITE as i32) < 0);
    assert_eq!(errno(), libc::EINVAL);
    assert!(change(1 << 15) < 0);
    post(3, IBV_WR_RDMA_WRITE);
    expect_completion(a.cq, 3, IBV_WC_SUCCESS);
    // A window keeps the region's rights.
    let mw = alloc_mw(b.pd, IBV_MW_TYPE_1);
    let mut bind = ibv_mw_bind {
        wr_id: 4,
        send_flags: IBV_SEND_SIGNALED,
        bind_info: ibv_mw_bind_info {
            mr: b.mr,
            addr: b.at(0),
            length: 64,
            mw_access_flags: IBV_ACCESS_REMOTE_WRITE,
        },
    };
    assert_eq!(bind_mw(b.qp, mw, &raw mut bind), 0);
    expect_completion(b.cq, 4, IBV_WC_SUCCESS);
    assert!(change(read) < 0);
    assert_eq!(errno(), libc::EBUSY);
    assert_eq!(dealloc_mw(mw), 0);
    assert_eq!(change(read), 0);
    post(5, IBV_WR_RDMA_WRITE);
    expect_completion(a.cq, 5, IBV_WC_REM_ACCESS_ERR);
    expect_qp_event(&b, IBV_EVENT_QP_ACCESS_ERR);
}

#[test]
fn type_one_window_rebind_changes_rkey() {
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
    let key = || window_key(mw);
    let before = key();
    assert_eq!(bind_mw(b.qp, mw, &raw mut bind), 0);
    expect_completion(b.cq, 1, IBV_WC_SUCCESS);
    let first = key();
    assert_ne!(first, before);
    assert_eq!(bind_mw(b.qp, mw, &raw mut bind), 0);
    expect_completion(b.cq, 1, IBV_WC_SUCCESS);
    let code = a.send(2, IBV_WR_RDMA_WRITE, a.sge(0, 8), |wr| {
        rdma(wr, b.at(0), key());
    });
    assert_eq!(code, 0);
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
    // The type, and missing parameters, are checked before anything is queued.
    let two = alloc_mw(b.pd, IBV_MW_TYPE_2);
    assert_eq!(bind_mw(b.qp, two, &raw mut bind), libc::EINVAL);
    assert_eq!(dealloc_mw(two), 0);
    assert_eq!(bind_mw(b.qp, mw, ptr::null_mut()), libc::EINVAL);
    bind.bind_info.mr = ptr::null_mut();
    assert_eq!(bind_mw(b.qp, mw, &raw mut bind), libc::EINVAL);
    // The old key is invalid.
    let code = a.send(3, IBV_WR_RDMA_WRITE, a.sge(0, 8), |wr| {
        rdma(wr, b.at(0), first);
    });
    assert_eq!(code, 0);
    expect_completion(a.cq, 3, IBV_WC_REM_ACCESS_ERR);
    expect_qp_event(&b, IBV_EVENT_QP_ACCESS_ERR);
    assert_eq!(dealloc_mw(mw), 0);
}
