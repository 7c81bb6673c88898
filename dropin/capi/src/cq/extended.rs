//! Extended completion queues: a program steps from completion to completion and reads the fields that it needs.
//! A queue has the readers that were requested at creation; values that it does not have (VLAN, flow tag, tag matching) are refused with `EOPNOTSUPP`.
//! From `start_poll` to `end_poll` the queue is locked by the polling thread.

use core::ffi::c_int;

use parking_lot::MutexGuard;
use verbena::low::{CqOptions, Stag};
use verbena::unstable::timestamp;

use super::{CqObject, CqParams, Current, Queue, create, wc};
use crate::abi::*;
use crate::caller::{arg_ref, handle};
use crate::check::{self, CompletionInfo};
use crate::errno::{Errno, pointer};

/// Fields of a completion that can be requested, besides those that are always readable.
const READERS: u32 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS
    | TIMESTAMPS;

const TIMESTAMPS: u32 =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// Parts of the request that are supported.
const SUPPORTED_MASK: u32 = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
/// The first has no effect: a queue that only one thread uses is not faster here.
const SUPPORTED_FLAGS: u32 = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

/// Creates an extended completion queue.
///
/// # Safety
/// `context` is open; `attr` is valid during the call.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let attr = arg_ref!(attr).ok_or(Errno::INVAL);
    pointer(attr.and_then(|attr| {
        let flags = if attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 {
            attr.flags
        } else {
            0
        };
        let readers = u32::try_from(attr.wc_flags).map_err(|_| Errno::NOSUPP)?;
        if attr.comp_mask & !SUPPORTED_MASK != 0
            || readers & !READERS != 0
            || flags & !SUPPORTED_FLAGS != 0
        {
            return Err(Errno::NOSUPP);
        }
        let wanted = CqParams {
            entries: c_int::try_from(attr.cqe).map_err(|_| Errno::INVAL)?,
            cq_context: attr.cq_context,
            channel: attr.channel,
            vector: c_int::try_from(attr.comp_vector).map_err(|_| Errno::INVAL)?,
            options: CqOptions {
                clock: (readers & TIMESTAMPS != 0).then_some(timestamp),
                ignore_overrun: flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0,
            },
            parent: match attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD {
                0 => core::ptr::null_mut(),
                _ if attr.parent_domain.is_null() => return Err(Errno::INVAL),
                _ => attr.parent_domain,
            },
        };
        // SAFETY: the caller guarantees that `context` is open and that channel and domain of `attr` are null or were created by this library.
        let cq = unsafe { create(context, &wanted)? };
        // SAFETY: `cq` was created by `create`, and no other thread has its address yet.
        unsafe { set_functions(cq, readers) };
        Ok(cq)
    }))
}

/// Sets the functions that the program requested.
///
/// # Safety
/// The queue was just created, and no other thread has its address.
unsafe fn set_functions(cq: *mut ibv_cq_ex, readers: u32) {
    // SAFETY: the caller guarantees that `cq` was just created and that no other thread has its address.
    let cq = unsafe { &mut *cq };
    if check::checker().is_some() {
        cq.start_poll = Some(checked_start_poll);
        cq.next_poll = Some(checked_next_poll);
    } else {
        cq.start_poll = Some(start_poll);
        cq.next_poll = Some(next_poll);
    }
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_wc_flags = Some(read_wc_flags);
    let has = |reader| readers & reader != 0;
    if has(IBV_WC_EX_WITH_BYTE_LEN) {
        cq.read_byte_len = Some(read_byte_len);
    }
    if has(IBV_WC_EX_WITH_IMM) {
        cq.read_imm_data = Some(read_imm_data);
    }
    if has(IBV_WC_EX_WITH_QP_NUM) {
        cq.read_qp_num = Some(read_qp_num);
    }
    if has(IBV_WC_EX_WITH_SRC_QP) {
        cq.read_src_qp = Some(read_src_qp);
    }
    if has(IBV_WC_EX_WITH_SLID) {
        cq.read_slid = Some(read_slid);
    }
    if has(IBV_WC_EX_WITH_SL) {
        cq.read_sl = Some(read_sl);
    }
    if has(IBV_WC_EX_WITH_DLID_PATH_BITS) {
        cq.read_dlid_path_bits = Some(read_dlid_path_bits);
    }
    if has(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) {
        cq.read_completion_ts = Some(read_completion_ts);
    }
    if has(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) {
        cq.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
    }
}

