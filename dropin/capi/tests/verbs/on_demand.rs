//! On-demand paging: regions whose pages are mapped after registration or never, the whole address space as one region, and advice about pages.
//! The adapter's copies fault pages in; an access to a page that is not mapped fails its request, and the process goes on.

use crate::common::*;
use crate::datagrams;
use core::ffi::{c_int, c_void};
use core::ptr;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

const PAGE: usize = 4096;
const LEN: usize = 32 * PAGE;
const ON_DEMAND: c_int = ALL | IBV_ACCESS_ON_DEMAND as c_int;
/// Framed in one short copy, staged, and left in place for the system call.
const SIZES: [u32; 3] = [16, 8 << 10, 100_000];

/// Addresses that the program has reserved; nothing is accessible there at first.
struct Reserved(*mut c_void);

impl Reserved {
    fn new() -> Reserved {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses unused addresses.
        let at = unsafe { libc::mmap(ptr::null_mut(), LEN, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Reserved(at)
    }

    fn make_accessible(&self) {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the mapping belongs to this struct.
        assert_eq!(unsafe { libc::mprotect(self.0, LEN, rights) }, 0);
    }

    /// How many of its pages are in memory.
    fn resident(&self) -> usize {
        let mut pages = [0_u8; LEN / PAGE];
        // SAFETY: the mapping has this length, and `pages` one byte for each of its pages.
        assert_eq!(unsafe { libc::mincore(self.0, LEN, pages.as_mut_ptr()) }, 0);
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= LEN);
        // SAFETY: accessible, of this length, and no request is under way.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len()) };
    }

    fn bytes(&self, len: usize) -> Vec<u8> {
        // SAFETY: accessible, of this length, and no request is under way.
        unsafe { core::slice::from_raw_parts(self.0.cast::<u8>(), len) }.to_vec()
    }

    fn piece(&self, mr: *mut ibv_mr, length: u32) -> ibv_sge {
        sge_of(mr, self.0 as u64, length)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; every region of it is deregistered before.
        unsafe { libc::munmap(self.0, LEN) };
    }
}

fn sge_of(mr: *mut ibv_mr, addr: u64, length: u32) -> ibv_sge {
    ibv_sge {
        addr,
        length,
        lkey: key(mr),
    }
}

fn key(mr: *mut ibv_mr) -> u32 {
    // SAFETY: the test has not deregistered the region.
    unsafe { (*mr).lkey }
}

#[track_caller]
fn register(side: &Side, at: *mut c_void, len: usize, access: c_int) -> *mut ibv_mr {
    let mr = call!(ibv_reg_mr(side.pd, at, len, access));
    assert!(!mr.is_null(), "{}", errno());
    mr
}

#[track_caller]
fn deregister(mr: *mut ibv_mr) {
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);
}

fn pattern(len: u32) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8 + 1).collect()
}

#[test]
fn pages_may_be_mapped_after_registration() {
    for size in SIZES {
        for opcode in [IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
            let (a, b) = pair(SideParams::default());
            let (from, to) = (Reserved::new(), Reserved::new());
            let at_a = register(&a, from.0, LEN, ON_DEMAND);
            let at_b = register(&b, to.0, LEN, ON_DEMAND);
            from.make_accessible();
            to.make_accessible();
            let bytes = pattern(size);
            let read = opcode == IBV_WR_RDMA_READ;
            if read { &to } else { &from }.fill(&bytes);
            assert_eq!(b.receive_into(5, to.piece(at_b, size)), 0);
            let remote = |wr: &mut ibv_send_wr| rdma(wr, to.0 as u64, key(at_b));
            assert_eq!(a.send(1, opcode, from.piece(at_a, size), remote), 0);
            expect_completion(a.cq, 1, IBV_WC_SUCCESS);
            if opcode == IBV_WR_SEND {
                expect_completion(b.cq, 5, IBV_WC_SUCCESS);
            }
            let got = if read { &from } else { &to }.bytes(size as usize);
            assert_eq!(got, bytes, "operation {opcode}, {size} bytes");
            deregister(at_a);
            deregister(at_b);
        }
    }
}

#[test]
fn unmapped_source_on_demand_is_protection_error() {
    for size in SIZES {
        let (a, b) = pair(SideParams::default());
        let from = Reserved::new();
        let mr = register(&a, from.0, LEN, ON_DEMAND);
        assert_eq!(b.receive(5, 0, 64), 0);
        assert_eq!(a.send(1, IBV_WR_SEND, from.piece(mr, size), |_| {}), 0);
        expect_completion(a.cq, 1, IBV_WC_LOC_PROT_ERR);
        deregister(mr);
    }
}

