//! Queue pairs: creation, queries and destruction. State changes are in `modify`, work requests in `post` and `wr`.
//! A program gets the queue sizes that it requested or an error; with a shared receive queue it has no receive queue of its own.
//! Destroying a queue pair waits until its events are acknowledged. Types that the personality does not have are `EOPNOTSUPP`.
//! An XRC target has an XRC domain instead of a protection domain and queues, and may have several handles (`ibv_open_qp`).

mod attributes;
mod batch;
mod modify;
mod post;
mod query;
mod state_ref;
mod transitions;
mod transport;
mod wr;

pub use modify::ibv_modify_qp;
pub(crate) use modify::patience;
pub(crate) use post::{post_op, post_recv, post_send};
pub use query::{ibv_query_ece, ibv_query_qp, ibv_query_qp_data_in_order, ibv_set_ece};

use core::ffi::c_int;
use core::net::IpAddr;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use verbena::low::{Limits, Personality, Qp, QpState};

use crate::abi::*;
use crate::allocator::Resource;
use crate::async_event::AsyncEventSource;
use crate::caller::{arg_mut, arg_ref, handle};
use crate::check::{self, PairInfo};
use crate::context::{self, Context};
use crate::errno::{Errno, number, pointer};
use crate::function::{AdapterFunction, Subject};
use crate::object::{Object, UninitObject};
use crate::uses::Use;
use crate::xrc_domains::SharedDomain;
use crate::{cq, pd, srq, xrcd};
use attributes::StoredAttr;
use transport::{Transport, TransportParams};
use wr::Builder;

/// The library's part of a queue pair.
pub(crate) struct Pair {
    transport: Transport,
    kind: u32,
    personality: Personality,
    cap: ibv_qp_cap,
    /// `sq_sig_all`: every send request is signaled.
    signal_all: bool,
    /// Attributes that the program has set and can query.
    stored_attr: Mutex<StoredAttr>,
    builder: Builder,
    /// The connection manager moves it through the states.
    managed: AtomicBool,
    /// Created with `send_ops_flags`, for the `ibv_wr_*` functions.
    extended: bool,
    function: Arc<AdapterFunction>,
    event_source: Arc<AsyncEventSource>,
    /// The domain of an XRC target.
    xrcd: Option<Arc<SharedDomain>>,
    /// It is another handle of an XRC target, by `ibv_open_qp`.
    opened: bool,
    _uses: Vec<Use>,
}

pub(crate) type QpObject = Object<ibv_qp_ex, Pair>;

/// The library's part of the queue pair behind this pointer; `EINVAL` for null.
///
/// # Safety
/// `qp` is null or was created by this library, and is not destroyed while the result is used.
pub(crate) unsafe fn of<'a>(qp: *const ibv_qp) -> Result<&'a Pair, Errno> {
    // SAFETY: the caller guarantees that `qp` is null or was created by this library; every queue pair is created as an `ibv_qp_ex`.
    unsafe { QpObject::of(qp.cast::<ibv_qp_ex>()) }.ok_or(Errno::INVAL)
}

/// The asynchronous events of the queue pair.
///
/// # Safety
/// As for [`of`].
pub(crate) unsafe fn event_source(qp: *const ibv_qp) -> Option<Arc<AsyncEventSource>> {
    handle!(of(qp)).ok().map(|pair| pair.event_source.clone())
}

/// What `verbena check` has to know of a queue pair to which requests are posted.
pub(crate) struct Posting {
    pub(crate) state: QpState,
    pub(crate) managed: bool,
    pub(crate) signal_all: bool,
    pub(crate) max_send_sge: usize,
    pub(crate) max_recv_sge: usize,
}

/// The same, of this queue pair; none for null.
///
/// # Safety
/// As for [`of`].
pub(crate) unsafe fn posting(qp: *const ibv_qp) -> Option<Posting> {
    handle!(of(qp)).ok().map(Pair::posting)
}

/// Has `verbena check` look at the first cause of the failure of a queue pair.
///
/// # Safety
/// As for [`of`].
pub(crate) unsafe fn look_at_failure(qp: *const ibv_qp) {
    let pair = handle!(of(qp)).ok();
    let failure = pair
        .and_then(Pair::connection)
        .and_then(|qp| qp.view().failure);
    if let Some((checker, access)) =
        check::checker().zip(failure.and_then(|failure| failure.access))
    {
        checker.refused(access.stag.get(), &access.needs.to_string(), access.len);
    }
}

