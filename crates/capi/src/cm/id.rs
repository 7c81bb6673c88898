//! Identifiers of the connection manager: what a program holds of a connection, a listener or a datagram service.
//! It promises that an identifier without a channel waits for each step itself, and that destroying one waits until its events
//! are acknowledged. It refuses to own what the program made with it: queue pairs go before it.

use core::ffi::{c_int, c_void};
use core::net::{IpAddr, SocketAddr};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use verbena::{Berth, Listener, Request};

use super::address::storage;
use super::datagram::{self, Side};
use super::link::{Comer, Link};
use super::options::Options;
use super::{channel, devices};
use crate::abi::*;
use crate::context;
use crate::errno::{Errno, minus_one};
use crate::object::Object;
use crate::port::{PORT, gid_of};

/// What is ours of an identifier.
pub(crate) struct Id {
    pub(crate) link: Arc<Link>,
    /// It has a channel of its own, and every call waits for its event.
    pub(crate) sync: AtomicBool,
    pub(crate) inner: Mutex<Inner>,
}

/// What of it changes.
#[derive(Default)]
pub(crate) struct Inner {
    /// Addresses that were taken, before it listens.
    pub(crate) berths: Vec<Berth>,
    pub(crate) listeners: Vec<Arc<Listener>>,
    /// Where it was bound to, as the program knows it.
    pub(crate) bound: Option<SocketAddr>,
    /// The address of ours that is dialled from.
    pub(crate) source: Option<IpAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// Who came, until it is answered.
    pub(crate) request: Option<Request>,
    pub(crate) options: Options,
    /// What it has if its port space is one of datagrams.
    pub(crate) datagrams: Side,
    /// What queue pairs of a listener's connections shall be like.
    pub(crate) endpoint: Option<Template>,
    /// The way to the peer; the identifier points at it.
    pub(crate) path: Option<Box<ibv_sa_path_rec>>,
    /// A queue pair of the program's own that was connected, and what the peer said to it.
    pub(crate) own: Option<*mut ibv_qp>,
    /// A connection was asked for: there is one in an identifier's life.
    pub(crate) asked: bool,
}

/// A queue pair to be made for each connection.
#[derive(Clone, Copy)]
pub(crate) struct Template {
    pub(crate) pd: *mut ibv_pd,
    pub(crate) attr: ibv_qp_init_attr,
}

// SAFETY: addresses that only the program follows, beside handles that may be used from anywhere.
unsafe impl Send for Inner {}

pub(crate) type Held = Object<rdma_cm_id, Id>;

/// What is ours of an identifier that a program names.
///
/// # Safety
/// `id` is null or was made here, and stays while the answer is used.
pub(crate) unsafe fn of<'a>(id: *const rdma_cm_id) -> Result<&'a Id, Errno> {
    // SAFETY: the caller's word.
    unsafe { Held::of(id) }.ok_or(Errno::INVAL)
}

/// What an identifier begins with.
struct Wanted {
    channel: *mut rdma_event_channel,
    sync: bool,
    context: *mut c_void,
    ps: u32,
    qp_type: u32,
}

/// # Safety
/// The channel was made here.
unsafe fn make(wanted: &Wanted, inner: Inner) -> Result<*mut rdma_cm_id, Errno> {
    // SAFETY: the caller's word.
    let events = unsafe { channel::of(wanted.channel)? }.events.clone();
    let place = Held::room();
    let link = Link::new(place.at(), events);
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

/// The kind of queue pair that goes with a port space.
fn kind_of(ps: u32) -> Result<u32, Errno> {
    match ps {
        RDMA_PS_TCP => Ok(IBV_QPT_RC),
        RDMA_PS_UDP | RDMA_PS_IPOIB => Ok(IBV_QPT_UD),
        // InfiniBand's own services need InfiniBand's own addresses.
        _ => Err(Errno::NOSUPP),
    }
}

/// # Safety
/// `channel` is null or was made here.
pub(crate) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: u32,
) -> Result<*mut rdma_cm_id, Errno> {
    let qp_type = kind_of(ps)?;
    let sync = channel.is_null();
    let channel = if sync { channel::create()? } else { channel };
    let wanted = Wanted {
        channel,
        sync,
        context,
        ps,
        qp_type,
    };
    // SAFETY: the program's word.
    let made = unsafe { make(&wanted, Inner::default()) };
    if made.is_err() && sync {
        // SAFETY: just made, and nobody else has it.
        unsafe { channel::verbena_rdma_destroy_event_channel(channel) };
    }
    made
}

