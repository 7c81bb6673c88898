//! The host's half of the split driver (P8): a TAP interface whose frames are exchanged with an I/O unit. The interface outlives the
//! connection: its carrier is on only while frames can pass, and the unit is dialled again with backoff. A frame that finds no room stays
//! in the kernel's queue; frames read while there is no connection are dropped.

mod cable;
mod dial;
mod frames;
mod options;
mod phase;
mod reached;
mod report;
mod talk;

pub use cable::Cable;
pub use options::{HostOptions, MacChoice};
pub(crate) use options::{packet_mtu, packet_size};
pub use phase::{Happening, Phase};

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbena_lan::{Interface, Mac, Offloads, Watch};

use crate::Journal;
use crate::awake::Awake;
use crate::carrier::{Carrier, CarrierError, News, Pair};
use crate::lane::Lane;
use crate::lanes::Drive;
use crate::link::{Link, Lost};
use crate::service::{Ask, Counts};
use crate::sleep::sleep;
use crate::status::Desk;
use crate::stop::Stop;
use crate::vigil::Vigil;

/// Initial wait before dialling again after a failure; it doubles up to [`AGAIN_MOST`].
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MOST: Duration = Duration::from_secs(2);
/// Interval at which the unit is probed.
const QUIET: Duration = Duration::from_millis(500);
/// How often a busy driver checks for status requests and interface changes.
const GLANCE: Duration = Duration::from_millis(50);
/// A unit must connect all channels and answer the first requests within this time, or within `patience` if that is longer.
const FORMING: Duration = Duration::from_secs(5);
/// Time limit of an orderly disconnect.
const LEAVE: Duration = Duration::from_secs(1);

/// Why a driver ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The interface.
    #[error(transparent)]
    Lan(#[from] verbena_lan::Error),
    /// The carrier.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// The system.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// A host's driver for one queue of its interface.
#[derive(Debug)]
pub struct Host {
    options: HostOptions,
    unit: String,
    cable: Arc<Cable>,
    watch: Watch,
    desk: Desk,
    carrier: Box<dyn Carrier>,
    /// Opens another carrier, and whether that is due.
    reopen: Option<dial::Reopen>,
    is_stale: bool,
    journal: Journal,
    phase: Phase,
    link: Option<Link>,
    /// Time since the unit was dialled.
    formed: Awake,
    /// When to dial again, and the wait after that.
    again: (Instant, Duration),
    why: Option<String>,
    /// Requests that wait for the unit's answer.
    asked: BTreeMap<u64, Ask>,
    /// When the unit was probed last, or the disconnect began.
    probed: Instant,
    /// What the unit was told last about the interface.
    told: Told,
    /// The offloads that the interface leaves to the unit.
    granted: Offloads,
    lan_up: bool,
    at_unit: Option<Counts>,
    connections: u64,
    frames: frames::Frames,
    /// A status request or an interface change is pending; and when these were last checked.
    is_called: bool,
    glanced: Instant,
    vigil: Vigil,
}

impl Drive for Host {
    type Error = HostError;

    fn lane(&self) -> Lane {
        self.options.lane
    }

    fn drive(&mut self, stop: &Stop) -> Result<(), HostError> {
        self.run(stop)
    }
}

/// What the unit was told about the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Told {
    mac: Option<Mac>,
    mtu: Option<u32>,
    promiscuous: bool,
}

impl Host {
    /// Creates the interface, with carrier off, and drives its only queue. The carrier leads to the unit.
    pub fn new(
        options: HostOptions,
        carrier: Box<dyn Carrier>,
        unit: &str,
        journal: Journal,
    ) -> Result<Host, HostError> {
        let options = HostOptions {
            lane: Lane::ONLY,
            ..options
        };
        let cable = Arc::new(Cable::lay(&options.tap, 1)?);
        Host::on(cable, options, carrier, unit, journal)
    }

