//! Thread domains and parent domains: use counts, allocators of the program, and a parent domain in place of its protection domain.
//! Every attribute that makes no sense is refused.

use crate::common::*;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

fn thread_domain(context: *mut ibv_context, comp_mask: u32) -> *mut ibv_td {
    let alloc_td = verbs_of(context).alloc_td.unwrap();
    let mut attr = ibv_td_init_attr { comp_mask };
    call!(alloc_td(context, &raw mut attr))
}

fn free_td(context: *mut ibv_context, td: *mut ibv_td) -> c_int {
    let dealloc_td = verbs_of(context).dealloc_td.unwrap();
    call!(dealloc_td(td))
}

fn parent(context: *mut ibv_context, attr: &mut ibv_parent_domain_init_attr) -> *mut ibv_pd {
    let alloc = verbs_of(context).alloc_parent_domain.unwrap();
    call!(alloc(context, attr))
}

fn attr_of(pd: *mut ibv_pd, td: *mut ibv_td) -> ibv_parent_domain_init_attr {
    ibv_parent_domain_init_attr {
        pd,
        td,
        ..ibv_parent_domain_init_attr::zeroed()
    }
}

#[test]
fn domains_in_use_are_busy() {
    let context = open();
    let pd = call!(ibv_alloc_pd(context));
    let td = thread_domain(context, 0);
    assert!(!td.is_null());
    let domain = parent(context, &mut attr_of(pd, td));
    assert!(!domain.is_null(), "{}", errno());
    assert_eq!(call!(ibv_dealloc_pd(pd)), libc::EBUSY);
    assert_eq!(free_td(context, td), libc::EBUSY);
    let mut memory = [0_u8; 64];
    let mr = call!(ibv_reg_mr(domain, memory.as_mut_ptr().cast(), 64, ALL));
    assert!(!mr.is_null());
    assert_eq!(call!(ibv_dealloc_pd(domain)), libc::EBUSY);
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);
    assert_eq!(call!(ibv_dealloc_pd(domain)), 0);
    assert_eq!(free_td(context, td), 0);
    assert_eq!(call!(ibv_dealloc_pd(pd)), 0);
    assert_eq!(call!(ibv_close_device(context)), 0);
}

#[test]
fn wrong_domains_are_einval() {
    let context = open();
    let other = open();
    let pd = call!(ibv_alloc_pd(context));
    assert_refused(thread_domain(context, 1), libc::EINVAL, "unknown attribute");
    assert_eq!(free_td(context, ptr::null_mut()), libc::EINVAL);
    let null = ptr::null_mut();
    let domain = parent(context, &mut attr_of(pd, null));
    let allocators = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
    let mut unknown = attr_of(pd, null);
    unknown.comp_mask = 4;
    let mut without_functions = attr_of(pd, null);
    without_functions.comp_mask = allocators;
    let mut without_free = without_functions;
    without_free.alloc = Some(count_alloc);
    for (what, context, mut attr) in [
        (
            "no protection domain",
            context,
            attr_of(ptr::null_mut(), null),
        ),
        ("parent of a parent", context, attr_of(domain, null)),
        ("of another context", other, attr_of(pd, null)),
        ("unknown attribute", context, unknown),
        ("no functions", context, without_functions),
        ("no function to free", context, without_free),
    ] {
        assert_refused(parent(context, &mut attr), libc::EINVAL, what);
    }
    // A completion queue has a parent domain, not a protection domain.
    let create = verbs_of(context).create_cq_ex.unwrap();
    let mut cq = ibv_cq_init_attr_ex {
        cqe: 4,
        comp_mask: IBV_CQ_INIT_ATTR_MASK_PD,
        parent_domain: pd,
        ..ibv_cq_init_attr_ex::zeroed()
    };
    assert_refused(call!(create(context, &raw mut cq)), libc::EINVAL, "queue");
    assert_eq!(call!(ibv_dealloc_pd(domain)), 0);
    assert_eq!(call!(ibv_dealloc_pd(pd)), 0);
    assert_eq!(call!(ibv_close_device(other)), 0);
    assert_eq!(call!(ibv_close_device(context)), 0);
}