/// Parameters of a queue pair to create.
struct QpParams {
    init: ibv_qp_init_attr,
    pd: *mut ibv_pd,
    /// The domain of an XRC target.
    xrcd: *mut ibv_xrcd,
    /// The `ibv_wr_*` operations that are requested.
    operations: Option<u64>,
    /// Connected by the connection manager: it needs no number that a peer can connect to.
    managed: bool,
}

/// # Safety
/// The domain, queues and shared receive queue that it names are null or were created by this library.
unsafe fn create(wanted: &QpParams) -> Result<(*mut ibv_qp, ibv_qp_cap), Errno> {
    let QpParams { init, pd, .. } = wanted;
    if init.qp_type == IBV_QPT_XRC_RECV {
        // SAFETY: the caller guarantees that the XRC domain is null or was created by this library.
        return unsafe { create_target(wanted) };
    }
    let initiates = init.qp_type == IBV_QPT_XRC_SEND;
    // SAFETY: the caller guarantees that `pd` and the queues of `init` are null or were created by this library, and exist during the call.
    let (domain, send, recv, stock) = unsafe {
        // A queue pair with a shared receive queue needs a completion queue for its receives as well; an XRC initiator has no receives.
        let recv = if initiates {
            init.send_cq
        } else {
            init.recv_cq
        };
        let srq = if initiates { None } else { srq::of(init.srq) };
        (pd::of(*pd)?, cq::of(init.send_cq)?, cq::of(recv)?, srq)
    };
    // SAFETY: `pd` is valid, since `pd::of` succeeded; the field is written once.
    let context = unsafe { (**pd).context };
    // SAFETY: `context` is the one of `pd`, which counts as a use of it: it stays open as long as the domain exists.
    let own: &Context = unsafe { context::of(context)? };
    let cap = granted(init.cap, stock.is_some() || initiates);
    let limits = Limits {
        sends: cap.max_send_wr as usize,
        receives: cap.max_recv_wr as usize,
        max_sge: cap.max_send_sge.max(cap.max_recv_sge) as usize,
        inline: cap.max_inline_data as usize,
    };
    let object = QpObject::new_uninit_in(domain.allocator(), Resource::Qp)?;
    let transport = Transport::new(&TransportParams {
        kind: init.qp_type,
        personality: own.function.personality(),
        managed: wanted.managed,
        pd: &domain.pd,
        send: &send.cq,
        recv: &recv.cq,
        srq: stock.map(|stock| &stock.srq),
        limits,
    })?;
    let mut uses = vec![
        domain.uses.begin(),
        send.uses.begin(),
        recv.uses.begin(),
        own.uses.begin(),
    ];
    uses.extend(stock.map(|stock| stock.uses.begin()));
    let parts = PairParts {
        context,
        own,
        transport,
        cap,
        uses,
        xrcd: None,
        opened: false,
    };
    Ok((complete(object, wanted, parts)?, cap))
}

/// An XRC target: it has an XRC domain, and no protection domain and no queues.
///
/// # Safety
/// The XRC domain that it names is null or was created by this library.
unsafe fn create_target(wanted: &QpParams) -> Result<(*mut ibv_qp, ibv_qp_cap), Errno> {
    let domain = handle!(xrcd::of(wanted.xrcd))?;
    // SAFETY: the domain is valid, since `xrcd::of` succeeded, and the field is written once; it counts as a use of its context, which stays
    // open as long as the domain exists.
    let (context, own) = unsafe {
        let context = (*wanted.xrcd).context;
        (context, context::of(context)?)
    };
    let personality = own.function.personality();
    let transport = Transport::target(domain.xrcd(), personality, wanted.managed)?;
    let cap = ibv_qp_cap::zeroed();
    let parts = PairParts {
        context,
        own,
        transport,
        cap,
        uses: vec![domain.uses.begin(), own.uses.begin()],
        xrcd: Some(domain.shared().clone()),
        opened: false,
    };
    Ok((complete(QpObject::new_uninit(), wanted, parts)?, cap))
}

