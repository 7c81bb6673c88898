//! What a host's driver shall be like, and how long its packets are.
//! It promises that a packet has room for what it is said to have room for.
//! It refuses to know who asks.

use std::time::Duration;

use verbena_lan::{LONGEST, Mac, VNET};
use verbena_push::Arrangement;

use crate::lane::Lane;

/// Which address the interface has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacChoice {
    /// The one that it has already.
    Own,
    /// This one.
    Fixed(Mac),
    /// The one that the unit gives.
    Unit,
}

/// What a host's driver shall be like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOptions {
    /// The interface's name, or a pattern such as `tap%d`.
    pub tap: String,
    /// Which of the interface's queues it drives.
    pub lane: Lane,
    /// What the unit calls us in its status.
    pub name: String,
    /// What runs on the connection (P5).
    pub arrangement: Arrangement,
    /// Packets on their way, each direction.
    pub elements: u32,
    /// The interface's address.
    pub mac: MacChoice,
    /// The interface's MTU; the LAN's if none is given.
    pub mtu: Option<u32>,
    /// Checksums and cutting are left to the unit.
    pub offloads: bool,
    /// A unit that has said nothing for so long is gone.
    pub patience: Duration,
}

impl HostOptions {
    /// The usual ones.
    pub fn new(tap: &str) -> HostOptions {
        HostOptions {
            tap: tap.to_owned(),
            lane: Lane::ONLY,
            name: String::new(),
            arrangement: Arrangement::Writes,
            elements: 256,
            mac: MacChoice::Own,
            mtu: None,
            offloads: true,
            patience: Duration::from_secs(3),
        }
    }

    /// Bytes of the longest packet: super-frames if they are left to the unit.
    pub(super) fn size(&self) -> u32 {
        packet_size(self.offloads)
    }
}

/// Bytes of the longest packet.
pub(crate) fn packet_size(offloads: bool) -> u32 {
    let longest = if offloads { LONGEST } else { JUMBO };
    (VNET + longest).next_multiple_of(64) as u32
}

/// The largest MTU whose frames, with two tags, fit packets of this size; one that fills its room counts as too long.
pub(crate) fn packet_mtu(size: u32) -> u32 {
    const AROUND: u32 = VNET as u32 + 14 + 2 * 4 + 1;
    size.saturating_sub(AROUND)
}

/// The longest frame that anybody calls an Ethernet frame.
const JUMBO: usize = 9216;
