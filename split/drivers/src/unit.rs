//! The I/O unit's half of the split driver (P8, P9): it owns the LAN port and disks, and serves several hosts in one loop. A host that fails, sends
//! invalid messages or is slow does not affect the others, and its pools are freed with its connection. Hosts are trusted no more than
//! stations of a LAN: the switch checks source addresses, and limits what is learnt from each.

mod admit;
mod config_service;
mod connected_host;
mod direct;
mod disk_service;
mod disks;
mod frames;
mod lan;
mod rejections;
mod report;

pub use disks::{Backing, DiskError, UnitDisk};
pub use lan::LanPort;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use verbena_lan::{Batch, Limits, LinkWatch, Mac, PortId, Role, Switch};
use verbena_push::IndicationMode;

use crate::busy_poll::BusyPoll;
use crate::carrier::{Carrier, CarrierError, Pair};
use crate::channel_kinds::KindChoice;
use crate::lane::Lane;
use crate::lanes::Drive;
use crate::link::LinkError;
use crate::sleep::sleep;
use crate::status::StatusSocket;
use crate::stop::Stop;
use crate::welcome::Welcome;
use crate::{Journal, random};
use connected_host::{ConnectedHost, HostState};
use disks::DiskWorker;
use rejections::Rejections;

/// A host must connect all its channels and set its address within this time.
const FORMING_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of the work that depends on time.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time for hosts to return their pools when the unit ends.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Options of a unit's driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitOptions {
    /// The queue of the LAN interface that it drives.
    pub lane: Lane,
    /// Its identification to hosts: the same on all its queues.
    pub welcome: Welcome,
    /// Hosts at the same time.
    pub hosts: usize,
    /// Of these, from one source address.
    pub hosts_per_source: usize,
    /// The attributes that the channels of hosts must have (P2); what is open is left to the host.
    pub kinds: KindChoice,
    /// How packets to hosts are indicated in arrangement B (P7).
    pub indication: IndicationMode,
    /// Packets in flight, in each direction, per host.
    pub elements: u32,
    /// The unit computes checksums and segments for hosts.
    pub offloads: bool,
    /// Hosts may enable promiscuous mode: they then receive all frames, and send from any address.
    pub promiscuous: bool,
    /// A learnt address expires after this time without a frame; until then no host gets it.
    pub mac_age: Duration,
    /// A host that was silent for this long is disconnected.
    pub patience: Duration,
}

impl Default for UnitOptions {
    /// For a unit with one queue; the queues of one unit must share a welcome.
    fn default() -> UnitOptions {
        UnitOptions {
            lane: Lane::ONLY,
            welcome: Welcome::new(),
            hosts: 64,
            hosts_per_source: 16,
            kinds: KindChoice::default(),
            indication: IndicationMode::Immediate,
            elements: 256,
            offloads: true,
            promiscuous: false,
            mac_age: Limits::default().age,
            patience: Duration::from_secs(5),
        }
    }
}

