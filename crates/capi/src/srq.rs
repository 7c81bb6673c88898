//! Shared receive queues: one stock of receives for many queue pairs.
//! It promises that a queue in use is not destroyed, and one event when its stock falls below a limit.
//! It refuses the kinds that need tags or connections across processes.

use core::ffi::c_int;
use std::sync::Arc;

use verbena::Srq;

use crate::abi::*;
use crate::ear::Ear;
use crate::errno::{Errno, number, pointer};
use crate::home::{Home, Subject};
use crate::object::Object;
use crate::scatter::receives;
use crate::uses::{Use, Uses};
use crate::{context, pd};

/// What is ours of a shared receive queue.
pub(crate) struct Stock {
    pub(crate) srq: Srq,
    pub(crate) uses: Uses,
    /// Of a receive, at most.
    pieces: usize,
    home: Arc<Home>,
    ear: Arc<Ear>,
    _domain: Use,
    _context: Use,
}

type Held = Object<ibv_srq, Stock>;

/// What is ours of a queue that a program names; nothing if it names none.
///
/// # Safety
/// `srq` is null or was made here, and stays while the answer is used.
pub(crate) unsafe fn of<'a>(srq: *const ibv_srq) -> Option<&'a Stock> {
    // SAFETY: the caller's word.
    unsafe { Held::of(srq) }
}

/// Where the queue hears of events.
///
/// # Safety
/// As of [`of`].
pub(crate) unsafe fn ear(srq: *const ibv_srq) -> Option<Arc<Ear>> {
    // SAFETY: the caller's word.
    unsafe { of(srq) }.map(|stock| stock.ear.clone())
}

/// # Safety
/// `pd` was made here; `attr` is the program's.
unsafe fn create(
    pd: *mut ibv_pd,
    attr: &mut ibv_srq_attr,
    name: *mut core::ffi::c_void,
) -> Result<*mut ibv_srq, Errno> {
    // SAFETY: the program's word.
    let domain = unsafe { pd::of(pd)? };
    // SAFETY: a field that is written once.
    let context = unsafe { (*pd).context };
    // SAFETY: a domain's context is open.
    let own = unsafe { context::of(context)? };
    if attr.max_wr == 0 {
        return Err(Errno::INVAL);
    }
    let srq = domain
        .pd
        .srq(attr.max_wr as usize, attr.max_sge.max(1) as usize)?;
    let subject = Subject::Srq(srq.number());
    let place = Held::room();
    let ear = Ear::new(&own.events, ibv_async_event__element { srq: place.at() });
    own.home.add(subject, &ear);
    attr.max_sge = attr.max_sge.max(1);
    let c = ibv_srq {
        context,
        srq_context: name,
        pd,
        handle: srq.number(),
        ..ibv_srq::zeroed()
    };
    let stock = Stock {
        srq,
        uses: Uses::default(),
        pieces: attr.max_sge as usize,
        home: own.home.clone(),
        ear,
        _domain: domain.uses.begin(),
        _context: own.uses.begin(),
    };
    Ok(place.fill(c, stock))
}

/// Makes a shared receive queue.
///
/// # Safety
/// `pd` was made here; `attr` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: the program's word.
    let attr = unsafe { attr.as_mut() }.ok_or(Errno::INVAL);
    // SAFETY: the program's word.
    pointer(attr.and_then(|attr| unsafe { create(pd, &mut attr.attr, attr.srq_context) }))
}

/// The same with parts that later releases added.
///
/// # Safety
/// `context` is open; `attr` is the program's.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the program's word.
    let attr = unsafe { attr.as_mut() }.ok_or(Errno::INVAL);
    pointer(attr.and_then(|attr| {
        let has = |part| attr.comp_mask & part != 0;
        if attr.comp_mask & !(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD) != 0
            || (has(IBV_SRQ_INIT_ATTR_TYPE) && attr.srq_type != IBV_SRQT_BASIC)
        {
            return Err(Errno::NOSUPP);
        }
        if !has(IBV_SRQ_INIT_ATTR_PD) {
            return Err(Errno::INVAL);
        }
        // SAFETY: the program's word.
        unsafe { create(attr.pd, &mut attr.attr, attr.srq_context) }
    }))
}

/// The number that peers of a queue across processes would name: it is none of those.
pub(crate) unsafe extern "C" fn get_srq_num(_srq: *mut ibv_srq, _number: *mut u32) -> c_int {
    number(Err(Errno::NOSUPP))
}

/// Changes the limit below which an event is raised. A queue's size is fixed.
///
/// # Safety
/// `srq` was made here; `attr` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the program's word.
    let (own, attr) = unsafe { (of(srq), attr.as_ref()) };
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

/// What a queue holds and when it raises its event.
///
/// # Safety
/// `srq` was made here; `attr` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the program's word.
    let (own, attr) = unsafe { (of(srq), attr.as_mut()) };
    let known = own.zip(attr).ok_or(Errno::INVAL);
    number(known.and_then(|(own, attr)| {
        let info = own.srq.query()?;
        *attr = ibv_srq_attr {
            max_wr: info.receives as u32,
            max_sge: info.pieces as u32,
            srq_limit: info.limit as u32,
        };
        Ok(())
    }))
}

/// Destroys a queue that no queue pair takes from.
///
/// # Safety
/// `srq` was made here, and the program does not use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { of(srq) }.ok_or(Errno::INVAL);
    number(own.and_then(|own| {
        if own.uses.any() {
            return Err(Errno::BUSY);
        }
        own.home.remove(Subject::Srq(own.srq.number()));
        own.ear.close();
        // SAFETY: the program's word.
        drop(unsafe { Held::take(srq) });
        Ok(())
    }))
}

/// Posts receives; says which was refused, if one was.
///
/// # Safety
/// `srq` was made here; the requests are the program's.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program's word.
    let Some(own) = (unsafe { of(srq) }) else {
        return number(Err(Errno::INVAL));
    };
    // SAFETY: the program's word.
    number(unsafe { receives(wr, bad, own.pieces, |list| own.srq.post(list)) })
}