#[test]
fn unmapped_target_on_demand_fails_the_peer() {
    for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
        for size in SIZES {
            let (a, b) = pair(SideParams::default());
            let to = Reserved::new();
            let mr = register(&b, to.0, LEN, ON_DEMAND);
            let piece = a.sge(0, size.min(SIZE as u32));
            let remote = |wr: &mut ibv_send_wr| rdma(wr, to.0 as u64, key(mr));
            assert_eq!(a.send(1, opcode, piece, remote), 0);
            let wc = next_completion(a.cq);
            assert_eq!(wc.wr_id, 1);
            assert_ne!(wc.status, IBV_WC_SUCCESS, "operation {opcode}");
            deregister(mr);
        }
    }
}

#[test]
fn unreliable_connections_use_memory_on_demand() {
    let (a, b) = pair(SideParams {
        kind: IBV_QPT_UC,
        shared: 8,
        ..SideParams::default()
    });
    let (from, to) = (Reserved::new(), Reserved::new());
    let at_a = register(&a, from.0, LEN, ON_DEMAND);
    let at_b = register(&b, to.0, LEN, ON_DEMAND);
    from.make_accessible();
    to.make_accessible();
    from.fill(b"unreliable");
    assert_eq!(b.receive_into(5, to.piece(at_b, 64)), 0);
    assert_eq!(a.send(1, IBV_WR_SEND, from.piece(at_a, 10), |_| {}), 0);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    expect_completion(b.cq, 5, IBV_WC_SUCCESS);
    assert_eq!(to.bytes(10), b"unreliable");
    deregister(at_a);
    deregister(at_b);
}

#[test]
fn datagrams_use_memory_on_demand() {
    const HEADER: usize = 40;
    let (a, b) = (datagrams::side(), datagrams::side());
    let (from, to) = (Reserved::new(), Reserved::new());
    let at_a = register(&a, from.0, LEN, ON_DEMAND);
    let at_b = register(&b, to.0, LEN, ON_DEMAND);
    let mut attr = b.rtr_attr(0).0.ah_attr;
    let ah = call!(ibv_create_ah(a.pd, &raw mut attr));
    assert!(!ah.is_null());
    let to_b = |wr: &mut ibv_send_wr| {
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = b.number();
        wr.wr.ud.remote_qkey = datagrams::QKEY;
    };
    from.make_accessible();
    to.make_accessible();
    from.fill(b"datagram");
    assert_eq!(b.receive_into(5, to.piece(at_b, 128)), 0);
    assert_eq!(a.send(1, IBV_WR_SEND, from.piece(at_a, 8), to_b), 0);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    expect_completion(b.cq, 5, IBV_WC_SUCCESS);
    assert_eq!(&to.bytes(HEADER + 8)[HEADER..], b"datagram");
    // A source that is not mapped: the first page of the process.
    let whole = register(&a, ptr::null_mut(), usize::MAX, ON_DEMAND);
    assert_eq!(a.send(2, IBV_WR_SEND, sge_of(whole, 64, 8), to_b), 0);
    expect_completion(a.cq, 2, IBV_WC_LOC_PROT_ERR);
    deregister(whole);
    assert_eq!(call!(ibv_destroy_ah(ah)), 0);
    deregister(at_a);
    deregister(at_b);
}

