//! Memory windows: their types, their scopes, and what a bind must satisfy (M8).
//! [`entry_for`] is a pure function of the bind, the window's type and the region; [`crate::Tpt::bind`] changes the table.

use verbena_wire::{Stag, To};

use crate::access::Access;
use crate::entry::{Entry, Kind, Pd, Scope};

/// The types of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowType {
    /// Usable by every queue pair of its domain; the adapter chooses the key.
    One,
    /// Tied to the queue pair that bound it; the caller chooses the key.
    TwoA,
    /// Tied to the queue pair that bound it and to its domain.
    TwoB,
}

impl WindowType {
    /// The scope of a window bound by `qp`.
    pub fn scope(self, qp: u32) -> Scope {
        match self {
            WindowType::One => Scope::Domain,
            WindowType::TwoA => Scope::QueuePair(qp),
            WindowType::TwoB => Scope::Both(qp),
        }
    }

    /// Work requests and peers can invalidate it.
    pub fn can_be_invalidated(self) -> bool {
        self != WindowType::One
    }
}

/// A request to bind a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind {
    /// The window.
    pub window: Stag,
    /// The region under it.
    pub region: Stag,
    /// First byte, in the region's addresses.
    pub addr: u64,
    /// Bytes; 0 unbinds a type 1 window.
    pub len: u64,
    /// Rights of peers.
    pub access: Access,
    /// The domain of the queue pair that binds.
    pub pd: Pd,
    /// The queue pair that binds.
    pub qp: u32,
    /// Type 2: the key that the window gets.
    pub key: u8,
    /// Peers count from 0 instead of the region's addresses.
    pub zero_based: bool,
    /// The window is invalidated by the first message that ends in it (M9).
    pub one_touch: bool,
}

/// The entry of the bound window, or the rule that the bind breaks.
pub fn entry_for(bind: &Bind, ty: WindowType, region: &Entry) -> Result<Entry, &'static str> {
    if region.kind != Kind::Region {
        return Err("the STag under the window is not a region");
    }
    if region.pd != bind.pd {
        return Err("the region belongs to another protection domain");
    }
    if !region.access.get().contains(Access::BIND) {
        return Err("the region does not allow windows");
    }
    if bind
        .access
        .intersects(Access::LOCAL_READ | Access::LOCAL_WRITE | Access::BIND)
    {
        return Err("a window grants rights to peers only");
    }
    let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    if bind.access.intersects(writes) && !region.access.get().contains(Access::LOCAL_WRITE) {
        return Err("the region is not writable");
    }
    if bind.zero_based && ty == WindowType::One {
        return Err("a type 1 window cannot be zero-based");
    }
    let start = region.start.get();
    let inside = bind
        .addr
        .checked_add(bind.len)
        .is_some_and(|end| bind.addr >= start && end - start <= region.len);
    if !inside {
        return Err("the range exceeds the region");
    }
    Ok(Entry {
        kind: Kind::Window(ty.scope(bind.qp)),
        start: To::new(if bind.zero_based { 0 } else { bind.addr }),
        len: bind.len,
        pd: bind.pd,
        policy: region.policy,
        access: bind.access.into(),
        one_touch: bind.one_touch,
        invalidatable: ty.can_be_invalidated(),
        att: region.att.clone(),
        att_offset: region.offset_of(bind.addr),
        parent: Some(bind.region.index()),
    })
}

#[cfg(test)]
mod tests;
