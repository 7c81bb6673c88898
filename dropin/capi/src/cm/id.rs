//! Identifiers of the connection manager: connections, listeners and datagram services.
//! An identifier without a channel is synchronous: each call waits for its event. Destroying an identifier waits until its events are
//! acknowledged; queue pairs that the program created with it must be destroyed before.

use core::ffi::{c_int, c_void};
use core::net::{IpAddr, SocketAddr};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use verbena::Listener;
use verbena::cm::{BoundListener, ConnectRequest};

use super::address::storage;
use super::link::{IncomingRequest, Link};
use super::options::Options;
use super::sidr_state::{SidrState, request_local_addr};
use super::{channel, devices};
use crate::abi::*;
use crate::caller::{handle, this_id};
use crate::errno::{Errno, minus_one};
use crate::object::Object;
use crate::port::{PORT, gid_of};
use crate::{check, context};

/// The library's part of a identifier.
pub(crate) struct Id {
    pub(crate) link: Arc<Link>,
    /// Synchronous: it has a channel of its own, and every call waits for its event.
    pub(crate) sync: AtomicBool,
    pub(crate) inner: Mutex<Inner>,
}

/// The mutable part.
#[derive(Default)]
pub(crate) struct Inner {
    /// Ports that are bound and do not listen yet.
    pub(crate) bound_listeners: Vec<BoundListener>,
    pub(crate) listeners: Vec<Arc<Listener>>,
    /// The address that it is bound to, as the program sees it.
    pub(crate) bound: Option<SocketAddr>,
    /// The local address to connect from.
    pub(crate) source: Option<IpAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// A connection request, until it is answered.
    pub(crate) request: Option<ConnectRequest>,
    pub(crate) options: Options,
    /// State for the datagram port spaces.
    pub(crate) datagrams: SidrState,
    /// Attributes for the queue pairs of a listener's connections.
    pub(crate) endpoint: Option<Template>,
    /// The path to the peer; the identifier points to it.
    pub(crate) path: Option<Box<ibv_sa_path_rec>>,
    /// A queue pair that the program created itself and connected.
    pub(crate) own_qp: Option<*mut ibv_qp>,
    /// A connection was requested: an identifier does that once.
    pub(crate) connect_requested: bool,
}

/// Domain and attributes of a queue pair to create for each connection.
#[derive(Clone, Copy)]
pub(crate) struct Template {
    pub(crate) pd: *mut ibv_pd,
    pub(crate) attr: ibv_qp_init_attr,
}

// SAFETY: the raw pointers are passed back to calls that any thread may make; the handles may be used by any thread.
unsafe impl Send for Inner {}

pub(crate) type IdObject = Object<rdma_cm_id, Id>;

/// The library's part of a identifier that a program names.
///
/// # Safety
/// `id` is null or was created by this library, and is not destroyed while the result is used.
pub(crate) unsafe fn of<'a>(id: *const rdma_cm_id) -> Result<&'a Id, Errno> {
    handle!(IdObject::of(id)).ok_or(Errno::INVAL)
}

/// Parameters of an identifier to create.
struct IdParams {
    channel: *mut rdma_event_channel,
    sync: bool,
    context: *mut c_void,
    ps: u32,
    qp_type: u32,
}

/// # Safety
/// `wanted.channel` is null or was created by this library.
unsafe fn make(wanted: &IdParams, inner: Inner) -> Result<*mut rdma_cm_id, Errno> {
    let events = handle!(channel::of(wanted.channel))?.events.clone();
    let place = IdObject::new_uninit();
    let link = Link::new(place.as_ptr(), events);
    let c = rdma_cm_id {
        channel: wanted.channel,
        context: wanted.context,
        ps: wanted.ps,
        qp_type: wanted.qp_type,
        ..rdma_cm_id::zeroed()
    };
    let id = Id {
        link,
        sync: AtomicBool::new(wanted.sync),
        inner: Mutex::new(inner),
    };
    Ok(place.fill(c, id))
}

/// The queue pair type of a port space.
fn qp_type_of(ps: u32) -> Result<u32, Errno> {
    match ps {
        RDMA_PS_TCP => Ok(IBV_QPT_RC),
        RDMA_PS_UDP | RDMA_PS_IPOIB => Ok(IBV_QPT_UD),
        // InfiniBand's own port space needs its addressing.
        _ => Err(Errno::NOSUPP),
    }
}