/// What a queue pair is made of.
struct PairParts<'a> {
    context: *mut ibv_context,
    own: &'a Context,
    transport: Transport,
    cap: ibv_qp_cap,
    uses: Vec<Use>,
    xrcd: Option<Arc<SharedDomain>>,
    opened: bool,
}

/// Makes the object of a queue pair and, unless it is another handle of an existing one, makes it known by its numbers.
fn complete(
    object: UninitObject<ibv_qp_ex, Pair>,
    wanted: &QpParams,
    parts: PairParts<'_>,
) -> Result<*mut ibv_qp, Errno> {
    let (init, own, transport) = (&wanted.init, parts.own, parts.transport);
    let none = init.qp_type == IBV_QPT_XRC_RECV;
    let qp_base = ibv_qp {
        context: parts.context,
        qp_context: init.qp_context,
        pd: if none { ptr::null_mut() } else { wanted.pd },
        send_cq: if none { ptr::null_mut() } else { init.send_cq },
        recv_cq: if none { ptr::null_mut() } else { init.recv_cq },
        srq: if none { ptr::null_mut() } else { init.srq },
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
        wr::set_functions(&mut c, init.qp_type, operations)?;
    }
    let at: *mut ibv_qp = object.as_ptr().cast();
    let event_source = AsyncEventSource::new(&own.events, ibv_async_event__element { qp: at });
    let (number, events) = (transport.number(), transport.event_number());
    if !parts.opened {
        own.function.add(Subject::Qp(events), &event_source);
    }
    let pair = Pair {
        transport,
        kind: init.qp_type,
        personality: own.function.personality(),
        cap: parts.cap,
        signal_all: init.sq_sig_all != 0,
        stored_attr: Mutex::new(StoredAttr::default()),
        builder: Builder::default(),
        managed: AtomicBool::new(wanted.managed),
        extended: wanted.operations.is_some(),
        function: own.function.clone(),
        event_source,
        xrcd: parts.xrcd,
        opened: parts.opened,
        _uses: parts.uses,
    };
    let home = own.function.clone();
    let qp: *mut ibv_qp = object.fill(c, pair).cast();
    if let Some(checker) = check::checker() {
        let (cap, target) = (parts.cap, none);
        let queue = |pointer: usize| if target { 0 } else { pointer };
        let info = PairInfo {
            number,
            send_cq: queue(init.send_cq as usize),
            recv_cq: queue(init.recv_cq as usize),
            srq: queue(init.srq as usize),
            max_send: cap.max_send_wr as usize,
        };
        checker.pair_created(qp as usize, info);
    }
    if !parts.opened {
        home.add_pair(number, qp);
    }
    Ok(qp)
}

/// Another handle of the XRC target with this number that the function has in the domain, and whether the connection manager moves it.
fn find_target(
    function: &AdapterFunction,
    number: u32,
    domain: &Arc<SharedDomain>,
) -> Option<(Transport, bool)> {
    let found = function.pairs.with(number, |at| {
        // SAFETY: the table has the queue pair, so it exists until `with` returns.
        let pair = unsafe { of(at.0) }.ok()?;
        let same = |shared: &Arc<SharedDomain>| Arc::ptr_eq(shared, domain);
        pair.xrcd.as_ref().filter(|shared| same(shared))?;
        let managed = pair.managed.load(Ordering::Acquire);
        Some((pair.transport.open_target()?, managed))
    });
    found.flatten()
}

/// Lets other processes open the targets that the function has in the domain.
pub(crate) fn share_targets(function: &Arc<AdapterFunction>, domain: &Arc<SharedDomain>) {
    let (function, shared) = (Arc::downgrade(function), Arc::downgrade(domain));
    domain.xrcd().engine_domain().share_targets(move |number| {
        let (function, shared) = (function.upgrade()?, shared.upgrade()?);
        let (target, _) = find_target(&function, number, &shared)?;
        Some(Box::new(target))
    });
}

