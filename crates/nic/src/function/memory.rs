//! Regions and windows of a function: registered under a domain that exists, and counted by it.
//! A domain stays while memory is being registered under it and while an entry of it is left. Memory of the caller is registered
//! through [`Function::register_with`], with the caller's own `unsafe`.

use std::sync::Arc;

use verbena_mem::{Access, Buffer, Misuse, Pd, Tpt, WindowExport, WindowType};
use verbena_wire::{Stag, To};

use super::Function;
use crate::error::Error;

/// What decides whether memory may be registered, for tests of programs; `Some` is the error number of a refusal.
pub struct RegistrationCheck(pub Box<dyn Fn() -> Option<i32> + Send + Sync>);

impl core::fmt::Debug for RegistrationCheck {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RegistrationCheck")
    }
}

impl Function {
    /// The table of its regions and windows, for accesses. Registrations go through the function, which checks domains.
    pub fn tpt(&self) -> &Arc<Tpt> {
        &self.tpt
    }

    /// Allocates and registers memory; it is deregistered and freed when the buffer is dropped.
    pub fn register_buffer(&self, pd: Pd, len: usize, access: Access) -> Result<Buffer, Error> {
        self.check_registration()?;
        let _used = self.use_pd(pd)?;
        Ok(Buffer::new(&self.tpt, len, pd, access)?)
    }

    /// Registers memory of the caller by a call of the caller's closure on the table: that needs `unsafe`, whose
    /// justification belongs where the memory is known. The domain is kept meanwhile.
    pub fn register_with(
        &self,
        pd: Pd,
        register: impl FnOnce(&Tpt) -> Result<Stag, Misuse>,
    ) -> Result<Stag, Error> {
        self.check_registration()?;
        self.add_entry(pd, register)
    }

    /// Calls `check` before each registration of memory from now on. Without effect if one was set before.
    pub fn set_registration_check(&self, check: RegistrationCheck) {
        let _ = self.registration_check.set(check);
    }

    fn check_registration(&self) -> Result<(), Error> {
        let refused = self.registration_check.get().and_then(|check| (check.0)());
        refused.map_or(Ok(()), |errno| Err(Error::Injected(errno)))
    }

    /// Adds an entry of a domain to the table.
    fn add_entry(
        &self,
        pd: Pd,
        register: impl FnOnce(&Tpt) -> Result<Stag, Misuse>,
    ) -> Result<Stag, Error> {
        let _used = self.use_pd(pd)?;
        Ok(register(&self.tpt)?)
    }

    /// Registers the memory of a region once more, with its own domain, address and rights (M5).
    pub fn register_shared(
        &self,
        of: Stag,
        start: To,
        pd: Pd,
        access: Access,
    ) -> Result<Stag, Error> {
        self.register_with(pd, |tpt| tpt.register_shared(of, start, pd, access))
    }

    /// Replaces the rights of a region; its STag stays.
    pub fn change_access(&self, stag: Stag, access: Access) -> Result<(), Error> {
        Ok(self.tpt.change_access(stag, access)?)
    }

    /// A window that is bound to nothing yet (M8).
    pub fn allocate_window(&self, ty: WindowType, pd: Pd) -> Result<Stag, Error> {
        self.add_entry(pd, |tpt| tpt.allocate_window(ty, pd))
    }

    /// A window of another process, under the same STag and bound to the same bytes (V1).
    pub fn import_window(&self, window: &WindowExport, pd: Pd) -> Result<Stag, Error> {
        self.add_entry(pd, |tpt| tpt.import_window(window, pd))
    }

    /// An STag without memory, with room for a registration of up to `pages` pages by a work request (M4). Its region is
    /// set by [`Tpt::prepare`], and the work request executes the registration.
    pub fn allocate_stag(&self, pd: Pd, pages: u32) -> Result<Stag, Error> {
        self.add_entry(pd, |tpt| tpt.allocate_stag(pd, pages))
    }

    /// Removes a region or window: when this returns, no access to it is running and none will begin.
    ///
    /// A [`Buffer`] deregisters itself; an STag of another function is invalid here.
    pub fn deregister(&self, stag: Stag) -> Result<(), Error> {
        Ok(self.tpt.deregister(stag)?)
    }

    /// Removes a region together with the bindings of all windows on it, for an owner whose memory is freed.
    pub fn deregister_with_windows(&self, region: Stag) -> Result<(), Error> {
        Ok(self.tpt.deregister_with_windows(region)?)
    }
}
