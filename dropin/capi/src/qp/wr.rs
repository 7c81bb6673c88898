//! The functions that build requests call by call (`ibv_wr_start` to `ibv_wr_complete`).
//! The requests between start and completion are posted together or not at all; an error in one of them is returned by `ibv_wr_complete`.
//! Functions of operations that were not requested at creation are null.

use core::ffi::{c_int, c_void};

use parking_lot::{Mutex, MutexGuard};
use verbena::low::{FlushScope, PostError, RemoteAddr, SendOp, Stag, To};

use super::batch::{Batch, Source};
use super::post::{destination, srq_number};
use super::{Pair, QpObject};
use crate::abi::*;
use crate::caller::{arg_ref, handle};
use crate::check::{self, Answer};
use crate::errno::{Errno, number};
use crate::mw;
use crate::scatter::list;

/// The requests being built; locked from start to completion, as by the original.
#[derive(Default)]
pub(super) struct Builder(Mutex<Draft>);

#[derive(Default)]
struct Draft {
    batch: Batch,
    /// The first error.
    error: Option<Errno>,
}

const RC: u32 = IBV_QP_EX_WITH_RDMA_WRITE
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
const UC: u32 = RC
    & !(IBV_QP_EX_WITH_RDMA_READ
        | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
        | IBV_QP_EX_WITH_FLUSH
        | IBV_QP_EX_WITH_ATOMIC_WRITE);
const UD: u32 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

/// Sets the functions that the program requested.
pub(super) fn set_functions(qp: &mut ibv_qp_ex, kind: u32, asked: u64) -> Result<(), Errno> {
    let offered = match kind {
        IBV_QPT_RC | IBV_QPT_XRC_SEND => RC,
        IBV_QPT_UC => UC,
        IBV_QPT_XRC_RECV => 0,
        _ => UD,
    };
    let asked = u32::try_from(asked).map_err(|_| Errno::NOSUPP)?;
    if asked & !offered != 0 {
        return Err(Errno::NOSUPP);
    }
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(match check::checker() {
        Some(_) => checked_wr_complete,
        None => wr_complete,
    });
    qp.wr_abort = Some(wr_abort);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    if kind == IBV_QPT_UD {
        qp.wr_set_ud_addr = Some(wr_set_ud_addr);
    }
    if kind == IBV_QPT_XRC_SEND {
        qp.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    }
    let has = |operation| asked & operation != 0;
    if has(IBV_QP_EX_WITH_SEND) {
        qp.wr_send = Some(wr_send);
    }
    if has(IBV_QP_EX_WITH_SEND_WITH_IMM) {
        qp.wr_send_imm = Some(wr_send_imm);
    }
    if has(IBV_QP_EX_WITH_SEND_WITH_INV) {
        qp.wr_send_inv = Some(wr_send_inv);
    }
    if has(IBV_QP_EX_WITH_RDMA_WRITE) {
        qp.wr_rdma_write = Some(wr_rdma_write);
    }
    if has(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) {
        qp.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    }
    if has(IBV_QP_EX_WITH_RDMA_READ) {
        qp.wr_rdma_read = Some(wr_rdma_read);
    }
    if has(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP) {
        qp.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    }
    if has(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) {
        qp.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    }
    if has(IBV_QP_EX_WITH_LOCAL_INV) {
        qp.wr_local_inv = Some(wr_local_inv);
    }
    if has(IBV_QP_EX_WITH_BIND_MW) {
        qp.wr_bind_mw = Some(wr_bind_mw);
    }
    if has(IBV_QP_EX_WITH_FLUSH) {
        qp.wr_flush = Some(wr_flush);
    }
    if has(IBV_QP_EX_WITH_ATOMIC_WRITE) {
        qp.wr_atomic_write = Some(wr_atomic_write);
    }
    Ok(())
}

