//! Network interfaces of the split network driver (P8, P9): what touches the system's interfaces, and the I/O unit's switch.
//! It promises calls that do not wait, whole frames, limits on everything that a frame's sender can grow, and refusals that
//! name the missing capability. It refuses to know how frames travel between host and unit, and spawns no thread.
//!
//! Reading order: [`Mac`] → [`Vnet`] (what a frame leaves to offloads) → [`Frame`] and [`Batch`] → [`complete`] and
//! [`cut`] (offloads done by hand) and [`fit`] (only if the receiver needs that) → [`Interface`] (settings and state) →
//! [`Tap`] (a host's interface) and [`Port`] (a unit's LAN side) → [`Switch`].
//!
//! ```
//! use core::time::Duration;
//! use verbena_lan::{Limits, Mac, Role, Switch};
//!
//! let mut switch = Switch::new(Limits::default());
//! let lan = switch.add(Role::Lan)?;
//! let mac: Mac = "02:00:00:00:00:01".parse().expect("an address");
//! let host = switch.add(Role::Host { own: Some(mac) })?;
//! let mut frame = [0; 60];
//! frame[..6].copy_from_slice(&mac.octets());
//! frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
//! let mut to = Vec::new();
//! switch.forward(lan, &frame, Duration::ZERO, &mut to)?;
//! assert_eq!(to, [host]);
//! # Ok::<(), verbena_lan::Misuse>(())
//! ```

#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod ack;
mod checksum;
mod cut;
mod datagrams;
mod error;
mod ether;
mod fit;
mod frame;
mod headers;
mod inbox;
mod interface;
mod mac;
mod offloads;
mod port;
mod switch;
mod sys;
mod tap;
mod vnet;
mod watch;

pub use ack::Ack;
pub use checksum::complete;
pub use cut::cut;
pub use datagrams::{Datagrams, Sent, longest_unbroken};
pub use error::{Capability, Error, Result, Unfit};
pub use ether::Ether;
pub use fit::fit;
pub use frame::{Batch, Frame, LONGEST};
pub use inbox::Inbox;
pub use interface::{Interface, Link};
pub use mac::{Mac, NotMac};
pub use offloads::Offloads;
pub use port::{Counters, Port};
pub use switch::{
    Dropped, Limits, Misuse, Multicast, PortId, Role, Statistics, Switch, Traffic, Verdict,
};
pub use tap::{Queue, Tap};
pub use vnet::{Gso, Kind, Partial, VNET, Vnet};
pub use watch::Watch;

/// What became of the frames that were to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Frames that are dealt with, sent or refused: go on behind them.
    pub done: usize,
    /// Of those, frames that the system would not take (too long, interface down, a header that does not fit them).
    pub refused: usize,
}

/// What became of one frame that was to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The system has it.
    Sent,
    /// The system can take no more now: wait until it is writable.
    Wait,
    /// The system would not take it, for the same reasons as in [`Written::refused`].
    Refused,
}

/// What reading one frame brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Took {
    /// A frame: what it leaves to offloads, and its length.
    Frame(Vnet, usize),
    /// Nothing waits.
    Nothing,
    /// A frame came and is lost, for the same reasons as in [`Taken::lost`]; the next may wait.
    Lost,
}

/// What a read took from the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Frames in the batch now.
    pub frames: usize,
    /// Frames that came and are lost: longer than a [`Frame`] has room for, or of a kind that no header describes.
    pub lost: usize,
}
