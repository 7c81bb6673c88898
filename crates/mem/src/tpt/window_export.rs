//! Export and import of windows for a handover to another process (V1).
//! An imported window has the same STag and key: peers reach the same bytes through a bound one, with the same rights, and none through one
//! that was unbound, invalidated or touched before. A window whose requests have not been executed, and a one-touch binding that is not tied
//! to one queue pair, cannot be exported.

use verbena_wire::Stag;

use super::Tpt;
use super::index::Purpose;
use crate::access::Access;
use crate::entry::{Entry, Kind, Pd, Scope};
use crate::refusal::Misuse;
use crate::slot::Grant;
use crate::window::{Bind, WindowType, entry_for};

/// What a window is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowBinding {
    /// The region.
    pub region: Stag,
    /// First byte, in the region's addresses.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Rights of peers.
    pub access: Access,
    /// The queue pair that a window of type 2 belongs to.
    pub qp: Option<u32>,
    /// Peers count from 0 instead of the region's addresses.
    pub zero_based: bool,
    /// It is invalidated by the first message that ends in it (M9).
    pub one_touch: bool,
}

/// A window as another process needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowExport {
    /// Its type.
    pub window_type: WindowType,
    /// Its STag: the one that peers use if it is bound.
    pub stag: Stag,
    /// A message has ended in its last binding, which was one-touch (M9).
    pub spent: bool,
    /// Its binding, if it is bound.
    pub binding: Option<WindowBinding>,
}

impl Tpt {
    /// Exports a window (V1), which stays as it is. `window` is its STag and `bound` its state once all requests that the caller made
    /// for it were executed; a binding may have been invalidated since.
    pub fn export_window(&self, window: Stag, bound: bool) -> Result<WindowExport, Misuse> {
        let (index, misuse) = (window.index(), Misuse::Stag(window));
        let taken_for = self.indexes.lock().window(index);
        let (window_type, _) = taken_for.ok_or(misuse)?;
        let slot = self.slot(index).ok_or(misuse)?;
        let key = slot.key();
        if slot.is_pending(key) {
            return Err(Misuse::Pending(window));
        }
        let stag = Stag::from_parts(index, key).ok_or(misuse)?;
        let entry = self.find_entry(stag);
        // Removing a binding changes the key to the next one.
        let invalidated = bound && entry.is_none();
        let expected = window.key().wrapping_add(u8::from(invalidated));
        if key != expected || (entry.is_some() && !bound) {
            return Err(Misuse::WindowRequest(window));
        }
        let binding = entry.map(|entry| self.binding_of(window, &entry));
        let binding = binding.transpose()?;
        if binding.is_some() && slot.touch().is_some() {
            return Err(Misuse::Touching(window));
        }
        Ok(WindowExport {
            window_type,
            stag,
            spent: slot.spent_key().is_some(),
            binding,
        })
    }

    fn binding_of(&self, window: Stag, entry: &Entry) -> Result<WindowBinding, Misuse> {
        let misuse = Misuse::Stag(window);
        let qp = match entry.kind {
            Kind::Window(Scope::Domain) => None,
            Kind::Window(Scope::QueuePair(qp) | Scope::Both(qp)) => Some(qp),
            Kind::Region | Kind::Iscsi => return Err(misuse),
        };
        if entry.one_touch && qp.is_none() {
            return Err(Misuse::OneTouch(window));
        }
        let parent = entry.parent.ok_or(misuse)?;
        let key = self.slot(parent).ok_or(misuse)?.key();
        let region = Stag::from_parts(parent, key).ok_or(misuse)?;
        let under = self.find_entry(region).ok_or(misuse)?;
        let offset = entry.att_offset.checked_sub(under.att_offset);
        let addr = offset.and_then(|offset| under.start.get().checked_add(offset));
        let addr = addr.ok_or(misuse)?;
        Ok(WindowBinding {
            region,
            addr,
            len: entry.len,
            access: entry.access.get(),
            qp,
            zero_based: entry.start.get() != addr,
            one_touch: entry.one_touch,
        })
    }

    /// Allocates a window in this domain under the STag that it had in another process (V1), and binds it if it was bound. The caller
    /// has replaced the queue pair of a binding by the one here; the region must have been imported. Every rule of a bind applies.
    pub fn import_window(&self, window: &WindowExport, pd: Pd) -> Result<Stag, Misuse> {
        let (stag, ty) = (window.stag, window.window_type);
        self.check_index(stag)?;
        if window.spent && window.binding.is_some() {
            return Err(Misuse::Bind("a bound window was not touched"));
        }
        let bound = window.binding.as_ref();
        let bound = bound.map(|binding| self.bound_entry(window, binding, pd));
        let bound = bound.transpose()?;
        let owned = self.claim_at(stag, Purpose::Window(ty, pd))?;
        match bound {
            Some((region, entry)) => {
                // Counted under the grant on the region, so that it cannot be deregistered in between.
                region.slot().add_user();
                owned.publish(stag.key(), entry);
            }
            None => {
                owned.free_with_key(stag.key());
                if window.spent {
                    self.slot_or_make(stag.index()).set_spent();
                }
            }
        }
        Ok(stag)
    }

    /// The entry of a bound window, and a grant on its region.
    fn bound_entry(
        &self,
        window: &WindowExport,
        binding: &WindowBinding,
        pd: Pd,
    ) -> Result<(Grant<'_>, Entry), Misuse> {
        let ty = window.window_type;
        if (ty == WindowType::One) != binding.qp.is_none() {
            return Err(Misuse::Bind(
                "a type 2 window belongs to a queue pair, a type 1 window does not",
            ));
        }
        if binding.len == 0 {
            return Err(Misuse::Bind("a bound window has at least one byte"));
        }
        let bind = Bind {
            window: window.stag,
            region: binding.region,
            addr: binding.addr,
            len: binding.len,
            access: binding.access,
            pd,
            qp: binding.qp.unwrap_or(0),
            key: window.stag.key(),
            zero_based: binding.zero_based,
            one_touch: binding.one_touch,
        };
        let invalid = "the region is not valid";
        let region = self.acquire(binding.region).ok_or(Misuse::Bind(invalid))?;
        let entry = region.entry(|region| entry_for(&bind, ty, region));
        let entry = entry.unwrap_or(Err(invalid)).map_err(Misuse::Bind)?;
        Ok((region, entry))
    }
}

#[cfg(test)]
mod tests;
