//! The status of a host's driver, as of the time of the call. It contains no secrets, and reading it changes nothing.

use verbena_lan::Offloads;

use super::{Host, Phase};
use crate::hello::letter;
use crate::status::{HostStatus, LinkStatus};

impl Host {
    /// The current status.
    pub fn status(&self) -> HostStatus {
        let interface = self.interface();
        let messages = self.link.as_ref().map(LinkStatus::of);
        HostStatus {
            pid: std::process::id(),
            tap: interface.name().unwrap_or_default(),
            queue: self.options.lane.queue(),
            queues: self.options.lane.queue_count(),
            unit: self.unit.clone(),
            phase: self.phase.to_string(),
            why: self.why.clone(),
            arrangement: char::from(letter(self.options.arrangement)).to_string(),
            channels: self.kinds.to_string(),
            mac: interface.mac().map(|m| m.to_string()).unwrap_or_default(),
            mtu: interface.mtu().unwrap_or_default(),
            link: self.lan_up && self.phase == Phase::Up,
            offloads: names(self.granted),
            connections: self.connections,
            frames_out: self.frames.sent,
            frames_in: self.frames.received,
            dropped: self.frames.dropped,
            messages: messages.unwrap_or_default(),
            at_unit: self.at_unit,
        }
    }

    pub(super) fn status_json(&self) -> String {
        serde_json::to_string(&self.status()).unwrap_or_default()
    }
}

fn names(offloads: Offloads) -> Vec<String> {
    let each = [
        (offloads.checksum, "checksum"),
        (offloads.tcp4, "tcp4"),
        (offloads.tcp6, "tcp6"),
        (offloads.ecn, "ecn"),
        (offloads.udp, "udp"),
    ];
    let on = each.into_iter().filter(|(on, _)| *on);
    on.map(|(_, name)| name.to_owned()).collect()
}
