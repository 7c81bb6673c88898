//! Queue pairs: made, looked at, told of and destroyed. How they change is in `modify`, what is asked of them in `post` and `wr`.
//! It promises that a program gets the sizes it asked for or is refused, and that destroying one waits until events of it are acknowledged.
//! It refuses kinds of queue pairs that the device has not.

mod attributes;
mod batch;
mod modify;
mod post;
mod query;
mod shown;
mod transitions;
mod transport;
mod wr;

pub use modify::ibv_modify_qp;
pub(crate) use modify::patience;
pub(crate) use post::{post_op, post_recv, post_send};
pub use query::{ibv_query_ece, ibv_query_qp, ibv_query_qp_data_in_order, ibv_set_ece};

use core::ffi::c_int;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use verbena::Qp;
use verbena::low::{Limits, Personality, QpState};

use crate::abi::*;
use crate::context::{self, Context};
use crate::ear::Ear;
use crate::errno::{Errno, number, pointer};
use crate::home::{Home, Subject};
use crate::object::Object;
use crate::uses::Use;
use crate::{cq, pd, srq};
use attributes::Known;
use transport::{Asked, Transport};
use wr::Builder;

/// What is ours of a queue pair.
pub(crate) struct Pair {
    transport: Transport,
    kind: u32,
    personality: Personality,
    cap: ibv_qp_cap,
    /// Every send completes with an entry, whether it says so or not.
    signal_all: bool,
    /// What its program has told and can ask for again.
    known: Mutex<Known>,
    builder: Builder,
    /// A connection manager moves it through its states.
    managed: AtomicBool,
    /// It was made for the functions that build requests.
    extended: bool,
    home: Arc<Home>,
    ear: Arc<Ear>,
    _uses: [Use; 4],
    _srq: Option<Use>,
}

pub(crate) type Held = Object<ibv_qp_ex, Pair>;

/// What is ours of a queue pair that a program names.
///
/// # Safety
/// `qp` is null or was made here, and stays while the answer is used.
pub(crate) unsafe fn of<'a>(qp: *const ibv_qp) -> Result<&'a Pair, Errno> {
    // SAFETY: the caller's word: every queue pair is an extended one.
    unsafe { Held::of(qp.cast::<ibv_qp_ex>()) }.ok_or(Errno::INVAL)
}

/// Where the queue pair hears of events.
///
/// # Safety
/// As of [`of`].
pub(crate) unsafe fn ear(qp: *const ibv_qp) -> Option<Arc<Ear>> {
    // SAFETY: the caller's word.
    unsafe { of(qp) }.ok().map(|pair| pair.ear.clone())
}

/// A queue pair to make.
struct Wanted {
    init: ibv_qp_init_attr,
    pd: *mut ibv_pd,
    /// The operations that the functions which build requests must have.
    operations: Option<u64>,
    /// Connected by a manager, so that nobody needs to be able to call it.
    managed: bool,
}

/// # Safety
/// Everything that it names was made here.
unsafe fn create(wanted: &Wanted) -> Result<(*mut ibv_qp, ibv_qp_cap), Errno> {
    let Wanted { init, pd, .. } = wanted;
    // SAFETY: the program's word, for all of these.
    let (domain, send, recv, stock) = unsafe {
        let recv = cq::of(init.recv_cq);
        // A queue pair with a shared receive queue completes its receives somewhere as well.
        (
            pd::of(*pd)?,
            cq::of(init.send_cq)?,
            recv?,
            srq::of(init.srq),
        )
    };
    // SAFETY: a field that is written once.
    let context = unsafe { (**pd).context };
    // SAFETY: a domain's context is open.
    let own: &Context = unsafe { context::of(context)? };
    let cap = granted(init.cap, stock.is_some());
    let limits = Limits {
        sends: cap.max_send_wr as usize,
        receives: cap.max_recv_wr as usize,
        pieces: cap.max_send_sge.max(cap.max_recv_sge) as usize,
        inline: cap.max_inline_data as usize,
    };
    let personality = own.home.personality();
    let transport = Transport::new(&Asked {
        kind: init.qp_type,
        personality,
        managed: wanted.managed,
        pd: &domain.pd,
        send: &send.cq,
        recv: &recv.cq,
        srq: stock.map(|stock| &stock.srq),
        limits,
    })?;
    let qp_base = ibv_qp {
        context,
        qp_context: init.qp_context,
        pd: *pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: transport.event_number(),
        qp_num: transport.number(),
        state: IBV_QPS_RESET,
        qp_type: init.qp_type,
        ..ibv_qp::zeroed()
    };
    let mut c = ibv_qp_ex {
        qp_base,
        ..ibv_qp_ex::zeroed()
    };
    if let Some(operations) = wanted.operations {
        wr::equip(&mut c, init.qp_type, operations)?;
    }
    let place = Held::room();
    let at: *mut ibv_qp = place.at().cast();
    let ear = Ear::new(&own.events, ibv_async_event__element { qp: at });
    own.home.add(Subject::Qp(transport.event_number()), &ear);
    let pair = Pair {
        transport,
        kind: init.qp_type,
        personality,
        cap,
        signal_all: init.sq_sig_all != 0,
        known: Mutex::new(Known::default()),
        builder: Builder::default(),
        managed: AtomicBool::new(wanted.managed),
        extended: wanted.operations.is_some(),
        home: own.home.clone(),
        ear,
        _uses: [
            domain.uses.begin(),
            send.uses.begin(),
            recv.uses.begin(),
            own.uses.begin(),
        ],
        _srq: stock.map(|stock| stock.uses.begin()),
    };
    let (number, home) = (pair.transport.number(), own.home.clone());
    let qp = place.fill(c, pair).cast();
    home.add_pair(number, qp);
    Ok((qp, cap))
}

