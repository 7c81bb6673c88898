//! The functions that a checked process has in the tables of its contexts: they enter requests and completions, and call the ordinary ones. They compile to what
//! these do if the checks end, as in a forked child that cannot report.

use core::ffi::c_int;
use core::ptr;

use smallvec::SmallVec;

use super::checker;
use super::completions::CompletionInfo;
use super::posts::{Answer, Direction, ReceiveInfo, ReceiveQueue, SendInfo};
use crate::abi::*;
use crate::{cq, mw, qp, scatter, srq};

/// Requests of one list that are looked at; further ones are posted without.
const LONGEST_LIST: usize = 1 << 16;

/// The functions of a context of a checked process.
pub(crate) fn install(ops: &mut ibv_context_ops) {
    ops.post_send = Some(post_send);
    ops.post_recv = Some(post_recv);
    ops.post_srq_recv = Some(post_srq_recv);
    ops.poll_cq = Some(poll_cq);
    ops.bind_mw = Some(bind_mw);
}

/// What the checks know of a send request in the form of a struct.
///
/// # Safety
/// `wr` is valid, with `num_sge` entries at `sg_list`.
unsafe fn send_info(wr: &ibv_send_wr, posting: &qp::Posting) -> SendInfo {
    // SAFETY: the caller guarantees the entries; a wrong count is refused by the post and has none here.
    let sges = unsafe { scatter::list(wr.sg_list, wr.num_sge) }.unwrap_or(&[]);
    // SAFETY: the members are integers, for which any bytes are valid.
    let (rdma, atomic) = unsafe { (wr.wr.rdma.rkey, wr.wr.atomic.rkey) };
    let (operation, direction, rkey) = match wr.opcode {
        IBV_WR_SEND | IBV_WR_SEND_WITH_IMM | IBV_WR_SEND_WITH_INV => {
            ("Send", Direction::Source, None)
        }
        IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => ("Write", Direction::Source, Some(rdma)),
        IBV_WR_ATOMIC_WRITE => ("Atomic Write", Direction::Source, Some(rdma)),
        IBV_WR_RDMA_READ => ("Read", Direction::Sink, Some(rdma)),
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
            ("atomic", Direction::Sink, Some(atomic))
        }
        _ => ("request without data", Direction::None, None),
    };
    let inline = wr.send_flags & IBV_SEND_INLINE != 0;
    let known = direction != Direction::None && sges.len() <= posting.max_send_sge;
    SendInfo {
        id: wr.wr_id,
        operation,
        signaled: posting.signal_all || wr.send_flags & IBV_SEND_SIGNALED != 0,
        direction: if inline { Direction::None } else { direction },
        sges: SmallVec::from_slice(if known { sges } else { &[] }),
        rkey,
        invalidates: (wr.opcode == IBV_WR_SEND_WITH_INV).then_some(wr.imm_data),
        invalidates_own: (wr.opcode == IBV_WR_LOCAL_INV).then_some(wr.imm_data),
    }
}

/// # Safety
/// As for `ibv_post_send`.
unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller guarantees that `qp` is null or a queue pair of this library.
    let Some((checker, posting)) = checker().zip(unsafe { qp::posting(qp) }) else {
        // SAFETY: the queue pair, the list and `bad` are those of the program's call of `ibv_post_send`, which guarantees them.
        return unsafe { qp::post_send(qp, wr, bad) };
    };
    let (mut list, mut at) = (Vec::new(), wr);
    let mut places = Vec::new();
    while !at.is_null() && list.len() < LONGEST_LIST {
        // SAFETY: the caller guarantees a linked list of valid requests.
        unsafe {
            list.push(send_info(&*at, &posting));
            places.push(at);
            at = (*at).next;
        }
    }
    let entered = checker.before_send(qp as usize, &list);
    let mut refused = ptr::null_mut();
    // SAFETY: `qp` and the list at `wr` are those of the program's call, and `refused` is a local that is valid for writes.
    let code = unsafe { qp::post_send(qp, wr, &raw mut refused) };
    if code != 0 && !bad.is_null() {
        // SAFETY: the caller guarantees that `bad` is valid for writes.
        unsafe { *bad = refused };
    }
    let posted = places.iter().position(|at| *at == refused);
    let answer = Answer {
        code,
        posted: posted.unwrap_or(if code == 0 { places.len() } else { 0 }),
        state: Some(posting.state),
        managed: posting.managed,
    };
    checker.after_send(qp as usize, entered, answer);
    code
}

