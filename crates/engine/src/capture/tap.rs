//! The writing side of a capture: a ring that one other process reads, or none. What finds no room in it is counted. A thread waits for another one
//! at most as long as that copies a frame; no thread waits for the reader, and none makes a system call for it.

use core::net::SocketAddr;
use std::sync::Arc;

use verbena_mem::Sources;
use verbena_ring::Producer;
use verbena_ring::record::MAX_INLINE;
use verbena_sync::atomic::{AtomicU32, Ordering};
use verbena_sync::locks::Mutex;

use super::Totals;
use super::record::{HEADER_LEN, Kind, MAX_DATA, Record};
use crate::sys;
use crate::trace::tracer::{Rings, Tracer};

/// Captures and traces of all adapters of this process.
static ATTACHED: AtomicU32 = AtomicU32::new(0);
/// What the ring needs for each of its records besides the bytes, at most.
const RECORD_OVERHEAD: u64 = 16;

/// An adapter of this process is captured or traced.
#[inline(always)]
pub(crate) fn is_attached() -> bool {
    ATTACHED.load(Ordering::Relaxed) != 0
}

/// The tap of an adapter.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    /// The number of the capture that is attached; 0 for none.
    current: AtomicU32,
    /// Captures so far.
    captures: AtomicU32,
    snap_len: AtomicU32,
    /// The queue pair whose stream is captured; 0 for all.
    qp: AtomicU32,
    /// Connections that were given a number.
    connections: AtomicU32,
    sink: Mutex<Option<Sink>>,
    tracer: Arc<Tracer>,
}

#[derive(Debug)]
struct Sink {
    producer: Producer,
    /// Bytes for records.
    capacity: u64,
    totals: Totals,
}

impl Tap {
    /// Captures into this ring of `capacity` bytes; false if another one is attached.
    pub(super) fn attach(
        &self,
        producer: Producer,
        capacity: u64,
        (snap_len, qp): (u32, u32),
    ) -> bool {
        let mut sink = self.sink.lock();
        if sink.is_some() {
            return false;
        }
        *sink = Some(Sink {
            producer,
            capacity,
            totals: Totals::default(),
        });
        self.snap_len.store(snap_len, Ordering::Relaxed);
        self.qp.store(qp, Ordering::Relaxed);
        // Never 0: a process does not see 2^32 captures.
        let number = self
            .captures
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1);
        self.current.store(number.max(1), Ordering::Release);
        ATTACHED.fetch_add(1, Ordering::Release);
        true
    }

    /// Ends the capture.
    pub(super) fn detach(&self) -> Totals {
        let mut sink = self.sink.lock();
        let Some(sink) = sink.take() else {
            return Totals::default();
        };
        self.current.store(0, Ordering::Release);
        ATTACHED.fetch_sub(1, Ordering::Release);
        sink.totals
    }

    /// What records events of this adapter.
    pub(crate) fn tracer(&self) -> &Arc<Tracer> {
        &self.tracer
    }

    /// Traces into these rings; false if another trace is attached.
    pub(crate) fn attach_trace(&self, rings: &Arc<Rings>, qp: u32) -> bool {
        let attached = self.tracer.attach(rings, qp);
        if attached {
            ATTACHED.fetch_add(1, Ordering::Release);
        }
        attached
    }

    /// Ends the trace.
    pub(crate) fn detach_trace(&self) {
        if self.tracer.detach() {
            ATTACHED.fetch_sub(1, Ordering::Release);
        }
    }

    /// This adapter is captured or traced.
    pub(crate) fn is_observed(&self) -> bool {
        self.is_attached() || self.tracer.current() != 0
    }

    /// This adapter is captured.
    pub(crate) fn is_attached(&self) -> bool {
        self.current() != 0
    }

    /// The number of the capture that is attached; 0 for none.
    pub(super) fn current(&self) -> u32 {
        self.current.load(Ordering::Acquire)
    }

    pub(super) fn snap_len(&self) -> usize {
        self.snap_len.load(Ordering::Relaxed) as usize
    }

    /// Streams of this queue pair are captured; 0 is one that is not known yet.
    pub(super) fn wants(&self, qp: u32) -> bool {
        let only = self.qp.load(Ordering::Relaxed);
        only == 0 || only == qp
    }

    pub(super) fn new_connection(&self) -> u32 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// A frame of `len` bytes, which begins so.
    pub(super) fn put(
        &self,
        kind: Kind,
        sent: bool,
        (local, peer): (SocketAddr, SocketAddr),
        (len, bytes): (usize, &[u8]),
    ) {
        // A frame has addresses of one family.
        let family = |end: SocketAddr| end.ip().to_canonical().is_ipv4();
        if family(local) != family(peer) {
            return;
        }
        let nanos = sys::timestamp().realtime;
        let mut sink = self.sink.lock();
        let Some(sink) = &mut *sink else {
            return;
        };
        let bytes = bytes.get(..MAX_DATA).unwrap_or(bytes);
        // Both are no more than a frame has.
        let (len, kept) = (len as u32, bytes.len() as u32);
        let record = Record {
            nanos,
            dropped: sink.totals.dropped,
            local,
            peer,
            sent,
            kind,
            len,
            kept,
        };
        let written = sink.write(&record.emit(), bytes);
        let count = match written {
            true => &mut sink.totals.captured,
            false => &mut sink.totals.dropped,
        };
        *count += 1;
    }

    /// A packet was sent or has arrived.
    #[cold]
    pub(crate) fn put_packet(
        &self,
        sent: bool,
        ends: (SocketAddr, SocketAddr),
        number: u16,
        bytes: &[u8],
    ) {
        if self.tracer.current() != 0 {
            self.tracer.put_packet(sent, ends.1, bytes);
        }
        if !self.is_attached() {
            return;
        }
        let kept = bytes.get(..self.snap_len()).unwrap_or(bytes);
        self.put(Kind::Packet { number }, sent, ends, (bytes.len(), kept));
    }
}

