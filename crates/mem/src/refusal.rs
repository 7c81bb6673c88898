//! Errors of this crate: an access that is not allowed ([`Refusal`]), a wrong request to set up or remove an entry ([`Misuse`]),
//! and a descriptor that is not usable as shared memory ([`SharedMemoryError`]).
//! Each carries the numbers that did not match; the adapter maps them to completion statuses and Terminate codes.

use verbena_wire::Stag;

use crate::access::Access;
use crate::guarded::Unmapped;

/// An access that is not allowed (M6, M7). Memory is untouched, unless the variant says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the fields are the numbers that each sentence prints"
)]
pub enum Refusal {
    /// No such entry, an old key, or an entry that is not valid now.
    #[error("STag {stag} is not valid")]
    Stag { stag: Stag },
    /// The entry is one-touch, and a message has ended in it before (M9).
    #[error("STag {stag} is a one-touch STag and was accessed before")]
    Touched { stag: Stag },
    /// The entry is reserved and its registration not complete: to be tried again then (V5). All checks on what is known of it passed.
    #[error("STag {stag} is pending: its registration is not done")]
    Pending { stag: Stag },
    /// An entry of the wrong type: a window where a region is needed, or an iSCSI entry.
    #[error("STag {stag} is not of the right type")]
    Kind { stag: Stag },
    /// The entry belongs to another protection domain.
    #[error("STag {stag} belongs to protection domain {owner}, not {requester}")]
    Domain {
        stag: Stag,
        owner: u32,
        requester: u32,
    },
    /// The window is bound to another queue pair.
    #[error("STag {stag} is bound to another queue pair")]
    Scope { stag: Stag },
    /// Not inside the entry.
    #[error("{len} bytes at {at:#x} exceed STag {stag}, {entry_len} bytes at {start:#x}")]
    Bounds {
        stag: Stag,
        at: u64,
        len: u64,
        start: u64,
        entry_len: u64,
    },
    /// Address plus length passes 2^64.
    #[error("{len} bytes at {at:#x} wrap")]
    Wrap { at: u64, len: u64 },
    /// The memory behind the entry is not mapped any more, or not with the rights that it had when it was registered. A part of the
    /// access may have been done.
    #[error("registered memory is not mapped any more")]
    Unmapped,
    /// A right is missing.
    #[error("STag {stag} grants {has}, not {needs}")]
    Right {
        stag: Stag,
        has: Access,
        needs: Access,
    },
}

impl From<Unmapped> for Refusal {
    fn from(Unmapped: Unmapped) -> Refusal {
        Refusal::Unmapped
    }
}

/// A wrong request to set up or remove an entry. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the fields are the numbers that each sentence prints"
)]
pub enum Misuse {
    /// The memory is not mapped, or not writable although write rights were asked.
    #[error("{len} bytes at {at:#x} are not mapped{}", if *.write { " writable" } else { "" })]
    Unmapped { at: usize, len: usize, write: bool },
    /// Remote write or atomics without local write.
    #[error("rights {0} cannot be combined: remote write and atomics need local write")]
    Rights(Access),
    /// The range wraps or does not fit the address space.
    #[error("{len} bytes from {start:#x} wrap")]
    Range { start: u64, len: u64 },
    /// The page list does not cover the region.
    #[error("{pages} pages of {page} bytes do not cover {len} bytes at offset {first_offset}")]
    PageList {
        pages: usize,
        page: u64,
        first_offset: u64,
        len: u64,
    },
    /// The STag names no entry that could be used so.
    #[error("STag {0} does not support this operation")]
    Stag(Stag),
    /// The entry is reserved and its registration not complete; a control queue pair completes it (V5).
    #[error("STag {0} is pending: its registration is not done")]
    Pending(Stag),
    /// The STag's key is not the one that may be registered next at its index (M4).
    #[error("STag {stag} has another tag instance than {next:#04x}, which is next")]
    Instance { stag: Stag, next: u8 },
    /// The STag has no room for so many pages (M4).
    #[error("STag {stag} has room for {room} pages, not for {pages}")]
    Space { stag: Stag, pages: usize, room: u32 },
    /// More room than one STag may have.
    #[error("room for {pages} pages, at most {limit}")]
    Pages { pages: u32, limit: u32 },
    /// The table has not that many pages left for registration by work request (M4).
    #[error("room for {pages} pages, and the table has {left} left (setting `max_pages`)")]
    PagesExhausted { pages: u32, left: u64 },
    /// The STag belongs to another protection domain.
    #[error("STag {stag} belongs to protection domain {owner}, not {requester}")]
    Domain {
        stag: Stag,
        owner: u32,
        requester: u32,
    },
    /// Windows are bound to the region.
    #[error("STag {stag} is in use by {users} other entries")]
    Busy { stag: Stag, users: u32 },
    /// The table is full.
    #[error("all {0} entries are in use")]
    Full(u32),
    /// The window's bind breaks a rule.
    #[error("bind refused: {0}")]
    Bind(&'static str),
    /// The region's memory is not shared with other processes (V1).
    #[error(
        "STag {0} refers to memory that is not shared: it cannot move to another process; allocate it with `shared_memory`"
    )]
    NotShared(Stag),
    /// A one-touch region or window of type 1: each of the two processes could let a message end in it (M9, V1).
    #[error(
        "STag {0} is a one-touch STag of a whole domain: it cannot move to another process; let a message end in it, unbind or deregister it first, or use a window of type 2"
    )]
    OneTouch(Stag),
    /// A message is ending in a one-touch window (M9, V1).
    #[error("a message is ending in one-touch STag {0}; try again when it is done")]
    Touching(Stag),
    /// Windows that stay are bound to a region that is to move (V1).
    #[error(
        "{windows} windows bound to STag {stag} do not move to the other process: hand them over too, or unbind them first"
    )]
    BoundWindows { stag: Stag, windows: u32 },
    /// A window that a request will change (V1).
    #[error(
        "window {0} is not as its requests leave it; try again when they have completed, or unbind it first"
    )]
    WindowRequest(Stag),
    /// An STag whose index is outside the table's range.
    #[error("the index of STag {stag} is not one of {first} to {last}, which the table has")]
    IndexOutOfRange { stag: Stag, first: u32, last: u32 },
    /// An STag whose index is in use.
    #[error("the index of STag {0} is in use")]
    IndexInUse(Stag),
    /// The memory cannot be shared with another process (V1).
    #[error("memory cannot be shared between processes: {0}")]
    SharedMemory(#[from] SharedMemoryError),
}

/// Why a descriptor is not memory that processes can share (V1). Nothing is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the fields are the numbers that each sentence prints"
)]
pub enum SharedMemoryError {
    /// A file on a disc, a socket, a memfd of huge pages.
    #[error("the descriptor is not a memfd with pages of the default size")]
    NotMemfd,
    /// Another process that has the descriptor could truncate it.
    #[error("the memfd has seals {has:#x} and needs {needs:#x}: its size could change")]
    Unsealed { has: u32, needs: u32 },
    /// Shorter than the region.
    #[error("the memfd has {size} bytes, not {len}")]
    TooShort { size: u64, len: u64 },
    /// A system call failed.
    #[error("{call}: {}", std::io::Error::from_raw_os_error(*.errno))]
    System { call: &'static str, errno: i32 },
}
