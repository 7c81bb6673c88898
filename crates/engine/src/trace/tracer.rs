//! The writing side of a trace. A thread claims a ring with its first event and gives it back when it ends; a thread that finds no ring has its events
//! counted. Nothing here waits for the reader, and no call is made to the system but for the time and for a thread's first event.

use core::cell::RefCell;
use core::net::SocketAddr;
use std::sync::Arc;

use verbena_mem::WordPages;
use verbena_nic::trace::{self, Observer, TraceEvent};
use verbena_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use verbena_sync::locks::Mutex;
use verbena_sync::thread::thread_local;

use super::record::{Frame, FrameKind, HEAD, Record, SleepPlace, What};
use super::rings::{self, Layout, RINGS};
use crate::sys;

/// Numbers of traces: each is unique in the process, and none is 0.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// The tracer of an adapter.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    /// The number of the trace that is attached; 0 for none.
    current: AtomicU64,
    /// The queue pair that is traced; 0 for all.
    qp: AtomicU32,
    rings: Mutex<Option<Arc<Rings>>>,
}

/// The rings of one trace.
#[derive(Debug)]
pub(crate) struct Rings {
    number: u64,
    words: WordPages,
    layout: Layout,
    /// Rings that no thread has claimed.
    free: Mutex<Vec<usize>>,
    /// The reader has gone.
    ended: AtomicBool,
}

impl Rings {
    pub(super) fn new(words: WordPages, layout: Layout) -> Arc<Rings> {
        Arc::new(Rings {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            words,
            layout,
            free: Mutex::new((0..RINGS).rev().collect()),
            ended: AtomicBool::new(false),
        })
    }

    /// The reader has gone: threads drop their claims with their next event, and the memory is given back now.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.words.discard();
    }
}

/// A ring that this thread writes.
#[derive(Debug)]
struct Claim {
    rings: Arc<Rings>,
    /// None if there was none.
    ring: Option<usize>,
    written: u64,
    thread: u32,
}

impl Claim {
    fn new(rings: Arc<Rings>) -> Claim {
        let ring = rings.free.lock().pop();
        Claim {
            written: ring.map_or(0, |ring| rings::written(&rings.words, ring)),
            ring,
            rings,
            thread: sys::thread_id(),
        }
    }

    fn write(&mut self, nanos: u64, what: What) {
        let Rings { words, layout, .. } = &*self.rings;
        let Some(ring) = self.ring else {
            return rings::count_homeless(words);
        };
        let thread = self.thread;
        let event = Record {
            nanos,
            thread,
            what,
        };
        rings::write(words, *layout, ring, self.written, &event.emit());
        self.written = self.written.wrapping_add(1);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(ring) = self.ring {
            self.rings.free.lock().push(ring);
        }
    }
}

thread_local! {
    /// The rings of this thread, the one that it used last at the end.
    static CLAIMS: RefCell<Vec<Claim>> = const { RefCell::new(Vec::new()) };
}

impl Tracer {
    /// Traces into these rings; false if another trace is attached.
    pub(crate) fn attach(&self, rings: &Arc<Rings>, qp: u32) -> bool {
        let mut attached = self.rings.lock();
        if attached.is_some() {
            return false;
        }
        self.qp.store(qp, Ordering::Relaxed);
        self.current.store(rings.number, Ordering::Release);
        *attached = Some(rings.clone());
        trace::begin();
        true
    }

    /// Ends the trace; false if there was none.
    pub(crate) fn detach(&self) -> bool {
        let was_attached = self.rings.lock().take().is_some();
        if was_attached {
            self.current.store(0, Ordering::Release);
            trace::end();
        }
        was_attached
    }

    /// The number of the trace that is attached; 0 for none.
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    fn wants(&self, qp: u32) -> bool {
        let only = self.qp.load(Ordering::Relaxed);
        only == 0 || qp == 0 || only == qp
    }

    fn put(&self, nanos: u64, what: What) {
        let number = self.current();
        if number == 0 {
            return;
        }
        // Not while the thread ends.
        let _ = CLAIMS.try_with(|claims| {
            let Ok(mut claims) = claims.try_borrow_mut() else {
                return;
            };
            if let Some(last) = claims.last_mut().filter(|last| last.rings.number == number) {
                return last.write(nanos, what);
            }
            claims.retain(|claim| !claim.rings.ended.load(Ordering::Acquire));
            let known = claims.iter().position(|one| one.rings.number == number);
            let claim = match known {
                Some(at) => claims.remove(at),
                None => match &*self.rings.lock() {
                    Some(rings) if rings.number == number => Claim::new(rings.clone()),
                    _ => return,
                },
            };
            claims.push(claim);
            if let Some(last) = claims.last_mut() {
                last.write(nanos, what);
            }
        });
    }

    /// A connection whose frames follow.
    pub(crate) fn put_connection(
        &self,
        connection: u32,
        (qp, wc_qpn): (u32, u32),
        (local, peer): (SocketAddr, SocketAddr),
    ) {
        if self.wants(qp) {
            let what = What::Connection {
                connection,
                qp,
                wc_qpn,
                local,
                peer,
            };
            self.put(sys::now().nanos(), what);
        }
    }

    /// A frame was moved at this time, which begins so.
    pub(crate) fn put_frame(&self, nanos: u64, sent: bool, kind: FrameKind, bytes: &[u8]) {
        if let FrameKind::Fpdu { qp, .. } = kind
            && !self.wants(qp)
        {
            return;
        }
        let mut head = [0; HEAD];
        for (to, from) in head.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.put(nanos, What::Frame(Frame { sent, kind, head }));
    }

    /// A packet was sent or has arrived.
    pub(crate) fn put_packet(&self, sent: bool, peer: SocketAddr, bytes: &[u8]) {
        let kind = FrameKind::Packet {
            len: u16::try_from(bytes.len()).unwrap_or(u16::MAX),
            peer_port: peer.port(),
        };
        self.put_frame(sys::now().nanos(), sent, kind, bytes);
    }
}

impl Observer for Tracer {
    fn now(&self) -> u64 {
        if self.current() == 0 {
            0
        } else {
            sys::now().nanos()
        }
    }

    fn record(&self, at: u64, event: &TraceEvent) {
        let qp = match *event {
            TraceEvent::PostSend { qp, .. }
            | TraceEvent::PostReceive { qp, .. }
            | TraceEvent::Segmented { qp, .. }
            | TraceEvent::LastPacket { qp, .. }
            | TraceEvent::Ended { qp, .. }
            | TraceEvent::State { qp, .. } => qp,
            // They have the number that peers know; the reader selects them.
            TraceEvent::Completion { .. } | TraceEvent::Polled { .. } => 0,
        };
        if self.wants(qp) {
            self.put(at, What::Adapter(*event));
        }
    }
}

/// Sleeps by this call. If the thread has written events of a trace that goes on, the sleep is recorded in its ring.
#[inline]
pub(crate) fn asleep<R>(place: SleepPlace, sleep: impl FnOnce() -> R) -> R {
    if !trace::is_active() {
        return sleep();
    }
    let since = sys::now().nanos();
    let result = sleep();
    put_woken(since, place);
    result
}

#[cold]
fn put_woken(since: u64, place: SleepPlace) {
    let _ = CLAIMS.try_with(|claims| {
        if let Ok(mut claims) = claims.try_borrow_mut()
            && let Some(last) = claims.last_mut()
            && !last.rings.ended.load(Ordering::Acquire)
        {
            last.write(sys::now().nanos(), What::Woken { since, place });
        }
    });
}
