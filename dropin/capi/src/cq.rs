//! Completion queues: polled, or reported through a completion channel.
//! A queue in use by a queue pair is not destroyed (`EBUSY`), and destroying one waits until its events are acknowledged.
//! Timestamps of completions, ignored overruns and memory of a parent domain's allocator are chosen at creation.

mod extended;
mod wc;

pub(crate) use extended::create_cq_ex;

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use verbena::events::{Handler, HandlerOptions, Hold, Moderation};
use verbena::low::{Arm, BareCq, CqOptions, Timestamp, Wc};

use crate::abi::*;
use crate::allocator::Resource;
use crate::async_event::AsyncEventSource;
use crate::caller::{arg_ref, handle};
use crate::channel::{ChannelEntry, CqEvents};
use crate::check;
use crate::context::{self, Context};
use crate::errno::{Errno, number, pointer};
use crate::function::{AdapterFunction, Subject};
use crate::object::{Object, UninitObject};
use crate::pd;
use crate::uses::{Use, Uses};

/// The library's part of a completion queue.
pub(crate) struct Queue {
    pub(crate) cq: BareCq,
    pub(crate) uses: Uses,
    function: Arc<AdapterFunction>,
    event_source: Arc<AsyncEventSource>,
    channel_events: Option<(Arc<CqEvents>, ChannelEntry)>,
    /// A completion handler of its own, registered when moderation is first set.
    moderated: Mutex<Option<Handler>>,
    /// The completion that an extended poll has arrived at.
    current: Mutex<Current>,
    /// Completions have timestamps.
    stamped: bool,
    /// Its completion vector.
    vector_number: usize,
    /// Kept as long as the queue's events come from its thread.
    _vector: Option<Arc<Handler>>,
    _context: Use,
    _parent: Option<Use>,
}

/// A completion, and when it was written.
#[derive(Clone, Copy, Default)]
struct Current {
    wc: Wc,
    written: Timestamp,
}

pub(crate) type CqObject = Object<ibv_cq_ex, Queue>;

/// The library's part of the queue behind this pointer; `EINVAL` for null.
///
/// # Safety
/// `cq` is null or was created by this library, and is not destroyed while the result is used.
pub(crate) unsafe fn of<'a>(cq: *const ibv_cq) -> Result<&'a Queue, Errno> {
    // SAFETY: the caller guarantees that `cq` is null or was created by this library; every queue is created as an `ibv_cq_ex`.
    unsafe { CqObject::of(cq.cast::<ibv_cq_ex>()) }.ok_or(Errno::INVAL)
}

/// The asynchronous events of the queue.
///
/// # Safety
/// As for [`of`].
pub(crate) unsafe fn event_source(cq: *const ibv_cq) -> Option<Arc<AsyncEventSource>> {
    handle!(of(cq)).ok().map(|queue| queue.event_source.clone())
}

/// Parameters of a queue to create.
struct CqParams {
    entries: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
    options: CqOptions,
    /// A parent domain, whose allocator is used, or null.
    parent: *mut ibv_pd,
}

/// # Safety
/// `context` is open; `wanted.channel` and `wanted.parent` are null or were created by this library.
unsafe fn create(context: *mut ibv_context, wanted: &CqParams) -> Result<*mut ibv_cq_ex, Errno> {
    let own = handle!(context::of(context))?;
    let entries = usize::try_from(wanted.entries).map_err(|_| Errno::INVAL)?;
    let vector_number = usize::try_from(wanted.vector).map_err(|_| Errno::INVAL)?;
    if entries == 0 || vector_number >= own.function.vector_count() {
        return Err(Errno::INVAL);
    }
    let parent = match wanted.parent.is_null() {
        true => None,
        // SAFETY: the caller guarantees that it was created by this library.
        false => Some(unsafe { pd::of(wanted.parent)? }),
    };
    if parent.is_some_and(|parent| !parent.is_parent()) {
        return Err(Errno::INVAL);
    }
    let allocator = parent.and_then(|parent| parent.allocator());
    let object = CqObject::new_uninit_in(allocator, Resource::Cq)?;
    let options = wanted.options;
    let cq = own.function.device.bare_cq_with(entries, options)?;
    let vector = if wanted.channel.is_null() {
        None
    } else {
        let handler = own.function.vector(vector_number)?;
        cq.set_handler(Some(&handler))?;
        Some(handler)
    };
    let c = ibv_cq_ex {
        context,
        channel: wanted.channel,
        cq_context: wanted.cq_context,
        handle: cq.number(),
        cqe: wanted.entries,
        ..ibv_cq_ex::zeroed()
    };
    // The event of a queue contains its address, so the address must be known before the queue is registered with its channel.
    let parts = CqParts {
        cq,
        vector_number,
        vector,
        stamped: options.clock.is_some(),
        parent: parent.map(|parent| parent.uses.begin()),
    };
    // SAFETY: the caller guarantees that the channel in `c` is null or was created by this library.
    let made = unsafe { allocate(object, c, own, parts) };
    if let Some(checker) = check::checker() {
        let overruns = !options.ignore_overrun;
        checker.cq_sized(made as usize, if overruns { entries } else { usize::MAX });
    }
    Ok(made)
}