/// # Safety
/// `channel` is null or was created by this library.
pub(crate) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: u32,
) -> Result<*mut rdma_cm_id, Errno> {
    let qp_type = qp_type_of(ps)?;
    let sync = channel.is_null();
    let channel = if sync { channel::create()? } else { channel };
    let wanted = IdParams {
        channel,
        sync,
        context,
        ps,
        qp_type,
    };
    // SAFETY: `wanted.channel` was created in this function, or the caller guarantees that it was created by this library and exists during the call.
    let made = unsafe { make(&wanted, Inner::default()) };
    if made.is_err() && sync {
        // SAFETY: `channel` was created in this function for this identifier, which does not exist; it is not used after this.
        unsafe { channel::verbena_rdma_destroy_event_channel(channel) };
    }
    made
}

/// The identifier of a connection request: it has the listener's channel until it is migrated.
///
/// # Safety
/// `listener` was created by this library and exists during the call.
pub(crate) unsafe fn for_request(
    listener: *mut rdma_cm_id,
    incoming: IncomingRequest,
) -> Result<Arc<Link>, Errno> {
    // SAFETY: the caller guarantees that `listener` exists; these fields are written before it listens.
    let (ps, context, channel, qp_type) = unsafe {
        let l = &*listener;
        (l.ps, l.context, l.channel, l.qp_type)
    };
    let wanted = IdParams {
        channel,
        sync: false,
        context,
        ps,
        qp_type,
    };
    let mut inner = Inner::default();
    // SAFETY: the caller guarantees that `listener` exists.
    inner.options.tos = unsafe { of(listener)? }.inner.lock().options.tos;
    let (local, peer) = match incoming {
        IncomingRequest::Request(request, waits) => {
            // Another request may wait in its place.
            drop(waits);
            let ends = (request.local_addr()?, request.peer_addr());
            inner.request = Some(request);
            ends
        }
        IncomingRequest::Sidr(request) => {
            let ends = (request_local_addr(&request)?, request.peer_addr());
            inner.datagrams.request = Some(request);
            ends
        }
    };
    // SAFETY: `wanted.channel` is the listener's, which exists at least as long as the listener.
    let id = unsafe { make(&wanted, inner)? };
    // SAFETY: `id` was created above, and the program does not know it yet.
    unsafe {
        let own = of(id)?;
        own.store_addresses(id, Some(local), Some(peer));
        match own.open(id) {
            Ok(()) => Ok(own.link.clone()),
            Err(errno) => {
                // The program has not seen it; the request that it holds is rejected.
                verbena_rdma_destroy_id(id);
                Err(errno)
            }
        }
    }
}

