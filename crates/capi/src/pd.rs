//! Protection domains: what belongs together, and what keeps strangers out.
//! It promises that a domain in use is not freed. It refuses domains made of others, and thread domains: there is nothing to gain.

use core::ffi::c_int;

use verbena::Pd;

use crate::abi::*;
use crate::context;
use crate::errno::{Errno, number, pointer};
use crate::object::Object;
use crate::uses::{Use, Uses};

/// What is ours of a domain.
pub(crate) struct Domain {
    pub(crate) pd: Pd,
    pub(crate) uses: Uses,
    _context: Use,
}

type Held = Object<ibv_pd, Domain>;

/// What is ours of a domain that a program names.
///
/// # Safety
/// `pd` is null or was made here, and stays while the answer is used.
pub(crate) unsafe fn of<'a>(pd: *const ibv_pd) -> Result<&'a Domain, Errno> {
    // SAFETY: the caller's word.
    unsafe { Held::of(pd) }.ok_or(Errno::INVAL)
}

/// Makes a domain.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the program's word.
    let own = unsafe { context::of(context) };
    pointer(own.and_then(|own| {
        let domain = Domain {
            pd: own.home.device.pd()?,
            uses: Uses::default(),
            _context: own.uses.begin(),
        };
        Ok(Held::give(ibv_pd { context, handle: 0 }, domain))
    }))
}

/// Frees a domain that nothing is left in.
///
/// # Safety
/// `pd` was made here, and the program does not use it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { of(pd) };
    number(own.and_then(|own| {
        if own.uses.any() {
            return Err(Errno::BUSY);
        }
        // SAFETY: the program's word; nothing refers to it.
        drop(unsafe { Held::take(pd) });
        Ok(())
    }))
}

/// A domain of another process: there is none to be had.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_import_pd(_context: *mut ibv_context, _handle: u32) -> *mut ibv_pd {
    pointer(Err(Errno::NOSUPP))
}

/// Lets go of a domain of another process.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_unimport_pd(_pd: *mut ibv_pd) {}
