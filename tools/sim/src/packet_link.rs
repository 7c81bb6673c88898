//! One direction of a RoCEv2 connection: packets are lost, repeated, overtaken, damaged and delayed, each with its own probability.
//! A packet arrives whole, with the ICRC that its sender computed. A link that was cut delivers nothing any more.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::collections::BTreeMap;

use verbena_stream::Time;
use verbena_wire::roce::{ICRC_LEN, Path, icrc_over_socket};

use crate::rng::{Ratio, Rng};

/// The UDP port of RoCEv2.
const PORT: u16 = 4791;
/// The source port of a link.
const SOURCE_PORT: u16 = 0xc000;
/// Most bits that damage flips.
const MAX_FLIPS: usize = 4;

/// The properties of a packet link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketLinkOptions {
    /// How often a packet is lost.
    pub loss: Ratio,
    /// How often a packet arrives a second time.
    pub repeat: Ratio,
    /// How often a packet is delayed further, so that those behind it arrive first.
    pub reorder: Ratio,
    /// By how much at most.
    pub reorder_time: Duration,
    /// How often bits of a packet are flipped.
    pub damage: Ratio,
    /// How often the sender of a packet is told that it met congestion (CNP).
    pub mark: Ratio,
    /// Least and greatest latency of a packet.
    pub latency: (Duration, Duration),
    /// Packets it accepts in one turn of its sender.
    pub burst: usize,
    /// Addresses are of IPv6.
    pub is_ipv6: bool,
}

impl PacketLinkOptions {
    /// A link without faults.
    pub const fn without_faults() -> PacketLinkOptions {
        PacketLinkOptions {
            loss: Ratio::NEVER,
            repeat: Ratio::NEVER,
            reorder: Ratio::NEVER,
            reorder_time: Duration::ZERO,
            damage: Ratio::NEVER,
            mark: Ratio::NEVER,
            latency: (Duration::ZERO, Duration::ZERO),
            burst: usize::MAX,
            is_ipv6: false,
        }
    }
}

/// What a link did with packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketCounts {
    /// Packets sent.
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Delivered twice.
    pub repeated: u64,
    /// Delayed behind others.
    pub reordered: u64,
    /// Delivered with flipped bits.
    pub damaged: u64,
    /// Marked.
    pub marked: u64,
}

impl PacketCounts {
    /// Adds the other's counts.
    pub fn add(&mut self, other: &PacketCounts) {
        self.sent += other.sent;
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.reordered += other.reordered;
        self.damaged += other.damaged;
        self.marked += other.marked;
    }
}

/// One direction of a RoCEv2 connection.
#[derive(Debug)]
pub struct PacketLink {
    options: PacketLinkOptions,
    rng: Rng,
    path: Path,
    /// Packets under way by the time of their arrival; the number tells those of one moment apart.
    queue: BTreeMap<(Time, u64), Vec<u8>>,
    next: u64,
    last_arrival: Time,
    is_cut: bool,
    bytes: u64,
    counts: PacketCounts,
}

impl PacketLink {
    /// An idle link.
    pub fn new(options: PacketLinkOptions, rng: Rng) -> PacketLink {
        PacketLink {
            options,
            rng,
            path: path(options.is_ipv6),
            queue: BTreeMap::new(),
            next: 0,
            last_arrival: Time::ZERO,
            is_cut: false,
            bytes: 0,
            counts: PacketCounts::default(),
        }
    }

    /// Packets that it accepts in one turn of its sender.
    pub fn burst(&self) -> usize {
        self.options.burst
    }

    /// Takes a packet from its BTH to its pad, and adds the ICRC. True if it met congestion.
    pub fn send(&mut self, mut packet: Vec<u8>, now: Time) -> bool {
        packet.extend(icrc_over_socket(self.path, &packet));
        self.counts.sent += 1;
        self.bytes += packet.len() as u64;
        if self.is_cut || self.rng.chance(self.options.loss) {
            self.counts.lost += 1;
            return false;
        }
        if self.rng.chance(self.options.repeat) {
            self.counts.repeated += 1;
            self.deliver(packet.clone(), now);
        }
        self.deliver(packet, now);
        let is_marked = self.rng.chance(self.options.mark);
        self.counts.marked += u64::from(is_marked);
        is_marked
    }

    fn deliver(&mut self, mut packet: Vec<u8>, now: Time) {
        if self.rng.chance(self.options.damage) {
            self.counts.damaged += 1;
            for _ in 0..self.rng.len(1, MAX_FLIPS) {
                let at = self.rng.len(0, packet.len() - 1);
                packet[at] ^= 1 << self.rng.below(8);
            }
        }
        let arrives = self.arrival(now);
        self.queue.insert((arrives, self.next), packet);
        self.next += 1;
    }

    /// Packets arrive in order, but for those that are delayed further.
    fn arrival(&mut self, now: Time) -> Time {
        let nanos = |time: Duration| time.as_nanos() as u64;
        let (low, high) = self.options.latency;
        let travel = Duration::from_nanos(self.rng.range(nanos(low), nanos(high)));
        self.last_arrival = self.last_arrival.max(now + travel);
        if !self.rng.chance(self.options.reorder) {
            return self.last_arrival;
        }
        self.counts.reordered += 1;
        let further = self.rng.below(nanos(self.options.reorder_time) + 1);
        self.last_arrival + Duration::from_nanos(further)
    }

    /// Takes a packet that has arrived.
    pub fn arrive(&mut self, now: Time) -> Option<Vec<u8>> {
        let first = self.queue.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// The ICRC at the end of a packet is that of its bytes and of the addresses it came with.
    pub fn has_valid_icrc(&self, packet: &[u8]) -> bool {
        packet
            .split_last_chunk::<ICRC_LEN>()
            .is_some_and(|(front, icrc)| icrc_over_socket(self.path, front) == *icrc)
    }

    /// Loses everything under way, and all that is sent from now on.
    pub fn cut(&mut self) {
        self.is_cut = true;
        self.queue.clear();
    }

    /// Whether it was cut.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// When something arrives next.
    pub fn next_arrival(&self) -> Option<Time> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    /// Bytes sent since the beginning.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What it did so far.
    pub fn counts(&self) -> PacketCounts {
        self.counts
    }
}

fn path(is_ipv6: bool) -> Path {
    let (src, dst) = if is_ipv6 {
        let address = |last| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
        (address(1), address(2))
    } else {
        let address = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        (address(1), address(2))
    };
    Path {
        src,
        dst,
        src_port: SOURCE_PORT,
        dst_port: PORT,
    }
}

#[cfg(test)]
mod tests;
