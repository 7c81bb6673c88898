//! Memory that is lent for one operation: registered for our own side only, until it is taken back.
//! It promises that when [`Lent::take_back`] returns nobody touches the memory any more, whoever took it back and however
//! the operation stands. It refuses peers, windows, and queue pairs of the low layer.

use core::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_mem::{Access, Att, Region};
use verbena_nic::Sge;
use verbena_wire::{Stag, To};

use crate::device::Domain;
use crate::error::Error;

/// Memory that is lent.
pub(crate) struct Lent {
    domain: Arc<Domain>,
    sge: Sge,
    /// Behind a lock that is held while it is deregistered: a second who takes it back returns after the first.
    stag: Mutex<Option<Stag>>,
}

impl Lent {
    /// Lends `len` bytes at `start`, to be written only if `access` says so.
    ///
    /// # Safety
    /// Until [`take_back`](Lent::take_back) has returned or this was dropped, the memory stays; nobody writes it, and if
    /// the access allows to write nobody reads it either.
    pub(super) unsafe fn new(
        domain: &Arc<Domain>,
        start: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Lent, Error> {
        let too_long = |_| Error::TooLong {
            len: len as u64,
            limit: u64::from(u32::MAX),
        };
        let (at, piece) = (start as u64, u32::try_from(len).map_err(too_long)?);
        let stag = if len == 0 {
            // Nothing to reach, so nothing to register.
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
            // SAFETY: the caller's promise, and it is deregistered in `take_back` at the latest when it is dropped.
            Some(function.register_with(domain.pd, |tpt| unsafe { tpt.register(region) })?)
        };
        Ok(Lent {
            domain: domain.clone(),
            sge: Sge {
                at,
                len: piece,
                stag: stag.unwrap_or(Stag::new(0)),
            },
            stag: Mutex::new(stag),
        })
    }

    /// All of it, for a request.
    pub(crate) fn sge(&self) -> Sge {
        self.sge
    }

    /// Ends the registration: when this returns no access is running and none will begin.
    pub(crate) fn take_back(&self) {
        let mut stag = self.stag.lock();
        if let (Some(stag), Ok(function)) = (stag.take(), self.domain.function()) {
            // It grants no windows, so nothing keeps it.
            let gone = function.deregister(stag);
            debug_assert!(gone.is_ok(), "{gone:?}");
        }
    }

    /// It was not taken back yet.
    pub(crate) fn is_out(&self) -> bool {
        self.stag.lock().is_some()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.take_back();
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lent").field(&self.sge).finish()
    }
}