/// What a queue is made of.
struct CqParts {
    cq: BareCq,
    vector_number: usize,
    vector: Option<Arc<Handler>>,
    stamped: bool,
    parent: Option<Use>,
}

/// # Safety
/// `c.channel` is null or was created by this library.
unsafe fn allocate(
    object: UninitObject<ibv_cq_ex, Queue>,
    c: ibv_cq_ex,
    own: &Context,
    parts: CqParts,
) -> *mut ibv_cq_ex {
    let CqParts {
        cq,
        vector_number,
        vector,
        stamped,
        parent,
    } = parts;
    let channel = c.channel;
    let subject = Subject::Cq(cq.number());
    let at: *mut ibv_cq = object.as_ptr().cast();
    let event_source = AsyncEventSource::new(&own.events, ibv_async_event__element { cq: at });
    // SAFETY: the caller guarantees that `channel` is null or was created by this library; `at` is where the queue is placed below.
    let channel_events = unsafe { CqEvents::new(channel, at, &cq) };
    if let Some((source, _)) = &channel_events {
        cq.set_notify(Some(source.notifier()));
    }
    own.function.add(subject, &event_source);
    let queue = Queue {
        cq,
        uses: Uses::default(),
        function: own.function.clone(),
        event_source,
        channel_events,
        moderated: Mutex::default(),
        current: Mutex::default(),
        stamped,
        vector_number,
        _vector: vector,
        _context: own.uses.begin(),
        _parent: parent,
    };
    object.fill(c, queue)
}

/// Creates a completion queue.
///
/// # Safety
/// `context` is open, `channel` is null or was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let wanted = CqParams {
        entries: cqe,
        cq_context,
        channel,
        vector: comp_vector,
        options: CqOptions::default(),
        parent: core::ptr::null_mut(),
    };
    // SAFETY: the caller guarantees that `context` is open and that `channel` is null or was created by this library.
    let made = unsafe { create(context, &wanted) };
    pointer(made.map(<*mut ibv_cq_ex>::cast))
}

/// Destroys a queue that no queue pair completes in.
///
/// # Safety
/// `cq` was created by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let own = handle!(of(cq));
    number(own.and_then(|own| {
        if own.uses.any() {
            return Err(Errno::BUSY);
        }
        own.function.remove(Subject::Cq(own.cq.number()));
        own.cq.set_notify(None);
        if let Some(checker) = check::checker() {
            checker.unpolled(cq as usize, own.drain(), false);
            let missing = checker.closing(cq as usize, "ibv_destroy_cq");
            if let Some((events, _)) = &own.channel_events {
                events
                    .clone()
                    .acknowledged(u32::try_from(missing).unwrap_or(u32::MAX));
            }
        }
        if let Some((events, _)) = &own.channel_events {
            events.close();
        }
        own.event_source.close();
        // SAFETY: `cq` came from `UninitObject::fill`, and the caller does not use it after this call.
        drop(unsafe { CqObject::take(cq.cast()) });
        Ok(())
    }))
}

/// Changes the size of a queue; its completions are kept.
///
/// # Safety
/// `cq` was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let own = handle!(of(cq));
    number(own.and_then(|own| {
        let entries = usize::try_from(cqe).map_err(|_| Errno::INVAL)?;
        if entries == 0 {
            return Err(Errno::INVAL);
        }
        own.cq.resize(entries)?;
        // SAFETY: `cq` is not null, since `of` succeeded; the program does not access the field `cqe` while the queue is resized.
        unsafe { (*cq).cqe = cqe };
        if let Some(checker) = check::checker() {
            checker.cq_sized(cq as usize, entries);
        }
        Ok(())
    }))
}