impl Sink {
    /// Writes a record if all of it finds room.
    fn write(&mut self, header: &[u8; HEADER_LEN], bytes: &[u8]) -> bool {
        let len = HEADER_LEN + bytes.len();
        let parts = (len / MAX_INLINE + 2) as u64;
        let needed = len as u64 + parts * RECORD_OVERHEAD;
        // The reader only makes more room meanwhile.
        let free = self.capacity.saturating_sub(self.producer.unread());
        if free < needed {
            return false;
        }
        let mut sources = Sources::new();
        let fits = sources.borrow_bytes(header) && sources.borrow_bytes(bytes);
        debug_assert!(fits, "two spans fit");
        self.producer.write(&sources) == Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use verbena_ring::{Consumer, Layout, on_heap};

    use super::*;
    use crate::capture::client::tests::records;

    const ENDS: &str = "127.0.0.1:1";

    fn tap(capacity: usize) -> (Tap, Consumer) {
        let (producer, consumer, _) = on_heap(Layout::new(capacity).unwrap());
        let tap = Tap::default();
        assert!(tap.attach(producer, capacity as u64, (128, 0)));
        (tap, consumer)
    }

    fn put(tap: &Tap, len: usize) {
        let ends = (ENDS.parse().unwrap(), ENDS.parse().unwrap());
        tap.put_packet(true, ends, 0, &vec![1; len]);
    }

    #[test]
    fn frames_without_room_are_counted() {
        let (tap, mut consumer) = tap(1 << 12);
        for _ in 0..100 {
            put(&tap, 200);
        }
        let (first, _) = records(&mut consumer);
        let kept = first.len() as u64;
        assert!((10..20).contains(&kept), "{kept}");
        assert!(
            first
                .iter()
                .all(|record| record.kept == 128 && record.len == 200)
        );
        put(&tap, 10);
        let (later, _) = records(&mut consumer);
        assert_eq!(later[0].dropped, 100 - kept);
        let totals = tap.detach();
        assert_eq!((totals.captured, totals.dropped), (kept + 1, 100 - kept));
    }

    #[test]
    fn second_capture_is_refused_until_the_first_ends() {
        let (tap, _consumer) = tap(1 << 12);
        let (producer, _, _) = on_heap(Layout::new(1 << 12).unwrap());
        assert!(!tap.attach(producer, 1 << 12, (128, 0)));
        assert!(is_attached());
        tap.detach();
        let (producer, _, _) = on_heap(Layout::new(1 << 12).unwrap());
        assert!(tap.attach(producer, 1 << 12, (128, 0)));
        tap.detach();
    }
}
