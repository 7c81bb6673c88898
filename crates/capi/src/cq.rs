//! Completion queues: what has become of work, polled or told of through a channel.
//! It promises that a queue in use is not destroyed, and that destroying waits until events of it are acknowledged.
//! It refuses flags that it would have to ignore.

mod extended;
mod wc;

pub(crate) use extended::create_cq_ex;

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use verbena::low::{Arm, BLANK, BareCq, Hold, Moderation, Wc};
use verbena::{Handler, HandlerOptions};

use crate::abi::*;
use crate::channel::{Bell, Listed};
use crate::context::{self, Context};
use crate::ear::Ear;
use crate::errno::{Errno, number, pointer};
use crate::home::{Home, Subject};
use crate::object::Object;
use crate::uses::{Use, Uses};

/// What is ours of a completion queue.
pub(crate) struct Queue {
    pub(crate) cq: BareCq,
    pub(crate) uses: Uses,
    home: Arc<Home>,
    ear: Arc<Ear>,
    bell: Option<(Arc<Bell>, Listed)>,
    /// Registered for it alone, once it is moderated.
    moderated: Mutex<Option<Handler>>,
    /// The completion that an extended poll stands at.
    current: Mutex<Wc>,
    /// Kept as long as the queue is told through it.
    _vector: Option<Arc<Handler>>,
    _context: Use,
}

pub(crate) type Held = Object<ibv_cq_ex, Queue>;

/// What is ours of a queue that a program names.
///
/// # Safety
/// `cq` is null or was made here, and stays while the answer is used.
pub(crate) unsafe fn of<'a>(cq: *const ibv_cq) -> Result<&'a Queue, Errno> {
    // SAFETY: the caller's word: every queue is an extended one.
    unsafe { Held::of(cq.cast::<ibv_cq_ex>()) }.ok_or(Errno::INVAL)
}

/// Where the queue hears of events.
///
/// # Safety
/// As of [`of`].
pub(crate) unsafe fn ear(cq: *const ibv_cq) -> Option<Arc<Ear>> {
    // SAFETY: the caller's word.
    unsafe { of(cq) }.ok().map(|queue| queue.ear.clone())
}

/// A queue to make.
struct Wanted {
    entries: c_int,
    name: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
}

/// # Safety
/// `context` is open, the channel is null or was made here.
unsafe fn create(context: *mut ibv_context, wanted: &Wanted) -> Result<*mut ibv_cq_ex, Errno> {
    // SAFETY: the program's word.
    let own = unsafe { context::of(context)? };
    let entries = usize::try_from(wanted.entries).map_err(|_| Errno::INVAL)?;
    let vector = usize::try_from(wanted.vector).map_err(|_| Errno::INVAL)?;
    if entries == 0 || vector >= own.home.vector_count() {
        return Err(Errno::INVAL);
    }
    let cq = own.home.device.bare_cq(entries)?;
    let vector = if wanted.channel.is_null() {
        None
    } else {
        let handler = own.home.vector(vector)?;
        cq.set_handler(Some(&handler))?;
        Some(handler)
    };
    let c = ibv_cq_ex {
        context,
        channel: wanted.channel,
        cq_context: wanted.name,
        handle: cq.number(),
        cqe: wanted.entries,
        ..ibv_cq_ex::zeroed()
    };
    // The queue must be there before it can be told of: its address is what is told.
    // SAFETY: the program's word.
    unsafe { give(c, own, cq, vector) }
}

/// # Safety
/// The channel is null or was made here.
unsafe fn give(
    c: ibv_cq_ex,
    own: &Context,
    cq: BareCq,
    vector: Option<Arc<Handler>>,
) -> Result<*mut ibv_cq_ex, Errno> {
    let channel = c.channel;
    let subject = Subject::Cq(cq.number());
    let place = Held::room();
    let at: *mut ibv_cq = place.at().cast();
    let ear = Ear::new(&own.events, ibv_async_event__element { cq: at });
    // SAFETY: the program's word.
    let bell = unsafe { Bell::new(channel, at, &cq) };
    if let Some((bell, _)) = &bell {
        cq.listen(Some(bell.ringer()));
    }
    own.home.add(subject, &ear);
    let queue = Queue {
        cq,
        uses: Uses::default(),
        home: own.home.clone(),
        ear,
        bell,
        moderated: Mutex::default(),
        current: Mutex::new(BLANK),
        _vector: vector,
        _context: own.uses.begin(),
    };
    Ok(place.fill(c, queue))
}