impl Queue {
    /// Takes the next completion, if there is one.
    fn step(&self, current: &mut Current, cq: *mut ibv_cq_ex) -> c_int {
        if self.stamped {
            let Some((wc, written)) = self.cq.poll_stamped() else {
                return libc::ENOENT;
            };
            *current = Current { wc, written };
        } else {
            let mut next = [current.wc];
            if self.cq.poll(&mut next) == 0 {
                return libc::ENOENT;
            }
            [current.wc] = next;
        }
        // SAFETY: `cq` is the queue of `self`; the polling thread, which holds the lock of `current`, is the only one that accesses these fields.
        unsafe {
            (*cq).status = current.wc.status as u32;
            (*cq).wr_id = current.wc.id;
        }
        0
    }
}

/// Begins a poll: the queue is locked by this thread until `end_poll`.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    let (own, attr) = (handle!(CqObject::of(cq)), arg_ref!(attr));
    let Some(own) = own else {
        return libc::EINVAL;
    };
    if attr.is_some_and(|attr| attr.comp_mask != 0) {
        return libc::EINVAL;
    }
    let mut current = own.current.lock();
    let result = own.step(&mut current, cq);
    if result == 0 {
        // Unlocked by `end_poll`, which the program calls after a poll that began with success, and only then.
        MutexGuard::leak(current);
    }
    result
}

/// Goes to the next completion.
unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    let Some(own) = handle!(CqObject::of(cq)) else {
        return libc::EINVAL;
    };
    // SAFETY: the caller guarantees that this thread has called `start_poll` with success, which locked it.
    own.step(unsafe { &mut *own.current.data_ptr() }, cq)
}

/// Begins a poll of a checked process.
unsafe extern "C" fn checked_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller guarantees what `start_poll` requires.
    let result = unsafe { start_poll(cq, attr) };
    match (result, check::checker()) {
        // SAFETY: the poll has succeeded, and this thread holds the lock.
        (0, _) => unsafe { check_current(cq) },
        (libc::ENOENT, Some(checker)) => checker.polled_empty(cq as usize),
        _ => {}
    }
    result
}

/// Goes to the next completion of a checked process.
unsafe extern "C" fn checked_next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the caller guarantees what `next_poll` requires.
    let result = unsafe { next_poll(cq) };
    if result == 0 {
        // SAFETY: the poll has succeeded, and this thread holds the lock.
        unsafe { check_current(cq) };
    }
    result
}

/// Enters the completion that a poll has arrived at.
///
/// # Safety
/// As for [`current`].
unsafe fn check_current(cq: *mut ibv_cq_ex) {
    // SAFETY: the caller guarantees that this thread is polling the queue.
    let wc = unsafe { current(cq) }.wc;
    let info = CompletionInfo {
        cq: cq as usize,
        pair: wc.qpn,
        id: wc.id,
        status: wc.status as u32,
        opcode: wc::opcode(&wc),
        len: wc.len,
        invalidated: wc.invalidated.map(Stag::get),
    };
    // SAFETY: a program that polls completions of a queue pair does not destroy it at the same time.
    unsafe { check::verbs::completed(info) };
}

/// Ends a poll.
unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    if let Some(own) = handle!(CqObject::of(cq))
        // Some programs call it even after a poll that found nothing.
        && own.current.is_locked()
    {
        // SAFETY: it is locked, and the caller guarantees that this thread locked it in `start_poll`.
        unsafe { own.current.force_unlock() };
    }
}

/// The completion that a poll has arrived at.
///
/// # Safety
/// `cq` was created by this library, and this thread is polling it.
unsafe fn current(cq: *mut ibv_cq_ex) -> Current {
    match handle!(CqObject::of(cq)) {
        // SAFETY: the caller guarantees that this thread has called `start_poll` with success, which locked it.
        Some(own) => unsafe { *own.current.data_ptr() },
        None => Current::default(),
    }
}

macro_rules! readers {
    ($($(#[$doc:meta])* fn $name:ident($at:ident) -> $type:ty { $read:expr })+) => {$(
        $(#[$doc])*
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: the caller guarantees that this thread has called `start_poll` on `cq`, with success.
            let $at = unsafe { current(cq) };
            $read
        }
    )+};
}

readers! {
    fn read_opcode(at) -> u32 { wc::opcode(&at.wc) }
    fn read_vendor_err(_at) -> u32 { 0 }
    fn read_byte_len(at) -> u32 { at.wc.len }
    fn read_imm_data(at) -> u32 { wc::immediate(&at.wc) }
    fn read_qp_num(at) -> u32 { at.wc.qpn }
    fn read_src_qp(at) -> u32 { at.wc.src_qp }
    fn read_wc_flags(at) -> u32 { wc::flags(&at.wc) }
    fn read_slid(_at) -> u32 { 0 }
    fn read_sl(at) -> u8 { wc::service_level(&at.wc) }
    fn read_dlid_path_bits(_at) -> u8 { 0 }
    fn read_completion_ts(at) -> u64 { at.written.monotonic }
    fn read_completion_wallclock_ns(at) -> u64 { at.written.realtime }
}
