//! The table of descriptors that are rsockets. Lookups take no lock and may be made in signal handlers. A descriptor beyond the table
//! cannot be added.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

/// Size of the table.
const MOST: usize = 1 << 16;

static MINE: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];

fn place(fd: c_int) -> Option<&'static AtomicBool> {
    MINE.get(usize::try_from(fd).ok()?)
}

/// The descriptor is an rsocket.
pub(crate) fn is(fd: c_int) -> bool {
    place(fd).is_some_and(|place| place.load(Ordering::Acquire))
}

/// Adds a descriptor; false if it is beyond the table.
pub(crate) fn add(fd: c_int) -> bool {
    let place = place(fd);
    if let Some(place) = place {
        place.store(true, Ordering::Release);
    }
    place.is_some()
}

/// Removes a descriptor; false if it was not an rsocket.
pub(crate) fn remove(fd: c_int) -> bool {
    place(fd).is_some_and(|place| place.swap(false, Ordering::AcqRel))
}
