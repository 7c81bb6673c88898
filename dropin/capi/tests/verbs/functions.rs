//! Functions as devices of the C API (V1): each is opened by itself, has limits of its own, and refuses objects of another.
//! In a process of its own, since the settings are read once.

use std::ffi::{CStr, c_int, c_void};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;
use verbena_capi::testing;
use verbena_capi::verbs::*;
use verbena_testing::own_process;
use verbena_testing::{Tid, is_blocked, wait_until};

use crate::common::*;

fn new_cq(context: *mut ibv_context) -> *mut ibv_cq {
    call!(ibv_create_cq(
        context,
        8,
        core::ptr::null_mut(),
        core::ptr::null_mut(),
        0
    ))
}

fn new_qp(pd: *mut ibv_pd, send: *mut ibv_cq, recv: *mut ibv_cq) -> *mut ibv_qp {
    let mut attr = ibv_qp_init_attr::zeroed();
    (attr.send_cq, attr.recv_cq) = (send, recv);
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = 1;
    attr.cap.max_recv_wr = 1;
    attr.cap.max_send_sge = 1;
    attr.cap.max_recv_sge = 1;
    call!(ibv_create_qp(pd, &raw mut attr))
}

#[test]
fn functions_are_separate_devices() {
    own_process!();
    // SAFETY: no other thread runs in this process yet.
    unsafe {
        std::env::set_var("VERBENA_FUNCTIONS", "2");
        std::env::set_var("VERBENA_MAX_CQS", "3");
        std::env::set_var("VERBENA_DEVICE", "127.0.0.1");
    }
    // SAFETY: `list` has `count` devices and a null pointer, and is freed after they are copied; the devices stay. Contexts, domains and queues exist until the call
    // that destroys them.
    unsafe {
        let mut count: c_int = 0;
        let list = ibv_get_device_list(&raw mut count);
        assert_eq!(count, 3);
        let devices: Vec<*mut ibv_device> = (0..3).map(|at| *list.add(at)).collect();
        assert!((*list.add(3)).is_null());
        ibv_free_device_list(list);
        let name = |&device: &*mut ibv_device| {
            CStr::from_ptr(ibv_get_device_name(device))
                .to_str()
                .unwrap()
        };
        let names: Vec<&str> = devices.iter().map(name).collect();
        assert_eq!(names, ["verbena0", "verbena0v1", "verbena0v2"]);
        let guid = |&device: &*mut ibv_device| ibv_get_device_guid(device);
        assert_ne!(guid(&devices[0]), guid(&devices[1]));
        // The program does not open the physical function, which is created all the same.
        let (a, b) = (ibv_open_device(devices[1]), ibv_open_device(devices[2]));
        assert!(!a.is_null() && !b.is_null(), "{}", errno());
        assert_eq!(((*a).device, (*b).device), (devices[1], devices[2]));
        let (pd_a, pd_b) = (ibv_alloc_pd(a), ibv_alloc_pd(b));
        let (cq_a, cq_b) = (new_cq(a), new_cq(b));
        assert_refused(new_qp(pd_a, cq_b, cq_a), libc::EINVAL, "a send queue");
        assert_refused(new_qp(pd_a, cq_a, cq_b), libc::EINVAL, "a receive queue");
        assert_refused(new_qp(pd_b, cq_a, cq_a), libc::EINVAL, "a domain");
        let qp = new_qp(pd_a, cq_a, cq_a);
        assert!(!qp.is_null(), "{}", errno());
        // Each has its own share.
        let more = [new_cq(a), new_cq(a)];
        assert_refused(new_cq(a), libc::ENOMEM, "one too many");
        let other = new_cq(b);
        assert!(!other.is_null(), "{}", errno());
        check_identifier_refuses_domain(pd_a);
        assert_eq!(ibv_destroy_qp(qp), 0);
        for cq in [cq_a, cq_b, more[0], more[1], other] {
            assert_eq!(ibv_destroy_cq(cq), 0);
        }
        assert_eq!((ibv_dealloc_pd(pd_a), ibv_dealloc_pd(pd_b)), (0, 0));
        assert_eq!((ibv_close_device(a), ibv_close_device(b)), (0, 0));
        // It can be opened again, as another function.
        let again = ibv_open_device(devices[1]);
        assert!(!again.is_null(), "{}", errno());
        assert_eq!(ibv_close_device(again), 0);
        check_failure_is_isolated(&devices);
        check_removal_events();
    }
}