/// Opens another handle of an XRC target, of this or another process: the target is destroyed with the last one, or with its process. Asynchronous events
/// of the target are reported for the handle that created it. A number that no target of the domain has is `EINVAL`.
///
/// # Safety
/// `context` is open; `attr` is null or valid during the call, and its domain is null or was created by this library.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    let (own, attr) = (handle!(context::of(context)), arg_ref!(attr));
    pointer(own.and_then(|own| {
        let attr = attr.ok_or(Errno::INVAL)?;
        let needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
        if attr.comp_mask & !(needed | IBV_QP_OPEN_ATTR_CONTEXT) != 0 {
            return Err(Errno::NOSUPP);
        }
        if attr.comp_mask & needed != needed || attr.qp_type != IBV_QPT_XRC_RECV {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller guarantees that the domain is null or was created by this library.
        let domain = unsafe { xrcd::of(attr.xrcd)? };
        let elsewhere = || {
            let transport = Transport::open_elsewhere(domain.xrcd(), attr.qp_num)?;
            Some((transport, true))
        };
        let found = find_target(&own.function, attr.qp_num, domain.shared());
        let (transport, managed) = found.or_else(elsewhere).ok_or(Errno::INVAL)?;
        let named = attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT != 0;
        let init = ibv_qp_init_attr {
            qp_context: if named {
                attr.qp_context
            } else {
                ptr::null_mut()
            },
            qp_type: IBV_QPT_XRC_RECV,
            ..ibv_qp_init_attr::zeroed()
        };
        let wanted = QpParams {
            init,
            pd: ptr::null_mut(),
            xrcd: attr.xrcd,
            operations: None,
            managed,
        };
        let parts = PairParts {
            context,
            own,
            transport,
            cap: ibv_qp_cap::zeroed(),
            uses: vec![domain.uses.begin(), own.uses.begin()],
            xrcd: Some(domain.shared().clone()),
            opened: true,
        };
        complete(QpObject::new_uninit(), &wanted, parts)
    }))
}

/// Creates a queue pair for the connection manager.
///
/// # Safety
/// As for [`ibv_create_qp`].
pub(crate) unsafe fn create_managed(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
) -> Result<*mut ibv_qp, Errno> {
    let wanted = QpParams {
        init: *attr,
        pd,
        xrcd: ptr::null_mut(),
        operations: None,
        managed: true,
    };
    // SAFETY: the caller guarantees that `pd` and the objects that `attr` names are null or were created by this library.
    let (qp, cap) = unsafe { create(&wanted)? };
    attr.cap = cap;
    Ok(qp)
}

/// The same with the fields that later releases added.
///
/// # Safety
/// As for [`ibv_create_qp`].
pub(crate) unsafe fn create_managed_ex(
    attr: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: `create_extended` requires of the objects that `attr` names what this function does.
    unsafe { create_extended(attr, true) }
}

/// The capabilities that a program gets: those requested, at least one piece per request, and no receives of its own with a shared queue.
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
    fn posting(&self) -> Posting {
        Posting {
            state: self.transport.state(),
            managed: self.managed.load(Ordering::Acquire) || self.personality == Personality::Iwarp,
            signal_all: self.signal_all,
            max_send_sge: self.cap.max_send_sge as usize,
            max_recv_sge: self.cap.max_recv_sge as usize,
        }
    }

    /// Its connection, if it is of a connected type.
    pub(crate) fn connection(&self) -> Option<&Qp> {
        match &self.transport {
            Transport::Connected(qp) => Some(qp),
            Transport::Datagram(_) | Transport::Elsewhere(_) => None,
        }
    }

    /// The number of the queue pair in events of the adapter.
    pub(crate) fn event_number(&self) -> u32 {
        self.transport.event_number()
    }

    /// The connection manager moves it through the states from now on.
    pub(crate) fn manage(&self) {
        self.managed.store(true, Ordering::Release);
    }

    /// Ends its connection, if it has one, and flushes its requests.
    pub(crate) fn disconnect(&self) {
        if let Some(qp) = self.connection() {
            // Posted requests are flushed even if it is not connected, or the adapter is closed.
            let _ = qp.disconnect();
            let _ = qp.modify(QpState::Err);
        }
    }

    /// Joins a multicast group.
    pub(crate) fn join(&self, group: IpAddr) -> Result<(), Errno> {
        let Transport::Datagram(ud) = &self.transport else {
            return Err(Errno::INVAL);
        };
        if !group.is_multicast() {
            return Err(Errno::INVAL);
        }
        Ok(ud.attach(group)?)
    }

    /// Leaves a multicast group.
    pub(crate) fn leave(&self, group: IpAddr) -> Result<(), Errno> {
        let Transport::Datagram(ud) = &self.transport else {
            return Err(Errno::INVAL);
        };
        ud.detach(group).then_some(()).ok_or(Errno::INVAL)
    }
}