/// What the allocator of a test has done.
#[derive(Default)]
struct Calls {
    allocated: [AtomicUsize; 4],
    freed: [AtomicUsize; 4],
    mode: AtomicUsize,
}

const DEFAULT: usize = 1;
const NO_MEMORY: usize = 2;
const MISALIGNED: usize = 3;

unsafe extern "C" fn count_alloc(
    pd: *mut ibv_pd,
    context: *mut c_void,
    size: usize,
    alignment: usize,
    resource: u64,
) -> *mut c_void {
    assert!(!pd.is_null());
    // SAFETY: the tests pass a `Calls` as context, which lives longer than the domain.
    let calls = unsafe { &*context.cast::<Calls>() };
    calls.allocated[resource as usize].fetch_add(1, Ordering::Relaxed);
    match calls.mode.load(Ordering::Relaxed) {
        DEFAULT => IBV_ALLOCATOR_USE_DEFAULT,
        NO_MEMORY => ptr::null_mut(),
        mode => {
            // SAFETY: sizes and alignments are those of objects, and eight more bytes for the misaligned one.
            let at =
                unsafe { libc::aligned_alloc(alignment.max(64), (size + 8).next_multiple_of(64)) };
            if mode == MISALIGNED {
                at.wrapping_byte_add(1)
            } else {
                at
            }
        }
    }
}

unsafe extern "C" fn count_free(
    pd: *mut ibv_pd,
    context: *mut c_void,
    at: *mut c_void,
    resource: u64,
) {
    assert!(!pd.is_null());
    // SAFETY: as in `count_alloc`.
    let calls = unsafe { &*context.cast::<Calls>() };
    calls.freed[resource as usize].fetch_add(1, Ordering::Relaxed);
    let start = at.wrapping_byte_sub(at as usize % 64);
    // SAFETY: allocated by `count_alloc`, with an alignment of 64 or more.
    unsafe { libc::free(start) };
}

fn counts(counts: &[AtomicUsize; 4]) -> [usize; 3] {
    [1, 2, 3].map(|at: usize| counts[at].load(Ordering::Relaxed))
}

fn with_allocator(pd: *mut ibv_pd, calls: &Calls) -> ibv_parent_domain_init_attr {
    ibv_parent_domain_init_attr {
        comp_mask: IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
        alloc: Some(count_alloc),
        free: Some(count_free),
        pd_context: (&raw const *calls).cast_mut().cast(),
        ..attr_of(pd, ptr::null_mut())
    }
}

/// Queues in the domain: a completion queue, a shared receive queue and a queue pair.
struct Queues {
    cq: *mut ibv_cq_ex,
    srq: *mut ibv_srq,
    qp: *mut ibv_qp,
}

fn queues(context: *mut ibv_context, domain: *mut ibv_pd) -> Queues {
    let create = verbs_of(context).create_cq_ex.unwrap();
    let mut attr = ibv_cq_init_attr_ex {
        cqe: 4,
        comp_mask: IBV_CQ_INIT_ATTR_MASK_PD,
        parent_domain: domain,
        ..ibv_cq_init_attr_ex::zeroed()
    };
    let cq = call!(create(context, &raw mut attr));
    let mut attr = ibv_srq_init_attr::zeroed();
    attr.attr.max_wr = 4;
    let srq = call!(ibv_create_srq(domain, &raw mut attr));
    let mut attr = ibv_qp_init_attr {
        send_cq: cq.cast(),
        recv_cq: cq.cast(),
        srq,
        qp_type: IBV_QPT_RC,
        ..ibv_qp_init_attr::zeroed()
    };
    attr.cap.max_send_wr = 4;
    let qp = call!(ibv_create_qp(domain, &raw mut attr));
    Queues { cq, srq, qp }
}

impl Queues {
    fn destroy(self) {
        assert_eq!(call!(ibv_destroy_qp(self.qp)), 0);
        assert_eq!(call!(ibv_destroy_srq(self.srq)), 0);
        assert_eq!(call!(ibv_destroy_cq(self.cq.cast())), 0);
    }
}

