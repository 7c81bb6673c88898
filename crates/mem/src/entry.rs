//! One entry of the translation and protection table, with every field of M2.
//! A valid entry does not change, except for its rights; its touched state (M9) is kept in the slot.

use std::sync::Arc;

use verbena_wire::To;

use crate::access::AccessCell;
use crate::att::Att;

/// A protection domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pd(pub u32);

/// The queue pairs that may use a bound window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Any queue pair of the domain (type 1).
    Domain,
    /// One queue pair (type 2A).
    QueuePair(u32),
    /// One queue pair, and the domain must match (type 2B).
    Both(u32),
}

/// What an entry is (M2). The fourth value of the field is reserved and cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A memory region.
    Region,
    /// A memory window and its scope.
    Window(Scope),
    /// The buffers of one iSCSI command.
    Iscsi,
}

/// What peers may name in a domain (M7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Windows, and regions with remote rights.
    #[default]
    Verbs,
    /// Windows only.
    WindowsOnly,
}

/// One entry.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// The address of its first byte as peers name it; 0 when zero-based.
    pub start: To,
    /// Bytes.
    pub len: u64,
    /// Its protection domain.
    pub pd: Pd,
    /// What peers may name in its domain (M7): under *windows only* not a region.
    pub policy: Policy,
    /// Its rights, the window-binding control among them.
    pub access: AccessCell,
    /// It is invalidated by the first message that ends in it (M9).
    pub one_touch: bool,
    /// The local program and, where the scope allows, a peer may invalidate it.
    pub invalidatable: bool,
    /// The translation, which other entries may share.
    pub att: Arc<Att>,
    /// Offset of its first byte in the translation; a window's lies within its region's.
    pub att_offset: u64,
    /// A window's region, by STag index.
    pub parent: Option<u32>,
}

impl Entry {
    /// It is a window.
    pub fn is_window(&self) -> bool {
        matches!(self.kind, Kind::Window(_))
    }

    /// The offset in the translation of the byte that peers address as `to`; the caller has checked the bounds.
    pub(crate) fn offset_of(&self, to: u64) -> u64 {
        self.att_offset + (to - self.start.get())
    }
}