/// Creates a queue pair.
///
/// # Safety
/// `pd` is null or was created by this library; `attr` is null or valid, and the objects that it names were created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let attr = arg_mut!(attr).ok_or(Errno::INVAL);
    pointer(attr.and_then(|attr| {
        let wanted = QpParams {
            init: *attr,
            pd,
            xrcd: ptr::null_mut(),
            operations: None,
            managed: false,
        };
        // SAFETY: the caller guarantees that `pd` and the objects that `attr` names are null or were created by this library.
        let (qp, cap) = unsafe { create(&wanted)? };
        attr.cap = cap;
        Ok(qp)
    }))
}

/// Fields of the extended request that are supported.
const SUPPORTED_MASK: u32 = IBV_QP_INIT_ATTR_PD
    | IBV_QP_INIT_ATTR_XRCD
    | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
    | IBV_QP_INIT_ATTR_CREATE_FLAGS;

/// The same with the fields that later releases added.
///
/// # Safety
/// As [`ibv_create_qp`].
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let attr = arg_mut!(attr).ok_or(Errno::INVAL);
    // SAFETY: the caller guarantees that domain, queues and shared receive queue in `attr` are null or were created by this library, and exist during the call.
    pointer(attr.and_then(|attr| unsafe { create_extended(attr, false) }))
}

/// # Safety
/// As for [`ibv_create_qp`].
unsafe fn create_extended(
    attr: &mut ibv_qp_init_attr_ex,
    managed: bool,
) -> Result<*mut ibv_qp, Errno> {
    let has = |part| attr.comp_mask & part != 0;
    let flagged = has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags != 0;
    if attr.comp_mask & !SUPPORTED_MASK != 0 || flagged {
        return Err(Errno::NOSUPP);
    }
    let target = attr.qp_type == IBV_QPT_XRC_RECV;
    let needed = if target {
        IBV_QP_INIT_ATTR_XRCD
    } else {
        IBV_QP_INIT_ATTR_PD
    };
    if !has(needed) || (has(IBV_QP_INIT_ATTR_XRCD) && !target) {
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
    let wanted = QpParams {
        init,
        pd: attr.pd,
        xrcd: if target { attr.xrcd } else { ptr::null_mut() },
        operations: has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(attr.send_ops_flags),
        managed,
    };
    // SAFETY: the caller guarantees that the objects that `attr` names are null or were created by this library.
    let (qp, cap) = unsafe { create(&wanted)? };
    attr.cap = cap;
    Ok(qp)
}

/// The extended form of a queue pair, if it was created for the `ibv_wr_*` functions.
///
/// # Safety
/// `qp` was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    match handle!(of(qp)) {
        Ok(pair) if pair.extended => qp.cast(),
        _ => core::ptr::null_mut(),
    }
}

/// Destroys a queue pair; none of its requests completes after that.
///
/// # Safety
/// `qp` was created by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let own = handle!(of(qp));
    number(own.map(|own| {
        let events = own.transport.event_number();
        if !own.opened {
            own.function.remove(Subject::Qp(events));
            own.function.remove_pair(own.transport.number(), events);
        }
        if let Some(checker) = check::checker() {
            // SAFETY: `qp` is valid, since `of` succeeded.
            unsafe { look_at_failure(qp) };
            let (sends, receives) = own.transport.pending();
            if !own.transport.state().flushes() {
                checker.pair_ends(qp as usize, sends, receives);
            }
            let missing = checker.closing(qp as usize, "ibv_destroy_qp");
            own.event_source.forgive(missing);
        }
        own.event_source.close();
        // SAFETY: `qp` came from `UninitObject::fill`, and the caller does not use it after this call.
        drop(unsafe { QpObject::take(qp.cast()) });
    }))
}
