//! What both machines of a connection are told when it begins: the numbers that the two sides have exchanged and the limits of the queue pair.
//! Nothing of it changes afterwards.

use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_wire::roce::{Psn, Qpn, Service};

/// The path MTU: every packet of a message but the last carries exactly this many bytes of payload.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512,
    /// 1024 bytes, the largest that fits an Ethernet frame of 1500 bytes.
    #[default]
    B1024,
    /// 2048 bytes.
    B2048,
    /// 4096 bytes.
    B4096,
}

impl Mtu {
    /// Every MTU, from the smallest.
    pub const ALL: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

    /// Bytes of payload.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The code of verbs and of the connection manager, 1 to 5.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The MTU with this code.
    pub fn from_code(code: u8) -> Option<Mtu> {
        Mtu::ALL.into_iter().find(|mtu| mtu.code() == code)
    }

    /// The largest MTU whose packets fit `bytes` of payload; `None` if none does.
    pub fn largest_within(bytes: u32) -> Option<Mtu> {
        Mtu::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= bytes)
    }

    /// Packets of a message of `len` bytes; an empty one has one, too.
    pub const fn packets(self, len: u32) -> u32 {
        let packets = len.div_ceil(self.bytes());
        if packets == 0 { 1 } else { packets }
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

/// What a connection begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Reliable or unreliable.
    pub service: Service,
    /// The path MTU.
    pub mtu: Mtu,
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// PSN of the first packet that this side sends.
    pub send_psn: Psn,
    /// PSN of the first packet that the peer sends.
    pub receive_psn: Psn,
    /// Reads and atomics that this side has outstanding at once; 0 allows none.
    pub initiator_depth: u8,
    /// Reads and atomics of the peer that this side serves at once.
    pub responder_resources: u8,
    /// How long a request may be unacknowledged before it is repeated; `None` is for ever.
    pub timeout: Option<Duration>,
    /// Repetitions after which a request fails.
    pub retry_count: u8,
    /// The path loses packets when it is full, and the window of unacknowledged packets follows that. False on paths with pause frames: the window is
    /// as large as it may be.
    pub is_lossy: bool,
    /// Repetitions at a receiver that is not ready, after which a request fails; 7 is without limit.
    pub rnr_retry: u8,
}

impl Settings {
    /// The value of `rnr_retry` that stands for repetitions without limit.
    pub const RNR_FOREVER: u8 = 7;

    /// The timeout with this code of verbs, five bits: 4.096 µs times two to the power of the code; 0 is for ever.
    pub const fn timeout_of(code: u8) -> Option<Duration> {
        match code & 0x1f {
            0 => None,
            code => Some(Duration::from_nanos(4096 << code)),
        }
    }
}