/// # Safety
/// As for `ibv_post_recv`, with the function that posts the list.
unsafe fn receive(
    queue: ReceiveQueue,
    max_sge: usize,
    state: Option<verbena::low::QpState>,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    post: impl FnOnce(*mut *mut ibv_recv_wr) -> c_int,
) -> c_int {
    let Some(checker) = checker() else {
        return post(bad);
    };
    let (mut list, mut places, mut at) = (Vec::new(), Vec::new(), wr);
    while !at.is_null() && list.len() < LONGEST_LIST {
        // SAFETY: the caller guarantees a linked list of valid requests with `num_sge` entries at `sg_list`.
        unsafe {
            let sges = scatter::list((*at).sg_list, (*at).num_sge).unwrap_or(&[]);
            list.push(ReceiveInfo {
                id: (*at).wr_id,
                sges: SmallVec::from_slice(if sges.len() <= max_sge { sges } else { &[] }),
            });
            places.push(at);
            at = (*at).next;
        }
    }
    let entered = checker.before_receive(queue, &list);
    let mut refused = ptr::null_mut();
    let code = post(&raw mut refused);
    if code != 0 && !bad.is_null() {
        // SAFETY: the caller guarantees that `bad` is valid for writes.
        unsafe { *bad = refused };
    }
    let posted = places.iter().position(|at| *at == refused);
    let answer = Answer {
        code,
        posted: posted.unwrap_or(if code == 0 { places.len() } else { 0 }),
        state,
        managed: false,
    };
    checker.after_receive(queue, entered, answer);
    code
}

/// # Safety
/// As for `ibv_post_recv`.
unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller guarantees that `qp` is null or a queue pair of this library.
    let Some(posting) = (unsafe { qp::posting(qp) }) else {
        // SAFETY: the queue pair, the list and `bad` are those of the program's call of `ibv_post_recv`, which guarantees them.
        return unsafe { qp::post_recv(qp, wr, bad) };
    };
    let queue = ReceiveQueue::Pair(qp as usize);
    // SAFETY: the caller guarantees a valid list at `wr`, and that `bad` is null or valid for writes.
    unsafe {
        receive(
            queue,
            posting.max_recv_sge,
            Some(posting.state),
            wr,
            bad,
            |bad| qp::post_recv(qp, wr, bad),
        )
    }
}

/// # Safety
/// As for `ibv_post_srq_recv`.
unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let queue = ReceiveQueue::Shared(srq as usize);
    // SAFETY: the caller guarantees that `srq` is null or of this library, a valid list at `wr`, and that `bad` is null or valid for writes.
    unsafe {
        let max_sge = srq::of(srq).map_or(0, srq::SharedQueue::max_sge);
        receive(queue, max_sge, None, wr, bad, |bad| {
            srq::post_srq_recv(srq, wr, bad)
        })
    }
}

/// # Safety
/// As for `ibv_bind_mw`.
unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller guarantees that `qp` is null or a queue pair of this library.
    let Some((checker, posting)) = checker()
        .zip(unsafe { qp::posting(qp) })
        .filter(|_| !bind.is_null())
    else {
        // SAFETY: queue pair, window and request are those of the program's call of `ibv_bind_mw`, which guarantees them.
        return unsafe { mw::bind_mw(qp, mw, bind) };
    };
    // SAFETY: `bind` is not null, so the caller guarantees that it is valid for reads.
    let (id, flags) = unsafe { ((*bind).wr_id, (*bind).send_flags) };
    let info = SendInfo {
        id,
        operation: "bind",
        signaled: posting.signal_all || flags & IBV_SEND_SIGNALED != 0,
        direction: Direction::None,
        sges: SmallVec::new(),
        rkey: None,
        invalidates: None,
        invalidates_own: None,
    };
    let entered = checker.before_send(qp as usize, &[info]);
    // SAFETY: the program guarantees queue pair, window and request, of which nothing was changed here.
    let code = unsafe { mw::bind_mw(qp, mw, bind) };
    let answer = Answer {
        code,
        posted: usize::from(code == 0),
        state: Some(posting.state),
        managed: posting.managed,
    };
    checker.after_send(qp as usize, entered, answer);
    code
}

/// A completion was polled.
///
/// # Safety
/// Its queue pair, if it is in the tables, is not destroyed during the call.
pub(crate) unsafe fn completed(info: CompletionInfo) {
    let failed = checker().and_then(|checker| checker.completed(info));
    if let Some(qp) = failed {
        // SAFETY: the caller guarantees that the queue pair exists.
        unsafe { qp::look_at_failure(qp as *const ibv_qp) };
    }
}

/// # Safety
/// As for `ibv_poll_cq`.
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the queue and the room for `count` completions are those of the program's call of `ibv_poll_cq`.
    let taken = unsafe { cq::poll_cq(cq, count, wc) };
    if taken == 0
        && count > 0
        && let Some(checker) = checker()
    {
        checker.polled_empty(cq as usize);
    }
    for at in 0..usize::try_from(taken).unwrap_or(0) {
        // SAFETY: the first `taken` entries were written by the poll.
        let wc = unsafe { &*wc.add(at) };
        let invalidated = wc.wc_flags & IBV_WC_WITH_INV != 0;
        let info = CompletionInfo {
            cq: cq as usize,
            pair: wc.qp_num,
            id: wc.wr_id,
            status: wc.status,
            opcode: wc.opcode,
            len: wc.byte_len,
            invalidated: invalidated.then_some(wc.imm_data),
        };
        // SAFETY: a program that polls completions of a queue pair does not destroy it at the same time.
        unsafe { completed(info) };
    }
    taken
}
