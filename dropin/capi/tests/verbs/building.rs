//! Requests that are built call by call (`ibv_wr_start` to `ibv_wr_complete`), and completions that are read field by field: every
//! operation, every reader, and that an error posts nothing.

use crate::common::*;
use core::ffi::c_void;
use core::ptr;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;
use verbena_testing::own_process;

const OPERATIONS: u32 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_FLUSH
    | IBV_QP_EX_WITH_ATOMIC_WRITE;

fn built() -> SideParams {
    SideParams {
        operations: OPERATIONS.into(),
        ..SideParams::default()
    }
}

/// A queue pair with `ibv_wr_*` functions; its methods call these as the inline functions of the headers do.
struct Builder(*mut ibv_qp_ex);

macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)+) => {
        impl Builder {$(
            fn $name(&self, $($argument: $type),*) $(-> $result)? {
                // SAFETY: the queue pair is the side's, which destroys it later, and was created with this function. Requests are built on one thread, between
                // `wr_start` and `wr_complete` or `wr_abort`; objects, lists and inline data that a test passes are null or valid during the call.
                unsafe { (*self.0).$name.unwrap()(self.0, $($argument),*) }
            }
        )+}
    };
}

functions! {
    fn wr_start();
    fn wr_abort();
    fn wr_complete() -> i32;
    fn wr_send();
    fn wr_send_imm(imm_data: u32);
    fn wr_send_inv(rkey: u32);
    fn wr_rdma_write(rkey: u32, at: u64);
    fn wr_rdma_write_imm(rkey: u32, at: u64, imm_data: u32);
    fn wr_rdma_read(rkey: u32, at: u64);
    fn wr_atomic_cmp_swp(rkey: u32, at: u64, compare: u64, swap: u64);
    fn wr_atomic_fetch_add(rkey: u32, at: u64, add: u64);
    fn wr_atomic_write(rkey: u32, at: u64, atomic_wr: *const c_void);
    fn wr_flush(rkey: u32, at: u64, len: usize, placement: u8, level: u8);
    fn wr_local_inv(rkey: u32);
    fn wr_bind_mw(window: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info);
    fn wr_set_sge(lkey: u32, at: u64, length: u32);
    fn wr_set_sge_list(count: usize, sges: *const ibv_sge);
    fn wr_set_inline_data(at: *mut c_void, length: usize);
    fn wr_set_inline_data_list(count: usize, buffers: *const ibv_data_buf);
}

impl Builder {
    fn of(side: &Side) -> Builder {
        let qp = call!(ibv_qp_to_qp_ex(side.qp));
        assert!(!qp.is_null());
        Builder(qp)
    }

    /// The struct, whose fields the program sets before each request.
    fn fields(&mut self) -> &mut ibv_qp_ex {
        // SAFETY: the queue pair is the side's, which destroys it later; the library reads these fields only in calls of the methods above.
        unsafe { &mut *self.0 }
    }

    fn set_id(&mut self, id: u64) {
        self.fields().wr_id = id;
    }
}

/// Builds with the functions of a queue pair; returns the result of `wr_complete`.
fn build(side: &Side, requests: impl FnOnce(&mut Builder)) -> i32 {
    let mut builder = Builder::of(side);
    builder.wr_start();
    builder.fields().wr_flags = IBV_SEND_SIGNALED;
    requests(&mut builder);
    builder.wr_complete()
}

