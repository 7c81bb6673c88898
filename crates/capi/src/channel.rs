//! Completion channels: where completion queues leave word that they have something, on one descriptor.
//! It promises one event per arming, in order, and none of a queue that is gone. It refuses to go while queues use it.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use verbena::low::{BareCq, Notify, Watched};

use crate::abi::*;
use crate::context;
use crate::errno::{Errno, minus_one, number, pointer};
use crate::mailbox::{Acks, Mailbox};
use crate::object::Object;
use crate::uses::{Use, Uses};

/// Queues of a channel that are looked at before somebody sleeps on it.
const SOME: usize = 8;

/// What is ours of a channel.
pub(crate) struct Channel {
    rung: Arc<Mailbox<Arc<Bell>>>,
    /// Queues that tell it.
    queues: Arc<Queues>,
    uses: Uses,
    _context: Use,
}

type Held = Object<ibv_comp_channel, Channel>;

/// Queues that tell a channel: who sleeps on it serves them.
type Queues = Mutex<Vec<(u32, Watched)>>;

/// A queue's place in its channel.
pub(crate) struct Bell {
    rung: Arc<Mailbox<Arc<Bell>>>,
    cq: Address,
    gone: AtomicBool,
    acks: Acks,
}

/// A queue among those of its channel. Not part of its bell: the adapter may hold that a moment longer than the queue is there.
pub(crate) struct Listed {
    _channel: Use,
    count: *mut c_int,
    queues: Arc<Queues>,
    number: u32,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.queues
            .lock()
            .retain(|(number, _)| *number != self.number);
        // SAFETY: a channel is not destroyed while a queue is listed in it.
        let count = unsafe { AtomicI32::from_ptr(self.count) };
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Address(*mut ibv_cq);

// SAFETY: an address that only the program follows.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// Tells a channel; held by the adapter, which may be about to ring when the queue goes.
struct Ringer(Arc<Bell>);

impl Notify for Ringer {
    fn notify(&self) {
        let bell = &self.0;
        let wanted = || !bell.gone.load(Ordering::Relaxed);
        bell.rung.put_if(bell.clone(), wanted);
    }
}

impl Bell {
    /// A queue's bell in a channel; none if it has no channel.
    ///
    /// # Safety
    /// `channel` is null or was made here.
    pub(crate) unsafe fn new(
        channel: *mut ibv_comp_channel,
        cq: *mut ibv_cq,
        queue: &BareCq,
    ) -> Option<(Arc<Bell>, Listed)> {
        // SAFETY: the caller's word.
        let own = unsafe { Held::of(channel) }?;
        let bell = Arc::new(Bell {
            rung: own.rung.clone(),
            cq: Address(cq),
            gone: AtomicBool::new(false),
            acks: Acks::default(),
        });
        // SAFETY: a field of a channel that is there; threads count in it at the same time.
        let count = unsafe { AtomicI32::from_ptr(&raw mut (*channel).refcnt) };
        count.fetch_add(1, Ordering::Relaxed);
        let listed = Listed {
            _channel: own.uses.begin(),
            count: count.as_ptr(),
            queues: own.queues.clone(),
            number: queue.number(),
        };
        let watched = (queue.number(), queue.watched());
        own.queues.lock().push(watched);
        Some((bell, listed))
    }

    pub(crate) fn ringer(self: &Arc<Bell>) -> Arc<dyn Notify> {
        Arc::new(Ringer(self.clone()))
    }

    /// By its own count, since whoever destroys the queue may go on before this returns.
    pub(crate) fn acknowledged(self: Arc<Bell>, count: u32) {
        self.acks.acknowledged(count.into());
    }

    /// The queue goes: nothing of it is told any more, and what its program was given is acknowledged.
    pub(crate) fn close(&self) {
        self.rung.remove(
            |bell| core::ptr::eq(&raw const **bell, self),
            || self.gone.store(true, Ordering::Relaxed),
        );
        self.acks.wait();
    }
}

/// Makes a channel.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    // SAFETY: the program's word.
    let own = unsafe { context::of(context) };
    pointer(own.and_then(|own| {
        let rung = Arc::new(Mailbox::new()?);
        own.home.bind_channel(&rung)?;
        let channel = Channel {
            rung,
            queues: Arc::default(),
            uses: Uses::default(),
            _context: own.uses.begin(),
        };
        let fd = channel.rung.fd();
        let refcnt = 0;
        Ok(Held::give(
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
/// `channel` was made here, and the program does not use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { Held::of(channel) }.ok_or(Errno::INVAL);
    number(own.and_then(|own| {
        if own.uses.any() {
            return Err(Errno::BUSY);
        }
        // SAFETY: the program's word.
        drop(unsafe { Held::take(channel) });
        Ok(())
    }))
}

/// Waits until an armed queue has something; says which, and what its program calls it.
///
/// # Safety
/// `channel` was made here; the others are the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the program's word. Nothing is held while this waits: the thread may be cancelled.
    let Some(own) = (unsafe { Held::of(channel) }) else {
        return minus_one(Err(Errno::INVAL));
    };
    // More than a few are not slept with: no more than that need be looked at.
    let some = || {
        let queues = own.queues.lock();
        let some = queues.iter().take(SOME).map(|(_, watched)| watched.clone());
        some.collect::<SmallVec<[Watched; SOME]>>()
    };
    let wait = |channel: &verbena::low::Channel| {
        Watched::wait(channel, some).map_err(|error| Errno(error.code()))
    };
    let rung = own.rung.take_by(wait, |bell| bell.acks.given());
    minus_one(rung.map(|bell| {
        // SAFETY: the program's word; a queue that tells is there until this is acknowledged.
        unsafe {
            *cq = bell.cq.0;
            *cq_context = (*bell.cq.0).cq_context;
        }
    }))
}