/// Acknowledges completion events of the queue.
///
/// # Safety
/// `cq` was created by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: u32) {
    if let Ok(own) = handle!(of(cq))
        && let Some((events, _)) = &own.channel_events
    {
        if let Some(checker) = check::checker() {
            checker.events_acknowledged(cq as usize, count.into());
        }
        events.clone().acknowledged(count);
    }
}

/// Removes the oldest completions; returns how many, or a negative error number.
///
/// # Safety
/// `cq` was created by this library; `wc` has room for `count` entries.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    let (Ok(own), Ok(count)) = (handle!(of(cq)), usize::try_from(count)) else {
        return -libc::EINVAL;
    };
    // Most programs ask for one at a time.
    let taken = match count {
        // SAFETY: the caller guarantees room for `count` entries at `wc`.
        0 | 1 => unsafe { own.poll::<1>(count, wc) },
        // SAFETY: the caller guarantees room for `count` entries at `wc`, whatever the batch.
        _ => unsafe { own.poll::<16>(count, wc) },
    };
    taken as c_int
}

impl Queue {
    /// Removes all completions, and counts those of success (`verbena check`).
    #[cold]
    fn drain(&self) -> usize {
        let mut count = 0;
        let mut next = [Wc::default()];
        while self.cq.poll(&mut next) > 0 {
            count += usize::from(next[0].status as u32 == IBV_WC_SUCCESS);
        }
        count
    }

    /// Removes completions, at most `BATCH` per step.
    ///
    /// # Safety
    /// `wc` has room for `count` entries.
    unsafe fn poll<const BATCH: usize>(&self, count: usize, wc: *mut ibv_wc) -> usize {
        let mut taken = 0;
        let mut batch = [Wc::default(); BATCH];
        while taken < count {
            let room = BATCH.min(count - taken);
            let n = self.cq.poll(&mut batch[..room]);
            for (at, from) in batch[..n].iter().enumerate() {
                // SAFETY: `taken + at` is below `count`, and the caller guarantees room for `count` entries at `wc`.
                unsafe { wc.add(taken + at).write(wc::of(from)) };
            }
            taken += n;
            if n < room {
                break;
            }
        }
        taken
    }
}

/// Removes all completions of a queue, and counts those of success (`verbena check`).
///
/// # Safety
/// As for [`of`].
pub(crate) unsafe fn drain(cq: *const ibv_cq) -> usize {
    handle!(of(cq)).map_or(0, Queue::drain)
}

/// Requests one event at the next completion, or at the next solicited one.
///
/// # Safety
/// `cq` was created by this library.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    let own = handle!(of(cq));
    number(own.map(|own| {
        own.cq.arm(match solicited_only {
            0 => Arm::Next,
            _ => Arm::Solicited,
        });
    }))
}

/// Changes the event moderation of a queue (E6): it gets a completion handler of its own for that.
///
/// # Safety
/// `cq` was created by this library; `attr` is valid during the call.
pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    let (own, attr) = (handle!(of(cq)), arg_ref!(attr));
    number(own.and_then(|own| {
        let attr = attr.ok_or(Errno::INVAL)?;
        if attr.attr_mask != IBV_CQ_ATTR_MODERATE {
            return Err(Errno::NOSUPP);
        }
        own.moderate(attr.moderate)
    }))
}

impl Queue {
    fn moderate(&self, wanted: ibv_moderate_cq) -> Result<(), Errno> {
        let moderation = match (wanted.cq_count, wanted.cq_period) {
            (0 | 1, _) | (_, 0) => Moderation::Off,
            (count, micros) => Moderation::Fixed(Hold {
                count: count.into(),
                delay: core::time::Duration::from_micros(micros.into()),
            }),
        };
        let mut moderated = self.moderated.lock();
        if let Some(handler) = &*moderated {
            return Ok(handler.moderate(moderation)?);
        }
        let handler = self.function.device.set_handler(&HandlerOptions {
            moderation: Some(moderation),
            ..self.function.vector_options(self.vector_number)
        })?;
        self.cq.set_handler(Some(&handler))?;
        *moderated = Some(handler);
        Ok(())
    }
}
