//! Event channels, and the events that programs take from them.
//! It promises that an event stays as it is until it is acknowledged, its private data included.
//! It refuses to make identifiers for requests before somebody takes their events.

use core::ffi::c_int;
use core::ptr;
use std::sync::Arc;

use super::id;
use super::link::{Event, Events, Link, Param};
use crate::abi::*;
use crate::errno::{Errno, minus_one, pointer};
use crate::object::Object;

/// What is ours of a channel.
pub(crate) struct Channel {
    pub(crate) events: Arc<Events>,
}

pub(crate) type Held = Object<rdma_event_channel, Channel>;

/// What is ours of an event that a program holds.
struct Given {
    /// Whose acknowledgement this is: the identifier's, and the listener's if it came by one.
    links: [Option<Arc<Link>>; 2],
    /// The event points at it.
    _private_data: Box<[u8]>,
}

type HeldEvent = Object<rdma_cm_event, Given>;

/// A new channel.
pub(crate) fn create() -> Result<*mut rdma_event_channel, Errno> {
    let events = Arc::new(Events::new()?);
    let fd = events.fd();
    Ok(Held::give(rdma_event_channel { fd }, Channel { events }))
}

/// What is ours of a channel that a program names.
///
/// # Safety
/// `channel` is null or was made here, and stays while the answer is used.
pub(crate) unsafe fn of<'a>(channel: *const rdma_event_channel) -> Result<&'a Channel, Errno> {
    // SAFETY: the caller's word.
    unsafe { Held::of(channel) }.ok_or(Errno::INVAL)
}

/// Makes a channel.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn verbena_rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer(create())
}

/// Destroys a channel whose identifiers are gone.
///
/// # Safety
/// `channel` was made here, and the program does not use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_destroy_event_channel(
    channel: *mut rdma_event_channel,
) {
    // SAFETY: the program's word.
    if unsafe { Held::of(channel) }.is_some() {
        // SAFETY: as above.
        drop(unsafe { Held::take(channel) });
    }
}

/// Waits for the next event.
///
/// # Safety
/// `channel` was made here.
pub(crate) unsafe fn next(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Errno> {
    // SAFETY: the caller's word. Nothing is held while this waits: the thread may be cancelled.
    let events = unsafe { &*of(channel)?.events };
    loop {
        let event = events.take(|event| event.link.acks.given())?;
        // SAFETY: an event's identifier is there until it is acknowledged.
        if let Some(given) = unsafe { give(event) } {
            return Ok(given);
        }
    }
}

/// Turns an event into what its program knows; none for a request whose caller gave up meanwhile.
///
/// # Safety
/// The event's identifier is there.
unsafe fn give(event: Event) -> Option<*mut rdma_cm_event> {
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
            // SAFETY: the caller's word.
            match unsafe { id::for_request(link.id(), request) } {
                Ok(child) => {
                    child.acks.given();
                    (child, Some(link))
                }
                Err(_) => {
                    // It is refused by being dropped.
                    link.acks.acknowledged(1);
                    return None;
                }
            }
        }
    };
    let (private_data, param) = describe(param);
    let c = rdma_cm_event {
        id: subject.id(),
        listen_id: listener.as_ref().map_or(ptr::null_mut(), |link| link.id()),
        event: kind,
        status,
        param,
    };
    let given = Given {
        links: [Some(subject), listener],
        _private_data: private_data,
    };
    Some(HeldEvent::give(c, given))
}

/// What comes with an event, as its program knows it.
fn describe(param: Param) -> (Box<[u8]>, rdma_cm_event__param) {
    match param {
        Param::Connection {
            private_data,
            depths,
        } => {
            let data = private_data.into_boxed_slice();
            let conn = rdma_conn_param {
                private_data: address(&data),
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
                private_data: address(&data),
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

fn address(data: &[u8]) -> *const core::ffi::c_void {
    if data.is_empty() {
        return ptr::null();
    }
    data.as_ptr().cast()
}

/// More than a length can say is cut: a peer of another kind may say up to 512 bytes.
fn length(data: &[u8]) -> u8 {
    u8::try_from(data.len()).unwrap_or(u8::MAX)
}

/// Waits for the next event of a channel.
///
/// # Safety
/// `channel` was made here; `event` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if event.is_null() {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: the program's word.
    let next = unsafe { next(channel) };
    minus_one(next.map(|next| {
        // SAFETY: the program's word.
        unsafe { *event = next };
    }))
}

/// Acknowledges an event: it is gone, and its identifier can be destroyed.
///
/// # Safety
/// `event` came from here, and the program does not use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn verbena_rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: the program's word.
    if unsafe { HeldEvent::of(event) }.is_none() {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: as above.
    let given = unsafe { HeldEvent::take(event) };
    for link in given.links.iter().flatten() {
        link.acks.acknowledged(1);
    }
    0
}
