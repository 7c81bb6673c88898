//! Options of a host's driver, and the lengths of its packets. The packet size depends only on whether offloads are used, and the largest
//! MTU follows from it.

use std::time::Duration;

use verbena_lan::{MAX_FRAME_LEN, Mac, VNET_HDR_LEN};
use verbena_push::{Arrangement, IndicationMode};

use crate::channel_kinds::KindChoice;
use crate::lane::Lane;

/// The interface's Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacChoice {
    /// The current one.
    Own,
    /// This one.
    Fixed(Mac),
    /// One that the unit suggests.
    Unit,
}

/// Options of a host's driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostOptions {
    /// The interface's name, or a pattern such as `tap%d`.
    pub tap: String,
    /// The queue of the interface that it drives.
    pub lane: Lane,
    /// The name that the unit shows in its status.
    pub name: String,
    /// The arrangement of the connection (P5).
    pub arrangement: Arrangement,
    /// The attributes of the channels (P2).
    pub kinds: KindChoice,
    /// How packets are indicated in arrangement B (P7).
    pub indication: IndicationMode,
    /// Packets in flight, in each direction.
    pub elements: u32,
    /// The interface's address.
    pub mac: MacChoice,
    /// The interface's MTU; `None`: that of the LAN.
    pub mtu: Option<u32>,
    /// The unit computes checksums and segments. Without effect on a connectionless data channel, whose packets are too short for that.
    pub offloads: bool,
    /// A unit that was silent for this long is considered lost.
    pub patience: Duration,
}

impl HostOptions {
    /// The defaults.
    pub fn new(tap: &str) -> HostOptions {
        HostOptions {
            tap: tap.to_owned(),
            lane: Lane::ONLY,
            name: String::new(),
            arrangement: Arrangement::Writes,
            kinds: KindChoice::default(),
            indication: IndicationMode::Immediate,
            elements: 256,
            mac: MacChoice::Own,
            mtu: None,
            offloads: true,
            patience: Duration::from_secs(3),
        }
    }

    /// Bytes of the longest packet: a super-frame if offloads are used.
    pub(super) fn size(&self) -> u32 {
        packet_size(self.offloads)
    }
}

/// Bytes of the longest packet.
pub(crate) fn packet_size(offloads: bool) -> u32 {
    let longest = if offloads { MAX_FRAME_LEN } else { JUMBO };
    (VNET_HDR_LEN + longest).next_multiple_of(64) as u32
}

/// The largest MTU whose frames, with two VLAN tags, fit packets of this size; a frame that fills its buffer counts as too long.
pub(crate) fn packet_mtu(size: u32) -> u32 {
    const AROUND: u32 = VNET_HDR_LEN as u32 + 14 + 2 * 4 + 1;
    size.saturating_sub(AROUND)
}

/// The longest jumbo frame in common use.
const JUMBO: usize = 9216;
