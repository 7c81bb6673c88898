//! Connections: requested, accepted, rejected, ended. Each request is answered once, and each connection ends once.
//! Private data that does not fit into an MPA startup frame is refused.

use core::ffi::{c_int, c_void};
use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::{Arc, Once};

use verbena::Error;
use verbena::low::{Qp, QpState, RnrRetry};

use super::address::wire_port;
use super::conn_param::{ConnParam, MANAGED_ATTR_MASK, RETRY_COUNT, copy_private_data};
use super::datagram::is_for_datagrams;
use super::id::{self, Id};
use super::link::{Link, Param};
use crate::abi::*;
use crate::caller::{arg_mut, arg_ref, handle, this_id};
use crate::check;
use crate::errno::{Errno, minus_one};
use crate::function::{AdapterFunction, all_running, first_function};
use crate::qp::{self, Pair, patience};

/// How long a process that ends waits until its peers have confirmed the end of connections over RoCEv2. Messages that are lost are repeated
/// only while it runs.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);
/// [`leave`] has been registered with `atexit`.
static EXIT_HOOK: Once = Once::new();

/// Runs when the process exits.
extern "C" fn leave() {
    for function in all_running() {
        function.device.wait_disconnected(EXIT_TIMEOUT);
    }
}

/// The queue pair that a connection is made for.
struct ConnectingQp<'a> {
    pair: &'a Pair,
    qp: &'a Qp,
    /// The program moves its queue pair through the states itself.
    program_managed: bool,
}

impl Id {
    /// The queue pair of a connection: the identifier's, or one that the program created itself and named by number.
    ///
    /// # Safety
    /// `id` is this identifier.
    unsafe fn connecting_qp<'a>(
        &self,
        id: *mut rdma_cm_id,
        asked: &ConnParam,
        function: &AdapterFunction,
    ) -> Result<ConnectingQp<'a>, Errno> {
        // SAFETY: `id` is this identifier; its queue pair is changed only by calls of the program, none of which runs at the same time.
        let given = unsafe { (*id).qp };
        let own = given.is_null();
        let c = if own {
            function.pair(asked.qp_num)
        } else {
            given
        };
        // SAFETY: `c` is null or a queue pair of this library that the program does not destroy during this call.
        let pair = unsafe { qp::of(c)? };
        let qp = pair.connection().ok_or(Errno::INVAL)?;
        if own {
            pair.manage();
            self.inner.lock().own_qp = Some(c);
        }
        if qp.state() == QpState::Reset {
            qp.modify(QpState::Init)?;
        }
        let (timeout, shown, service) = {
            let options = &self.inner.lock().options;
            (options.ack_timeout, options.timeout(), options.tos)
        };
        qp.set_attr(|qp_attr| {
            qp_attr.traffic_class = service;
            qp_attr.ird = Some(asked.responder_resources.into());
            qp_attr.ord = Some(asked.initiator_depth.into());
            qp_attr.rnr_retry = RnrRetry::from_verbs(asked.rnr_retry);
            if let Some(timeout) = timeout {
                qp_attr.peer_timeout = patience(timeout, RETRY_COUNT, qp_attr.peer_timeout);
            }
        });
        if !own {
            // Shown by `ibv_query_qp`; the program does not set these itself.
            pair.store_attributes(&asked.attributes(shown), MANAGED_ATTR_MASK);
        }
        function.register_link(pair.event_number(), &self.link);
        if let Some(checker) = check::checker() {
            checker.connected();
        }
        EXIT_HOOK.call_once(|| {
            // SAFETY: `leave` can be called at any time. Without memory `atexit` fails, and the process does not wait.
            unsafe { libc::atexit(leave) };
        });
        Ok(ConnectingQp {
            pair,
            qp,
            program_managed: own,
        })
    }
}

/// Connects to the peer that was resolved.
///
/// # Safety
/// `id` was created by this library; `param` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_connect(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: `connect` requires of `id` and `param` what this function does.
    minus_one(unsafe { connect(id, param) })
}

