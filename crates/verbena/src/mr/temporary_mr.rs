//! A slice of the program that is registered for one operation, for local access only.
//! When [`TemporaryMr::deregister`] returns the memory is not accessed any more, whichever thread called it and whatever the state of the
//! operation. Peers, windows and queue pairs of the low layer cannot use the registration.

use core::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_mem::{Access, Att, Region};
use verbena_nic::Sge;
use verbena_wire::{Stag, To};

use crate::device::Domain;
use crate::error::Error;

/// A temporary registration.
pub(crate) struct TemporaryMr {
    domain: Arc<Domain>,
    sge: Sge,
    /// The lock is held during deregistration, so that a concurrent second caller returns after the first.
    stag: Mutex<Option<Stag>>,
}

impl TemporaryMr {
    /// Registers `len` bytes at `start`; they are written only if `access` allows it.
    ///
    /// # Safety
    /// Until [`deregister`](TemporaryMr::deregister) has returned or this was dropped, the memory stays allocated and is not written by
    /// others, and if `access` allows writing it is not read by others either.
    pub(super) unsafe fn new(
        domain: &Arc<Domain>,
        start: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<TemporaryMr, Error> {
        let too_long = |_| Error::TooLong {
            len: len as u64,
            limit: u64::from(u32::MAX),
        };
        let (at, piece) = (start as u64, u32::try_from(len).map_err(too_long)?);
        let stag = if len == 0 {
            // No bytes to access, so nothing to register.
            None
        } else {
            let region = Region {
                att: Att::direct(start, len as u64),
                start: To::new(at),
                pd: domain.pd,
                access,
                one_touch: false,
            };
            let function = domain.function()?;
            // SAFETY: the caller keeps the memory allocated until `deregister`, which deregisters it, at the latest in `drop`.
            Some(function.register_with(domain.pd, |tpt| unsafe { tpt.register(region) })?)
        };
        Ok(TemporaryMr {
            domain: domain.clone(),
            sge: Sge {
                addr: at,
                len: piece,
                stag: stag.unwrap_or(Stag::new(0)),
            },
            stag: Mutex::new(stag),
        })
    }

    /// All of it, as a scatter/gather element.
    pub(crate) fn sge(&self) -> Sge {
        self.sge
    }

    /// Deregisters it: when this returns no access is under way and none will begin.
    pub(crate) fn deregister(&self) {
        let mut stag = self.stag.lock();
        if let (Some(stag), Ok(function)) = (stag.take(), self.domain.function()) {
            // Its rights do not allow windows, so deregistering cannot fail for that.
            let gone = function.deregister(stag);
            debug_assert!(gone.is_ok(), "{gone:?}");
        }
    }

    /// Whether it is still registered.
    pub(crate) fn is_registered(&self) -> bool {
        self.stag.lock().is_some()
    }
}

impl Drop for TemporaryMr {
    fn drop(&mut self) {
        self.deregister();
    }
}

impl fmt::Debug for TemporaryMr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TemporaryMr").field(&self.sge).finish()
    }
}