/// `started!(add(qp, op))`: a call between `ibv_wr_start` and `ibv_wr_complete`. As the macros of `caller`, it compiles only inside an `unsafe fn`.
///
/// # Safety
/// The caller of the function around it guarantees that `qp` is null or is a queue pair of this library, that no thread destroys it before
/// the function returns, and that this thread has called `wr_start` on it and neither `wr_complete` nor `wr_abort` since: it holds the lock of the draft.
macro_rules! started {
    ($function:ident($qp:ident $(, $arg:expr)*)) => {{
        #[allow(unsafe_op_in_unsafe_fn, reason = "the section Safety of the macro")]
        let result = $function($qp $(, $arg)*);
        result
    }};
}

/// The queue pair, and the requests being built on it.
///
/// # Safety
/// As for `started!`: the draft is borrowed until `wr_complete` or `wr_abort`.
unsafe fn draft<'a>(qp: *mut ibv_qp_ex) -> Option<(&'a Pair, &'a mut Draft)> {
    let pair = handle!(QpObject::of(qp))?;
    // SAFETY: the caller guarantees that this thread has called `wr_start`, and so holds the lock.
    Some((pair, unsafe { &mut *pair.builder.0.data_ptr() }))
}

/// Adds a request; its `wr_id` and flags are those that the program has stored in the queue pair.
///
/// # Safety
/// As for `started!`.
unsafe fn add(qp: *mut ibv_qp_ex, op: Result<SendOp, Errno>) {
    let Some((pair, draft)) = started!(draft(qp)) else {
        return;
    };
    // SAFETY: `qp` is valid, and the program writes these fields only on the thread that builds.
    let (id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    match (op, pair.flags(flags)) {
        (Ok(op), Ok(flags)) => {
            let none = core::ptr::null_mut();
            draft.batch.add(none, id, op, flags, Source::Sges(0..0));
        }
        (Err(errno), _) | (_, Err(errno)) => {
            draft.error.get_or_insert(errno);
        }
    }
}

fn remote(rkey: u32, at: u64) -> RemoteAddr {
    RemoteAddr {
        stag: Stag::new(rkey),
        to: To::new(at),
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    if let Some(pair) = handle!(QpObject::of(qp)) {
        let mut draft = pair.builder.0.lock();
        draft.batch.clear();
        draft.error = None;
        // Unlocked by `wr_complete` or `wr_abort`, one of which the program calls.
        MutexGuard::leak(draft);
    }
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    if let Some(pair) = handle!(QpObject::of(qp))
        && pair.builder.0.is_locked()
    {
        // SAFETY: the draft is locked, and the caller guarantees that this thread locked it in `wr_start` and builds no request any more.
        unsafe { pair.builder.0.force_unlock() };
    }
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: `complete` requires of `qp` and of this thread what this function does.
    unsafe { complete(qp, Pair::post_all) }
}

/// `wr_complete` of a checked process.
unsafe extern "C" fn checked_wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let post = |pair: &Pair, batch: &Batch| {
        let Some(checker) = check::checker() else {
            return pair.post_all(batch);
        };
        let posting = pair.posting();
        let entered = checker.before_send(qp as usize, &batch.infos());
        let posted = pair.post_all(batch);
        let answer = Answer {
            code: posted.map_or_else(|errno| errno.0, |()| 0),
            posted: 0,
            state: Some(posting.state),
            managed: posting.managed,
        };
        checker.after_send(qp as usize, entered, answer);
        posted
    };
    // SAFETY: `complete` requires of `qp` and of this thread what this function does.
    unsafe { complete(qp, post) }
}

/// # Safety
/// As for `started!`.
#[inline]
unsafe fn complete(
    qp: *mut ibv_qp_ex,
    post: impl FnOnce(&Pair, &Batch) -> Result<(), Errno>,
) -> c_int {
    let started = handle!(QpObject::of(qp)).is_some_and(|pair| pair.builder.0.is_locked());
    // SAFETY: the lock is held, and the caller guarantees that this thread locked it in `wr_start`.
    let Some((pair, draft)) = (unsafe { draft(qp) }).filter(|_| started) else {
        return number(Err(Errno::INVAL));
    };
    let posted = match draft.error {
        Some(errno) => Err(errno),
        None => post(pair, &draft.batch),
    };
    // SAFETY: the lock is held, and the caller guarantees that this thread locked it in `wr_start`; `draft` is not used after this.
    unsafe { pair.builder.0.force_unlock() };
    number(posted)
}

impl Pair {
    /// Posts all of them or none.
    fn post_all(&self, batch: &Batch) -> Result<(), Errno> {
        let depth = self.cap.max_send_wr as usize;
        // One request is refused or posted; of several none may be posted if not all fit.
        if batch.len() > 1 && self.transport.pending_sends() + batch.len() > depth {
            return Err(PostError::Full(depth).into());
        }
        if !batch.is_valid(self) {
            return Err(Errno::INVAL);
        }
        batch.post(self).map_err(|(_, errno)| errno)
    }
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    let op = SendOp::Send {
        invalidate: None,
        immediate: None,
    };
    started!(add(qp, Ok(op)));
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm_data: u32) {
    let op = SendOp::Send {
        invalidate: None,
        immediate: Some(u32::from_be(imm_data)),
    };
    started!(add(qp, Ok(op)));
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    let op = SendOp::Send {
        invalidate: Some(Stag::new(rkey)),
        immediate: None,
    };
    started!(add(qp, Ok(op)));
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, at: u64) {
    let op = SendOp::Write {
        remote: remote(rkey, at),
        immediate: None,
    };
    started!(add(qp, Ok(op)));
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, at: u64, imm_data: u32) {
    let op = SendOp::Write {
        remote: remote(rkey, at),
        immediate: Some(u32::from_be(imm_data)),
    };
    started!(add(qp, Ok(op)));
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, at: u64) {
    let op = SendOp::Read {
        remote: remote(rkey, at),
        local_invalidate: None,
    };
    started!(add(qp, Ok(op)));
}

unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    at: u64,
    compare: u64,
    swap: u64,
) {
    let op = SendOp::CmpSwap {
        remote: remote(rkey, at),
        compare,
        compare_mask: u64::MAX,
        swap,
        swap_mask: u64::MAX,
    };
    started!(add(qp, Ok(op)));
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, at: u64, value: u64) {
    let op = SendOp::FetchAdd {
        remote: remote(rkey, at),
        add: value,
        mask: 0,
    };
    started!(add(qp, Ok(op)));
}

unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    at: u64,
    atomic_wr: *const c_void,
) {
    let op = SendOp::AtomicWrite {
        remote: remote(rkey, at),
    };
    if atomic_wr.is_null() {
        started!(add(qp, Err(Errno::INVAL)));
        return;
    }
    started!(add(qp, Ok(op)));
    let word = ibv_sge {
        addr: atomic_wr as u64,
        length: 8,
        lkey: 0,
    };
    started!(set(qp, |_, batch| {
        // SAFETY: the caller guarantees eight bytes at `atomic_wr`, which is not null.
        let copied = unsafe { batch.copy(&[word], 8)? };
        Ok(Source::Inline(copied))
    }));
}

unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    at: u64,
    len: usize,
    placement: u8,
    level: u8,
) {
    let scope = match (u32::from(placement), u32::from(level)) {
        (IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE) => Ok(FlushScope::Range { len: len as u64 }),
        (IBV_FLUSH_GLOBAL, IBV_FLUSH_MR) => Ok(FlushScope::Region),
        // docs/decisions.md: no peer offers persistence.
        (placement, _) if placement & IBV_FLUSH_PERSISTENT != 0 => Err(Errno::NOSUPP),
        _ => Err(Errno::INVAL),
    };
    let op = scope.map(|scope| SendOp::Flush {
        remote: remote(rkey, at),
        scope,
    });
    started!(add(qp, op));
}

unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    started!(add(qp, Ok(SendOp::LocalInvalidate(Stag::new(rkey)))));
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    window: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    let info = arg_ref!(info).ok_or(Errno::INVAL);
    // SAFETY: the caller guarantees that `window` and the region of `info` are null or were created by this library, and exist during the call.
    let op = info.and_then(|info| unsafe { mw::bind_request(window, rkey, info) });
    started!(add(qp, op));
}

unsafe extern "C" fn wr_set_ud_addr(
    qp: *mut ibv_qp_ex,
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    let to = ibv_send_wr__wr__ud {
        ah,
        remote_qpn,
        remote_qkey,
    };
    let Some((_, draft)) = started!(draft(qp)) else {
        return;
    };
    // SAFETY: the caller guarantees that `ah` is null or was created by this library.
    match unsafe { destination(&to) } {
        Ok(to) => draft.batch.set_destination(to),
        Err(errno) => {
            draft.error.get_or_insert(errno);
        }
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    let Some((_, draft)) = started!(draft(qp)) else {
        return;
    };
    match srq_number(remote_srqn) {
        Ok(srqn) => draft.batch.set_srq(srqn),
        Err(errno) => {
            draft.error.get_or_insert(errno);
        }
    }
}

/// Sets the data of the request that was added last.
///
/// # Safety
/// As for `started!`.
unsafe fn set(qp: *mut ibv_qp_ex, source: impl FnOnce(&Pair, &mut Batch) -> Result<Source, Errno>) {
    let Some((pair, draft)) = started!(draft(qp)) else {
        return;
    };
    match source(pair, &mut draft.batch) {
        Ok(source) => draft.batch.set_source(source),
        Err(errno) => {
            draft.error.get_or_insert(errno);
        }
    }
}

/// # Safety
/// As for `started!`.
unsafe fn set_sges(qp: *mut ibv_qp_ex, sges: &[ibv_sge]) {
    let source = |pair: &Pair, batch: &mut Batch| {
        if sges.len() > pair.cap.max_send_sge as usize {
            return Err(Errno::INVAL);
        }
        Ok(Source::Sges(batch.gather(sges)))
    };
    started!(set(qp, source));
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let piece = ibv_sge { addr, length, lkey };
    started!(set_sges(qp, &[piece]));
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, sges: *const ibv_sge) {
    // SAFETY: the caller guarantees `count` entries at `sges`.
    let sges = unsafe { list(sges, c_int::try_from(count).unwrap_or(-1)) };
    match sges {
        Ok(sges) => started!(set_sges(qp, sges)),
        Err(errno) => started!(set(qp, |_, _| Err(errno))),
    }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buffer = ibv_data_buf { addr, length };
    // SAFETY: the caller guarantees `length` bytes at `addr` and that this thread has called `wr_start`; `buffer` is a local.
    unsafe { wr_set_inline_data_list(qp, 1, &raw const buffer) };
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    buffers: *const ibv_data_buf,
) {
    let source = |pair: &Pair, batch: &mut Batch| {
        let buffers = match count {
            0 => &[],
            _ if buffers.is_null() => return Err(Errno::INVAL),
            // SAFETY: `buffers` is not null, so the caller guarantees `count` entries.
            _ => unsafe { core::slice::from_raw_parts(buffers, count) },
        };
        let mut pieces = Vec::with_capacity(count.min(64));
        for buffer in buffers {
            pieces.push(ibv_sge {
                addr: buffer.addr as u64,
                length: u32::try_from(buffer.length).map_err(|_| Errno::INVAL)?,
                lkey: 0,
            });
        }
        // SAFETY: the caller guarantees that the memory of each buffer is valid for reads.
        let copied = unsafe { batch.copy(&pieces, pair.cap.max_inline_data)? };
        Ok(Source::Inline(copied))
    };
    started!(set(qp, source));
}