/// # Safety
/// As for [`verbena_rdma_connect`].
unsafe fn connect(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> Result<(), Errno> {
    let own = handle!(id::of(id))?;
    // SAFETY: the caller guarantees that `param` is null or valid for reads, as is the private data that it names.
    let asked = unsafe { ConnParam::new(param)? };
    if this_id!(is_for_datagrams(id)) {
        return this_id!(own.send_sidr_request(id, &asked.sidr_param()));
    }
    let (source, peer, asked_before) = {
        let inner = own.inner.lock();
        (inner.source, inner.peer, inner.connect_requested)
    };
    let peer = peer.filter(|_| !asked_before).ok_or(Errno::INVAL)?;
    let function = first_function()?;
    let joined = this_id!(own.connecting_qp(id, &asked, &function))?;
    let to = SocketAddr::new(peer.ip(), wire_port(peer.port())?);
    let (link, at) = (own.link.clone(), joined.pair.state_ref());
    let kind = if joined.program_managed {
        RDMA_CM_EVENT_CONNECT_RESPONSE
    } else {
        RDMA_CM_EVENT_ESTABLISHED
    };
    let depths = (asked.responder_resources, asked.initiator_depth);
    let done = move |answer: Result<Vec<u8>, Error>| match answer {
        Ok(private_data) => {
            at.publish_state(IBV_QPS_RTS);
            let param = Param::Connection {
                private_data,
                depths,
            };
            link.report_established(kind, param);
        }
        Err(error) => report_failure(&link, &error),
    };
    own.inner.lock().connect_requested = true;
    let dialled = joined
        .qp
        .connect_from(source, to, &asked.private_data, done);
    if let Err(error) = dialled {
        if error.os_error().is_none() {
            own.inner.lock().connect_requested = false;
            return Err(error.into());
        }
        // The system has refused at once; the program gets the event as for a later refusal.
        report_failure(&own.link, &error);
    }
    this_id!(own.complete(id))?;
    // SAFETY: `id` is this identifier. In synchronous mode the connection is established now, and its port is known.
    unsafe { own.store_port(id, joined.pair) };
    Ok(())
}

impl Id {
    /// Stores the port from which the connection was made.
    ///
    /// # Safety
    /// `id` is this identifier.
    unsafe fn store_port(&self, id: *mut rdma_cm_id, pair: &Pair) {
        if let Some(Ok(Some((local, _)))) = pair.connection().map(Qp::socket_addrs) {
            this_id!(self.store_addresses(id, Some(local), None));
        }
    }
}

/// Reports that a connection could not be made.
fn report_failure(link: &Arc<Link>, error: &Error) {
    crate::log::info(|| error.to_string());
    let (kind, status, said) = if let Some(said) = error.rejection() {
        // 28 is InfiniBand's "consumer reject"; the consumer's own reason is in the private data.
        (RDMA_CM_EVENT_REJECTED, 28, said.to_vec())
    } else if let Some(reason) = error.reject_reason() {
        (RDMA_CM_EVENT_REJECTED, reason.into(), Vec::new())
    } else {
        match error.os_error() {
            // No listener at the port: reported as InfiniBand does for an unknown service.
            Some(libc::ECONNREFUSED) => (RDMA_CM_EVENT_REJECTED, -libc::ECONNREFUSED, Vec::new()),
            Some(code) => (RDMA_CM_EVENT_UNREACHABLE, -code, Vec::new()),
            None if error.is_tls() => (RDMA_CM_EVENT_REJECTED, -libc::EPROTO, Vec::new()),
            None => (RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT, Vec::new()),
        }
    };
    link.report(kind, status, Param::with_private_data(said));
}

/// Accepts a connection request.
///
/// # Safety
/// `id` was created by this library; `param` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_accept(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: `accept` requires of `id` and `param` what this function does.
    minus_one(unsafe { accept(id, param) })
}

/// # Safety
/// As for [`verbena_rdma_accept`].
unsafe fn accept(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> Result<(), Errno> {
    let own = handle!(id::of(id))?;
    // SAFETY: the caller guarantees that `param` is null or valid for reads, as is the private data that it names.
    let asked = unsafe { ConnParam::new(param)? };
    if this_id!(is_for_datagrams(id)) {
        return this_id!(own.send_sidr_reply(id, &asked.sidr_param()));
    }
    let function = first_function()?;
    let joined = this_id!(own.connecting_qp(id, &asked, &function))?;
    let request = own.inner.lock().request.take().ok_or(Errno::INVAL)?;
    let (link, at) = (own.link.clone(), joined.pair.state_ref());
    let done = move |answer: Result<Vec<u8>, Error>| match answer {
        Ok(_) => {
            at.publish_state(IBV_QPS_RTS);
            link.report_established(RDMA_CM_EVENT_ESTABLISHED, Param::NONE);
        }
        Err(error) => {
            crate::log::info(|| error.to_string());
            let status = error.os_error().unwrap_or(libc::ECONNABORTED);
            link.report(RDMA_CM_EVENT_CONNECT_ERROR, -status, Param::NONE);
        }
    };
    request.accept_with_callback(joined.qp, &asked.private_data, done)?;
    this_id!(own.complete(id))
}

/// Rejects a connection request, with private data for the peer.
///
/// # Safety
/// `id` was created by this library; `data` points to `len` bytes that are valid for reads.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    let own = handle!(id::of(id));
    // SAFETY: the caller guarantees that `len` bytes at `data` are valid for reads.
    let said = own.and_then(|own| Ok((own, unsafe { copy_private_data(data, len)? })));
    minus_one(said.and_then(|(own, data)| {
        let mut inner = own.inner.lock();
        let (request, sidr_request) = (inner.request.take(), inner.datagrams.request.take());
        drop(inner);
        match (request, sidr_request) {
            (Some(request), _) => request.reject(&data),
            (None, Some(sidr_request)) => sidr_request.reject(&data),
            (None, None) => return Err(Errno::INVAL),
        }
        Ok(())
    }))
}