#[test]
fn every_operation_can_be_built() {
    let (mut a, mut b) = pair(built());
    a.fill(0, b"built up");
    b.fill(512, &5_u64.to_ne_bytes());
    for id in 0..4 {
        assert_eq!(b.receive(id, 1024 + id as usize * 64, 64), 0);
    }
    let (lkey, here, there, rkey) = (a.rkey(), a.at(0), b.at(0), b.rkey());
    let code = build(&a, |qp| {
        let mut id = 100;
        let mut next = |qp: &mut Builder| {
            qp.set_id(id);
            id += 1;
        };
        next(qp);
        qp.wr_send();
        qp.wr_set_sge(lkey, here, 8);
        next(qp);
        qp.wr_send_imm(77_u32.to_be());
        qp.wr_set_inline_data(c"inline".as_ptr().cast_mut().cast(), 6);
        next(qp);
        qp.wr_rdma_write(rkey, there);
        qp.wr_set_sge(lkey, here, 8);
        next(qp);
        qp.wr_rdma_write_imm(rkey, there + 64, 78_u32.to_be());
        let mut two = [
            ibv_sge {
                addr: here,
                length: 4,
                lkey,
            },
            ibv_sge {
                addr: here + 4,
                length: 4,
                lkey,
            },
        ];
        qp.wr_set_sge_list(2, two.as_mut_ptr());
        next(qp);
        qp.wr_rdma_read(rkey, there + 64);
        qp.wr_set_sge(lkey, here + 64, 8);
        next(qp);
        qp.wr_atomic_fetch_add(rkey, there + 512, 2);
        qp.wr_set_sge(lkey, here + 128, 8);
        next(qp);
        qp.wr_atomic_cmp_swp(rkey, there + 512, 7, 99);
        qp.wr_set_sge(lkey, here + 136, 8);
        next(qp);
        qp.wr_rdma_write(rkey, there + 256);
        let buffers = [
            ibv_data_buf {
                addr: c"ab".as_ptr().cast_mut().cast(),
                length: 2,
            },
            ibv_data_buf {
                addr: c"cde".as_ptr().cast_mut().cast(),
                length: 3,
            },
        ];
        qp.wr_set_inline_data_list(2, buffers.as_ptr());
    });
    assert_eq!(code, 0);
    let opcodes = [
        IBV_WC_SEND,
        IBV_WC_SEND,
        IBV_WC_RDMA_WRITE,
        IBV_WC_RDMA_WRITE,
        IBV_WC_RDMA_READ,
        IBV_WC_FETCH_ADD,
        IBV_WC_COMP_SWAP,
        IBV_WC_RDMA_WRITE,
    ];
    for (id, opcode) in (100..).zip(opcodes) {
        assert_eq!(expect_completion(a.cq, id, IBV_WC_SUCCESS).opcode, opcode);
    }
    let received = [0, 1, 2].map(|id| expect_completion(b.cq, id, IBV_WC_SUCCESS));
    assert_eq!(received.map(|wc| wc.byte_len), [8, 6, 8]);
    assert_eq!(received[1].imm_data, 77_u32.to_be());
    assert_eq!(received[2].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_eq!(received[2].imm_data, 78_u32.to_be());
    assert_eq!(b.read(1024, 8), b"built up");
    assert_eq!(b.read(1024 + 64, 6), b"inline");
    assert_eq!(b.read(0, 8), b"built up");
    assert_eq!(a.read(64, 8), b"built up");
    assert_eq!(a.read(128, 8), 5_u64.to_ne_bytes());
    assert_eq!(a.read(136, 8), 7_u64.to_ne_bytes());
    assert_eq!(b.read(512, 8), 99_u64.to_ne_bytes());
    assert_eq!(b.read(256, 5), b"abcde");
}

/// Sides whose peers may flush.
fn flushable() -> SideParams {
    SideParams {
        rights: SideParams::default().rights | IBV_ACCESS_FLUSH_GLOBAL,
        ..built()
    }
}

/// The memory of a side, registered once more with the right to flush it.
fn register_flushable(side: &Side) -> (*mut ibv_mr, u32) {
    let at = side.memory.as_ptr().cast_mut().cast();
    let access = ALL | IBV_ACCESS_FLUSH_GLOBAL as i32;
    let mr = call!(ibv_reg_mr(side.pd, at, SIZE, access));
    assert!(!mr.is_null(), "{}", errno());
    // SAFETY: `mr` was just registered.
    (mr, unsafe { (*mr).rkey })
}

/// The first word of a side's memory that is aligned.
fn aligned(side: &Side) -> usize {
    (8 - side.at(0) % 8) as usize
}

const GLOBAL: u8 = IBV_FLUSH_GLOBAL as u8;
const RANGE: u8 = IBV_FLUSH_RANGE as u8;
const MR: u8 = IBV_FLUSH_MR as u8;

#[test]
fn atomic_write_and_flush_can_be_built() {
    // Without inline data: the word of an atomic write is part of its request.
    let (mut a, b) = pair(SideParams {
        inline: 0,
        ..flushable()
    });
    let (mr, rkey) = register_flushable(&b);
    a.fill(0, b"a record");
    let (lkey, here, there, flag) = (a.rkey(), a.at(0), b.at(1024), aligned(&b));
    let mut word = *b"is valid";
    let code = build(&a, |qp| {
        qp.set_id(1);
        qp.wr_rdma_write(rkey, there);
        qp.wr_set_sge(lkey, here, 8);
        qp.set_id(2);
        qp.wr_flush(rkey, there, 8, GLOBAL, RANGE);
        qp.set_id(3);
        qp.wr_atomic_write(rkey, b.at(flag), word.as_ptr().cast());
        qp.set_id(4);
        qp.wr_flush(rkey, 0, 0, GLOBAL, MR);
        // Copied when it was added.
        word.fill(0);
    });
    assert_eq!(code, 0);
    let opcodes = [
        IBV_WC_RDMA_WRITE,
        IBV_WC_FLUSH,
        IBV_WC_ATOMIC_WRITE,
        IBV_WC_FLUSH,
    ];
    for (id, opcode) in (1..).zip(opcodes) {
        assert_eq!(expect_completion(a.cq, id, IBV_WC_SUCCESS).opcode, opcode);
    }
    assert_eq!(b.read(1024, 8), b"a record");
    assert_eq!(b.read(flag, 8), b"is valid");
    // The other form of an atomic write; a flush has no other form.
    let code = a.send(5, IBV_WR_ATOMIC_WRITE, a.sge(0, 8), |wr| {
        rdma(wr, b.at(flag), rkey);
    });
    assert_eq!(code, 0);
    let wc = expect_completion(a.cq, 5, IBV_WC_SUCCESS);
    assert_eq!((wc.opcode, wc.byte_len), (IBV_WC_ATOMIC_WRITE, 8));
    assert_eq!(b.read(flag, 8), b"a record");
    let code = a.send(6, IBV_WR_FLUSH, a.sge(0, 0), |wr| {
        rdma(wr, b.at(flag), rkey);
    });
    assert_eq!(code, libc::EINVAL);
    let code = a.send(7, IBV_WR_ATOMIC_WRITE, a.sge(0, 4), |wr| {
        rdma(wr, b.at(flag), rkey);
    });
    assert_eq!(code, libc::EINVAL);
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);
}