/// Makes a queue pair for a connection manager.
///
/// # Safety
/// As of [`ibv_create_qp`].
pub(crate) unsafe fn create_managed(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
) -> Result<*mut ibv_qp, Errno> {
    let wanted = Wanted {
        init: *attr,
        pd,
        operations: None,
        managed: true,
    };
    // SAFETY: the caller's word.
    let (qp, cap) = unsafe { create(&wanted)? };
    attr.cap = cap;
    Ok(qp)
}

/// The same with parts that later releases added.
///
/// # Safety
/// As of [`ibv_create_qp`].
pub(crate) unsafe fn create_managed_ex(
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: the caller's word.
    unsafe { create_extended(attr, true) }
}

/// What a program gets: what it asked for, at least one piece per request; no receives of its own beside a shared queue.
fn granted(asked: ibv_qp_cap, shared: bool) -> ibv_qp_cap {
    let receives = if shared { 0 } else { asked.max_recv_wr };
    let pieces = if shared { 0 } else { asked.max_recv_sge.max(1) };
    ibv_qp_cap {
        max_send_sge: asked.max_send_sge.max(1),
        max_recv_wr: receives,
        max_recv_sge: pieces,
        ..asked
    }
}

impl Pair {
    /// Its connection, if it is of the kind that has one.
    pub(crate) fn connection(&self) -> Option<&Qp> {
        match &self.transport {
            Transport::Connected(qp) => Some(qp),
            Transport::Datagram(_) => None,
        }
    }

    /// The number that events know it by.
    pub(crate) fn event_number(&self) -> u32 {
        self.transport.event_number()
    }

    /// A connection manager moves it from now on.
    pub(crate) fn manage(&self) {
        self.managed.store(true, Ordering::Release);
    }

    /// Ends its connection, if it has one.
    pub(crate) fn hang_up(&self) {
        if let Some(qp) = self.connection() {
            qp.disconnect();
            // Not connected, or not any more: what is posted is flushed all the same.
            qp.modify(QpState::Err);
        }
    }

    /// Joins a group of datagram receivers.
    pub(crate) fn join(&self, group: IpAddr) -> Result<(), Errno> {
        let Transport::Datagram(ud) = &self.transport else {
            return Err(Errno::INVAL);
        };
        if !group.is_multicast() {
            return Err(Errno::INVAL);
        }
        Ok(ud.attach(group)?)
    }

    /// Leaves a group of datagram receivers.
    pub(crate) fn leave(&self, group: IpAddr) -> Result<(), Errno> {
        let Transport::Datagram(ud) = &self.transport else {
            return Err(Errno::INVAL);
        };
        ud.detach(group).then_some(()).ok_or(Errno::INVAL)
    }
}

/// Makes a queue pair.
///
/// # Safety
/// `pd` was made here; `attr` is the program's, and all that it names was made here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: the program's word.
    let attr = unsafe { attr.as_mut() }.ok_or(Errno::INVAL);
    pointer(attr.and_then(|attr| {
        let wanted = Wanted {
            init: *attr,
            pd,
            operations: None,
            managed: false,
        };
        // SAFETY: the program's word.
        let (qp, cap) = unsafe { create(&wanted)? };
        attr.cap = cap;
        Ok(qp)
    }))
}

/// Parts of the extended request that we understand.
const PARTS: u32 =
    IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;

/// The same with parts that later releases added.
///
/// # Safety
/// As [`ibv_create_qp`].
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the program's word.
    let attr = unsafe { attr.as_mut() }.ok_or(Errno::INVAL);
    // SAFETY: the program's word.
    pointer(attr.and_then(|attr| unsafe { create_extended(attr, false) }))
}

/// # Safety
/// As of [`ibv_create_qp`].
unsafe fn create_extended(
    attr: &mut ibv_qp_init_attr_ex,
    managed: bool,
) -> Result<*mut ibv_qp, Errno> {
    let has = |part| attr.comp_mask & part != 0;
    let flagged = has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0;
    if attr.comp_mask & !PARTS != 0 || flagged {
        return Err(Errno::NOSUPP);
    }
    if !has(IBV_QP_INIT_ATTR_PD) {
        return Err(Errno::INVAL);
    }
    let init = ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    };
    let wanted = Wanted {
        init,
        pd: attr.pd,
        operations: has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(attr.send_ops_flags),
        managed,
    };
    // SAFETY: the program's word.
    let (qp, cap) = unsafe { create(&wanted)? };
    attr.cap = cap;
    Ok(qp)
}

/// The functions that build requests, if the queue pair was made for them.
///
/// # Safety
/// `qp` was made here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the program's word.
    match unsafe { of(qp) } {
        Ok(pair) if pair.extended => qp.cast(),
        _ => core::ptr::null_mut(),
    }
}

/// Destroys a queue pair; nothing of it completes any more.
///
/// # Safety
/// `qp` was made here, and the program does not use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { of(qp) };
    number(own.map(|own| {
        let events = own.transport.event_number();
        own.home.remove(Subject::Qp(events));
        own.home.remove_pair(own.transport.number(), events);
        own.ear.close();
        // SAFETY: the program's word.
        drop(unsafe { Held::take(qp.cast()) });
    }))
}
