//! Shared receive queues. A queue in use by a queue pair is not destroyed (`EBUSY`), and one event is raised when fewer receives
//! than its limit are left. A queue of an XRC domain completes in a queue of its own, and is destroyed also while targets exist: messages for it
//! are refused from then on. Tag-matching queues are not supported.

use core::ffi::c_int;
use std::sync::Arc;

use verbena::low::Srq;

use crate::abi::*;
use crate::allocator::Resource;
use crate::async_event::AsyncEventSource;
use crate::caller::{arg_mut, arg_ref, handle};
use crate::cq::{self, Queue};
use crate::errno::{Errno, number, pointer};
use crate::function::{AdapterFunction, Subject};
use crate::object::Object;
use crate::scatter::post_receives;
use crate::uses::{Use, Uses};
use crate::xrcd::{self, XrcDomain};
use crate::{check, context, pd};

/// The library's part of a shared receive queue.
pub(crate) struct SharedQueue {
    pub(crate) srq: Srq,
    pub(crate) uses: Uses,
    /// Scatter/gather entries of a receive, at most.
    max_sge: usize,
    function: Arc<AdapterFunction>,
    event_source: Arc<AsyncEventSource>,
    _domain: Use,
    _context: Use,
    /// The XRC domain and the completion queue of an XRC queue.
    _xrc: Option<[Use; 2]>,
}

impl SharedQueue {
    /// Scatter/gather entries of a receive, at most.
    pub(crate) fn max_sge(&self) -> usize {
        self.max_sge
    }
}

type SrqObject = Object<ibv_srq, SharedQueue>;

/// The library's part of the shared receive queue behind this pointer; none for null.
///
/// # Safety
/// `srq` is null or was created by this library, and is not destroyed while the result is used.
pub(crate) unsafe fn of<'a>(srq: *const ibv_srq) -> Option<&'a SharedQueue> {
    handle!(SrqObject::of(srq))
}

/// The asynchronous events of the queue.
///
/// # Safety
/// As for [`of`].
pub(crate) unsafe fn event_source(srq: *const ibv_srq) -> Option<Arc<AsyncEventSource>> {
    handle!(of(srq)).map(|stock| stock.event_source.clone())
}

/// The XRC domain and the completion queue of a queue to create.
type XrcParts<'a> = (&'a XrcDomain, &'a Queue);

/// # Safety
/// `pd` is null or was created by this library.
unsafe fn create(
    pd: *mut ibv_pd,
    attr: &mut ibv_srq_attr,
    name: *mut core::ffi::c_void,
    xrc: Option<XrcParts<'_>>,
) -> Result<*mut ibv_srq, Errno> {
    let domain = handle!(pd::of(pd))?;
    // SAFETY: `pd` is valid, since `pd::of` succeeded; the field is written once.
    let context = unsafe { (*pd).context };
    // SAFETY: `context` is the one of `pd`, which counts as a use of it: it stays open as long as the domain exists.
    let own = unsafe { context::of(context)? };
    if attr.max_wr == 0 {
        return Err(Errno::INVAL);
    }
    let object = SrqObject::new_uninit_in(domain.allocator(), Resource::Srq)?;
    let (receives, pieces) = (attr.max_wr as usize, attr.max_sge.max(1) as usize);
    let srq = match xrc {
        None => domain.pd.srq(receives, pieces)?,
        Some((xrcd, queue)) => {
            let (xrcd, cq) = (xrcd.xrcd(), &queue.cq);
            domain.pd.xrc_srq(xrcd, cq, receives, pieces)?
        }
    };
    let subject = Subject::Srq(srq.number());
    let event_source = AsyncEventSource::new(
        &own.events,
        ibv_async_event__element {
            srq: object.as_ptr(),
        },
    );
    own.function.add(subject, &event_source);
    attr.max_sge = attr.max_sge.max(1);
    let c = ibv_srq {
        context,
        srq_context: name,
        pd,
        handle: srq.number(),
        ..ibv_srq::zeroed()
    };
    let queue = SharedQueue {
        srq,
        uses: Uses::default(),
        max_sge: attr.max_sge as usize,
        function: own.function.clone(),
        event_source,
        _domain: domain.uses.begin(),
        _context: own.uses.begin(),
        _xrc: xrc.map(|(xrcd, queue)| [xrcd.uses.begin(), queue.uses.begin()]),
    };
    Ok(object.fill(c, queue))
}

/// Creates a shared receive queue.
///
/// # Safety
/// `pd` was created by this library; `attr` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    let attr = arg_mut!(attr).ok_or(Errno::INVAL);
    // SAFETY: the caller guarantees that `pd` is null or was created by this library.
    pointer(attr.and_then(|attr| unsafe { create(pd, &mut attr.attr, attr.srq_context, None) }))
}