/// Identifiers of rdma_cm are on the first device: the domain of another one is refused, and the identifier's own works.
fn check_identifier_refuses_domain(pd: *mut ibv_pd) {
    let channel = rdma_create_event_channel();
    let (mut id, null) = (core::ptr::null_mut(), core::ptr::null_mut());
    assert_eq!(
        call!(rdma_create_id(channel, &raw mut id, null, RDMA_PS_TCP)),
        0
    );
    let mut attr = ibv_qp_init_attr::zeroed();
    attr.qp_type = IBV_QPT_RC;
    (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (1, 1);
    assert_eq!(call!(rdma_create_qp(id, pd, &raw mut attr)), -1);
    let refused = std::io::Error::last_os_error();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    let own = core::ptr::null_mut();
    assert_eq!(call!(rdma_create_qp(id, own, &raw mut attr)), 0);
    call!(rdma_destroy_qp(id));
    assert_eq!(call!(rdma_destroy_id(id)), 0);
    call!(rdma_destroy_event_channel(channel));
}

/// A device whose adapter fails: a thread of it panics, or it is shut down (N8). All its contexts get an event, no call waits,
/// and other devices go on.
fn check_failure_is_isolated(devices: &[*mut ibv_device]) {
    type End = fn(usize) -> bool;
    let ends: [(End, c_int); 2] = [
        (testing::provoke_panic, libc::EIO),
        (testing::shut_down, libc::EINVAL),
    ];
    for (end, code) in ends {
        let open = |at: usize| call!(ibv_open_device(devices[at]));
        let (first, second, other) = (open(1), open(1), open(2));
        let (pd, channel) = (
            call!(ibv_alloc_pd(first)),
            call!(ibv_create_comp_channel(first)),
        );
        let cq = call!(ibv_create_cq(first, 8, core::ptr::null_mut(), channel, 0));
        let qp = new_qp(pd, cq, cq);
        assert!(!qp.is_null(), "{}", errno());
        let sharing = open(1);
        let srq_pd = call!(ibv_alloc_pd(sharing));
        let srq = new_srq(srq_pd);
        assert_eq!(req_notify_cq(cq, 0), 0);
        let waits = [
            call_in_thread(Addr(first.cast()), async_event),
            call_in_thread(Addr(second.cast()), async_event),
            call_in_thread(Addr(channel.cast()), cq_event),
        ];
        assert!(end(1));
        let events = waits.map(|events| events.recv_timeout(TIMEOUT).expect("it waits on"));
        let fatal = IBV_EVENT_DEVICE_FATAL as c_int;
        assert_eq!(events, [fatal, fatal, 0]);
        check_srq_error(sharing, srq);
        // No further event comes, and no call waits for one.
        for context in [first, second, sharing] {
            assert_eq!(async_event(Addr(context.cast())), -libc::EIO);
        }
        assert_eq!(cq_event(Addr(channel.cast())), -libc::EIO);
        assert_refused(new_cq(first), code, "a queue of a failed device");
        assert_refused(open(1), libc::EIO, "another context");
        let alive = new_cq(other);
        assert!(!alive.is_null(), "{}", errno());
        assert_eq!(call!(ibv_destroy_cq(alive)), 0);
        call!(ibv_ack_cq_events(cq, 1));
        assert_eq!(
            (call!(ibv_destroy_qp(qp)), call!(ibv_destroy_cq(cq))),
            (0, 0)
        );
        assert_eq!(call!(ibv_destroy_comp_channel(channel)), 0);
        assert_eq!(call!(ibv_destroy_srq(srq)), 0);
        assert_eq!(call!(ibv_dealloc_pd(srq_pd)), 0);
        assert_eq!(call!(ibv_dealloc_pd(pd)), 0);
        for context in [first, second, sharing, other] {
            assert_eq!(call!(ibv_close_device(context)), 0);
        }
        // A program that closes all contexts can open the device again.
        let again = open(1);
        assert!(!again.is_null(), "{}", errno());
        assert_eq!(call!(ibv_close_device(again)), 0);
    }
}

fn new_srq(pd: *mut ibv_pd) -> *mut ibv_srq {
    let mut attr = ibv_srq_init_attr::zeroed();
    (attr.attr.max_wr, attr.attr.max_sge) = (16, 1);
    let srq = call!(ibv_create_srq(pd, &raw mut attr));
    assert!(!srq.is_null(), "{}", errno());
    srq
}

/// E7: the context gets an event about its shared receive queue, and then that of the device. Destroying the queue would wait for an event that
/// was not acknowledged.
fn check_srq_error(context: *mut ibv_context, srq: *mut ibv_srq) {
    let mut event = ibv_async_event::zeroed();
    assert_eq!(call!(ibv_get_async_event(context, &raw mut event)), 0);
    assert_eq!(event.event_type, IBV_EVENT_SRQ_ERR);
    // SAFETY: an event of this type is about a shared receive queue.
    assert_eq!(unsafe { event.element.srq }, srq);
    call!(ibv_ack_async_event(&raw mut event));
    let fatal = async_event(Addr(context.cast()));
    assert_eq!(fatal, IBV_EVENT_DEVICE_FATAL as c_int);
}

/// Identifiers of the connection manager that have the device get `RDMA_CM_EVENT_DEVICE_REMOVAL`.
fn check_removal_events() {
    let channel = rdma_create_event_channel();
    let mut id = core::ptr::null_mut();
    let null = core::ptr::null_mut();
    assert_eq!(
        call!(rdma_create_id(channel, &raw mut id, null, RDMA_PS_TCP)),
        0
    );
    let here = ud_peers::address("127.0.0.1:0");
    assert_eq!(call!(rdma_bind_addr(id, ud_peers::at(&here))), 0);
    assert_eq!(call!(rdma_listen(id, 4)), 0);
    let receiver = call_in_thread(Addr(channel.cast()), cm_event);
    assert!(testing::provoke_panic(0));
    let event = receiver.recv_timeout(TIMEOUT).expect("it waits on");
    assert_eq!(event, RDMA_CM_EVENT_DEVICE_REMOVAL as c_int);
    assert_eq!(call!(rdma_destroy_id(id)), 0);
    call!(rdma_destroy_event_channel(channel));
}

const TIMEOUT: Duration = Duration::from_secs(20);

/// A pointer to an object that any thread may use.
#[derive(Clone, Copy)]
pub(crate) struct Addr(pub(crate) *mut c_void);

// SAFETY: the receiving thread passes the pointer on to calls of the C API only, which any thread may make.
unsafe impl Send for Addr {}

/// Makes a blocking call on a thread of its own.
pub(crate) fn call_in_thread(of: Addr, call: fn(Addr) -> c_int) -> Receiver<c_int> {
    let (tell, notified) = mpsc::channel();
    let (begin, begun) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        begin.send(Tid::current()).unwrap();
        tell.send(call(of)).unwrap();
    });
    let caller = begun.recv().unwrap();
    wait_until("it blocks, or has its result", || {
        thread.is_finished() || is_blocked(caller)
    });
    notified
}

/// The type of the next event, or the negative error number.
pub(crate) fn async_event(context: Addr) -> c_int {
    let mut event = ibv_async_event::zeroed();
    if call!(ibv_get_async_event(context.0.cast(), &raw mut event)) != 0 {
        return -errno();
    }
    call!(ibv_ack_async_event(&raw mut event));
    event.event_type as c_int
}

pub(crate) fn cq_event(channel: Addr) -> c_int {
    let (mut cq, mut context) = (core::ptr::null_mut(), core::ptr::null_mut());
    let result = call!(ibv_get_cq_event(
        channel.0.cast(),
        &raw mut cq,
        &raw mut context
    ));
    if result == 0 { 0 } else { -errno() }
}

fn cm_event(channel: Addr) -> c_int {
    let mut event = core::ptr::null_mut();
    if call!(rdma_get_cm_event(channel.0.cast(), &raw mut event)) != 0 {
        return -errno();
    }
    // SAFETY: the call has returned an event, which exists until it is acknowledged below.
    let kind = unsafe { (*event).event } as c_int;
    call!(rdma_ack_cm_event(event));
    kind
}