/// An identifier for somebody who came: it has the listener's channel until it is moved to another.
///
/// # Safety
/// `listener` was made here, and stays.
pub(crate) unsafe fn for_request(
    listener: *mut rdma_cm_id,
    comer: Comer,
) -> Result<Arc<Link>, Errno> {
    // SAFETY: the caller's word; fields that are written before it listens.
    let (ps, context, channel, qp_type) = unsafe {
        let l = &*listener;
        (l.ps, l.context, l.channel, l.qp_type)
    };
    let wanted = Wanted {
        channel,
        sync: false,
        context,
        ps,
        qp_type,
    };
    let mut inner = Inner::default();
    // SAFETY: the caller's word.
    inner.options.service = unsafe { of(listener)? }.inner.lock().options.service;
    let (local, peer) = match comer {
        Comer::Request(request, waits) => {
            // Another one may come in its place.
            drop(waits);
            let ends = (request.local()?, request.peer());
            inner.request = Some(request);
            ends
        }
        Comer::Question(question) => {
            let ends = (datagram::desk_of(&question)?, question.peer());
            inner.datagrams.question = Some(question);
            ends
        }
    };
    // SAFETY: the caller's word.
    let id = unsafe { make(&wanted, inner)? };
    // SAFETY: just made.
    unsafe {
        let own = of(id)?;
        own.place(id, Some(local), Some(peer));
        own.open(id)?;
        Ok(own.link.clone())
    }
}

impl Id {
    /// Writes down both ends, where the program looks for them.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(crate) unsafe fn place(
        &self,
        id: *mut rdma_cm_id,
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
    ) {
        let mut inner = self.inner.lock();
        // SAFETY: the caller's word; the program looks at it after the event, or the return, that follows.
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

    /// It has a device from now on.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(crate) unsafe fn open(&self, id: *mut rdma_cm_id) -> Result<(), Errno> {
        let (verbs, pd) = devices::common()?;
        // SAFETY: the caller's word.
        unsafe {
            if (*id).verbs.is_null() {
                // SAFETY: the common context is never closed.
                context::of(verbs)?.home.bind_identifier(&self.link)?;
                (*id).verbs = verbs;
                (*id).port_num = PORT;
                (*id).pd = pd;
            }
        }
        Ok(())
    }

    /// Waits for the event of a step, if nobody else does.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(crate) unsafe fn complete(&self, id: *mut rdma_cm_id) -> Result<(), Errno> {
        if !self.sync.load(Ordering::Acquire) {
            return Ok(());
        }
        // SAFETY: the caller's word; an identifier without a channel is used by one thread.
        unsafe {
            self.forget_event(id);
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

    /// A step that has no event is done: that of the last one is not needed any more.
    ///
    /// # Safety
    /// `id` is this identifier.
    pub(crate) unsafe fn forget_step(&self, id: *mut rdma_cm_id) {
        if self.sync.load(Ordering::Acquire) {
            // SAFETY: the caller's word.
            unsafe { self.forget_event(id) };
        }
    }

    /// Acknowledges the event of the last step.
    ///
    /// # Safety
    /// `id` is this identifier, and it has a channel of its own.
    unsafe fn forget_event(&self, id: *mut rdma_cm_id) {
        // SAFETY: the caller's word.
        unsafe {
            let event = core::mem::replace(&mut (*id).event, ptr::null_mut());
            if !event.is_null() {
                channel::verbena_rdma_ack_cm_event(event);
            }
        }
    }
}

/// Makes an identifier.
///
/// # Safety
/// `channel` is null or was made here; `id` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    // SAFETY: the program's word.
    let made = unsafe { create(channel, context, ps) };
    minus_one(made.map(|made| {
        // SAFETY: the program's word.
        unsafe { *id = made };
    }))
}

/// Destroys an identifier.
///
/// # Safety
/// `id` was made here, and the program does not use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the program's word.
    let own = match unsafe { of(id) } {
        Ok(own) => own,
        Err(errno) => return minus_one(Err(errno)),
    };
    let before = core::mem::take(&mut *own.inner.lock());
    // Nobody comes any more, and who came without an answer is refused.
    drop(before);
    // SAFETY: the program's word.
    unsafe {
        let sync = own.sync.load(Ordering::Acquire);
        if sync {
            own.forget_event(id);
        }
        own.link.close();
        let channel = (*id).channel;
        drop(Held::take(id));
        if sync {
            channel::verbena_rdma_destroy_event_channel(channel);
        }
    }
    0
}

/// Moves an identifier to another channel, or to none.
///
/// # Safety
/// `id` was made here; `channel` is null or was made here.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: the program's word.
    minus_one(unsafe { migrate(id, channel) })
}

/// # Safety
/// As of [`verbena_rdma_migrate_id`].
pub(crate) unsafe fn migrate(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> Result<(), Errno> {
    // SAFETY: the program's word.
    unsafe {
        let own = of(id)?;
        let sync = channel.is_null();
        let to = if sync { channel::create()? } else { channel };
        let was_sync = own.sync.swap(sync, Ordering::AcqRel);
        if was_sync {
            own.forget_event(id);
        }
        own.link.migrate(&channel::of(to)?.events);
        let before = core::mem::replace(&mut (*id).channel, to);
        if was_sync {
            channel::verbena_rdma_destroy_event_channel(before);
        }
    }
    Ok(())
}