/// Makes a completion queue.
///
/// # Safety
/// `context` is open, `channel` is null or was made here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let wanted = Wanted {
        entries: cqe,
        name: cq_context,
        channel,
        vector: comp_vector,
    };
    // SAFETY: the program's word.
    let made = unsafe { create(context, &wanted) };
    pointer(made.map(<*mut ibv_cq_ex>::cast))
}

/// Destroys a queue that no queue pair completes in.
///
/// # Safety
/// `cq` was made here, and the program does not use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { of(cq) };
    number(own.and_then(|own| {
        if own.uses.any() {
            return Err(Errno::BUSY);
        }
        own.home.remove(Subject::Cq(own.cq.number()));
        own.cq.listen(None);
        if let Some((bell, _)) = &own.bell {
            bell.close();
        }
        own.ear.close();
        // SAFETY: the program's word.
        drop(unsafe { Held::take(cq.cast()) });
        Ok(())
    }))
}

/// Changes the size of a queue; completions that wait stay.
///
/// # Safety
/// `cq` was made here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { of(cq) };
    number(own.and_then(|own| {
        let entries = usize::try_from(cqe).map_err(|_| Errno::INVAL)?;
        if entries == 0 {
            return Err(Errno::INVAL);
        }
        own.cq.resize(entries)?;
        // SAFETY: the program waits for this call to change it.
        unsafe { (*cq).cqe = cqe };
        Ok(())
    }))
}

/// Acknowledges events that told of the queue.
///
/// # Safety
/// `cq` was made here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: u32) {
    // SAFETY: the program's word.
    if let Ok(own) = unsafe { of(cq) }
        && let Some((bell, _)) = &own.bell
    {
        bell.clone().acknowledged(count);
    }
}

/// Takes the oldest completions; returns how many, or a negative number.
///
/// # Safety
/// `cq` was made here; `wc` has room for `count` entries.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the program's word.
    let (Ok(own), Ok(count)) = (unsafe { of(cq) }, usize::try_from(count)) else {
        return -libc::EINVAL;
    };
    // Most programs ask for one at a time.
    let taken = match count {
        // SAFETY: the program's word.
        0 | 1 => unsafe { own.poll::<1>(count, wc) },
        // SAFETY: the program's word.
        _ => unsafe { own.poll::<16>(count, wc) },
    };
    taken as c_int
}

impl Queue {
    /// Takes completions, at most `BATCH` in one go.
    ///
    /// # Safety
    /// `wc` has room for `count` entries.
    unsafe fn poll<const BATCH: usize>(&self, count: usize, wc: *mut ibv_wc) -> usize {
        let mut taken = 0;
        let mut batch = [BLANK; BATCH];
        while taken < count {
            let room = BATCH.min(count - taken);
            let n = self.cq.poll(&mut batch[..room]);
            for (at, from) in batch[..n].iter().enumerate() {
                // SAFETY: the caller's word.
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

/// Asks for one event when the next completion comes, or the next solicited one.
///
/// # Safety
/// `cq` was made here.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { of(cq) };
    number(own.map(|own| {
        own.cq.arm(match solicited_only {
            0 => Arm::Next,
            _ => Arm::Solicited,
        });
    }))
}

/// Changes how often events of a queue are told (E6): it gets a completion handler of its own for that.
///
/// # Safety
/// `cq` was made here; `attr` is the program's.
pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: the program's word.
    let (own, attr) = unsafe { (of(cq), attr.as_ref()) };
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
        let handler = self.home.device.set_handler(&HandlerOptions {
            moderation,
            ..HandlerOptions::default()
        })?;
        self.cq.set_handler(Some(&handler))?;
        *moderated = Some(handler);
        Ok(())
    }
}
