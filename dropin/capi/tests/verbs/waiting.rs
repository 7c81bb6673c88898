//! Calls that wait: destroying waits for acknowledgements, reading waits for events or not as the descriptor's flags say,
//! and events of an object are removed when it is destroyed.

use crate::common::*;
use crate::functions::{Addr, async_event, call_in_thread, cq_event};
use core::ptr;
use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;
use verbena_testing::spawn_blocked;

/// A pointer that is passed to another thread.
struct SendPtr<T>(T);
// SAFETY: the receiving thread passes the pointer to verbs only, which any thread may call.
unsafe impl<T> Send for SendPtr<T> {}

impl<T: Copy> SendPtr<T> {
    fn get(&self) -> T {
        self.0
    }
}

/// `call` waits until `release` has run, and returns 0 then.
fn waits(call: impl FnOnce() -> i32 + Send, release: impl FnOnce()) {
    std::thread::scope(|scope| {
        let thread = spawn_blocked(scope, call);
        release();
        assert_eq!(thread.join().unwrap(), 0);
    });
}

/// Two sides; the second one's completion queue has an event in its channel.
fn pair_with_cq_event() -> (Side, Side) {
    let (a, b) = pair(SideParams {
        with_channel: true,
        ..SideParams::default()
    });
    assert_eq!(b.receive(1, 0, 8), 0);
    assert_eq!(req_notify_cq(b.cq, 0), 0);
    assert_eq!(a.send(1, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    assert!(readable(b.channel_fd(), LONG));
    (a, b)
}

/// Another queue like the side's own, which the test destroys.
fn another_cq(side: &Side) -> *mut ibv_cq {
    let cq = call!(ibv_create_cq(
        side.context,
        4,
        ptr::null_mut(),
        side.channel,
        0
    ));
    assert!(!cq.is_null());
    cq
}

#[test]
fn destroying_a_completion_queue_waits_for_its_acknowledgements() {
    let (_a, mut b) = pair_with_cq_event();
    let (mut cq, mut name) = (ptr::null_mut(), ptr::null_mut());
    let code = call!(ibv_get_cq_event(b.channel, &raw mut cq, &raw mut name));
    assert_eq!(code, 0);
    b.destroy_qp();
    let going = SendPtr(b.cq);
    b.cq = another_cq(&b);
    waits(
        move || call!(ibv_destroy_cq(going.get())),
        || call!(ibv_ack_cq_events(cq, 1)),
    );
}

#[test]
fn destroyed_cq_leaves_no_readable_event() {
    let (_a, mut b) = pair_with_cq_event();
    let fd = b.channel_fd();
    b.destroy_qp();
    let going = b.cq;
    b.cq = another_cq(&b);
    assert_eq!(call!(ibv_destroy_cq(going)), 0);
    assert!(!readable(fd, Duration::ZERO));
    set_nonblocking(fd);
    let (mut cq, mut name) = (ptr::null_mut(), ptr::null_mut());
    assert_eq!(
        call!(ibv_get_cq_event(b.channel, &raw mut cq, &raw mut name)),
        -1
    );
    assert_eq!(errno(), libc::EAGAIN);
}

/// Two sides; the second one's queue pair has an access error, caused by its peer.
fn pair_with_access_error() -> (Side, Side) {
    let (a, b) = pair(SideParams::default());
    let code = a.send(1, IBV_WR_RDMA_WRITE, a.sge(0, 8), |wr| {
        rdma(wr, b.at(0), b.rkey() ^ 1);
    });
    assert_eq!(code, 0);
    expect_completion(a.cq, 1, IBV_WC_REM_ACCESS_ERR);
    assert!(readable(b.async_fd(), LONG));
    (a, b)
}

#[test]
fn destroying_a_queue_pair_waits_for_its_acknowledgements() {
    let (_a, mut b) = pair_with_access_error();
    let mut event = b.event();
    assert_eq!(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    assert_eq!(event_object(&event), b.qp.cast());
    let going = SendPtr(b.qp);
    b.qp = ptr::null_mut();
    waits(
        move || call!(ibv_destroy_qp(going.get())),
        || call!(ibv_ack_async_event(&raw mut event)),
    );
}

#[test]
fn destroyed_qp_leaves_no_readable_event() {
    let (_a, mut b) = pair_with_access_error();
    b.destroy_qp();
    let fd = b.async_fd();
    assert!(!readable(fd, Duration::ZERO));
    set_nonblocking(fd);
    let mut event = ibv_async_event {
        element: ibv_async_event__element { port_num: 0 },
        event_type: 0,
    };
    let code = call!(ibv_get_async_event(b.context, &raw mut event));
    assert_eq!((code, errno()), (-1, libc::EAGAIN));
}

#[test]
fn destroying_a_shared_queue_waits_for_its_acknowledgements() {
    let (a, mut b) = pair(SideParams {
        shared: 4,
        ..SideParams::default()
    });
    assert_eq!(b.receive(1, 0, 8), 0);
    let mut attr = ibv_srq_attr {
        max_wr: 0,
        max_sge: 0,
        srq_limit: 1,
    };
    let code = call!(ibv_modify_srq(b.srq, &raw mut attr, IBV_SRQ_LIMIT as i32));
    assert_eq!(code, 0);
    assert_eq!(a.send(1, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0);
    let mut event = b.event();
    assert_eq!(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    b.destroy_qp();
    let going = SendPtr(b.srq);
    b.srq = ptr::null_mut();
    waits(
        move || call!(ibv_destroy_srq(going.get())),
        || call!(ibv_ack_async_event(&raw mut event)),
    );
}

/// Any number of threads can wait on one channel; each event is returned to one of them.
#[test]
fn blocked_get_cq_event_returns_on_event() {
    let (a, b) = pair(SideParams {
        with_channel: true,
        ..SideParams::default()
    });
    assert_eq!(b.receive(1, 0, 8), 0);
    assert_eq!(req_notify_cq(b.cq, 0), 0);
    let channel = SendPtr(b.channel);
    waits(
        move || {
            let (mut cq, mut name) = (ptr::null_mut(), ptr::null_mut());
            let code = call!(ibv_get_cq_event(channel.get(), &raw mut cq, &raw mut name));
            call!(ibv_ack_cq_events(cq, 1));
            code
        },
        || assert_eq!(a.send(1, IBV_WR_SEND, a.sge(0, 8), |_| {}), 0),
    );
}

extern "C" fn ignore(_signal: i32) {}

/// Programs end their loops from a signal handler: the call must return and report it.
#[test]
fn signal_interrupts_blocked_get_cq_event() {
    let side = Side::new(SideParams {
        with_channel: true,
        ..SideParams::default()
    });
    let channel = SendPtr(side.channel);
    let thread = Arc::new(std::sync::OnceLock::new());
    let mine = thread.clone();
    // SAFETY: a handler that does nothing, without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = ignore as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()),
            0
        );
    }
    waits(
        move || {
            // SAFETY: `pthread_self` takes nothing.
            let _ = mine.set(unsafe { libc::pthread_self() });
            let (mut cq, mut name) = (ptr::null_mut(), ptr::null_mut());
            let code = call!(ibv_get_cq_event(channel.get(), &raw mut cq, &raw mut name));
            assert_eq!((code, errno()), (-1, libc::EINTR));
            0
        },
        // SAFETY: the thread waits in the call until the signal comes, and is not joined before.
        || unsafe {
            libc::pthread_kill(*thread.get().unwrap(), libc::SIGUSR1);
        },
    );
}

/// A channel can be destroyed as soon as its queue has been, even while the adapter reports to it.
#[test]
fn channel_can_be_destroyed_after_its_queue() {
    let (a, b) = pair(SideParams::default());
    for round in 0..200 {
        let channel = call!(ibv_create_comp_channel(b.context));
        let cq = call!(ibv_create_cq(b.context, 16, ptr::null_mut(), channel, 0));
        let mut init = b.init();
        init.recv_cq = cq;
        init.send_cq = cq;
        let mut attr = b.init_attr();
        let qp = call!(ibv_create_qp(b.pd, &raw mut init));
        assert_eq!(req_notify_cq(cq, 0), 0);
        assert_eq!(call!(ibv_modify_qp(qp, &raw mut attr.0, attr.1 as i32)), 0);
        let mut wr = ibv_recv_wr::zeroed();
        assert_eq!(post_recv(qp, &raw mut wr, &mut ptr::null_mut()), 0);
        let mut err = ibv_qp_attr::zeroed();
        err.qp_state = IBV_QPS_ERR;
        assert_eq!(
            call!(ibv_modify_qp(qp, &raw mut err, IBV_QP_STATE as i32)),
            0
        );
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
        assert_eq!(call!(ibv_destroy_cq(cq)), 0);
        assert_eq!(call!(ibv_destroy_comp_channel(channel)), 0, "round {round}");
    }
    drop((a, b));
}

/// Programs destroy a channel and close a context while a thread waits on it, and treat a call that returns as a failure.
#[test]
fn thread_waits_on_when_its_channel_is_destroyed_or_its_context_closed() {
    let wake = |fd| {
        // As for an event that is removed then.
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the eight bytes are local, and the descriptor is open.
        let written = unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
        assert_eq!(written, 8);
    };
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let context = open();
        let channel = call!(ibv_create_comp_channel(context));
        waiting.push(call_in_thread(Addr(channel.cast()), cq_event));
        waiting.push(call_in_thread(Addr(context.cast()), async_event));
        // SAFETY: both objects exist until they are destroyed below.
        let fds = unsafe { [(*channel).fd, (*context).async_fd] };
        fds.into_iter().for_each(wake);
        assert_eq!(call!(ibv_destroy_comp_channel(channel)), 0);
        assert_eq!(call!(ibv_close_device(context)), 0);
    }
    for one in waiting {
        let result = one.recv_timeout(Duration::from_millis(5));
        assert_eq!(result, Err(RecvTimeoutError::Timeout), "its call returned");
    }
}
