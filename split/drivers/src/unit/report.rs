//! The status of a unit and its hosts, as of the time of the call. It contains no secrets, and reading it changes nothing.

use super::Unit;
use super::connected_host::ConnectedHost;
use crate::hello::letter;
use crate::service::Counts;
use crate::status::{ConnectedHostStatus, DiskStatus, LinkStatus, UnitStatus};

impl Unit {
    /// The current status.
    pub fn status(&self) -> UnitStatus {
        let interface = self.lan.interface();
        let hosts = self.hosts.values().map(|host| ConnectedHostStatus {
            name: host.name.clone(),
            from: host.from.clone(),
            carrier: self
                .carriers
                .get(host.carrier)
                .map_or("", |c| c.name())
                .to_owned(),
            arrangement: char::from(letter(host.arrangement())).to_string(),
            channels: host.link.options().kinds.to_string(),
            phase: host.state.to_string(),
            mac: host.mac.map(|mac| mac.to_string()),
            promiscuous: host.promiscuous,
            disk: host
                .disk
                .as_ref()
                .and_then(|disk| self.disks.get(disk.index))
                .map(|disk| disk.name.clone()),
            counts: self.counts(host),
            messages: LinkStatus::of(&host.link),
        });
        let disks = self.disks.iter().map(|disk| DiskStatus {
            name: disk.name.clone(),
            bytes: disk.info.bytes(),
            read_only: disk.info.read_only,
            requests: disk.requests,
            failed: disk.failed,
        });
        UnitStatus {
            pid: std::process::id(),
            lan: interface.name().unwrap_or_default(),
            queue: self.options.lane.queue(),
            queues: self.options.lane.queue_count(),
            mtu: interface.mtu().unwrap_or_default(),
            link: self.lan_up,
            listens: self.carriers.iter().map(|c| c.local_addr()).collect(),
            frames_in: self.lan_counts.received,
            frames_out: self.lan_counts.sent,
            dropped: self.lan_counts.dropped,
            addresses: self.switch.addresses(),
            rejected: self.rejections.count(),
            hosts: hosts.collect(),
            disks: disks.collect(),
        }
    }

    pub(super) fn status_json(&self) -> String {
        serde_json::to_string(&self.status()).unwrap_or_default()
    }

    /// The counters of a host.
    pub(super) fn counts(&self, host: &ConnectedHost) -> Counts {
        let statistics = host.port.and_then(|port| self.switch.statistics(port).ok());
        let statistics = statistics.unwrap_or_default();
        Counts {
            frames_in: statistics.received.frames,
            bytes_in: statistics.received.bytes,
            frames_out: statistics.sent.frames,
            bytes_out: statistics.sent.bytes,
            full: host.full,
            refused: statistics.malformed + statistics.spoofed,
            unfit: host.unfit,
            violations: host.link.counters().violations.total(),
        }
    }
}
