//! Network interfaces of the split network driver (P8, P9): TAP interfaces, packet and UDP sockets, and the I/O unit's switch.
//! Calls that move frames do not block, everything that a frame's sender can grow has a limit, and errors name a missing capability.
//! How frames travel between host and unit is not part of this crate, and it starts no thread.
//!
//! Reading order: [`Mac`] → [`Vnet`] (the work that a frame leaves to offloads) → [`Frame`] and [`Batch`] → [`complete`] and
//! [`cut`] (offloads in software) and [`fit`] (only if the receiver needs that) → [`Interface`] (settings and state) →
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

/// The result of writing several frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Frames that were sent or refused: the next call starts behind them.
    pub done: usize,
    /// Of those, frames that the kernel rejected (too long, interface down, or not matching their header).
    pub refused: usize,
}

/// The result of writing one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The kernel has taken it.
    Sent,
    /// The kernel can take no more now: wait until the descriptor is writable.
    Wait,
    /// The kernel rejected it, for the same reasons as in [`Written::refused`].
    Refused,
}

/// The result of reading one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Took {
    /// A frame: its virtio-net header and its length.
    Frame(Vnet, usize),
    /// Nothing has arrived.
    Nothing,
    /// A frame arrived and is lost, for the same reasons as in [`Taken::lost`]; another one may follow.
    Lost,
}

/// The result of reading several frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// Frames in the batch now.
    pub frames: usize,
    /// Frames that arrived and are lost: longer than a [`Frame`], or with a header that is not understood.
    pub lost: usize,
}
