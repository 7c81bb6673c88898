//! Listeners: each connection request is one event, in the order of arrival, and is answered once.
//! Requests that are not answered when the listener is destroyed are rejected, and so are those beyond the backlog.

use core::ffi::c_int;
use core::net::{Ipv4Addr, SocketAddr};
use core::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use verbena::Listener;

use super::datagram::is_for_datagrams;
use super::id::{self, Id};
use super::link::{BacklogSlot, IncomingRequest, Link, Param};
use crate::abi::*;
use crate::caller::{handle, this_id};
use crate::errno::{Errno, minus_one};

/// The backlog if the program gives none.
const DEFAULT_BACKLOG: usize = 128;
/// The largest backlog.
const MAX_BACKLOG: usize = 4096;

/// Listens.
///
/// # Safety
/// `id` was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: `listen` requires of `id` what this function does.
    minus_one(unsafe { listen(id, backlog) })
}

/// # Safety
/// As for [`verbena_rdma_listen`].
unsafe fn listen(id: *mut rdma_cm_id, backlog: c_int) -> Result<(), Errno> {
    let own = handle!(id::of(id))?;
    if own.inner.lock().bound.is_none() {
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let any = super::address::storage(any);
        // SAFETY: `id` is an identifier of this library, since `id::of` succeeded; `any` is a local.
        unsafe { super::resolve::bind(id, (&raw const any).cast())? };
    }
    let backlog = match usize::try_from(backlog) {
        Ok(0) | Err(_) => DEFAULT_BACKLOG,
        Ok(n) => n.min(MAX_BACKLOG),
    };
    if this_id!(is_for_datagrams(id)) {
        own.listen_sidr(backlog)
    } else {
        own.listen(backlog)
    }
}

impl Id {
    fn listen(&self, backlog: usize) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        if !inner.listeners.is_empty() {
            return Err(Errno::INVAL);
        }
        let bound_listeners = core::mem::take(&mut inner.bound_listeners);
        let room = Backlog {
            waiting: Arc::default(),
            limit: backlog,
            report_lock: Arc::default(),
        };
        for bound in bound_listeners {
            let listener = Arc::new(bound.listen(backlog)?);
            let (weak, link, theirs) = (Arc::downgrade(&listener), self.link.clone(), room.clone());
            listener.on_request(Arc::new(move || report_requests(&weak, &link, &theirs)));
            inner.listeners.push(listener.clone());
            // Requests that arrived before the callback was set.
            report_requests(&Arc::downgrade(&listener), &self.link, &room);
        }
        Ok(())
    }
}

/// How many requests wait to be taken by the program, and how many may.
#[derive(Clone)]
struct Backlog {
    waiting: Arc<AtomicUsize>,
    limit: usize,
    /// Held by the thread that reports requests, so that their order is kept.
    report_lock: Arc<Mutex<()>>,
}

/// Reports all requests that have arrived.
fn report_requests(listener: &Weak<Listener>, link: &Arc<Link>, backlog: &Backlog) {
    let Some(listener) = listener.upgrade() else {
        return;
    };
    let mut too_many = Vec::new();
    let hearing = backlog.report_lock.lock();
    while let Ok(Some(request)) = listener.try_next() {
        let Some(waits) = BacklogSlot::new(&backlog.waiting, backlog.limit) else {
            too_many.push(request);
            continue;
        };
        let (inbound, outbound) = request.read_depths();
        let short = |depth: u16| u8::try_from(depth).unwrap_or(u8::MAX);
        let param = Param::Connection {
            private_data: request.private_data().to_vec(),
            depths: (short(inbound), short(outbound)),
        };
        let incoming = Some(IncomingRequest::Request(request, waits));
        link.queue_event(RDMA_CM_EVENT_CONNECT_REQUEST, 0, param, incoming);
    }
    drop(hearing);
    for request in too_many {
        request.reject(&[]);
    }
}
