//! Which descriptors are rsockets.
//! It promises an answer without a lock, for signal handlers too. It refuses numbers beyond its table: those stay ordinary.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

/// Descriptors that can be rsockets.
const MOST: usize = 1 << 16;

static MINE: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];

fn place(fd: c_int) -> Option<&'static AtomicBool> {
    MINE.get(usize::try_from(fd).ok()?)
}

/// It is an rsocket.
pub(crate) fn is(fd: c_int) -> bool {
    place(fd).is_some_and(|place| place.load(Ordering::Acquire))
}

/// It is one from now on; false if the table ends before.
pub(crate) fn add(fd: c_int) -> bool {
    let place = place(fd);
    if let Some(place) = place {
        place.store(true, Ordering::Release);
    }
    place.is_some()
}

/// It is none any more; false if it was none.
pub(crate) fn remove(fd: c_int) -> bool {
    place(fd).is_some_and(|place| place.swap(false, Ordering::AcqRel))
}