/// The same: there are no vendor-specific options to disagree about.
///
/// # Safety
/// As for [`verbena_rdma_reject`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_reject_ece(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: `verbena_rdma_reject` requires of `id`, `data` and `len` what this function does.
    unsafe { verbena_rdma_reject(id, data, len) }
}

/// Ends a connection: the peer is notified, and outstanding requests are flushed.
///
/// # Safety
/// `id` was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    minus_one(handle!(disconnect(id)))
}

/// # Safety
/// As for [`verbena_rdma_disconnect`].
unsafe fn disconnect(id: *mut rdma_cm_id) -> Result<(), Errno> {
    let own = handle!(id::of(id))?;
    // Datagrams have no connection that could end.
    if this_id!(is_for_datagrams(id)) {
        return Err(Errno::INVAL);
    }
    // SAFETY: `id` is not null, since `id::of` succeeded, and exists during the call.
    let c = unsafe { (*id).qp };
    let c = if c.is_null() {
        own.inner.lock().own_qp.ok_or(Errno::INVAL)?
    } else {
        c
    };
    // SAFETY: `c` was created by this library; the program destroys neither the queue pair of its identifier nor its own one during this call.
    let pair = unsafe { qp::of(c)? };
    pair.disconnect();
    // Over RoCEv2 the event follows when the peer has confirmed, or does not answer, or when the queue pair is destroyed.
    let is_reported_later = pair.connection().is_some_and(Qp::awaits_disconnect);
    own.link
        .awaits_peer
        .store(is_reported_later, Ordering::Release);
    // SAFETY: `c` is not null, since `qp::of` succeeded; the program does not access the field `state` while this call runs.
    unsafe { (*c).state = IBV_QPS_ERR };
    // In synchronous mode this call waits for its event, if it will come or is there already: the peer may have ended the connection first.
    if is_reported_later || own.link.report_disconnected() || own.link.events().has_events() {
        return this_id!(own.complete(id));
    }
    Ok(())
}

/// Confirms a connection after the program has moved its own queue pair; the connection is established already.
///
/// # Safety
/// `id` was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // Without a queue pair of the program it is `EINVAL`.
    let known = handle!(id::of(id)).map(|own| own.inner.lock().own_qp.is_some());
    minus_one(known.and_then(|known| known.then_some(()).ok_or(Errno::INVAL)))
}

/// Reports an asynchronous event of a queue pair to the connection manager, which does not need it.
///
/// # Safety
/// `id` was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_notify(id: *mut rdma_cm_id, _event: u32) -> c_int {
    minus_one(handle!(id::of(id)).map(|_| ()))
}

/// Sets vendor-specific options to tell the peer: there are none, so that nothing is told. As in the original, it is for identifiers without
/// a queue pair of their own.
///
/// # Safety
/// `id` was created by this library; `ece` is null or valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_set_local_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    let (own, ece) = (handle!(id::of(id)), arg_ref!(ece));
    minus_one(own.and_then(|_| {
        // SAFETY: `id` is not null, since `id::of` succeeded.
        let managed = !unsafe { (*id).qp }.is_null();
        match ece {
            Some(ece) if ece.vendor_id != 0 && ece.comp_mask == 0 && !managed => Ok(()),
            _ => Err(Errno::INVAL),
        }
    }))
}

/// Vendor-specific options that the peer has told: none, which is vendor 0.
///
/// # Safety
/// `id` was created by this library; `ece` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_get_remote_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    let (own, ece) = (handle!(id::of(id)), arg_mut!(ece));
    minus_one(own.and_then(|_| {
        // SAFETY: `id` is not null, since `id::of` succeeded.
        let managed = !unsafe { (*id).qp }.is_null();
        let ece = ece.filter(|_| !managed).ok_or(Errno::INVAL)?;
        *ece = ibv_ece::zeroed();
        Ok(())
    }))
}
