//! Reliable connections between two queue pairs of one process, used as C programs use them: every operation, every field of a
//! completion, every status.

use crate::common::*;
use core::ptr;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

#[test]
fn sends_arrive_with_and_without_immediate_data() {
    let (mut a, b) = pair(SideParams::default());
    a.fill(0, b"verbena");
    assert_eq!(b.receive(1, 100, 64), 0);
    assert_eq!(b.receive(2, 200, 64), 0);
    assert_eq!(a.send(3, IBV_WR_SEND, a.sge(0, 7), |_| {}), 0);
    let code = a.send(4, IBV_WR_SEND_WITH_IMM, a.sge(0, 7), |wr| {
        wr.imm_data = 0x0102_0304_u32.to_be();
    });
    assert_eq!(code, 0);
    let wc = expect_completion(b.cq, 1, IBV_WC_SUCCESS);
    assert_eq!((wc.opcode, wc.byte_len, wc.wc_flags), (IBV_WC_RECV, 7, 0));
    assert_eq!(wc.qp_num, b.number());
    let wc = expect_completion(b.cq, 2, IBV_WC_SUCCESS);
    assert_eq!(wc.wc_flags, IBV_WC_WITH_IMM);
    assert_eq!(wc.imm_data, 0x0102_0304_u32.to_be());
    assert_eq!(b.read(100, 7), b"verbena");
    for id in [3, 4] {
        let wc = expect_completion(a.cq, id, IBV_WC_SUCCESS);
        assert_eq!((wc.opcode, wc.qp_num), (IBV_WC_SEND, a.number()));
    }
}

#[test]
fn writes_reads_and_atomics_reach_remote_memory() {
    let (mut a, b) = pair(SideParams::default());
    a.fill(0, b"write me");
    let code = a.send(1, IBV_WR_RDMA_WRITE, a.sge(0, 8), |wr| {
        rdma(wr, b.at(64), b.rkey());
    });
    assert_eq!(code, 0);
    assert_eq!(
        expect_completion(a.cq, 1, IBV_WC_SUCCESS).opcode,
        IBV_WC_RDMA_WRITE
    );
    assert_eq!(b.read(64, 8), b"write me");

    assert_eq!(b.receive(2, 0, 8), 0);
    let code = a.send(3, IBV_WR_RDMA_WRITE_WITH_IMM, a.sge(0, 8), |wr| {
        rdma(wr, b.at(128), b.rkey());
        wr.imm_data = 5;
    });
    assert_eq!(code, 0);
    let wc = expect_completion(b.cq, 2, IBV_WC_SUCCESS);
    assert_eq!((wc.opcode, wc.byte_len), (IBV_WC_RECV_RDMA_WITH_IMM, 8));
    assert_eq!((wc.wc_flags, wc.imm_data), (IBV_WC_WITH_IMM, 5));
    assert_eq!(
        expect_completion(a.cq, 3, IBV_WC_SUCCESS).opcode,
        IBV_WC_RDMA_WRITE
    );
    assert_eq!(b.read(128, 8), b"write me");

    let code = a.send(4, IBV_WR_RDMA_READ, a.sge(256, 8), |wr| {
        rdma(wr, b.at(128), b.rkey());
    });
    assert_eq!(code, 0);
    let wc = expect_completion(a.cq, 4, IBV_WC_SUCCESS);
    assert_eq!((wc.opcode, wc.byte_len), (IBV_WC_RDMA_READ, 8));
    assert_eq!(a.read(256, 8), b"write me");

    let mut b = b;
    b.fill(512, &40_u64.to_ne_bytes());
    let atomic = |wr: &mut ibv_send_wr, compare_add, swap| {
        wr.wr.atomic = ibv_send_wr__wr__atomic {
            remote_addr: b.at(512),
            compare_add,
            swap,
            rkey: b.rkey(),
        };
    };
    let code = a.send(5, IBV_WR_ATOMIC_FETCH_AND_ADD, a.sge(300 + 4, 8), |wr| {
        atomic(wr, 2, 0);
    });
    assert_eq!(code, 0);
    let wc = expect_completion(a.cq, 5, IBV_WC_SUCCESS);
    assert_eq!((wc.opcode, wc.byte_len), (IBV_WC_FETCH_ADD, 8));
    assert_eq!(a.read(304, 8), 40_u64.to_ne_bytes());
    let code = a.send(6, IBV_WR_ATOMIC_CMP_AND_SWP, a.sge(304, 8), |wr| {
        atomic(wr, 42, 9);
    });
    assert_eq!(code, 0);
    assert_eq!(
        expect_completion(a.cq, 6, IBV_WC_SUCCESS).opcode,
        IBV_WC_COMP_SWAP
    );
    assert_eq!(a.read(304, 8), 42_u64.to_ne_bytes());
    assert_eq!(b.read(512, 8), 9_u64.to_ne_bytes());
}

