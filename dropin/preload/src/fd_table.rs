//! The table of descriptors that are rsockets. Lookups take no lock and may be made in signal handlers. A descriptor beyond the table
//! cannot be added.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

/// Size of the table.
const MAX_FDS: usize = 1 << 16;

static IS_RSOCKET: [AtomicBool; MAX_FDS] = [const { AtomicBool::new(false) }; MAX_FDS];

fn slot(fd: c_int) -> Option<&'static AtomicBool> {
    IS_RSOCKET.get(usize::try_from(fd).ok()?)
}

/// The descriptor is an rsocket.
pub(crate) fn is_rsocket(fd: c_int) -> bool {
    slot(fd).is_some_and(|place| place.load(Ordering::Acquire))
}

/// Adds a descriptor; false if it is beyond the table.
pub(crate) fn add(fd: c_int) -> bool {
    let place = slot(fd);
    if let Some(place) = place {
        place.store(true, Ordering::Release);
    }
    place.is_some()
}

/// Removes a descriptor; false if it was not an rsocket.
pub(crate) fn remove(fd: c_int) -> bool {
    slot(fd).is_some_and(|place| place.swap(false, Ordering::AcqRel))
}
