//! Memory that the program gives back while it is registered. The preloaded library `dropin/unmap` tells of it, from within `free` and `munmap`: also of memory
//! that this library frees, perhaps while it holds a lock of the checks. So a call takes a lock only if it is free, and looks without allocating; only memory of
//! a region, which is the program's, is reported.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use std::collections::BTreeMap;

use parking_lot::RwLock;

use super::kind::Kind;
use super::report::Report;
use super::stack::Stack;
use super::{CHECKER, Checker, process_id};

/// What is told: as in `dropin/unmap`.
const FREED: c_int = 0;
const UNMAPS: c_int = 1;
const REALLOCATES: c_int = 2;

/// A region, and how its memory is about to end.
const FREES: usize = 1 << 32;
const THERE: usize = 1 << 33;

/// Regions whose memory must stay.
#[derive(Default)]
pub(super) struct Watched(RwLock<Ranges>);

#[derive(Default)]
struct Ranges {
    /// By start and key: the end.
    all: BTreeMap<(usize, u32), usize>,
    longest: usize,
}

impl Watched {
    pub(super) fn add(&self, start: usize, len: usize, key: u32) {
        let mut ranges = self.0.write();
        ranges.longest = ranges.longest.max(len);
        ranges.all.insert((start, key), start.saturating_add(len));
    }

    pub(super) fn remove(&self, start: usize, key: u32) {
        let mut ranges = self.0.write();
        ranges.all.remove(&(start, key));
        if ranges.all.is_empty() {
            ranges.longest = 0;
        }
    }

    /// The key of a region that overlaps the range; none also while the regions are being changed.
    fn find(&self, at: usize, len: usize) -> Option<u32> {
        let ranges = self.0.try_read()?;
        let first = at.saturating_sub(ranges.longest);
        let near = ranges.all.range((first, 0)..(at.saturating_add(len), 0));
        let mut overlapping = near.filter(|(_, end)| **end > at);
        overlapping.next().map(|((_, key), _)| *key)
    }
}

/// Has the preloaded library tell of memory, if it is there.
pub(super) fn start() {
    // SAFETY: the name is a C string, and `RTLD_DEFAULT` a valid handle.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"verbena_watch_memory".as_ptr()) };
    // SAFETY: null becomes `None`; the function of this name is that of `dropin/unmap`, and has this type.
    let found = unsafe {
        core::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn(*mut c_void)>>(found)
    };
    if let Some(watch_memory) = found {
        // SAFETY: `memory_ends` has the type that it requires, and can be called at any time.
        unsafe { watch_memory(memory_ends as *mut c_void) };
    }
}

/// Called by the preloaded library.
unsafe extern "C" fn memory_ends(what: c_int, at: usize, len: usize) -> usize {
    // SAFETY: null, or a box that is never freed.
    let checker = unsafe { CHECKER.load(Ordering::Acquire).as_ref() };
    let Some(checker) = checker else { return 0 };
    match what {
        FREED | UNMAPS | REALLOCATES => {
            let Some(key) = checker
                .watched
                .find(at, len)
                .filter(|_| checker.process == process_id())
            else {
                return 0;
            };
            if what == FREED {
                checker.memory_ended(key, true);
                return 0;
            }
            THERE | key as usize | if what == REALLOCATES { FREES } else { 0 }
        }
        _ => {
            checker.memory_ended(at as u32, at & FREES != 0);
            0
        }
    }
}

impl Checker {
    /// Memory of this region was given back, if the region still exists: caches of registrations end them within `munmap`.
    #[cold]
    fn memory_ended(&self, key: u32, freed: bool) {
        let stack = Stack::capture();
        // Memory of this library, which lies in a region if the program has registered the whole heap.
        if stack.is_called_by_library() {
            return;
        }
        let Some((mut tables, mut reporter)) = self.tables.try_lock().zip(self.reporter.try_lock())
        else {
            return;
        };
        let Some(region) = tables.regions.get_mut(&key).filter(|region| !region.ended) else {
            return;
        };
        // Told once, and not again when it is deregistered.
        region.ended = true;
        let (info, registered) = (region.info, region.stack.clone());
        drop(tables);
        let how = if freed {
            "given back by free or realloc"
        } else {
            "unmapped"
        };
        let what = format!(
            "memory was {how} while it was registered: {} bytes at {:#x}",
            info.len, info.start
        );
        reporter.report(&Report {
            kind: if freed {
                Kind::MemoryFreed
            } else {
                Kind::MemoryUnmapped
            },
            what,
            stacks: vec![
                (if freed { "freed" } else { "unmapped" }, stack),
                ("registered", registered),
            ],
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_that_overlap_a_range_are_found() {
        let watched = Watched::default();
        watched.add(1000, 1000, 7);
        watched.add(1500, 10, 8);
        assert_eq!(watched.find(1999, 1), Some(7));
        assert_eq!(watched.find(2000, 1), None);
        assert_eq!(watched.find(900, 100), None);
        watched.remove(1000, 7);
        assert_eq!(watched.find(1400, 200), Some(8));
        watched.remove(1500, 8);
        assert_eq!(watched.find(0, usize::MAX), None);
    }
}