#[test]
fn invalid_flush_or_atomic_write_posts_nothing() {
    const PERSISTENT: u8 = IBV_FLUSH_PERSISTENT as u8;
    let (a, b) = pair(flushable());
    let (mr, rkey) = register_flushable(&b);
    let there = b.at(0);
    for (placement, level, expected) in [
        (PERSISTENT, RANGE, libc::EOPNOTSUPP),
        (PERSISTENT | GLOBAL, MR, libc::EOPNOTSUPP),
        (0, RANGE, libc::EINVAL),
        (4, RANGE, libc::EINVAL),
        (GLOBAL, 2, libc::EINVAL),
    ] {
        let code = build(&a, |qp| {
            qp.wr_rdma_write(rkey, there);
            qp.wr_flush(rkey, there, 8, placement, level);
        });
        assert_eq!(code, expected, "{placement} {level}");
    }
    let code = build(&a, |qp| qp.wr_atomic_write(rkey, there, ptr::null()));
    assert_eq!(code, libc::EINVAL);
    assert_no_completion(a.cq);
    let at = b.memory.as_ptr().cast_mut().cast();
    let access = ALL | IBV_ACCESS_FLUSH_PERSISTENT as i32;
    let refused = call!(ibv_reg_mr(b.pd, at, SIZE, access));
    assert_refused(refused, libc::EOPNOTSUPP, "persistent");
    assert_eq!(a.state(), IBV_QPS_RTS);
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);
}

#[test]
fn flush_needs_rights_of_queue_pair_and_region() {
    let flush = |a: &Side, b: &Side, rkey| {
        let code = build(a, |qp| {
            qp.set_id(1);
            qp.wr_flush(rkey, b.at(0), 8, GLOBAL, RANGE);
        });
        assert_eq!(code, 0);
    };
    let (a, b) = pair(built());
    let (mr, rkey) = register_flushable(&b);
    flush(&a, &b, rkey);
    expect_completion(a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);

    let (a, b) = pair(flushable());
    flush(&a, &b, b.rkey());
    expect_completion(a.cq, 1, IBV_WC_REM_ACCESS_ERR);
}