#[test]
fn one_region_covers_all_addresses() {
    let (a, b) = pair(SideParams::default());
    let all_a = register(&a, ptr::null_mut(), usize::MAX, ON_DEMAND);
    let all_b = register(&b, ptr::null_mut(), usize::MAX, ON_DEMAND);
    // SAFETY: the region is not deregistered.
    let (at, length) = unsafe { ((*all_a).addr, (*all_a).length) };
    assert_eq!((at, length), (ptr::null_mut(), usize::MAX));
    // Memory of the stack, and of the heap that was allocated after the registration.
    let from = *b"bytes on the stack";
    let mut to = vec![0_u8; from.len()];
    let (source, target) = (from.as_ptr() as u64, to.as_mut_ptr() as u64);
    let piece = sge_of(all_a, source, from.len() as u32);
    let remote = |wr: &mut ibv_send_wr| rdma(wr, target, key(all_b));
    assert_eq!(a.send(1, IBV_WR_RDMA_WRITE, piece, remote), 0);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    // SAFETY: `to` has this many bytes; the adapter has written them, so they are read as volatile.
    let got: Vec<u8> = (0..from.len())
        .map(|at| unsafe { ptr::read_volatile((target as *const u8).add(at)) })
        .collect();
    assert_eq!(got, from);
    // A word, by an atomic.
    let mut word = 40_u64;
    let at = &raw mut word;
    let mut before = 0_u64;
    let piece = sge_of(all_a, &raw mut before as u64, 8);
    let add = |wr: &mut ibv_send_wr| {
        wr.wr.atomic.remote_addr = at as u64;
        wr.wr.atomic.rkey = key(all_b);
        wr.wr.atomic.compare_add = 2;
    };
    assert_eq!(a.send(2, IBV_WR_ATOMIC_FETCH_AND_ADD, piece, add), 0);
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
    // SAFETY: locals of this function, which the adapter has written.
    let seen = unsafe {
        (
            ptr::read_volatile(at),
            ptr::read_volatile(&raw const before),
        )
    };
    assert_eq!(seen, (42, 40));
    // Nothing is mapped in the first page of a process.
    let piece = sge_of(all_a, source, 8);
    let remote = |wr: &mut ibv_send_wr| rdma(wr, 64, key(all_b));
    assert_eq!(a.send(3, IBV_WR_RDMA_WRITE, piece, remote), 0);
    assert_ne!(next_completion(a.cq).status, IBV_WC_SUCCESS);
    drop(to);
    deregister(all_a);
    deregister(all_b);
}

#[test]
fn ranges_on_demand_that_wrap_are_einval() {
    let side = Side::new(SideParams::default());
    let at = 0x1000 as *mut c_void;
    let zero_based = ON_DEMAND | IBV_ACCESS_ZERO_BASED as c_int;
    let null = ptr::null_mut();
    for (what, mr) in [
        (
            "wraps",
            call!(ibv_reg_mr(side.pd, at, usize::MAX, ON_DEMAND)),
        ),
        ("empty", call!(ibv_reg_mr(side.pd, at, 0, ON_DEMAND))),
        (
            "zero-based",
            call!(ibv_reg_mr(side.pd, null, usize::MAX, zero_based)),
        ),
        (
            "all at another address",
            call!(ibv_reg_mr_iova(
                side.pd,
                null,
                usize::MAX,
                PAGE as u64,
                ON_DEMAND
            )),
        ),
        (
            "remote write alone",
            call!(ibv_reg_mr(
                side.pd,
                at,
                PAGE,
                (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_WRITE) as c_int
            )),
        ),
    ] {
        assert_refused(mr, libc::EINVAL, what);
    }
    // Without the flag the memory has to be there.
    assert_refused(
        call!(ibv_reg_mr(side.pd, at, PAGE, ALL)),
        libc::EFAULT,
        "not mapped",
    );
}

#[test]
fn rights_of_region_on_demand_can_change() {
    let side = Side::new(SideParams::default());
    let reserved = Reserved::new();
    let mr = register(&side, reserved.0, LEN, IBV_ACCESS_ON_DEMAND as c_int);
    let before = key(mr);
    let code = call!(ibv_rereg_mr(
        mr,
        IBV_REREG_MR_CHANGE_ACCESS as c_int,
        ptr::null_mut(),
        ptr::null_mut(),
        0,
        ON_DEMAND
    ));
    assert_eq!((code, key(mr)), (0, before));
    // Moved to addresses that are not mapped either.
    let other = Reserved::new();
    let flags = (IBV_REREG_MR_CHANGE_TRANSLATION) as c_int;
    let code = call!(ibv_rereg_mr(mr, flags, ptr::null_mut(), other.0, LEN, 0));
    assert_eq!(code, 0, "{}", errno());
    deregister(mr);
}

fn advise(side: &Side, pd: *mut ibv_pd, advice: u32, flags: u32, list: &mut [ibv_sge]) -> c_int {
    let advise_mr = verbs_of(side.context).advise_mr.unwrap();
    call!(advise_mr(
        pd,
        advice,
        flags,
        list.as_mut_ptr(),
        list.len() as u32
    ))
}

