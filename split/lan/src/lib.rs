//! Network interfaces of the split network driver (P8, P9): TAP interfaces, packet and UDP sockets, and the I/O unit's switch.
//! Calls that move frames do not block, everything that a frame's sender can grow has a limit, and errors name a missing capability.
//! How frames travel between host and unit is not part of this crate, and it starts no thread.
//!
//! Reading order: [`Mac`] → [`Vnet`] (the work that a frame leaves to offloads) → [`Frame`] and [`Batch`] → [`complete_checksum`] and
//! [`segment()`] (offloads in software) and [`apply_offloads()`] (only if the receiver needs that) → [`Interface`] (settings and state) →
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
mod apply_offloads;
mod checksum;
mod datagrams;
mod error;
mod ether;
mod frame;
mod headers;
mod inbox;
mod interface;
mod mac;
mod offloads;
mod port;
mod segment;
mod switch;
mod sys;
mod tap;
mod vnet;
mod watch;

pub use ack::Ack;
pub use apply_offloads::apply_offloads;
pub use checksum::complete_checksum;
pub use datagrams::{Datagrams, SendOutcome, max_unfragmented};
pub use error::{Capability, Error, FrameError, Result};
pub use ether::EtherSocket;
pub use frame::{Batch, Frame, MAX_FRAME_LEN};
pub use inbox::Inbox;
pub use interface::{Interface, Link};
pub use mac::{Mac, ParseMacError};
pub use offloads::Offloads;
pub use port::{Counters, Port};
pub use segment::segment;
pub use switch::{
    Dropped, Limits, Misuse, Multicast, PortId, Role, Statistics, Switch, Traffic, Verdict,
};
pub use tap::{Queue, Tap};
pub use vnet::{Gso, GsoKind, PartialChecksum, VNET_HDR_LEN, Vnet};
pub use watch::LinkWatch;

/// The result of writing several frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchWriteOutcome {
    /// Frames that were sent or refused: the next call starts behind them.
    pub done: usize,
    /// Of those, frames that the kernel rejected (too long, interface down, or not matching their header).
    pub refused: usize,
}

/// The result of writing one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The kernel has taken it.
    Sent,
    /// The kernel can take no more now: wait until the descriptor is writable.
    WouldBlock,
    /// The kernel rejected it, for the same reasons as in [`BatchWriteOutcome::refused`].
    Refused,
}

/// The result of reading one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// A frame: its virtio-net header and its length.
    Frame(Vnet, usize),
    /// Nothing has arrived.
    WouldBlock,
    /// A frame arrived and is lost, for the same reasons as in [`BatchReadOutcome::lost`]; another one may follow.
    Lost,
}

/// The result of reading several frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchReadOutcome {
    /// Frames in the batch now.
    pub frames: usize,
    /// Frames that arrived and are lost: longer than a [`Frame`], or with a header that is not understood.
    pub lost: usize,
}
