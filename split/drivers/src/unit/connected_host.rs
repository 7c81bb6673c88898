//! The state of one host in its unit. At most `WAITING` frames are queued for it; further ones are counted and dropped.
//! Ports and addresses are recorded here, but the switch is operated by the unit.

use core::fmt;
use std::collections::VecDeque;
use std::time::Instant;

use verbena_lan::{Mac, Offloads, PortId, VNET_HDR_LEN, Vnet};
use verbena_push::{Arrangement, Refused};

use super::disks::BlockDone;
use crate::capped_timer::CappedTimer;
use crate::carrier::Source;
use crate::hello::{Hello, channels};
use crate::link::Link;
use crate::service::Counts;

/// Frames queued while the host has no room; more are dropped.
const WAITING: usize = 256;

/// The state of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostState {
    /// Its channels are being connected, or it has not sent Initialise.
    Forming,
    /// It has sent Initialise, and has no address yet.
    Starting,
    /// Frames are forwarded.
    Up,
    /// It has sent Shutdown, or the unit dismisses it.
    Leaving,
}

impl fmt::Display for HostState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HostState::Forming => "forming",
            HostState::Starting => "starting",
            HostState::Up => "up",
            HostState::Leaving => "leaving",
        })
    }
}

/// A host.
#[derive(Debug)]
pub(super) struct ConnectedHost {
    /// Index of the carrier that it connected by.
    pub(super) carrier: usize,
    pub(super) source: Option<Source>,
    pub(super) from: String,
    pub(super) name: String,
    pub(super) service: u64,
    claimed: [bool; 2],
    pub(super) link: Link,
    /// Time since it connected.
    pub(super) since_connected: CappedTimer,
    pub(super) state: HostState,
    /// Its port of the switch, from Initialise on.
    pub(super) port: Option<PortId>,
    pub(super) mac: Option<Mac>,
    pub(super) promiscuous: bool,
    /// The offloads that it accepts, of those that the unit offers.
    pub(super) accepts: Offloads,
    waiting: VecDeque<Vec<u8>>,
    pub(super) full: u64,
    pub(super) unfit: u64,
    /// Counters at the host's last ResetStatistics.
    pub(super) since_counts: Counts,
    /// The disk that it has attached; then it has no port of the switch.
    pub(super) disk: Option<AttachedDisk>,
}

/// The disk of a host.
#[derive(Debug)]
pub(super) struct AttachedDisk {
    /// Its index in the unit.
    pub(super) index: usize,
    /// Requests that its thread has.
    pub(super) submitted: usize,
    /// Results that wait for room.
    pub(super) replies: VecDeque<BlockDone>,
}

impl ConnectedHost {
    pub(super) fn new(
        (carrier, source): (usize, Option<Source>),
        from: &str,
        hello: &Hello,
        link: Link,
        now: Instant,
    ) -> ConnectedHost {
        ConnectedHost {
            carrier,
            source,
            from: from.to_owned(),
            name: hello.name.clone(),
            service: hello.service,
            claimed: [false; 2],
            link,
            since_connected: CappedTimer::new(now),
            state: HostState::Forming,
            port: None,
            mac: None,
            promiscuous: false,
            accepts: Offloads::NONE,
            waiting: VecDeque::new(),
            full: 0,
            unfit: 0,
            since_counts: Counts::default(),
            disk: None,
        }
    }

    pub(super) fn arrangement(&self) -> Arrangement {
        self.link.options().arrangement
    }

    /// Whether a request is for another kind of connection than this one.
    pub(super) fn differs_from(&self, hello: &Hello) -> bool {
        let options = self.link.options();
        options.arrangement != hello.arrangement || options.kinds != hello.channel_kinds()
    }

    /// Marks a channel as connected; false if it already was, or there is no such channel.
    pub(super) fn claim(&mut self, channel: u8) -> bool {
        match self.claimed.get_mut(usize::from(channel)) {
            Some(claimed) if channel < channels(self.link.options().arrangement) => {
                !core::mem::replace(claimed, true)
            }
            _ => false,
        }
    }

    /// Sends a frame, or queues it until there is room, or drops it.
    pub(super) fn deliver(&mut self, vnet: &Vnet, frame: &[u8]) {
        let head = vnet.emit();
        if self.waiting.is_empty() {
            match self.link.send(&head, frame) {
                Ok(()) => return,
                Err(Refused::Full { .. } | Refused::Backlog { .. }) => {}
                Err(Refused::TooLong { .. }) => {
                    self.unfit += 1;
                    return;
                }
            }
        }
        if self.waiting.len() >= WAITING {
            self.full += 1;
            return;
        }
        let mut packet = Vec::with_capacity(VNET_HDR_LEN + frame.len());
        packet.extend(head);
        packet.extend(frame);
        self.waiting.push_back(packet);
    }

    /// Nothing is queued for it, and there is room.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.link.has_room()
    }

    /// Sends queued frames while there is room; true if there were any.
    pub(super) fn send_waiting(&mut self) -> bool {
        let mut any = false;
        while self.link.has_room()
            && let Some(packet) = self.waiting.pop_front()
        {
            match self.link.send(&packet, &[]) {
                Ok(()) => {}
                Err(Refused::TooLong { .. }) => self.unfit += 1,
                // There is room, but not enough for this one.
                Err(Refused::Full { .. } | Refused::Backlog { .. }) => {
                    self.waiting.push_front(packet);
                    break;
                }
            }
            any = true;
        }
        any
    }
}

impl fmt::Display for ConnectedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "host {}", self.from),
            name => write!(f, "host {name} ({})", self.from),
        }
    }
}