impl Id {
    /// Stores local and peer address where the program reads them.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(crate) unsafe fn store_addresses(
        &self,
        id: *mut rdma_cm_id,
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
    ) {
        let mut inner = self.inner.lock();
        // SAFETY: `id` is this identifier. The program reads these fields after the event, or the return, that follows.
        let addr = unsafe { &mut (*id).route.addr };
        if let Some(local) = local {
            inner.source = (!local.ip().is_unspecified()).then_some(local.ip());
            addr.src.src_storage = storage(local);
            addr.addr.ibaddr.sgid = gid_of(local.ip());
        }
        if let Some(peer) = peer {
            inner.peer = Some(peer);
            addr.dst.dst_storage = storage(peer);
            addr.addr.ibaddr.dgid = gid_of(peer.ip());
        }
        addr.addr.ibaddr.pkey = u16::MAX;
    }

    /// Sets the device of the identifier, if it has none.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(crate) unsafe fn open(&self, id: *mut rdma_cm_id) -> Result<(), Errno> {
        let (verbs, pd) = devices::shared_context()?;
        // SAFETY: `id` is this identifier, which the caller does not destroy during the call; the shared context `verbs` is never closed.
        unsafe {
            if (*id).verbs.is_null() {
                context::of(verbs)?
                    .function
                    .register_identifier(&self.link)?;
                (*id).verbs = verbs;
                (*id).port_num = PORT;
                (*id).pd = pd;
            }
        }
        Ok(())
    }

    /// In synchronous mode, waits for the event of a step and returns its status.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(crate) unsafe fn complete(&self, id: *mut rdma_cm_id) -> Result<(), Errno> {
        if !self.sync.load(Ordering::Acquire) {
            return Ok(());
        }
        // SAFETY: `id` is this identifier; a synchronous identifier is used by one thread at a time.
        unsafe {
            self.ack_last_event(id);
            let event = channel::next((*id).channel)?;
            (*id).event = event;
            match ((*event).event, (*event).status) {
                (RDMA_CM_EVENT_DEVICE_REMOVAL, _) => Err(Errno(libc::EIO)),
                (_, 0) => Ok(()),
                (RDMA_CM_EVENT_REJECTED, _) | (_, 1..) => Err(Errno(libc::ECONNREFUSED)),
                (_, status) => Err(Errno(status.abs())),
            }
        }
    }

    /// In synchronous mode, finishes a step that has no event: acknowledges the event of the step before.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(crate) unsafe fn finish_step(&self, id: *mut rdma_cm_id) {
        if self.sync.load(Ordering::Acquire) {
            this_id!(self.ack_last_event(id));
        }
    }

    /// Acknowledges the event of the last step.
    ///
    /// # Safety
    /// `id` is this identifier, and it is synchronous.
    unsafe fn ack_last_event(&self, id: *mut rdma_cm_id) {
        // SAFETY: `id` is this identifier; `event` is null or was stored by `complete` and not acknowledged.
        unsafe {
            let event = core::mem::replace(&mut (*id).event, ptr::null_mut());
            if !event.is_null() {
                channel::verbena_rdma_ack_cm_event(event);
            }
        }
    }
}

/// Creates an identifier.
///
/// # Safety
/// `channel` is null or was created by this library; `id` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    // SAFETY: the caller guarantees that `channel` is null or was created by this library.
    let made = unsafe { create(channel, context, ps) };
    minus_one(made.map(|made| {
        // SAFETY: the caller guarantees that `id` is valid for writes.
        unsafe { *id = made };
    }))
}

/// Destroys an identifier.
///
/// # Safety
/// `id` was created by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    let own = match handle!(of(id)) {
        Ok(own) => own,
        Err(errno) => return minus_one(Err(errno)),
    };
    let before = core::mem::take(&mut *own.inner.lock());
    // Listeners are closed, and a request without an answer is rejected.
    drop(before);
    // SAFETY: `id` is valid, since `of` succeeded, and the caller does not use it after this call; a synchronous identifier owns its channel.
    unsafe {
        let sync = own.sync.load(Ordering::Acquire);
        if sync {
            own.ack_last_event(id);
        }
        if let Some(checker) = check::checker() {
            let missing = checker.closing(id as usize, "rdma_destroy_id");
            own.link.acks.acknowledged(missing);
        }
        own.link.close();
        let channel = (*id).channel;
        drop(IdObject::take(id));
        if sync {
            channel::verbena_rdma_destroy_event_channel(channel);
        }
    }
    0
}

/// Moves an identifier to another channel, or makes it synchronous.
///
/// # Safety
/// `id` was created by this library; `channel` is null or was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: the caller guarantees that `id` and `channel` are null or were created by this library.
    minus_one(unsafe { migrate(id, channel) })
}

/// # Safety
/// As for [`verbena_rdma_migrate_id`].
pub(crate) unsafe fn migrate(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> Result<(), Errno> {
    // SAFETY: the caller guarantees that `id` and `channel` are null or were created by this library and exist during the call. `before` is the own channel of
    // a synchronous identifier, and is not used after the move.
    unsafe {
        let own = of(id)?;
        let sync = channel.is_null();
        let to = if sync { channel::create()? } else { channel };
        let was_sync = own.sync.swap(sync, Ordering::AcqRel);
        if was_sync {
            own.ack_last_event(id);
        }
        own.link.migrate(&channel::of(to)?.events);
        let before = core::mem::replace(&mut (*id).channel, to);
        if was_sync {
            channel::verbena_rdma_destroy_event_channel(before);
        }
    }
    Ok(())
}