/// Why a driver ended.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// The LAN side.
    #[error(transparent)]
    Lan(#[from] verbena_lan::Error),
    /// A carrier.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// A disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The switch rejected the unit's LAN port: a bug.
    #[error(transparent)]
    Switch(#[from] verbena_lan::Misuse),
    /// The system.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// Identifies a host while it is connected.
type HostId = u64;

/// A unit's driver for one queue of the LAN interface; each host connects one of its queues to it.
#[derive(Debug)]
pub struct Unit {
    options: UnitOptions,
    lan: LanPort,
    lan_id: PortId,
    lan_up: bool,
    lan_counts: LanCounts,
    /// The last read of the LAN emptied it, and nothing has happened since that makes new frames likely.
    is_lan_drained: bool,
    /// The host that was sent the last frame.
    last_destination: Option<HostId>,
    watch: LinkWatch,
    status_socket: StatusSocket,
    journal: Journal,
    carriers: Vec<Box<dyn Carrier>>,
    switch: Switch,
    hosts: BTreeMap<HostId, ConnectedHost>,
    disks: Vec<DiskWorker>,
    next: HostId,
    rejections: Rejections,
    /// The host of a queue pair, and of a port of the switch.
    pairs: BTreeMap<(usize, Pair), HostId>,
    ports: BTreeMap<PortId, HostId>,
    start: Instant,
    /// A status request or an interface change is pending; and when these were last checked.
    is_check_due: bool,
    last_check: Instant,
    /// `None` while it is being read.
    batch: Option<Batch>,
    buffers: frames::FrameBuffers,
    leaving: Option<Instant>,
    busy_poll: BusyPoll,
}

#[derive(Debug, Default)]
struct LanCounts {
    received: u64,
    sent: u64,
    dropped: u64,
}

impl Unit {
    /// A unit with this LAN port, which hosts reach by any of these carriers.
    pub fn new(
        options: UnitOptions,
        mut lan: LanPort,
        carriers: Vec<Box<dyn Carrier>>,
        journal: Journal,
    ) -> Result<Unit, UnitError> {
        let limits = Limits {
            ports: options.hosts + 1,
            age: options.mac_age,
            ..Limits::default()
        };
        let mut switch = Switch::new(limits);
        let lan_id = switch.add(Role::Lan)?;
        let lan_up = lan.interface().link()?.carrier;
        let now = Instant::now();
        Ok(Unit {
            status_socket: lan.status_socket(options.lane)?,
            options,
            lan,
            lan_id,
            lan_up,
            lan_counts: LanCounts::default(),
            is_lan_drained: false,
            last_destination: None,
            watch: LinkWatch::open()?,
            journal,
            carriers,
            switch,
            hosts: BTreeMap::new(),
            disks: Vec::new(),
            next: 1,
            rejections: Rejections::new(now),
            pairs: BTreeMap::new(),
            ports: BTreeMap::new(),
            start: now,
            is_check_due: true,
            last_check: now,
            batch: Some(Batch::new(frames::BATCH)),
            buffers: frames::FrameBuffers::default(),
            leaving: None,
            busy_poll: BusyPoll::new(now),
        })
    }

    /// Runs until a stop is requested; then disconnects its hosts.
    pub fn run(&mut self, stop: &Stop) -> Result<(), UnitError> {
        let mut done = Vec::new();
        loop {
            let now = Instant::now();
            let mut busy = false;
            for at in 0..self.carriers.len() {
                busy |= self.turn(at, now, &mut done)?;
            }
            busy |= self.serve_hosts(now);
            busy |= self.forward_from_lan()?;
            if self.is_check_due || now >= self.last_check + CHECK_INTERVAL {
                (self.is_check_due, self.last_check) = (false, now);
                self.check_timers(now)?;
            }
            if stop.is_requested() && self.leave(now) {
                return Ok(());
            }
            if self.busy_poll.should_poll(busy, now) {
                // Another turn also reads the interface again.
                self.is_lan_drained &= busy;
            } else if self
                .carriers
                .iter_mut()
                .all(|carrier| carrier.prepare_sleep())
            {
                self.sleep(now, stop)?;
                self.busy_poll.note_sleep();
            }
        }
    }

    /// One carrier's turn; true if it had completions or news.
    fn turn(
        &mut self,
        at: usize,
        now: Instant,
        done: &mut Vec<verbena_nic::Wc>,
    ) -> Result<bool, UnitError> {
        let Some(carrier) = self.carriers.get_mut(at) else {
            return Ok(false);
        };
        carrier.turn(now, done)?;
        let mut busy = !done.is_empty();
        for wc in done.drain(..) {
            if let Some(&id) = self.pairs.get(&(at, Pair(wc.qpn))) {
                self.with_host(id, |host, carrier| host.link.handle(carrier, &wc, now));
            }
        }
        while let Some(news) = self.carriers.get_mut(at).and_then(|c| c.next_event()) {
            busy = true;
            self.handle_event(at, news, now);
        }
        Ok(busy)
    }

    fn sleep(&mut self, now: Instant, stop: &Stop) -> Result<(), UnitError> {
        let carriers = self.carriers.iter().filter_map(|c| c.deadline());
        let until = carriers.chain([now + CHECK_INTERVAL]).min();
        // After a request it stays readable.
        let stop = (!stop.is_requested()).then_some(stop.as_fd());
        let rare = [
            Some(self.watch.as_fd()),
            self.status_socket.wait_fd(now),
            stop,
        ];
        let rare = rare.into_iter().flatten();
        let rare = rare.chain(self.disks.iter().map(AsFd::as_fd));
        let carriers = self.carriers.iter().map(|carrier| &**carrier);
        let lan = self.reads_lan().then_some(self.lan.as_fd());
        let woken = sleep(carriers, lan, rare, until)?;
        self.is_check_due |= woken.rare;
        self.is_lan_drained &= !woken.frames;
        Ok(())
    }

    /// Calls a function on a host; its error ends the host's connection.
    fn with_host<T>(
        &mut self,
        id: HostId,
        what: impl FnOnce(&mut ConnectedHost, &mut dyn Carrier) -> Result<T, LinkError>,
    ) -> Option<T> {
        let host = self.hosts.get_mut(&id)?;
        let carrier = self.carriers.get_mut(host.carrier)?;
        match what(host, &mut **carrier) {
            Ok(done) => Some(done),
            Err(lost) => {
                self.drop_host(id, &lost.to_string());
                None
            }
        }
    }

    /// Removes a host with its pools, its addresses and its port of the switch (P9).
    fn drop_host(&mut self, id: HostId, why: &str) {
        let Some(host) = self.hosts.remove(&id) else {
            return;
        };
        self.pairs.retain(|_, of| *of != id);
        if let Some(port) = host.port {
            self.ports.remove(&port);
            // The port was added by `initialise`, so this cannot fail.
            let _ = self.switch.remove(port);
        }
        let why = match (host.state, self.leaving) {
            // Any end of its connections is expected then.
            (HostState::Leaving, None) => "the host shut down",
            _ => why,
        };
        let sentence = format!("{host} disconnected: {why}");
        match host.mac.is_some() || host.disk.is_some() {
            true => self.journal.note(&sentence),
            // It has set no address, so it may be any program that can connect: its messages are limited.
            false => self.log_rejected(sentence, Instant::now()),
        }
        if let Some(carrier) = self.carriers.get_mut(host.carrier) {
            host.link.close(&mut **carrier);
        }
    }

    /// Writes a message that unauthenticated peers can cause, within the limit of [`Rejections`].
    fn log_rejected(&mut self, sentence: String, now: Instant) {
        if let Some(sentence) = self.rejections.limit_message(sentence, now) {
            self.journal.note(&sentence);
        }
    }

    /// Work that depends on time, and changes of the LAN interface.
    fn check_timers(&mut self, now: Instant) -> Result<(), UnitError> {
        let mut gone = Vec::new();
        for (id, host) in &mut self.hosts {
            let Some(carrier) = self.carriers.get_mut(host.carrier) else {
                continue;
            };
            let known = matches!(host.state, HostState::Up | HostState::Leaving);
            if host.since_connected.advance(now) > FORMING_TIMEOUT && !known {
                gone.push((*id, "it did not complete the setup in time".to_owned()));
            } else if host
                .link
                .is_lost(&mut **carrier, now, self.options.patience)
            {
                let silent = host.link.silence(now);
                gone.push((*id, format!("silent for {silent:.1?}")));
            }
        }
        for (id, why) in gone {
            self.drop_host(id, &why);
        }
        let ids: Vec<HostId> = self.hosts.keys().copied().collect();
        for id in ids {
            self.with_host(id, |host, carrier| host.link.tick(carrier, now));
        }
        self.switch
            .expire(now.saturating_duration_since(self.start));
        if self.watch.take_changed()? {
            self.check_lan()?;
        }
        self.status_socket.serve(|| self.status_json());
        Ok(())
    }

    /// Dismisses the hosts, and waits for their pools; true when done.
    fn leave(&mut self, now: Instant) -> bool {
        let since = match self.leaving {
            Some(since) => since,
            None => {
                self.leaving = Some(now);
                let ids: Vec<HostId> = self.hosts.keys().copied().collect();
                for id in ids {
                    self.dismiss(id);
                }
                now
            }
        };
        let freed = |host: &ConnectedHost| host.link.is_freed() && host.link.is_idle();
        if !self.hosts.values().all(freed) && now <= since + LEAVE_TIMEOUT {
            return false;
        }
        let each = self.hosts.iter().map(|(id, host)| (*id, freed(host)));
        let each: Vec<(HostId, bool)> = each.collect();
        for (id, in_order) in each {
            let why = match in_order {
                true => "the unit stops in good order: all elements were returned",
                false => "the unit stops, and the host did not return its elements in time",
            };
            self.drop_host(id, why);
        }
        true
    }
}

impl Drive for Unit {
    type Error = UnitError;

    fn lane(&self) -> Lane {
        self.options.lane
    }

    fn drive(&mut self, stop: &Stop) -> Result<(), UnitError> {
        self.run(stop)
    }
}

/// A random locally administered address for a host that asks for one.
fn random_mac() -> Mac {
    Mac::local(random())
}
