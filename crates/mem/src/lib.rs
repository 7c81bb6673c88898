//! Registered memory: which accesses to it are allowed, and where its bytes are (M2–M9, M15).
//! A [`Tpt`] checks an STag, an address and a length and returns a *grant* — a [`Placement`] to write or a [`Gather`] to read —
//! for one copy or one non-blocking system call; revoking an entry makes new grants fail and waits for those that exist.
//! No code here makes a Rust reference to registered memory: the program and the peers may write it at any time.
//!
//! Reading order: [`guarded`] → [`span`] → [`att`] → [`entry`] → [`check`] → `slot` (the grant protocol, modelled with loom) →
//! [`tpt`] → [`grant`] → [`targets`], [`sources`] → [`window`] → [`touch`] → [`atomic`] → [`probe`] → [`mapping`] →
//! [`words`] → [`vectored`] → [`buffer`].

pub mod access;
pub mod atomic;
pub mod att;
pub mod buffer;
pub mod check;
pub mod entry;
pub mod grant;
pub mod guarded;
pub mod mapping;
mod memory;
pub mod probe;
pub mod refusal;
mod slot;
pub mod sources;
pub mod span;
pub mod targets;
pub mod touch;
pub mod tpt;
pub mod vectored;
pub mod window;
pub mod words;

pub use access::{Access, AccessCell};
pub use att::{Att, PageSize};
pub use buffer::Buffer;
pub use check::MemAccess;
pub use entry::{Entry, Kind, Pd, Policy, Scope};
pub use grant::{Gather, Placement};
pub use guarded::{Unmapped, catch_faults, catches_faults};
pub use mapping::{Mapping, Pages};
pub use refusal::{Misuse, Refusal, SharedMemoryError};
pub use sources::Sources;
pub use span::{Span, Spans};
pub use targets::Targets;
pub use touch::{Action, Arrival, Seq};
pub use tpt::{
    Command, Draft, Layout, PageQuota, Region, RegionExport, Reserved, Settled, Spend, Ticket,
    TouchAhead, Tpt, Verdict, WindowBinding, WindowExport,
};
pub use window::{Bind, WindowType};
pub use words::{LINE, ReadWords, WordPages};
