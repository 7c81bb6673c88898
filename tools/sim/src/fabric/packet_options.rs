//! Options of a RoCEv2 connection of a fabric.
//! By default both sides wait for receivers without limit, and the links have no faults.

use core::time::Duration;

use verbena_roce::{Mtu, Settings};
use verbena_wire::ext::RnrTimer;
use verbena_wire::roce::Psn;

use crate::packet_link::PacketLinkOptions;

/// Options of one side of a RoCEv2 connection.
#[derive(Debug, Clone, Copy)]
pub struct PacketSideOptions {
    /// PSN of its first packet.
    pub psn: Psn,
    /// Reads and atomics that it has outstanding at once, and that its peer serves.
    pub reads: u8,
    /// How long a request may be unacknowledged before it is repeated.
    pub timeout: Duration,
    /// Repetitions after which a request fails.
    pub retry_count: u8,
    /// Repetitions at a receiver that is not ready, after which a request fails; 7 is without limit.
    pub rnr_retry: u8,
    /// The RNR timer that it announces to the peer.
    pub rnr_timer: RnrTimer,
    /// Its window of unacknowledged packets follows losses.
    pub is_lossy: bool,
    /// How long after the connection was made its queue pair is ready; packets that arrive before are lost.
    pub attach_after: Duration,
}

impl Default for PacketSideOptions {
    fn default() -> PacketSideOptions {
        PacketSideOptions {
            psn: Psn::wrapping(1),
            reads: 4,
            timeout: Duration::from_nanos(4096 << 14),
            retry_count: 7,
            rnr_retry: Settings::RNR_FOREVER,
            rnr_timer: RnrTimer::DEFAULT,
            is_lossy: true,
            attach_after: Duration::ZERO,
        }
    }
}

/// Options of a RoCEv2 connection.
#[derive(Debug, Clone, Copy)]
pub struct PacketConnectOptions {
    /// The path MTU.
    pub mtu: Mtu,
    /// Options of each side.
    pub sides: [PacketSideOptions; 2],
    /// The link from each side.
    pub links: [PacketLinkOptions; 2],
}

impl Default for PacketConnectOptions {
    fn default() -> PacketConnectOptions {
        PacketConnectOptions {
            mtu: Mtu::default(),
            sides: [PacketSideOptions::default(); 2],
            links: [PacketLinkOptions::without_faults(); 2],
        }
    }
}
