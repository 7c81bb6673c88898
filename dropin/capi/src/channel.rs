//! Completion channels: completion queues report on one descriptor that they were armed and have completions.
//! There is one event per arming, in order, and none of a queue that has been destroyed. A channel in use by a queue is not destroyed (`EBUSY`).

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use verbena::low::BareCq;
use verbena::unstable::{Notify, WeakCompletionQueue};

use crate::abi::*;
use crate::caller::handle;
use crate::check;
use crate::context;
use crate::errno::{Errno, minus_one, number, pointer};
use crate::mailbox::{Acks, Mailbox};
use crate::object::Object;
use crate::uses::{Use, Uses};

/// At most so many queues of a channel are served by a thread that sleeps on the channel.
const MAX_SERVED_QUEUES: usize = 8;

/// The library's part of a channel.
pub(crate) struct Channel {
    events: Arc<Mailbox<Arc<CqEvents>>>,
    /// Queues that report to it.
    queues: Arc<Queues>,
    uses: Uses,
    _context: Use,
}

type ChannelObject = Object<ibv_comp_channel, Channel>;

/// Queues that report to a channel: a thread that sleeps on the channel serves them.
type Queues = Mutex<Vec<(u32, WeakCompletionQueue)>>;

/// The events of one queue in its channel.
pub(crate) struct CqEvents {
    events: Arc<Mailbox<Arc<CqEvents>>>,
    cq: CqPtr,
    closed: AtomicBool,
    acks: Acks,
}

/// Entry of a queue in the list of its channel. Not part of [`CqEvents`], which the adapter may hold for a moment after the queue is destroyed.
pub(crate) struct ChannelEntry {
    _channel: Use,
    count: *mut c_int,
    queues: Arc<Queues>,
    number: u32,
}

impl Drop for ChannelEntry {
    fn drop(&mut self) {
        self.queues
            .lock()
            .retain(|(number, _)| *number != self.number);
        // SAFETY: `count` points to `refcnt` of the channel, which is not destroyed while `_channel` counts as a use of it.
        let count = unsafe { AtomicI32::from_ptr(self.count) };
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

struct CqPtr(*mut ibv_cq);

// SAFETY: the pointer is returned to the program; it is dereferenced only by `ibv_get_cq_event`, while the queue exists.
unsafe impl Send for CqPtr {}
// SAFETY: the pointer is written when it is created; threads that share it copy it, and only `ibv_get_cq_event` dereferences it.
unsafe impl Sync for CqPtr {}

/// Puts events of a queue into its channel. Held by the adapter, which may call it while the queue is being destroyed.
struct CqNotifier(Arc<CqEvents>);

impl Notify for CqNotifier {
    fn notify(&self) {
        let cq_events = &self.0;
        let wanted = || !cq_events.closed.load(Ordering::Relaxed);
        cq_events.events.put_if(cq_events.clone(), wanted);
    }
}

impl CqEvents {
    /// The events of a queue in a channel; none if the queue has no channel.
    ///
    /// # Safety
    /// `channel` is null or was created by this library.
    pub(crate) unsafe fn new(
        channel: *mut ibv_comp_channel,
        cq: *mut ibv_cq,
        queue: &BareCq,
    ) -> Option<(Arc<CqEvents>, ChannelEntry)> {
        let own = handle!(ChannelObject::of(channel))?;
        let cq_events = Arc::new(CqEvents {
            events: own.events.clone(),
            cq: CqPtr(cq),
            closed: AtomicBool::new(false),
            acks: Acks::default(),
        });
        // SAFETY: `channel` is valid, since `ChannelObject::of` returned its part. Threads that create and destroy queues count in the field at the same time.
        let count = unsafe { AtomicI32::from_ptr(&raw mut (*channel).refcnt) };
        count.fetch_add(1, Ordering::Relaxed);
        let listed = ChannelEntry {
            _channel: own.uses.begin(),
            count: count.as_ptr(),
            queues: own.queues.clone(),
            number: queue.number(),
        };
        let watched = (queue.number(), queue.downgrade());
        own.queues.lock().push(watched);
        Some((cq_events, listed))
    }

    pub(crate) fn notifier(self: &Arc<CqEvents>) -> Arc<dyn Notify> {
        Arc::new(CqNotifier(self.clone()))
    }

    /// Takes an own reference: the thread that waits in [`close`](CqEvents::close) may free the queue's before this returns.
    pub(crate) fn acknowledged(self: Arc<CqEvents>, count: u32) {
        self.acks.acknowledged(count.into());
    }

    /// The queue is being destroyed: its events are removed, and the call waits until those that the program was given are acknowledged.
    pub(crate) fn close(&self) {
        self.events.remove(
            |source| core::ptr::eq(&raw const **source, self),
            || self.closed.store(true, Ordering::Relaxed),
        );
        self.acks.wait();
    }
}

/// Creates a channel.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    let own = handle!(context::of(context));
    pointer(own.and_then(|own| {
        let rung = Arc::new(Mailbox::new()?);
        own.function.register_channel(&rung)?;
        let channel = Channel {
            events: rung,
            queues: Arc::default(),
            uses: Uses::default(),
            _context: own.uses.begin(),
        };
        let fd = channel.events.fd();
        let refcnt = 0;
        Ok(ChannelObject::allocate(
            ibv_comp_channel {
                context,
                fd,
                refcnt,
            },
            channel,
        ))
    }))
}

/// Destroys a channel that no queue uses.
///
/// # Safety
/// `channel` was created by this library, and is not used after this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    let own = handle!(ChannelObject::of(channel)).ok_or(Errno::INVAL);
    number(own.and_then(|own| {
        if own.uses.any() {
            return Err(Errno::BUSY);
        }
        // SAFETY: `channel` came from `ChannelObject::allocate`, and the caller does not use it after this call.
        drop(unsafe { ChannelObject::take(channel) });
        Ok(())
    }))
}

/// Waits until an armed queue has a completion; writes that queue and its `cq_context`.
///
/// # Safety
/// `channel` was created by this library; the other pointers are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees that `channel` exists when it calls.
    let Some(own) = (unsafe { ChannelObject::of(channel) }) else {
        return minus_one(Err(Errno::INVAL));
    };
    // The channel may be destroyed while a thread waits, which waits on then, as on the kernel's. No lock is held while it waits: the thread
    // may be cancelled.
    let (events, queues) = (own.events.clone(), own.queues.clone());
    // A thread that sleeps serves at most `MAX_SERVED_QUEUES` queues.
    let some = || {
        let queues = queues.lock();
        let some = queues
            .iter()
            .take(MAX_SERVED_QUEUES)
            .map(|(_, watched)| watched.clone());
        some.collect::<SmallVec<[WeakCompletionQueue; MAX_SERVED_QUEUES]>>()
    };
    let wait = |channel: &verbena::unstable::Channel| {
        WeakCompletionQueue::wait(channel, some).map_err(|error| Errno(error.code()))
    };
    let rung = events.take_by(wait, |source| source.acks.delivered());
    minus_one(rung.map(|source| {
        // SAFETY: the caller guarantees that `cq` and `cq_context` are valid for writes; a queue is not destroyed before its event is acknowledged.
        unsafe {
            *cq = source.cq.0;
            *cq_context = (*source.cq.0).cq_context;
        }
        if let Some(checker) = check::checker() {
            checker.event_given(source.cq.0 as usize);
        }
    }))
}