    /// Drives one queue of an interface, `options.lane`. The carrier leads to the unit's queue of the same number.
    pub fn on(
        cable: Arc<Cable>,
        mut options: HostOptions,
        carrier: Box<dyn Carrier>,
        unit: &str,
        journal: Journal,
    ) -> Result<Host, HostError> {
        let now = Instant::now();
        let lane = options.lane;
        let desk = cable.desk(lane)?;
        cable.set(lane, false)?;
        // The first queue sets the address, and the others read it.
        match options.mac {
            MacChoice::Fixed(mac) if lane.is_first() => cable.tap().interface().set_mac(mac)?,
            MacChoice::Unit if !lane.is_first() => options.mac = MacChoice::Own,
            MacChoice::Own | MacChoice::Fixed(_) | MacChoice::Unit => {}
        }
        Ok(Host {
            options,
            unit: unit.to_owned(),
            watch: Watch::open()?,
            desk,
            cable,
            carrier,
            reopen: None,
            is_stale: false,
            journal,
            phase: Phase::Apart,
            link: None,
            formed: Awake::new(now),
            again: (now, AGAIN),
            why: None,
            asked: BTreeMap::new(),
            probed: now,
            told: Told::default(),
            granted: Offloads::NONE,
            lan_up: false,
            at_unit: None,
            connections: 0,
            frames: frames::Frames::default(),
            is_called: true,
            glanced: now,
            vigil: Vigil::new(now),
        })
    }

    fn interface(&self) -> &Interface {
        self.cable.tap().interface()
    }

    /// Runs until a stop is requested; then disconnects from the unit.
    pub fn run(&mut self, stop: &Stop) -> Result<(), HostError> {
        let mut done = Vec::new();
        loop {
            let now = Instant::now();
            if let Err(error) = self.carrier.turn(now, &mut done) {
                self.break_down(error)?;
            }
            let mut busy = !done.is_empty();
            for wc in done.drain(..) {
                self.with_link(|link, carrier| link.handle(carrier, &wc, now));
            }
            while let Some(news) = self.carrier.news() {
                busy = true;
                self.hear(news, now);
            }
            busy |= self.serve_events(now);
            busy |= self.take_packets()?;
            busy |= self.take_frames()?;
            self.look_around(now)?;
            self.with_link(|link, carrier| link.tick(carrier, now));
            if stop.is_wished() && self.leave(now) {
                return Ok(());
            }
            if self.vigil.goes_on(busy, now) {
                // Another turn also reads the interface again.
                self.frames.is_dry &= busy;
            } else if self.carrier.doze() {
                self.rest(now, stop)?;
                self.vigil.slept();
            }
        }
    }

    fn rest(&mut self, now: Instant, stop: &Stop) -> Result<(), HostError> {
        let link = self.link.as_ref();
        let probe = now + QUIET;
        let deadlines = [
            self.carrier.deadline(),
            link.and_then(Link::deadline),
            (self.phase == Phase::Apart).then_some(self.again.0),
            Some(probe),
        ];
        let until = deadlines.into_iter().flatten().min();
        // Frames stay in the kernel's queue while there is no room for them.
        let queue = self.cable.queue(self.options.lane).map(AsFd::as_fd);
        let queue = queue.filter(|_| self.reads_frames());
        // After a request it stays readable.
        let stop = (!stop.is_wished()).then_some(stop.as_fd());
        let rare = [Some(self.watch.as_fd()), self.desk.sleeper(now), stop];
        let rare = rare.into_iter().flatten();
        let carrier = core::iter::once(&*self.carrier);
        let woken = sleep(carrier, queue, rare, until)?;
        self.is_called |= woken.rare;
        self.frames.is_dry &= !woken.frames;
        Ok(())
    }

