//! Access rights of an entry, as a set of bits.
//! Any set can be built; [`Access::is_sane`] tells whether its rights are allowed together.

use core::fmt;
use core::ops::{BitAnd, BitOr};
use core::sync::atomic::{AtomicU8, Ordering};

/// Rights of a region or window (M2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u8);

impl Access {
    /// No rights.
    pub const NONE: Access = Access(0);
    /// The adapter may read for local work requests.
    pub const LOCAL_READ: Access = Access(1);
    /// The adapter may write for local work requests.
    pub const LOCAL_WRITE: Access = Access(2);
    /// Peers may read.
    pub const REMOTE_READ: Access = Access(4);
    /// Peers may write.
    pub const REMOTE_WRITE: Access = Access(8);
    /// Peers may do atomics.
    pub const REMOTE_ATOMIC: Access = Access(16);
    /// Windows may be bound to it (window-binding control).
    pub const BIND: Access = Access(32);
    /// Peers may make writes visible to everything that accesses the memory (Flush).
    pub const REMOTE_FLUSH: Access = Access(64);

    const NAMES: [(Access, &'static str); 7] = [
        (Access::LOCAL_READ, "local-read"),
        (Access::LOCAL_WRITE, "local-write"),
        (Access::REMOTE_READ, "remote-read"),
        (Access::REMOTE_WRITE, "remote-write"),
        (Access::REMOTE_ATOMIC, "remote-atomic"),
        (Access::BIND, "bind"),
        (Access::REMOTE_FLUSH, "remote-flush"),
    ];

    /// All rights.
    pub const ALL: Access = Access(127);

    /// All rights of `other` are in this set.
    pub const fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// Any right of `other` is in this set.
    pub const fn intersects(self, other: Access) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set with these bits; `None` if a bit is not a right.
    pub const fn from_bits(bits: u8) -> Option<Access> {
        if bits & !Access::ALL.0 == 0 {
            Some(Access(bits))
        } else {
            None
        }
    }

    /// The memory must be writable for these rights.
    pub const fn needs_writable(self) -> bool {
        self.intersects(Access(
            Access::LOCAL_WRITE.0 | Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0,
        ))
    }

    /// Remote write and remote atomics need local write.
    pub const fn is_sane(self) -> bool {
        let remote = Access(Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0);
        !self.intersects(remote) || self.contains(Access::LOCAL_WRITE)
    }
}

impl BitOr for Access {
    type Output = Access;

    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

impl BitAnd for Access {
    type Output = Access;

    fn bitand(self, other: Access) -> Access {
        Access(self.0 & other.0)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("none");
        }
        let mut names = Access::NAMES.iter().filter(|(bit, _)| self.contains(*bit));
        if let Some((_, name)) = names.next() {
            f.write_str(name)?;
        }
        names.try_for_each(|(_, name)| write!(f, "+{name}"))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The rights of an entry that may be in use: replaced atomically, so that each access is checked against the old or the new set.
#[derive(Default)]
pub struct AccessCell(AtomicU8);

impl AccessCell {
    /// The rights now.
    pub fn get(&self) -> Access {
        // Relaxed: no other memory depends on it; an access that happens after the change sees it.
        Access(self.0.load(Ordering::Relaxed))
    }

    /// Replaces the rights.
    pub(crate) fn set(&self, access: Access) {
        self.0.store(access.0, Ordering::Relaxed);
    }
}

impl From<Access> for AccessCell {
    fn from(access: Access) -> AccessCell {
        AccessCell(AtomicU8::new(access.0))
    }
}

impl Clone for AccessCell {
    fn clone(&self) -> AccessCell {
        self.get().into()
    }
}

impl fmt::Debug for AccessCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.get(), f)
    }
}
