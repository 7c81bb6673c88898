//! The I/O unit's half of the split driver (P8, P9): it owns the LAN side, and serves several hosts at once.
//! It promises that a host which dies, lies or is slow harms no other, and that its pools go with it.
//! It refuses to trust hosts further than a LAN trusts its stations.

mod admit;
mod direct;
mod frames;
mod guest;
mod lan;
mod rejections;
mod report;
mod talk;

pub use lan::LanPort;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use verbena_lan::{Batch, Limits, Mac, PortId, Role, Switch, Watch};

use crate::carrier::{Carrier, CarrierError, Pair};
use crate::lane::Lane;
use crate::lanes::Drive;
use crate::link::Lost;
use crate::sleep::sleep;
use crate::status::Desk;
use crate::stop::Stop;
use crate::vigil::Vigil;
use crate::welcome::Welcome;
use crate::{Journal, random};
use guest::{Guest, Standing};
use rejections::Rejections;

/// A host has so long to connect all its channels and to say what it is.
const FORMING: Duration = Duration::from_secs(5);
/// How often what depends on time is looked at.
const GLANCE: Duration = Duration::from_millis(100);
/// How long hosts have to stop when the unit ends.
const LEAVE: Duration = Duration::from_secs(1);

/// What a unit's driver shall be like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitOptions {
    /// Which of the LAN interface's queues it drives.
    pub lane: Lane,
    /// What it says to hosts: the same on all its queues.
    pub welcome: Welcome,
    /// Hosts at once.
    pub hosts: usize,
    /// Of these, from one source address.
    pub hosts_per_source: usize,
    /// Packets on their way, each direction, per host.
    pub elements: u32,
    /// Checksums and cutting are taken over from hosts.
    pub offloads: bool,
    /// Hosts may hear everything, and speak for others.
    pub promiscuous: bool,
    /// An address that was heard of so long ago is forgotten; until then no host gets it.
    pub mac_age: Duration,
    /// A host that has said nothing for so long is gone.
    pub patience: Duration,
}

impl Default for UnitOptions {
    /// Of a unit of its own: one with several queues has the same welcome for all of them.
    fn default() -> UnitOptions {
        UnitOptions {
            lane: Lane::ONLY,
            welcome: Welcome::new(),
            hosts: 64,
            hosts_per_source: 16,
            elements: 256,
            offloads: true,
            promiscuous: false,
            mac_age: Limits::default().age,
            patience: Duration::from_secs(5),
        }
    }
}

