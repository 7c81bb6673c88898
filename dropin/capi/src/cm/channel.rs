//! Event channels, and the events that programs get from them.
//! An event and its private data stay unchanged until the event is acknowledged. The identifier of a connection request is created when the
//! program gets its event, not before.

use core::ffi::c_int;
use core::ptr;
use std::sync::Arc;

use super::id;
use super::link::{Event, Events, Link, Param};
use crate::abi::*;
use crate::caller::handle;
use crate::check;
use crate::errno::{Errno, minus_one, pointer};
use crate::function::config;
use crate::object::Object;

/// The library's part of a channel.
pub(crate) struct Channel {
    pub(crate) events: Arc<Events>,
}

pub(crate) type ChannelObject = Object<rdma_event_channel, Channel>;

/// The library's part of an event that a program was given.
struct DeliveredEvent {
    /// Where the acknowledgement counts: for the identifier, and for the listener of a connection request.
    links: [Option<Arc<Link>>; 2],
    /// The event points to it.
    _private_data: Box<[u8]>,
}

type EventObject = Object<rdma_cm_event, DeliveredEvent>;

/// Creates a channel.
pub(crate) fn create() -> Result<*mut rdma_event_channel, Errno> {
    check::start(config().and_then(|config| config.check.as_deref()));
    let events = Arc::new(Events::new()?);
    let fd = events.fd();
    Ok(ChannelObject::allocate(
        rdma_event_channel { fd },
        Channel { events },
    ))
}

/// The library's part of the channel behind this pointer; `EINVAL` for null.
///
/// # Safety
/// `channel` is null or was created by this library, and is not destroyed while the result is used.
pub(crate) unsafe fn of<'a>(channel: *const rdma_event_channel) -> Result<&'a Channel, Errno> {
    handle!(ChannelObject::of(channel)).ok_or(Errno::INVAL)
}

/// Creates a channel.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn verbena_rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer(create())
}

/// Destroys a channel whose identifiers are gone.
///
/// # Safety
/// `channel` was created by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_destroy_event_channel(
    channel: *mut rdma_event_channel,
) {
    if handle!(ChannelObject::of(channel)).is_some() {
        // SAFETY: `channel` came from `ChannelObject::allocate`, and the caller does not use it after this call.
        drop(unsafe { ChannelObject::take(channel) });
    }
}

/// Waits for the next event.
///
/// # Safety
/// `channel` was created by this library.
pub(crate) unsafe fn next(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Errno> {
    // Programs (rping) destroy a channel on which a thread waits. As with the kernel's channels, that thread waits on: its share keeps the
    // descriptor open. No lock is held while it waits: the thread may be cancelled.
    // SAFETY: the caller guarantees that `channel` exists when it calls.
    let events = unsafe { of(channel)?.events.clone() };
    loop {
        let event = events.take(|event| event.link.acks.delivered())?;
        // SAFETY: the identifier of `event` exists: destroying it removes its events, and waits for those that were delivered.
        if let Some(given) = unsafe { into_raw_event(event) } {
            return Ok(given);
        }
    }
}

/// Turns an event into its C struct; none for a request whose peer closed the connection meanwhile.
///
/// # Safety
/// The event's identifier exists.
unsafe fn into_raw_event(event: Event) -> Option<*mut rdma_cm_event> {
    let Event {
        link,
        kind,
        status,
        param,
        request,
    } = event;
    let (subject, listener) = match request {
        None => (link, None),
        Some(request) => {
            // SAFETY: the caller guarantees that the identifier of the event exists, and a request is an event of its listener.
            match unsafe { id::for_request(link.id(), request) } {
                Ok(child) => {
                    child.acks.delivered();
                    (child, Some(link))
                }
                Err(_) => {
                    // The request was dropped, which rejects it.
                    link.acks.acknowledged(1);
                    return None;
                }
            }
        }
    };
    let (private_data, param) = event_param(param);
    let c = rdma_cm_event {
        id: subject.id(),
        listen_id: listener.as_ref().map_or(ptr::null_mut(), |link| link.id()),
        event: kind,
        status,
        param,
    };
    let given = DeliveredEvent {
        links: [Some(subject), listener],
        _private_data: private_data,
    };
    Some(EventObject::allocate(c, given))
}

/// The `param` union of an event, and its private data.
fn event_param(param: Param) -> (Box<[u8]>, rdma_cm_event__param) {
    match param {
        Param::Connection {
            private_data,
            depths,
        } => {
            let data = private_data.into_boxed_slice();
            let conn = rdma_conn_param {
                private_data: data_ptr(&data),
                private_data_len: length(&data),
                responder_resources: depths.0,
                initiator_depth: depths.1,
                ..rdma_conn_param::zeroed()
            };
            (data, rdma_cm_event__param { conn })
        }
        Param::Datagram {
            private_data,
            address: ah_attr,
            number,
            key,
        } => {
            let data = private_data.into_boxed_slice();
            let ud = rdma_ud_param {
                private_data: data_ptr(&data),
                private_data_len: length(&data),
                ah_attr,
                qp_num: number,
                qkey: key,
            };
            (data, rdma_cm_event__param { ud })
        }
        Param::Group {
            context,
            address: ah_attr,
            number,
            key,
            ..
        } => {
            let ud = rdma_ud_param {
                private_data: context.0,
                private_data_len: 0,
                ah_attr,
                qp_num: number,
                qkey: key,
            };
            (Box::default(), rdma_cm_event__param { ud })
        }
    }
}

fn data_ptr(data: &[u8]) -> *const core::ffi::c_void {
    if data.is_empty() {
        return ptr::null();
    }
    data.as_ptr().cast()
}

/// Private data of up to 512 bytes can arrive, but the field says at most 255.
fn length(data: &[u8]) -> u8 {
    u8::try_from(data.len()).unwrap_or(u8::MAX)
}

/// Waits for the next event of a channel.
///
/// # Safety
/// `channel` was created by this library; `event` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if event.is_null() {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: the caller guarantees that `channel` is null or was created by this library, and exists during the call.
    let next = unsafe { next(channel) };
    minus_one(next.map(|next| {
        // SAFETY: the caller guarantees that `event` is valid for writes.
        unsafe { *event = next };
        if let Some(checker) = check::checker() {
            // SAFETY: `next` is an event that this library has made.
            checker.event_given(unsafe { (*next).id } as usize);
        }
    }))
}

/// Acknowledges an event: it is freed, and its identifier can be destroyed.
///
/// # Safety
/// `event` came from [`verbena_rdma_get_cm_event`], and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: the caller guarantees that `event` is null or came from `verbena_rdma_get_cm_event` and was not acknowledged.
    if unsafe { EventObject::of(event) }.is_none() {
        return minus_one(Err(Errno::INVAL));
    }
    if let Some(checker) = check::checker() {
        // SAFETY: `event` is not null, so the caller guarantees that it is an event of this library.
        checker.events_acknowledged(unsafe { (*event).id } as usize, 1);
    }
    // SAFETY: `event` came from `EventObject::allocate`, and the caller does not use it after this call.
    let given = unsafe { EventObject::take(event) };
    for link in given.links.iter().flatten() {
        link.acks.acknowledged(1);
    }
    0
}