#[test]
fn inline_data_is_copied_at_post_without_lkey() {
    let (a, b) = pair(SideParams::default());
    assert_eq!(b.receive(1, 0, 64), 0);
    let mut bytes = *b"inline, at most sixty-four bytes";
    let piece = ibv_sge {
        addr: bytes.as_ptr() as u64,
        length: 32,
        lkey: 0xdead_beef,
    };
    let code = a.send(2, IBV_WR_SEND, piece, |wr| wr.send_flags |= IBV_SEND_INLINE);
    assert_eq!(code, 0);
    bytes.fill(0);
    core::hint::black_box(&mut bytes);
    expect_completion(b.cq, 1, IBV_WC_SUCCESS);
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
    assert_eq!(b.read(0, 32), b"inline, at most sixty-four bytes");
}

#[test]
fn unsignalled_requests_complete_silently_unless_all_are_signalled() {
    let (a, b) = pair(SideParams::default());
    for id in 0..8 {
        assert_eq!(b.receive(id, 0, 8), 0);
    }
    for id in 0..3 {
        let code = a.send(id, IBV_WR_SEND, a.sge(0, 8), |wr| wr.send_flags = 0);
        assert_eq!(code, 0);
    }
    assert_eq!(a.send(3, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    expect_completion(a.cq, 3, IBV_WC_SUCCESS);
    assert_no_completion(a.cq);

    let (a, b) = pair(SideParams {
        all_signaled: true,
        ..SideParams::default()
    });
    assert_eq!(b.receive(1, 0, 8), 0);
    let code = a.send(2, IBV_WR_SEND, a.sge(0, 8), |wr| wr.send_flags = 0);
    assert_eq!(code, 0);
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
}

#[test]
fn srq_limit_event_is_raised_once() {
    let wanted = SideParams {
        shared: 8,
        ..SideParams::default()
    };
    let (a, b) = pair(wanted);
    for id in 0..4 {
        assert_eq!(b.receive(id, 0, 64), 0);
    }
    let mut attr = ibv_srq_attr {
        max_wr: 0,
        max_sge: 0,
        srq_limit: 3,
    };
    assert_eq!(
        call!(ibv_modify_srq(b.srq, &raw mut attr, IBV_SRQ_LIMIT as i32)),
        0
    );
    assert_eq!(call!(ibv_query_srq(b.srq, &raw mut attr)), 0);
    assert_eq!((attr.max_wr, attr.max_sge, attr.srq_limit), (8, 4, 3));
    for id in 0..3 {
        assert_eq!(a.send(id, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
        expect_completion(a.cq, id, IBV_WC_SUCCESS);
        expect_completion(b.cq, id, IBV_WC_SUCCESS);
    }
    let mut event = b.event();
    assert_eq!(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    assert_eq!(event_object(&event), b.srq.cast());
    call!(ibv_ack_async_event(&raw mut event));
    assert_eq!(call!(ibv_query_srq(b.srq, &raw mut attr)), 0);
    assert_eq!(attr.srq_limit, 0, "told once");
    // Receives go to the shared queue.
    let mut wr = ibv_recv_wr::zeroed();
    let mut bad = ptr::null_mut();
    assert_eq!(post_recv(b.qp, &raw mut wr, &raw mut bad), libc::EINVAL);
    assert_eq!(bad, &raw mut wr);
    assert!(!readable(
        b.async_fd(),
        core::time::Duration::from_millis(50)
    ));
}

#[test]
fn resize_cq_keeps_waiting_completions() {
    let (a, b) = pair(SideParams::default());
    for id in 0..8 {
        assert_eq!(b.receive(id, 0, 8), 0);
        assert_eq!(a.send(id, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    }
    for id in 0..8 {
        expect_completion(a.cq, id, IBV_WC_SUCCESS);
    }
    // SAFETY: `b.cq` is destroyed when `b` is dropped; its size is changed and read on this thread only.
    let size = || unsafe { (*b.cq).cqe };
    assert_eq!(call!(ibv_resize_cq(b.cq, 4)), libc::EINVAL, "eight wait");
    assert_eq!(size(), 64);
    assert_eq!(call!(ibv_resize_cq(b.cq, 200)), 0);
    assert_eq!(size(), 200);
    assert_eq!(call!(ibv_resize_cq(b.cq, 8)), 0);
    for id in 0..8 {
        expect_completion(b.cq, id, IBV_WC_SUCCESS);
    }
    assert_no_completion(b.cq);
}

#[test]
fn each_arming_raises_one_matching_event() {
    let (a, b) = pair(SideParams {
        with_channel: true,
        ..SideParams::default()
    });
    let short = core::time::Duration::from_millis(50);
    let fd = b.channel_fd();
    for id in 0..4 {
        assert_eq!(b.receive(id, 0, 8), 0);
    }
    assert_eq!(req_notify_cq(b.cq, 1), 0);
    assert_eq!(a.send(0, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    expect_completion(b.cq, 0, IBV_WC_SUCCESS);
    assert!(!readable(fd, short), "not solicited");
    let solicited = |wr: &mut ibv_send_wr| wr.send_flags |= IBV_SEND_SOLICITED;
    for id in [1, 2] {
        assert_eq!(a.send(id, IBV_WR_SEND, a.sge(0, 8), solicited), 0);
        expect_completion(b.cq, id, IBV_WC_SUCCESS);
    }
    let (mut cq, mut name) = (ptr::null_mut(), ptr::dangling_mut());
    assert_eq!(
        call!(ibv_get_cq_event(b.channel, &raw mut cq, &raw mut name)),
        0
    );
    assert_eq!((cq, name), (b.cq, ptr::null_mut()));
    call!(ibv_ack_cq_events(cq, 1));
    assert!(!readable(fd, short), "one per arming");
    assert_eq!(req_notify_cq(b.cq, 0), 0);
    assert_eq!(a.send(3, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    assert!(readable(fd, LONG));
    assert_eq!(
        call!(ibv_get_cq_event(b.channel, &raw mut cq, &raw mut name)),
        0
    );
    call!(ibv_ack_cq_events(cq, 1));
}

#[test]
fn moderation_is_accepted_and_events_still_arrive() {
    let (a, b) = pair(SideParams {
        with_channel: true,
        ..SideParams::default()
    });
    let mut attr = ibv_modify_cq_attr {
        attr_mask: IBV_CQ_ATTR_MODERATE,
        moderate: ibv_moderate_cq {
            cq_count: 4,
            cq_period: 1000,
        },
    };
    let modify = verbs_of(b.context).modify_cq.unwrap();
    assert_eq!(call!(modify(b.cq, &raw mut attr)), 0);
    assert_eq!(call!(modify(b.cq, &raw mut attr)), 0);
    attr.attr_mask = 2;
    assert_eq!(call!(modify(b.cq, &raw mut attr)), libc::EOPNOTSUPP);
    assert_eq!(call!(modify(b.cq, ptr::null_mut())), libc::EINVAL);
    assert_eq!(b.receive(1, 0, 8), 0);
    assert_eq!(req_notify_cq(b.cq, 0), 0);
    assert_eq!(a.send(1, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    assert!(readable(b.channel_fd(), LONG), "the period is over");
    let (mut cq, mut name) = (ptr::null_mut(), ptr::null_mut());
    let code = call!(ibv_get_cq_event(b.channel, &raw mut cq, &raw mut name));
    assert_eq!(code, 0);
    call!(ibv_ack_cq_events(cq, 1));
    expect_completion(b.cq, 1, IBV_WC_SUCCESS);
}

/// libiscsi keeps its scatter/gather entries in a packed struct: they may be at any address.
#[test]
fn sge_lists_may_be_unaligned() {
    /// Eight bytes and one, so that the list is at an odd address wherever the struct lies.
    #[repr(C)]
    struct PackedSges {
        aligned: u64,
        before: u8,
        pieces: [ibv_sge; 2],
    }
    let (mut a, b) = pair(SideParams::default());
    a.fill(0, b"odd");
    a.fill(50, b" even");
    let mut kept = PackedSges {
        aligned: 0,
        before: 0,
        pieces: [b.sge(100, 2), b.sge(200, 6)],
    };
    assert_eq!((&raw const kept.pieces).addr() % 2, 1);
    let mut wr = ibv_recv_wr {
        wr_id: 1,
        next: ptr::null_mut(),
        sg_list: (&raw mut kept.pieces).cast(),
        num_sge: 2,
    };
    assert_eq!(post_recv(b.qp, &raw mut wr, ptr::null_mut()), 0);
    kept.pieces = [a.sge(0, 3), a.sge(50, 5)];
    let mut wr = request(2, IBV_WR_SEND);
    (wr.sg_list, wr.num_sge) = ((&raw mut kept.pieces).cast(), 2);
    assert_eq!(post_send(a.qp, &raw mut wr, ptr::null_mut()), 0);
    assert_eq!(expect_completion(b.cq, 1, IBV_WC_SUCCESS).byte_len, 8);
    assert_eq!(
        (b.read(100, 2), b.read(200, 6)),
        (b"od".to_vec(), b"d even".to_vec())
    );
    assert_eq!((kept.aligned, kept.before), (0, 0));
}