/// Why a driver ends.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// The LAN side.
    #[error(transparent)]
    Lan(#[from] verbena_lan::Error),
    /// A carrier.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// The switch refuses its own LAN port: a fault of ours.
    #[error(transparent)]
    Switch(#[from] verbena_lan::Misuse),
    /// The system.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// Names a host as long as it is connected.
type GuestId = u64;

/// A unit's driver, or one queue of it: a unit with one queue of the LAN's interface, to which hosts connect one queue each.
#[derive(Debug)]
pub struct Unit {
    options: UnitOptions,
    lan: LanPort,
    lan_id: PortId,
    lan_up: bool,
    lan_counts: LanCounts,
    /// The LAN had no more frames when it was asked last, and nothing has happened since that would change it.
    is_lan_dry: bool,
    /// The host that got the last frame of the LAN.
    favourite: Option<GuestId>,
    watch: Watch,
    desk: Desk,
    journal: Journal,
    carriers: Vec<Box<dyn Carrier>>,
    switch: Switch,
    guests: BTreeMap<GuestId, Guest>,
    next: GuestId,
    rejections: Rejections,
    /// Whose a queue pair is, and whose a port of the switch.
    pairs: BTreeMap<(usize, Pair), GuestId>,
    ports: BTreeMap<PortId, GuestId>,
    start: Instant,
    /// Somebody asks for the status, or interfaces have changed; and when that was looked for last.
    is_called: bool,
    glanced: Instant,
    /// Out while it is read.
    batch: Option<Batch>,
    rooms: frames::Rooms,
    leaving: Option<Instant>,
    vigil: Vigil,
}

#[derive(Debug, Default)]
struct LanCounts {
    came: u64,
    out: u64,
    dropped: u64,
}

impl Unit {
    /// A unit with this LAN side, which hosts reach by any of these carriers.
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
            desk: lan.desk(options.lane)?,
            options,
            lan,
            lan_id,
            lan_up,
            lan_counts: LanCounts::default(),
            is_lan_dry: false,
            favourite: None,
            watch: Watch::open()?,
            journal,
            carriers,
            switch,
            guests: BTreeMap::new(),
            next: 1,
            rejections: Rejections::new(now),
            pairs: BTreeMap::new(),
            ports: BTreeMap::new(),
            start: now,
            is_called: true,
            glanced: now,
            batch: Some(Batch::new(frames::BATCH)),
            rooms: frames::Rooms::default(),
            leaving: None,
            vigil: Vigil::new(now),
        })
    }

    /// Runs until it is wished to stop; then it takes leave of its hosts.
    pub fn run(&mut self, stop: &Stop) -> Result<(), UnitError> {
        let mut done = Vec::new();
        loop {
            let now = Instant::now();
            let mut busy = false;
            for at in 0..self.carriers.len() {
                busy |= self.turn(at, now, &mut done)?;
            }
            busy |= self.serve_guests(now);
            busy |= self.take_lan()?;
            if self.is_called || now >= self.glanced + GLANCE {
                (self.is_called, self.glanced) = (false, now);
                self.look_around(now)?;
            }
            if stop.is_wished() && self.leave(now) {
                return Ok(());
            }
            if self.vigil.goes_on(busy, now) {
                // Who looks again looks at the interface, too.
                self.is_lan_dry &= busy;
            } else if self.carriers.iter_mut().all(|carrier| carrier.doze()) {
                self.rest(now, stop)?;
                self.vigil.slept();
            }
        }
    }

    /// One carrier's turn; true if anything came of it.
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
                self.with_guest(id, |guest, carrier| guest.link.handle(carrier, &wc, now));
            }
        }
        while let Some(news) = self.carriers.get_mut(at).and_then(|c| c.news()) {
            busy = true;
            self.hear(at, news, now);
        }
        Ok(busy)
    }

    fn rest(&mut self, now: Instant, stop: &Stop) -> Result<(), UnitError> {
        let carriers = self.carriers.iter().filter_map(|c| c.deadline());
        let until = carriers.chain([now + GLANCE]).min();
        // Once it is wished, it stays readable.
        let stop = (!stop.is_wished()).then_some(stop.as_fd());
        let rare = [Some(self.watch.as_fd()), self.desk.sleeper(now), stop];
        let rare = rare.into_iter().flatten();
        let carriers = self.carriers.iter().map(|carrier| &**carrier);
        let lan = self.reads_lan().then_some(self.lan.as_fd());
        let woken = sleep(carriers, lan, rare, until)?;
        self.is_called |= woken.rare;
        self.is_lan_dry &= !woken.frames;
        Ok(())
    }

    /// Does something for a host; whatever fails ends its connection.
    fn with_guest<T>(
        &mut self,
        id: GuestId,
        what: impl FnOnce(&mut Guest, &mut dyn Carrier) -> Result<T, Lost>,
    ) -> Option<T> {
        let guest = self.guests.get_mut(&id)?;
        let carrier = self.carriers.get_mut(guest.carrier)?;
        match what(guest, &mut **carrier) {
            Ok(done) => Some(done),
            Err(lost) => {
                self.lose(id, &lost.to_string());
                None
            }
        }
    }

    /// A host is gone: its pools, its addresses and its place at the switch go with it (P9).
    fn lose(&mut self, id: GuestId, why: &str) {
        let Some(guest) = self.guests.remove(&id) else {
            return;
        };
        self.pairs.retain(|_, of| *of != id);
        if let Some(port) = guest.port {
            self.ports.remove(&port);
            // It was added, so it is there.
            let _ = self.switch.remove(port);
        }
        let why = match (guest.standing, self.leaving) {
            // However its connections end then, it is no fault.
            (Standing::Leaving, None) => "it took leave",
            _ => why,
        };
        let sentence = format!("{guest} is gone: {why}");
        match guest.mac {
            Some(_) => self.journal.note(&sentence),
            // It was no host yet, and may never have wanted to be one.
            None => self.note_stranger(sentence, Instant::now()),
        }
        if let Some(carrier) = self.carriers.get_mut(guest.carrier) {
            guest.link.close(&mut **carrier);
        }
    }

    /// Says what strangers made happen, unless they did too often.
    fn note_stranger(&mut self, sentence: String, now: Instant) {
        if let Some(sentence) = self.rejections.say(sentence, now) {
            self.journal.note(&sentence);
        }
    }

    /// Whatever depends on time, and on what others did to the LAN's interface.
    fn look_around(&mut self, now: Instant) -> Result<(), UnitError> {
        let mut gone = Vec::new();
        for (id, guest) in &mut self.guests {
            let Some(carrier) = self.carriers.get_mut(guest.carrier) else {
                continue;
            };
            let known = matches!(guest.standing, Standing::Up | Standing::Leaving);
            if guest.formed.look(now) > FORMING && !known {
                gone.push((*id, "it never said what it is".to_owned()));
            } else if guest
                .link
                .is_lost(&mut **carrier, now, self.options.patience)
            {
                let silent = guest.link.silent(now);
                gone.push((*id, format!("silent for {silent:.1?}")));
            }
        }
        for (id, why) in gone {
            self.lose(id, &why);
        }
        let ids: Vec<GuestId> = self.guests.keys().copied().collect();
        for id in ids {
            self.with_guest(id, |guest, carrier| guest.link.tick(carrier, now));
        }
        self.switch
            .expire(now.saturating_duration_since(self.start));
        if self.watch.changed()? {
            self.look_at_lan()?;
        }
        self.desk.serve(|| self.status_json());
        Ok(())
    }

    /// Tells hosts to stop, and waits for their pools; true when it is over.
    fn leave(&mut self, now: Instant) -> bool {
        let since = match self.leaving {
            Some(since) => since,
            None => {
                self.leaving = Some(now);
                let ids: Vec<GuestId> = self.guests.keys().copied().collect();
                for id in ids {
                    self.dismiss(id);
                }
                now
            }
        };
        let freed = |guest: &Guest| guest.link.is_freed() && guest.link.is_still();
        if !self.guests.values().all(freed) && now <= since + LEAVE {
            return false;
        }
        let each = self.guests.iter().map(|(id, guest)| (*id, freed(guest)));
        let each: Vec<(GuestId, bool)> = each.collect();
        for (id, in_order) in each {
            let why = match in_order {
                true => "the unit ends in good order: every element is back where it belongs",
                false => "the unit ends, and the host did not give back its elements in time",
            };
            self.lose(id, why);
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

/// An address for a host that wants one of ours.
fn suggestion() -> Mac {
    Mac::local(random())
}
