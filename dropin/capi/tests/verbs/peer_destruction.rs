//! Sides that are destroyed while the other works: requests of the remaining side end with an error, and nothing hangs.

use crate::common::*;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use verbena_capi::abi::*;
use verbena_capi::verbs::*;
use verbena_testing::wait_until;

#[test]
fn request_to_destroyed_peer_exceeds_retries() {
    let (a, mut b) = pair(SideParams::default());
    assert_eq!(b.receive(1, 0, 8), 0);
    assert_eq!(a.send(1, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    b.destroy_qp();
    // As on an adapter, the loss is not reported before the next request (docs/connections.md).
    assert_eq!(a.state(), IBV_QPS_RTS);
    assert_eq!(a.send(2, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    expect_completion(a.cq, 2, IBV_WC_RETRY_EXC_ERR);
    assert_eq!(a.state(), IBV_QPS_ERR);
}

#[test]
fn pending_request_fails_when_peer_is_destroyed() {
    let (a, mut b) = pair(SideParams::default());
    assert_eq!(a.send(2, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    assert_no_completion(a.cq);
    b.destroy_qp();
    expect_completion(a.cq, 2, IBV_WC_RETRY_EXC_ERR);
}

/// Writes run while their target memory, queue pair and completion queue are destroyed, at different times.
#[test]
fn objects_can_be_destroyed_under_traffic() {
    for round in 0..30 {
        let (a, b) = pair(SideParams {
            all_signaled: true,
            ..SideParams::default()
        });
        let (stop, polls) = (AtomicBool::new(false), AtomicU64::new(0));
        let (to, key) = (b.at(0), b.rkey());
        std::thread::scope(|scope| {
            let (stop, polls, a) = (&stop, &polls, a);
            scope.spawn(move || {
                let a = a;
                let mut wc = [ibv_wc::zeroed(); 8];
                while !stop.load(Ordering::Relaxed) {
                    let mut piece = a.sge(0, 4096);
                    let mut wr = request(1, IBV_WR_RDMA_WRITE);
                    (wr.sg_list, wr.num_sge) = (&raw mut piece, 1);
                    rdma(&mut wr, to, key);
                    // The queue may be full, or in the error state.
                    let _ = post_send(a.qp, &raw mut wr, core::ptr::null_mut());
                    assert!(poll_cq(a.cq, &mut wc) >= 0);
                    polls.fetch_add(1, Ordering::Relaxed);
                }
            });
            let polled = |count: u64| {
                let enough = polls.load(Ordering::Relaxed) + count;
                wait_until("it polls", || polls.load(Ordering::Relaxed) >= enough);
            };
            polled(100 * round);
            drop(b);
            polled(1000);
            stop.store(true, Ordering::Relaxed);
        });
    }
}

/// Deregistered memory is not written any more, although the peer still tries.
#[test]
fn deregistered_memory_is_not_written() {
    let (a, b) = pair(SideParams {
        all_signaled: true,
        ..SideParams::default()
    });
    for round in 0..20 {
        let (mut memory, rights) = (vec![0_u8; 1 << 16], ALL);
        // SAFETY: `memory` outlives the registration, which ends in the same round.
        let mr = unsafe { ibv_reg_mr(b.pd, memory.as_mut_ptr().cast(), memory.len(), rights) };
        assert!(!mr.is_null());
        // SAFETY: `mr` is registered until it is passed to `ibv_dereg_mr` below.
        let key = unsafe { (*mr).rkey };
        for id in 0..8 {
            let code = a.send(id, IBV_WR_RDMA_WRITE, a.sge(0, 1 << 15), |wr| {
                rdma(wr, memory.as_ptr() as u64, key);
            });
            assert_eq!(code, 0, "round {round}");
        }
        (0..5 * round).for_each(|_| std::thread::yield_now());
        assert_eq!(call!(ibv_dereg_mr(mr)), 0);
        memory.fill(0xee);
        let mut failed = false;
        for _ in 0..8 {
            failed |= next_completion(a.cq).status != IBV_WC_SUCCESS;
        }
        for byte in &memory {
            // SAFETY: `byte` is one of `memory`, which nothing registers any more; the read is volatile to see what the adapter has written.
            assert_eq!(unsafe { core::ptr::read_volatile(byte) }, 0xee);
        }
        if failed {
            let mut event = b.event();
            call!(ibv_ack_async_event(&raw mut event));
            assert_eq!((a.to(IBV_QPS_RESET), b.to(IBV_QPS_RESET)), (0, 0));
            join(&a, &b);
        }
    }
}

/// The buffers of its receives are not in the queue pair's domain.
#[test]
fn a_shared_queue_of_another_domain_is_refused() {
    let side = Side::new(SideParams::default());
    let pd = call!(ibv_alloc_pd(side.context));
    let mut attr = ibv_srq_init_attr::zeroed();
    attr.attr.max_wr = 4;
    let srq = call!(ibv_create_srq(pd, &raw mut attr));
    let mut init = side.init();
    init.srq = srq;
    let qp = call!(ibv_create_qp(side.pd, &raw mut init));
    assert_refused(qp, libc::EINVAL, "a shared queue of another domain");
    assert_eq!(call!(ibv_destroy_srq(srq)), 0);
    assert_eq!(call!(ibv_dealloc_pd(pd)), 0);
}
