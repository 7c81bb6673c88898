//! The I/O unit's half of the split driver (P8, P9): it owns the LAN side, and serves several hosts at once.
//! It promises that a host which dies, lies or is slow harms no other, and that its pools go with it.
//! It refuses to trust hosts further than a LAN trusts its stations.

mod frames;
mod guest;
mod lan;
mod talk;

pub use lan::LanPort;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use verbena_lan::{Batch, Limits, Mac, PortId, Role, Switch, Watch};

use crate::carrier::{Carrier, CarrierError, News, Pair, Ticket};
use crate::hello::{Hello, channels, letter};
use crate::host::packet_size;
use crate::link::{Link, LinkOptions, Lost};
use crate::sleep::sleep;
use crate::status::{Desk, GuestStatus, LinkStatus, UnitStatus};
use crate::stop::Stop;
use crate::{Journal, random};
use guest::{Guest, Standing};

/// A host has so long to connect all its channels and to say what it is.
const FORMING: Duration = Duration::from_secs(5);
/// How often what depends on time is looked at.
const GLANCE: Duration = Duration::from_millis(100);
/// How long hosts have to stop when the unit ends.
const LEAVE: Duration = Duration::from_secs(1);

/// What a unit's driver shall be like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitOptions {
    /// Hosts at once.
    pub hosts: usize,
    /// Packets on their way, each direction, per host.
    pub elements: u32,
    /// Checksums and cutting are taken over from hosts.
    pub offloads: bool,
    /// Hosts may hear everything.
    pub promiscuous: bool,
    /// A host that has said nothing for so long is gone.
    pub patience: Duration,
}