#[test]
fn device_reports_atomic_write_and_flush() {
    let side = Side::new(built());
    let query = verbs_of(side.context).query_device_ex.unwrap();
    let mut attr = ibv_device_attr_ex::zeroed();
    let size = size_of::<ibv_device_attr_ex>();
    let code = call!(query(side.context, ptr::null(), &raw mut attr, size));
    assert_eq!(code, 0);
    let flags = attr.device_cap_flags_ex;
    let has = IB_UVERBS_DEVICE_ATOMIC_WRITE | IB_UVERBS_DEVICE_FLUSH_GLOBAL;
    assert_eq!(flags & has, has);
    assert_eq!(flags & IB_UVERBS_DEVICE_FLUSH_PERSISTENT, 0);
}

/// With `wire = roce` requests of these kinds fail, so they are not reported.
#[test]
fn device_over_roce_reports_no_extensions() {
    own_process!();
    // SAFETY: the process was made for this test and has one thread; set_var(3) has no concurrent reader of the environment.
    unsafe {
        std::env::set_var("VERBENA_WIRE", "roce");
        std::env::set_var("VERBENA_DEVICE", "127.0.0.1");
    }
    let side = Side::new(built());
    let query = verbs_of(side.context).query_device_ex.unwrap();
    let mut attr = ibv_device_attr_ex::zeroed();
    let size = size_of::<ibv_device_attr_ex>();
    let code = call!(query(side.context, ptr::null(), &raw mut attr, size));
    assert_eq!(code, 0);
    let extensions =
        u64::from(IBV_DEVICE_XRC) | IB_UVERBS_DEVICE_ATOMIC_WRITE | IB_UVERBS_DEVICE_FLUSH_GLOBAL;
    assert_eq!(attr.device_cap_flags_ex & extensions, 0);
    assert_eq!(attr.orig_attr.device_cap_flags & IBV_DEVICE_XRC, 0);
    assert_eq!(attr.xrc_odp_caps, 0);
    let windows = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    assert_eq!(attr.orig_attr.device_cap_flags & windows, windows);
    let mut old = ibv_device_attr::zeroed();
    assert_eq!(call!(ibv_query_device(side.context, &raw mut old)), 0);
    assert_eq!(old.device_cap_flags, attr.orig_attr.device_cap_flags);
}