    /// Calls a function on the link, if there is one; its error ends the link.
    fn with_link<T>(
        &mut self,
        what: impl FnOnce(&mut Link, &mut dyn Carrier) -> Result<T, Lost>,
    ) -> Option<T> {
        let link = self.link.as_mut()?;
        match what(link, &mut *self.carrier) {
            Ok(done) => Some(done),
            Err(lost) => {
                self.lose(&lost.to_string());
                None
            }
        }
    }

    /// The connection has ended: its memory is freed, and the unit is dialled again after a wait.
    fn lose(&mut self, why: &str) {
        if let Some(link) = self.link.take() {
            link.close(&mut *self.carrier);
        }
        self.is_stale = true;
        let was = self.phase;
        self.phase = was.after(Happening::Lost);
        self.asked.clear();
        self.told = Told::default();
        if self.why.as_deref() != Some(why) {
            self.journal.note(&format!("{}: {why}", self.unit));
            self.why = Some(why.to_owned());
        }
        let now = Instant::now();
        let (_, wait) = self.again;
        let wait = if was == Phase::Up { AGAIN } else { wait };
        self.again = (now + wait, (wait * 2).min(AGAIN_MOST));
        self.set_carrier(false);
        self.cable.go(self.options.lane);
    }

    fn set_carrier(&mut self, on: bool) {
        if let Err(error) = self.cable.set(self.options.lane, on) {
            self.journal.note(&error.to_string());
        }
    }

    fn hear(&mut self, news: News, now: Instant) {
        let ours = |link: &Option<Link>, pair: Pair| link.as_ref().is_some_and(|l| l.has(pair));
        match news {
            News::Connected { pair, private } if ours(&self.link, pair) => {
                if let Err(stray) = self.cable.come(self.options.lane, &private) {
                    return self.lose(&stray.to_string());
                }
                let open = self.with_link(|link, carrier| link.connected(carrier, pair));
                if open == Some(true) {
                    self.begin(now);
                }
            }
            News::Refused { pair, why, private } if ours(&self.link, pair) => {
                let said = String::from_utf8_lossy(&private);
                let why = if said.is_empty() {
                    why
                } else {
                    format!("{why}: {}", said.escape_default())
                };
                self.lose(&why);
            }
            News::Ended { pair, .. } if self.link.as_ref().is_some_and(|l| l.outlives(pair)) => {}
            News::Ended { pair, why } if ours(&self.link, pair) => self.lose(&why),
            // A host accepts no connections.
            News::Request { ticket, .. } => self.carrier.reject(ticket, b"this is a host"),
            News::Connected { .. }
            | News::Refused { .. }
            | News::Ended { .. }
            | News::Rejected { .. } => {}
        }
    }

    /// Work that depends on time, and changes of the interface.
    fn look_around(&mut self, now: Instant) -> Result<(), HostError> {
        match self.phase {
            Phase::Apart if self.again.0 <= now => self.dial(now),
            Phase::Dialling | Phase::Starting | Phase::Up => {
                let formed = self.formed.look(now);
                let (carrier, patience) = (&mut *self.carrier, self.options.patience);
                if let Some(link) = &mut self.link
                    && link.is_lost(carrier, now, patience)
                {
                    let silent = link.silent(now);
                    self.lose(&format!("silent for {silent:.1?}"));
                } else if self.phase != Phase::Up && formed > FORMING.max(patience) {
                    self.lose(&format!("it has not agreed to anything in {formed:.1?}"));
                } else if self.phase == Phase::Up && now > self.probed + QUIET {
                    self.probe(now);
                }
            }
            Phase::Apart | Phase::Leaving => {}
        }
        if self.is_called || now > self.glanced + GLANCE {
            (self.is_called, self.glanced) = (false, now);
            if self.watch.changed()? {
                self.tell_changes();
            }
            self.desk.serve(|| self.status_json());
            if self.phase != Phase::Leaving && self.cable.is_called(self.options.lane) {
                self.lose("another queue reaches only another unit: all of them dial again");
            }
        }
        Ok(())
    }
}