impl Default for UnitOptions {
    fn default() -> UnitOptions {
        UnitOptions {
            hosts: 64,
            elements: 256,
            offloads: true,
            promiscuous: true,
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

/// A unit's driver.
#[derive(Debug)]
pub struct Unit {
    options: UnitOptions,
    lan: LanPort,
    lan_id: PortId,
    lan_up: bool,
    lan_counts: LanCounts,
    watch: Watch,
    desk: Desk,
    journal: Journal,
    carriers: Vec<Box<dyn Carrier>>,
    switch: Switch,
    guests: BTreeMap<GuestId, Guest>,
    next: GuestId,
    /// Whose a queue pair is, and whose a port of the switch.
    pairs: BTreeMap<(usize, Pair), GuestId>,
    ports: BTreeMap<PortId, GuestId>,
    start: Instant,
    glanced: Instant,
    /// Out while it is read.
    batch: Option<Batch>,
    rooms: frames::Rooms,
    leaving: Option<Instant>,
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
        lan: LanPort,
        carriers: Vec<Box<dyn Carrier>>,
        journal: Journal,
    ) -> Result<Unit, UnitError> {
        let limits = Limits {
            ports: options.hosts + 1,
            ..Limits::default()
        };
        let mut switch = Switch::new(limits);
        let lan_id = switch.add(Role::Lan)?;
        let lan_up = lan.interface().link()?.carrier;
        let name = lan.interface().name()?;
        let now = Instant::now();
        Ok(Unit {
            options,
            desk: Desk::open(&format!("unit-{name}"))?,
            lan,
            lan_id,
            lan_up,
            lan_counts: LanCounts::default(),
            watch: Watch::open()?,
            journal,
            carriers,
            switch,
            guests: BTreeMap::new(),
            next: 1,
            pairs: BTreeMap::new(),
            ports: BTreeMap::new(),
            start: now,
            glanced: now,
            batch: Some(Batch::new(64)),
            rooms: frames::Rooms::default(),
            leaving: None,
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
            if now >= self.glanced + GLANCE {
                self.glanced = now;
                self.look_around(now)?;
            }
            if stop.is_wished() && self.leave(now) {
                return Ok(());
            }
            let mut doze = !busy;
            for carrier in &mut self.carriers {
                doze = doze && carrier.doze();
            }
            if doze {
                self.rest(now, stop)?;
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
        let links = self.guests.values().filter_map(|g| g.link.deadline());
        let until = carriers.chain(links).chain([now + GLANCE]).min();
        // Once it is wished, it stays readable.
        let stop = (!stop.is_wished()).then_some(stop.as_fd());
        let others = [
            Some(self.lan.as_fd()),
            Some(self.watch.as_fd()),
            Some(self.desk.as_fd()),
            stop,
        ];
        let others = others.into_iter().flatten();
        let carriers = self.carriers.iter().map(|carrier| &**carrier);
        Ok(sleep(carriers, others, until)?)
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
        self.journal.note(&format!("{guest} is gone: {why}"));
        if let Some(carrier) = self.carriers.get_mut(guest.carrier) {
            guest.link.close(&mut **carrier);
        }
    }

    fn hear(&mut self, at: usize, news: News, now: Instant) {
        let of = |pairs: &BTreeMap<_, _>, pair| pairs.get(&(at, pair)).copied();
        match news {
            News::Request {
                ticket,
                from,
                private,
                acknowledged,
            } => {
                let asked = self.asked(at, ticket, &from, (&private, acknowledged), now);
                if let Err(why) = asked
                    && let Some(carrier) = self.carriers.get_mut(at)
                {
                    carrier.reject(ticket, why.as_bytes());
                    self.journal.note(&format!("{from} was rejected: {why}"));
                }
            }
            News::Connected { pair, .. } => {
                if let Some(id) = of(&self.pairs, pair) {
                    self.with_guest(id, |guest, carrier| guest.link.connected(carrier, pair));
                }
            }
            News::Refused { pair, why, .. } | News::Ended { pair, why } => {
                if let Some(id) = of(&self.pairs, pair) {
                    self.lose(id, &why);
                }
            }
        }
    }

    /// Somebody asks for a channel: the first of a new host, or a further one of a host that is known.
    fn asked(
        &mut self,
        at: usize,
        ticket: Ticket,
        from: &str,
        (private, acknowledged): (&[u8], Option<bool>),
        now: Instant,
    ) -> Result<(), String> {
        let hello = Hello::parse(private).map_err(|error| error.to_string())?;
        let wanted = hello.arrangement != verbena_push::Arrangement::Sends;
        if acknowledged.is_some_and(|acknowledged| acknowledged != wanted) {
            return Err("a channel of the wrong kind for the arrangement".to_owned());
        }
        if self.leaving.is_some() {
            return Err("the unit is ending".to_owned());
        }
        let known = self
            .guests
            .iter()
            .find(|(_, guest)| guest.carrier == at && guest.service == hello.service);
        let id = match known {
            Some((id, _)) => *id,
            None => self.admit(at, from, &hello, now)?,
        };
        let guest = self.guests.get_mut(&id).ok_or("gone already")?;
        if guest.arrangement() != hello.arrangement || !guest.claim(hello.channel) {
            return Err(format!("channel {} was asked for already", hello.channel));
        }
        let pair = guest.link.pair(hello.channel).ok_or("no such channel")?;
        let carrier = self.carriers.get_mut(at).ok_or("no such carrier")?;
        carrier
            .accept(ticket, pair, &[])
            .map_err(|error| error.to_string())
    }

    /// A host that is not known yet.
    fn admit(
        &mut self,
        at: usize,
        from: &str,
        hello: &Hello,
        now: Instant,
    ) -> Result<GuestId, String> {
        if self.guests.len() >= self.options.hosts {
            return Err(format!("{} hosts are here already", self.options.hosts));
        }
        let carrier = self.carriers.get_mut(at).ok_or("no such carrier")?;
        let options = LinkOptions {
            arrangement: hello.arrangement,
            elements: self.options.elements,
            size: packet_size(self.options.offloads),
        };
        let link = Link::new(&mut **carrier, options, now).map_err(|lost| lost.to_string())?;
        let id = self.next;
        self.next += 1;
        for channel in 0..channels(hello.arrangement) {
            if let Some(pair) = link.pair(channel) {
                self.pairs.insert((at, pair), id);
            }
        }
        self.guests
            .insert(id, Guest::new(at, from, hello, link, now));
        Ok(id)
    }

    /// Whatever depends on time, and on what others did to the LAN's interface.
    fn look_around(&mut self, now: Instant) -> Result<(), UnitError> {
        let mut gone = Vec::new();
        for (id, guest) in &self.guests {
            let silent = now.saturating_duration_since(guest.link.heard());
            let young = matches!(guest.standing, Standing::Up | Standing::Leaving);
            if !young && now > guest.since + FORMING {
                gone.push((*id, "it never said what it is".to_owned()));
            } else if silent > self.options.patience {
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

    /// How it stands.
    pub fn status(&self) -> UnitStatus {
        let interface = self.lan.interface();
        let hosts = self.guests.values().map(|guest| GuestStatus {
            name: guest.name.clone(),
            from: guest.from.clone(),
            carrier: self
                .carriers
                .get(guest.carrier)
                .map_or("", |c| c.name())
                .to_owned(),
            arrangement: char::from(letter(guest.arrangement())).to_string(),
            phase: guest.standing.to_string(),
            mac: guest.mac.map(|mac| mac.to_string()),
            promiscuous: guest.promiscuous,
            counts: self.counts(guest),
            messages: LinkStatus::of(&guest.link),
        });
        UnitStatus {
            pid: std::process::id(),
            lan: interface.name().unwrap_or_default(),
            mtu: interface.mtu().unwrap_or_default(),
            link: self.lan_up,
            listens: self.carriers.iter().map(|c| c.local()).collect(),
            frames_in: self.lan_counts.came,
            frames_out: self.lan_counts.out,
            dropped: self.lan_counts.dropped,
            addresses: self.switch.addresses(),
            hosts: hosts.collect(),
        }
    }

    fn status_json(&self) -> String {
        serde_json::to_string(&self.status()).unwrap_or_default()
    }
}

/// An address for a host that wants one of ours.
fn suggestion() -> Mac {
    Mac::local(random())
}