#[test]
fn built_requests_bind_and_invalidate_windows() {
    let (a, b) = pair(built());
    let mw = alloc_mw(b.pd, IBV_MW_TYPE_2);
    let key = window_key(mw) + 1;
    let info = ibv_mw_bind_info {
        mr: b.mr,
        addr: b.at(0),
        length: 64,
        mw_access_flags: IBV_ACCESS_REMOTE_WRITE,
    };
    let bind = |id| {
        let code = build(&b, |qp| {
            qp.set_id(id);
            qp.wr_bind_mw(mw, key, &raw const info);
        });
        assert_eq!(code, 0);
        assert_eq!(
            expect_completion(b.cq, id, IBV_WC_SUCCESS).opcode,
            IBV_WC_BIND_MW
        );
    };
    let write = |id| {
        let code = a.send(id, IBV_WR_RDMA_WRITE, a.sge(0, 8), |wr| {
            rdma(wr, b.at(0), key);
        });
        assert_eq!(code, 0);
    };
    bind(1);
    write(2);
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
    // Its owner invalidates it, binds it again, and the peer invalidates it.
    let code = build(&b, |qp| {
        qp.set_id(3);
        qp.wr_local_inv(key);
    });
    assert_eq!(code, 0);
    assert_eq!(
        expect_completion(b.cq, 3, IBV_WC_SUCCESS).opcode,
        IBV_WC_LOCAL_INV
    );
    bind(4);
    assert_eq!(b.receive(5, 0, 8), 0);
    let code = build(&a, |qp| {
        qp.set_id(6);
        qp.wr_send_inv(key);
    });
    assert_eq!(code, 0);
    let wc = expect_completion(b.cq, 5, IBV_WC_SUCCESS);
    assert_eq!((wc.wc_flags, wc.imm_data), (IBV_WC_WITH_INV, key));
    expect_completion(a.cq, 6, IBV_WC_SUCCESS);
    write(7);
    expect_completion(a.cq, 7, IBV_WC_REM_ACCESS_ERR);
    let mut event = b.event();
    assert_eq!(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    call!(ibv_ack_async_event(&raw mut event));
    assert_eq!(dealloc_mw(mw), 0);
}

/// M7: with `remote_access = windows` a peer accesses memory through a window, and never by the key of its region.
#[test]
fn remote_access_setting_allows_windows_only() {
    own_process!();
    // SAFETY: one thread in this process so far (`own_process!`), so that nothing reads the environment meanwhile.
    unsafe { std::env::set_var("VERBENA_REMOTE_ACCESS", "windows") };
    let (a, b) = pair(built());
    let mw = alloc_mw(b.pd, IBV_MW_TYPE_2);
    let key = window_key(mw) + 1;
    let info = ibv_mw_bind_info {
        mr: b.mr,
        addr: b.at(0),
        length: 64,
        mw_access_flags: IBV_ACCESS_REMOTE_WRITE,
    };
    let code = build(&b, |qp| {
        qp.set_id(1);
        qp.wr_bind_mw(mw, key, &raw const info);
    });
    assert_eq!(code, 0);
    expect_completion(b.cq, 1, IBV_WC_SUCCESS);
    for (id, rkey, status) in [
        (2, key, IBV_WC_SUCCESS),
        (3, b.rkey(), IBV_WC_REM_ACCESS_ERR),
    ] {
        let write = |wr: &mut ibv_send_wr| rdma(wr, b.at(0), rkey);
        assert_eq!(a.send(id, IBV_WR_RDMA_WRITE, a.sge(0, 8), write), 0);
        expect_completion(a.cq, id, status);
    }
    let mut event = b.event();
    assert_eq!(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    call!(ibv_ack_async_event(&raw mut event));
    assert_eq!(dealloc_mw(mw), 0);
}

#[test]
fn aborting_posts_nothing() {
    let (a, b) = pair(built());
    assert_eq!(b.receive(1, 0, 8), 0);
    let qp = Builder::of(&a);
    qp.wr_start();
    qp.wr_send();
    qp.wr_abort();
    assert_no_completion(b.cq);
    // Completing without a start is an error.
    qp.wr_abort();
    assert_eq!(qp.wr_complete(), libc::EINVAL);
    assert_eq!(build(&a, |_| ()), 0, "nothing is a list, too");
    let code = build(&a, |qp| {
        qp.set_id(2);
        qp.wr_send();
    });
    assert_eq!(code, 0);
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
    expect_completion(b.cq, 1, IBV_WC_SUCCESS);
}

#[test]
fn one_invalid_request_posts_none_of_list() {
    let (a, b) = pair(built());
    assert_eq!(b.receive(1, 0, 8), 0);
    let (lkey, rkey, here, there) = (a.rkey(), b.rkey(), a.at(0), b.at(0));
    let mistakes = [
        "inline too long",
        "too many pieces",
        "unknown flags",
        "an inline read",
        "an atomic of seven bytes",
        "binding nothing",
        "a missing list",
    ];
    for what in mistakes {
        let code = build(&a, |qp| {
            let memory = here as *mut _;
            qp.set_id(1);
            qp.wr_send();
            match what {
                "inline too long" => {
                    qp.wr_send();
                    qp.wr_set_inline_data(memory, 65);
                }
                "too many pieces" => {
                    qp.wr_send();
                    qp.wr_set_sge_list(5, [a.sge(0, 1); 5].as_ptr());
                }
                "unknown flags" => {
                    qp.fields().wr_flags = 1 << 20;
                    qp.wr_send();
                }
                "an inline read" => {
                    qp.wr_rdma_read(rkey, there);
                    qp.wr_set_inline_data(memory, 8);
                }
                "an atomic of seven bytes" => {
                    qp.wr_atomic_fetch_add(rkey, there, 1);
                    qp.wr_set_sge(lkey, here, 7);
                }
                "binding nothing" => {
                    qp.wr_bind_mw(ptr::null_mut(), 1, ptr::null());
                }
                _ => {
                    qp.wr_send();
                    qp.wr_set_sge_list(1, ptr::null());
                }
            }
            qp.wr_send();
        });
        assert_eq!(code, libc::EINVAL, "{what}");
    }
    assert_no_completion(b.cq);
    assert_no_completion(a.cq);
    // More than the queue holds.
    let code = build(&a, |qp| {
        for _ in 0..17 {
            qp.wr_send();
        }
    });
    assert_eq!(code, libc::ENOMEM);
    assert_no_completion(b.cq);
    assert_eq!(a.state(), IBV_QPS_RTS);
}

#[test]
fn only_requested_send_operations_are_set() {
    let side = Side::new(SideParams {
        operations: IBV_QP_EX_WITH_SEND.into(),
        ..SideParams::default()
    });
    let mut qp = Builder::of(&side);
    let qp = qp.fields();
    assert!(qp.wr_send.is_some() && qp.wr_rdma_write.is_none());
}

#[test]
fn completions_are_read_one_by_one() {
    let (a, mut b) = pair(SideParams::default());
    let readers = IBV_WC_EX_WITH_BYTE_LEN
        | IBV_WC_EX_WITH_IMM
        | IBV_WC_EX_WITH_QP_NUM
        | IBV_WC_EX_WITH_SRC_QP
        | IBV_WC_EX_WITH_SLID
        | IBV_WC_EX_WITH_SL
        | IBV_WC_EX_WITH_DLID_PATH_BITS;
    let mut attr = ibv_cq_init_attr_ex {
        cqe: 16,
        wc_flags: readers.into(),
        ..ibv_cq_init_attr_ex::zeroed()
    };
    // SAFETY: `cq` exists until the last call, which destroys it; the functions that the test calls were requested in `attr`, and the readers are called
    // between a `start_poll` that succeeded and `end_poll`, on this thread.
    unsafe {
        let cq = verbs_of(b.context).create_cq_ex.unwrap()(b.context, &raw mut attr);
        assert!(!cq.is_null());
        let start = (*cq).start_poll.unwrap();
        let (next, end) = ((*cq).next_poll.unwrap(), (*cq).end_poll.unwrap());
        let mut poll = ibv_poll_cq_attr { comp_mask: 0 };
        assert_eq!(start(cq, &raw mut poll), libc::ENOENT);
        end(cq);
        poll.comp_mask = 1;
        assert_eq!(start(cq, &raw mut poll), libc::EINVAL);
        poll.comp_mask = 0;
        // The queue pair completes there from now on.
        b.destroy_qp();
        let mut init = b.init();
        (init.send_cq, init.recv_cq) = (cq.cast(), cq.cast());
        b.qp = ibv_create_qp(b.pd, &raw mut init);
        assert_eq!(a.to(IBV_QPS_RESET), 0);
        join(&a, &b);
        for id in 0..2 {
            assert_eq!(b.receive(id, 0, 8), 0);
            let code = a.send(id, IBV_WR_SEND_WITH_IMM, a.sge(0, 8), |wr| {
                wr.imm_data = 9;
            });
            assert_eq!(code, 0);
            expect_completion(a.cq, id, IBV_WC_SUCCESS);
        }
        while start(cq, &raw mut poll) == libc::ENOENT {}
        for id in 0..2 {
            if id > 0 {
                while next(cq) == libc::ENOENT {}
            }
            assert_eq!(((*cq).wr_id, (*cq).status), (id, IBV_WC_SUCCESS));
            assert_eq!((*cq).read_opcode.unwrap()(cq), IBV_WC_RECV);
            assert_eq!((*cq).read_byte_len.unwrap()(cq), 8);
            assert_eq!((*cq).read_imm_data.unwrap()(cq), 9);
            assert_eq!((*cq).read_qp_num.unwrap()(cq), b.number());
            assert_eq!((*cq).read_wc_flags.unwrap()(cq), IBV_WC_WITH_IMM);
            assert_eq!((*cq).read_vendor_err.unwrap()(cq), 0);
            for read in [(*cq).read_src_qp, (*cq).read_slid] {
                read.unwrap()(cq);
            }
            for read in [(*cq).read_sl, (*cq).read_dlid_path_bits] {
                assert_eq!(read.unwrap()(cq), 0);
            }
        }
        assert_eq!(next(cq), libc::ENOENT);
        end(cq);
        // It is unlocked now, and can be polled again, by either interface.
        assert_eq!(start(cq, &raw mut poll), libc::ENOENT);
        assert_eq!(poll_cq(cq.cast(), &mut [ibv_wc::zeroed()]), 0);
        b.destroy_qp();
        assert_eq!(ibv_destroy_cq(cq.cast()), 0);
    }
}