#[test]
fn prefetch_faults_pages_in() {
    let side = Side::new(SideParams::default());
    for (advice, pages) in [
        (IBV_ADVISE_MR_ADVICE_PREFETCH, 8),
        (IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 8),
        (IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0),
    ] {
        for flags in [0, IBV_ADVISE_MR_FLAG_FLUSH] {
            let memory = Reserved::new();
            memory.make_accessible();
            let mr = register(&side, memory.0, LEN, ON_DEMAND);
            assert_eq!(memory.resident(), 0, "registration touches no page");
            let mut list = [
                memory.piece(mr, 4 * PAGE as u32),
                sge_of(mr, memory.0 as u64 + 8 * PAGE as u64, 4 * PAGE as u32),
            ];
            assert_eq!(advise(&side, side.pd, advice, flags, &mut list), 0);
            assert_eq!(memory.resident(), pages, "advice {advice}, flags {flags}");
            deregister(mr);
        }
    }
}

#[test]
fn advice_about_wrong_memory_has_its_number() {
    let side = Side::new(SideParams::default());
    let other = call!(ibv_alloc_pd(side.context));
    let memory = Reserved::new();
    memory.make_accessible();
    let mr = register(&side, memory.0, LEN, IBV_ACCESS_ON_DEMAND as c_int);
    let flush = IBV_ADVISE_MR_FLAG_FLUSH;
    let (read, write) = (
        IBV_ADVISE_MR_ADVICE_PREFETCH,
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
    );
    let good = memory.piece(mr, PAGE as u32);
    let wrong_key = ibv_sge {
        lkey: good.lkey ^ 1,
        ..good
    };
    let too_long = memory.piece(mr, LEN as u32 + 1);
    let null = ptr::null_mut();
    for (what, pd, advice, flags, list, number) in [
        ("no domain", null, read, flush, vec![good], libc::EINVAL),
        ("other domain", other, read, flush, vec![good], libc::EPERM),
        ("key", side.pd, read, flush, vec![wrong_key], libc::ENOENT),
        (
            "length",
            side.pd,
            read,
            0,
            vec![good, too_long],
            libc::EFAULT,
        ),
        ("right", side.pd, write, 0, vec![good], libc::EPERM),
        ("flags", side.pd, read, 2, vec![good], libc::EINVAL),
        ("advice", side.pd, 3, flush, vec![good], libc::EOPNOTSUPP),
        ("no entries", side.pd, read, flush, vec![], libc::EINVAL),
    ] {
        let mut list = list;
        assert_eq!(
            advise(&side, pd, advice, flags, &mut list),
            number,
            "{what}"
        );
        assert_eq!(errno(), number, "{what}");
    }
    let advise_mr = verbs_of(side.context).advise_mr.unwrap();
    assert_eq!(
        call!(advise_mr(side.pd, read, flush, null.cast(), 1)),
        libc::EINVAL
    );
    assert_eq!(advise(&side, side.pd, read, flush, &mut [good]), 0);
    deregister(mr);
    assert_eq!(call!(ibv_dealloc_pd(other)), 0);
}

#[test]
fn flushed_advice_reports_unmapped_pages() {
    let side = Side::new(SideParams::default());
    let memory = Reserved::new();
    let mr = register(&side, memory.0, LEN, ON_DEMAND);
    let read = IBV_ADVISE_MR_ADVICE_PREFETCH;
    let mut list = [memory.piece(mr, PAGE as u32)];
    let flush = IBV_ADVISE_MR_FLAG_FLUSH;
    assert_eq!(advise(&side, side.pd, read, flush, &mut list), libc::EFAULT);
    assert_eq!(advise(&side, side.pd, read, 0, &mut list), 0, "best effort");
    deregister(mr);
}

#[test]
fn query_reports_paging_of_each_transport() {
    let side = Side::new(SideParams::default());
    let query = verbs_of(side.context).query_device_ex.unwrap();
    let mut attr = ibv_device_attr_ex::zeroed();
    let size = size_of::<ibv_device_attr_ex>();
    assert_eq!(
        call!(query(side.context, ptr::null(), &raw mut attr, size)),
        0
    );
    let general = u64::from(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
    assert_eq!(attr.odp_caps.general_caps, general);
    let messages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    let by_transport = attr.odp_caps.per_transport_caps;
    assert_eq!(by_transport.uc_odp_caps, messages | IBV_ODP_SUPPORT_WRITE);
    assert_eq!(by_transport.ud_odp_caps, messages);
    let reliable = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
    assert_eq!(by_transport.rc_odp_caps, messages | reliable);
    assert_eq!(attr.completion_timestamp_mask, u64::MAX);
    assert_eq!(attr.hca_core_clock, 1_000_000);
    assert_eq!(attr.max_dm_size, 16 << 20);
}
