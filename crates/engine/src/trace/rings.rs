//! Where the rings of a trace are in shared memory, and how an event is written and read. A ring has one writer, the thread that claimed it, which overwrites
//! the oldest event; a reader that finds an event overwritten while it copied it drops the copy and counts it.

use core::ops::RangeInclusive;
use core::sync::atomic::{Ordering, fence};

use verbena_mem::{LINE, ReadWords, WordPages};

use super::record::Words;

/// Rings of a trace: threads that can write at once.
pub const RINGS: usize = 64;
/// The smallest and the largest number of events of a ring.
pub const EVENTS: RangeInclusive<u32> = 1 << 8..=1 << 20;

/// Events of one ring that are read before the next one has its turn.
const TURN: u32 = 256;
/// The line with the words of all rings together.
const COMMON: usize = 0;
/// In that line: events of threads for which there was no ring.
const HOMELESS: usize = 0;
/// The first line of the words of each ring: a line per ring, whose first word counts its events.
const HEADS: usize = LINE;
/// The first word of the events.
const DATA: usize = HEADS + RINGS * LINE;

/// The place of everything in the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    events: usize,
}

impl Layout {
    /// None if the number of events of a ring is not allowed.
    pub(crate) fn new(events: u32) -> Option<Layout> {
        let fits = EVENTS.contains(&events) && events.is_power_of_two();
        fits.then_some(Layout {
            events: events as usize,
        })
    }

    /// Bytes of the memory.
    pub(crate) fn len(self) -> usize {
        (DATA + RINGS * self.events * LINE) * size_of::<u64>()
    }

    fn head(ring: usize) -> usize {
        HEADS + ring * LINE
    }

    fn event(self, ring: usize, count: u64) -> usize {
        let at = count as usize & (self.events - 1);
        DATA + (ring * self.events + at) * LINE
    }
}

/// Events that have been written to a ring.
pub(crate) fn written(words: &WordPages, ring: usize) -> u64 {
    let head = words.line(Layout::head(ring));
    head.map_or(0, |head| head[0].load(Ordering::Relaxed))
}

/// Writes event number `count` of a ring. Only the thread that claimed it calls this.
#[inline]
pub(crate) fn write(words: &WordPages, layout: Layout, ring: usize, count: u64, event: &Words) {
    let head = words.line(Layout::head(ring));
    let (Some(head), Some(line)) = (head, words.line(layout.event(ring, count))) else {
        return;
    };
    // A reader that sees a word of this event sees the count before it, too: then the event that was here is overwritten.
    fence(Ordering::Release);
    for (to, from) in line.iter().zip(event) {
        to.store(*from, Ordering::Relaxed);
    }
    head[0].store(count.wrapping_add(1), Ordering::Release);
}

/// Counts an event for which there is no ring.
pub(crate) fn count_homeless(words: &WordPages) {
    if let Some(line) = words.line(COMMON) {
        line[HOMELESS].fetch_add(1, Ordering::Relaxed);
    }
}

/// The reading side of all rings.
#[derive(Debug)]
pub(crate) struct Reader {
    words: ReadWords,
    layout: Layout,
    /// Events of each ring that were read or lost.
    seen: [u64; RINGS],
    /// Events that were overwritten before they were read.
    lost: u64,
    /// The ring that is read next, and how many events were read of it in this turn.
    next: (usize, u32),
}

impl Reader {
    pub(crate) fn new(words: ReadWords, layout: Layout) -> Reader {
        Reader {
            words,
            layout,
            seen: [0; RINGS],
            lost: 0,
            next: (0, 0),
        }
    }

    /// Events that were overwritten, or whose thread had no ring.
    pub(crate) fn lost(&self) -> u64 {
        let homeless = self.words.load(COMMON + HOMELESS);
        self.lost.saturating_add(homeless)
    }

    /// The next event of any ring. Of each ring they come in order.
    pub(crate) fn next(&mut self) -> Option<Words> {
        for _ in 0..=RINGS {
            let (ring, read) = self.next;
            if read < TURN
                && let Some(event) = self.next_of(ring)
            {
                self.next = (ring, read + 1);
                return Some(event);
            }
            self.next = ((ring + 1) % RINGS, 0);
        }
        None
    }

    fn next_of(&mut self, ring: usize) -> Option<Words> {
        let written = self.words.load(Layout::head(ring));
        loop {
            let seen = self.seen[ring];
            // A count that goes back is not one of a writer: nothing is read until it is ahead again.
            let waiting = written.checked_sub(seen).filter(|n| *n > 0)?;
            let room = self.layout.events as u64;
            if waiting > room {
                self.skip(ring, waiting - room);
                continue;
            }
            let event = self.words.line(self.layout.event(ring, seen));
            fence(Ordering::Acquire);
            let now = self.words.load(Layout::head(ring));
            // The writer may be writing the event behind the count.
            if now.wrapping_sub(seen) >= room {
                self.skip(ring, 1);
                continue;
            }
            self.seen[ring] = seen + 1;
            return Some(event);
        }
    }

    fn skip(&mut self, ring: usize, count: u64) {
        self.seen[ring] = self.seen[ring].saturating_add(count);
        self.lost = self.lost.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use verbena_mem::Mapping;

    use super::*;

    fn both(events: u32) -> (WordPages, Layout, Reader) {
        let layout = Layout::new(events).unwrap();
        let mapping = Mapping::new(layout.len()).unwrap();
        let fd = mapping.fd().try_clone_to_owned().unwrap();
        let words = ReadWords::adopt(fd, layout.len()).unwrap();
        let writer = WordPages::new(mapping.into_pages());
        (writer, layout, Reader::new(words, layout))
    }

    fn take(reader: &mut Reader) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some(event) = reader.next() {
            all.push(event[7]);
        }
        all
    }

    #[test]
    fn events_arrive_in_order() {
        let (writer, layout, mut reader) = both(256);
        for count in 0..200 {
            write(&writer, layout, 5, count, &[count; LINE]);
        }
        write(&writer, layout, 63, 0, &[1000; LINE]);
        let all: Vec<u64> = (0..200).chain([1000]).collect();
        assert_eq!((take(&mut reader), reader.lost()), (all, 0));
        assert_eq!(written(&writer, 5), 200);
        assert_eq!(take(&mut reader), []);
    }

    #[test]
    fn overwritten_events_are_counted() {
        let (writer, layout, mut reader) = both(256);
        for count in 0..1000 {
            write(&writer, layout, 0, count, &[count; LINE]);
        }
        // One less than the ring has: the oldest may be overwritten at any moment.
        let kept: Vec<u64> = (745..1000).collect();
        assert_eq!((take(&mut reader), reader.lost()), (kept, 745));
        count_homeless(&writer);
        assert_eq!(reader.lost(), 746);
    }

    #[test]
    fn impossible_counts_do_not_hang_the_reader() {
        let (writer, layout, mut reader) = both(256);
        let head = |ring| &writer.line(Layout::head(ring)).unwrap()[0];
        head(0).store(u64::MAX, Ordering::Release);
        assert_eq!(take(&mut reader).len(), 255);
        head(0).store(5, Ordering::Release);
        write(&writer, layout, 1, 0, &[7; LINE]);
        assert_eq!(take(&mut reader), [7]);
    }
}