/// The same with the fields that later releases added.
///
/// # Safety
/// `context` is open; `attr` is valid during the call.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    let attr = arg_mut!(attr).ok_or(Errno::INVAL);
    pointer(attr.and_then(|attr| {
        let has = |part| attr.comp_mask & part != 0;
        let srq_type = match has(IBV_SRQ_INIT_ATTR_TYPE) {
            true => attr.srq_type,
            false => IBV_SRQT_BASIC,
        };
        let basic = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        let known = match srq_type {
            IBV_SRQT_BASIC => basic,
            IBV_SRQT_XRC => basic | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
            _ => return Err(Errno::NOSUPP),
        };
        if attr.comp_mask & !known != 0 {
            return Err(Errno::NOSUPP);
        }
        if (known & !IBV_SRQ_INIT_ATTR_TYPE) & !attr.comp_mask != 0 {
            return Err(Errno::INVAL);
        }
        let xrc = match srq_type {
            IBV_SRQT_XRC => {
                // SAFETY: the caller guarantees that domain and queue of `attr` are null or were created by this library, and exist during the call.
                Some(unsafe { (xrcd::of(attr.xrcd)?, cq::of(attr.cq)?) })
            }
            _ => None,
        };
        // SAFETY: the caller guarantees that `attr.pd` is null or was created by this library.
        let made = unsafe { create(attr.pd, &mut attr.attr, attr.srq_context, xrc)? };
        if let Some(checker) = check::checker().filter(|_| xrc.is_some()) {
            checker.shared_completes(made as usize, attr.cq as usize);
        }
        Ok(made)
    }))
}

/// The number by which XRC initiators name a queue of an XRC domain; other queues have none (`EOPNOTSUPP`).
///
/// # Safety
/// `srq` was created by this library; `srq_num` is null or valid for writes.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int {
    let (own, srq_num) = (handle!(of(srq)), arg_mut!(srq_num));
    let known = own.zip(srq_num).ok_or(Errno::INVAL);
    number(known.and_then(|(own, srq_num)| {
        *srq_num = own.srq.xrc_number().ok_or(Errno::NOSUPP)?;
        Ok(())
    }))
}

/// Changes the limit below which an event is raised. The size of a queue is fixed.
///
/// # Safety
/// `srq` was created by this library; `attr` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    let (own, attr) = (handle!(of(srq)), arg_ref!(attr));
    let mask = mask as u32;
    let known = own.zip(attr).ok_or(Errno::INVAL);
    number(known.and_then(|(own, attr)| {
        if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
            return Err(Errno::INVAL);
        }
        if mask & IBV_SRQ_MAX_WR != 0 {
            return Err(Errno::NOSUPP);
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            own.srq.set_limit(attr.srq_limit as usize)?;
        }
        Ok(())
    }))
}

/// The size and the limit of a queue.
///
/// # Safety
/// `srq` was created by this library; `attr` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    let (own, attr) = (handle!(of(srq)), arg_mut!(attr));
    let known = own.zip(attr).ok_or(Errno::INVAL);
    number(known.and_then(|(own, attr)| {
        let info = own.srq.query()?;
        *attr = ibv_srq_attr {
            max_wr: info.receives as u32,
            max_sge: info.max_sge as u32,
            srq_limit: info.limit as u32,
        };
        Ok(())
    }))
}

/// Destroys a queue that no queue pair uses.
///
/// # Safety
/// `srq` was created by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    let own = handle!(of(srq)).ok_or(Errno::INVAL);
    number(own.and_then(|own| {
        if own.uses.any() {
            return Err(Errno::BUSY);
        }
        own.function.remove(Subject::Srq(own.srq.number()));
        if let Some(checker) = check::checker() {
            let missing = checker.closing(srq as usize, "ibv_destroy_srq");
            own.event_source.clone().forgive(missing);
        }
        own.event_source.close();
        // SAFETY: `srq` came from `UninitObject::fill`, and the caller does not use it after this call.
        drop(unsafe { SrqObject::take(srq) });
        Ok(())
    }))
}

/// Posts receives; on failure `bad` is set to the refused one.
///
/// # Safety
/// `srq` was created by this library; the requests are valid during the call.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let Some(own) = handle!(of(srq)) else {
        return number(Err(Errno::INVAL));
    };
    // SAFETY: the caller guarantees a valid list of requests at `wr`, and that `bad` is null or valid for writes.
    number(unsafe { post_receives(wr, bad, own.max_sge, |list| own.srq.post(list)) })
}