#[test]
fn queues_lie_in_memory_of_the_allocator() {
    let context = open();
    let pd = call!(ibv_alloc_pd(context));
    let calls = Calls::default();
    let domain = parent(context, &mut with_allocator(pd, &calls));
    assert!(!domain.is_null(), "{}", errno());
    let made = queues(context, domain);
    assert!(!made.cq.is_null() && !made.srq.is_null() && !made.qp.is_null());
    assert_eq!(counts(&calls.allocated), [1, 1, 1]);
    assert_eq!(counts(&calls.freed), [0, 0, 0]);
    assert_eq!(call!(ibv_dealloc_pd(domain)), libc::EBUSY);
    made.destroy();
    assert_eq!(counts(&calls.freed), [1, 1, 1]);
    // The program lets the library allocate.
    calls.mode.store(DEFAULT, Ordering::Relaxed);
    queues(context, domain).destroy();
    assert_eq!(counts(&calls.allocated), [2, 2, 2]);
    assert_eq!(counts(&calls.freed), [1, 1, 1]);
    assert_eq!(call!(ibv_dealloc_pd(domain)), 0);
    assert_eq!(call!(ibv_dealloc_pd(pd)), 0);
    assert_eq!(call!(ibv_close_device(context)), 0);
}

#[test]
fn failing_allocator_fails_creation() {
    let context = open();
    let pd = call!(ibv_alloc_pd(context));
    let calls = Calls::default();
    let domain = parent(context, &mut with_allocator(pd, &calls));
    let mut attr = ibv_srq_init_attr::zeroed();
    attr.attr.max_wr = 4;
    calls.mode.store(NO_MEMORY, Ordering::Relaxed);
    let none = call!(ibv_create_srq(domain, &raw mut attr));
    assert_refused(none, libc::ENOMEM, "no memory");
    calls.mode.store(MISALIGNED, Ordering::Relaxed);
    let none = call!(ibv_create_srq(domain, &raw mut attr));
    assert_refused(none, libc::EINVAL, "not aligned");
    assert_eq!(
        (counts(&calls.allocated), counts(&calls.freed)),
        ([0, 0, 2], [0, 0, 1])
    );
    // A queue pair that cannot be created for another reason: its memory is returned.
    calls.mode.store(0, Ordering::Relaxed);
    let cq = call!(ibv_create_cq(
        context,
        4,
        ptr::null_mut(),
        ptr::null_mut(),
        0
    ));
    let mut attr = ibv_qp_init_attr {
        send_cq: cq,
        recv_cq: cq,
        qp_type: IBV_QPT_RAW_PACKET,
        ..ibv_qp_init_attr::zeroed()
    };
    let none = call!(ibv_create_qp(domain, &raw mut attr));
    assert_refused(none, libc::EOPNOTSUPP, "type");
    assert_eq!(counts(&calls.allocated)[0], counts(&calls.freed)[0]);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
    assert_eq!(call!(ibv_dealloc_pd(domain)), 0, "nothing is left");
    assert_eq!(call!(ibv_dealloc_pd(pd)), 0);
    assert_eq!(call!(ibv_close_device(context)), 0);
}

#[test]
fn keys_of_both_domains_go_together() {
    let (mut a, b) = pair(SideParams::default());
    // The region is registered in a parent of the domain in which the queue pair was created.
    let domain = parent(a.context, &mut attr_of(a.pd, ptr::null_mut()));
    a.fill(0, b"by the parent");
    let at = a.at(0) as *mut c_void;
    let mr = call!(ibv_reg_mr(domain, at, 64, ALL));
    assert!(!mr.is_null());
    let piece = ibv_sge {
        // SAFETY: registered above.
        lkey: unsafe { (*mr).lkey },
        ..a.sge(0, 13)
    };
    assert_eq!(b.receive(5, 0, 64), 0);
    assert_eq!(a.send(1, IBV_WR_SEND, piece, |_| {}), 0);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    expect_completion(b.cq, 5, IBV_WC_SUCCESS);
    assert_eq!(b.read(0, 13), b"by the parent");
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);
    assert_eq!(call!(ibv_dealloc_pd(domain)), 0);
}
