//! Ethernet, ARP, neighbour discovery, IPv4, IPv6, ICMP, UDP and TCP, without sockets, clocks, threads or `unsafe`.
//! Frames and times go in, frames and deadlines come out. TCP holds no payload: arrived segments are handed up in or out of order, each
//! byte once, and segments to send name ranges of the consumer's stream.
//!
//! Reading order: [`frame`], [`checksum`] → [`tcp`] → [`stack`] (`demux`, `resolve`, `transmit`) with `neighbor`, `icmp`, `secret`.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

pub mod checksum;
pub mod frame;
mod icmp;
mod neighbor;
mod secret;
pub mod stack;
pub mod tcp;

pub use frame::{FrameError, Mac, Vlan};
pub use neighbor::MAX_NEIGHBORS;
pub use secret::COOKIE_INTERVAL;
pub use stack::{
    Arrival, ConnectionId, InterfaceAddress, ListenConfig, Outgoing, SegmentFrame, Stack,
    StackConfig, StackCounters, StackError, StackEvent, TrafficClass,
};
