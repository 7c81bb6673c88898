//! The host's half of the split driver (P8): a TAP interface whose frames are exchanged with an I/O unit. The interface outlives the
//! connection: its carrier is on only while frames can pass, and the unit is dialled again with backoff. A frame that finds no room stays
//! in the kernel's queue; frames read while there is no connection are dropped.

mod config_service;
mod connected_units;
mod dial;
mod frames;
mod options;
mod phase;
mod report;
mod shared_tap;

pub use options::{HostOptions, MacChoice};
pub(crate) use options::{packet_mtu, packet_size};
pub use phase::{Phase, PhaseEvent};
pub use shared_tap::SharedTap;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbena_lan::{Interface, LinkWatch, Mac, Offloads};

use crate::Journal;
use crate::busy_poll::BusyPoll;
use crate::capped_timer::CappedTimer;
use crate::carrier::{Carrier, CarrierError, CarrierEvent, Pair};
use crate::channel_kinds::{ChannelKinds, InvalidKinds};
use crate::lane::Lane;
use crate::lanes::Drive;
use crate::link::{Link, LinkError};
use crate::service::{ConfigRequest, Counts};
use crate::sleep::sleep;
use crate::status::StatusSocket;
use crate::stop::Stop;
use crate::welcome::Welcome;

/// Initial wait before dialling again after a failure; it doubles up to [`REDIAL_MAX`].
const REDIAL_MIN: Duration = Duration::from_millis(100);
const REDIAL_MAX: Duration = Duration::from_secs(2);
/// Interval at which the unit is probed.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// How often a busy driver checks for status requests and interface changes.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// A unit must connect all channels and answer the first requests within this time, or within `patience` if that is longer.
const FORMING_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of an orderly disconnect.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a driver ended.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The interface.
    #[error(transparent)]
    Lan(#[from] verbena_lan::Error),
    /// The carrier.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// The channels do not fit the arrangement.
    #[error(transparent)]
    Kinds(#[from] InvalidKinds),
    /// The system.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// A host's driver for one queue of its interface.
#[derive(Debug)]
pub struct Host {
    options: HostOptions,
    kinds: ChannelKinds,
    unit: String,
    shared_tap: Arc<SharedTap>,
    watch: LinkWatch,
    status_socket: StatusSocket,
    carrier: Box<dyn Carrier>,
    /// Opens another carrier, and whether that is due.
    reopen: Option<dial::Reopen>,
    is_stale: bool,
    journal: Journal,
    phase: Phase,
    link: Option<Link>,
    /// Time since the unit was dialled.
    since_dial: CappedTimer,
    /// When to dial again, and the wait after that.
    redial: (Instant, Duration),
    why: Option<String>,
    /// Requests that wait for the unit's answer.
    pending_requests: BTreeMap<u64, ConfigRequest>,
    /// When the unit was probed last, or the disconnect began.
    last_probe: Instant,
    /// What the unit was told last about the interface.
    reported: ReportedState,
    /// The offloads that the interface leaves to the unit.
    granted: Offloads,
    lan_up: bool,
    at_unit: Option<Counts>,
    connections: u64,
    frames: frames::Frames,
    /// A status request or an interface change is pending; and when these were last checked.
    is_check_due: bool,
    last_check: Instant,
    busy_poll: BusyPoll,
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
struct ReportedState {
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
        let cable = Arc::new(SharedTap::create(&options.tap, 1)?);
        Host::for_queue(cable, options, carrier, unit, journal)
    }

    /// Drives one queue of an interface, `options.lane`. The carrier leads to the unit's queue of the same number.
    pub fn for_queue(
        cable: Arc<SharedTap>,
        mut options: HostOptions,
        carrier: Box<dyn Carrier>,
        unit: &str,
        journal: Journal,
    ) -> Result<Host, HostError> {
        let now = Instant::now();
        let lane = options.lane;
        let kinds = options.kinds.kinds(options.arrangement)?;
        let socket = cable.status_socket(lane)?;
        cable.set_queue_up(lane, false)?;
        // The first queue sets the address, and the others read it.
        match options.mac {
            MacChoice::Fixed(mac) if lane.is_first() => cable.tap().interface().set_mac(mac)?,
            MacChoice::Unit if !lane.is_first() => options.mac = MacChoice::Own,
            MacChoice::Own | MacChoice::Fixed(_) | MacChoice::Unit => {}
        }
        Ok(Host {
            options,
            kinds,
            unit: unit.to_owned(),
            watch: LinkWatch::open()?,
            status_socket: socket,
            shared_tap: cable,
            carrier,
            reopen: None,
            is_stale: false,
            journal,
            phase: Phase::Disconnected,
            link: None,
            since_dial: CappedTimer::new(now),
            redial: (now, REDIAL_MIN),
            why: None,
            pending_requests: BTreeMap::new(),
            last_probe: now,
            reported: ReportedState::default(),
            granted: Offloads::NONE,
            lan_up: false,
            at_unit: None,
            connections: 0,
            frames: frames::Frames::default(),
            is_check_due: true,
            last_check: now,
            busy_poll: BusyPoll::new(now),
        })
    }

    /// Whether checksums and segmentation are left to the unit: super-frames do not fit one cell.
    fn offloads(&self) -> bool {
        self.options.offloads && !self.kinds.connectionless
    }

    fn interface(&self) -> &Interface {
        self.shared_tap.tap().interface()
    }

    /// Runs until a stop is requested; then disconnects from the unit.
    pub fn run(&mut self, stop: &Stop) -> Result<(), HostError> {
        let mut done = Vec::new();
        loop {
            let now = Instant::now();
            if let Err(error) = self.carrier.turn(now, &mut done) {
                self.handle_carrier_error(error)?;
            }
            let mut busy = !done.is_empty();
            for wc in done.drain(..) {
                self.with_link(|link, carrier| link.handle(carrier, &wc, now));
            }
            while let Some(news) = self.carrier.next_event() {
                busy = true;
                self.handle_event(news, now);
            }
            busy |= self.serve_events(now);
            busy |= self.take_packets()?;
            busy |= self.take_frames()?;
            self.check_timers(now)?;
            self.with_link(|link, carrier| link.tick(carrier, now));
            if stop.is_requested() && self.leave(now) {
                return Ok(());
            }
            if self.busy_poll.should_poll(busy, now) {
                // Another turn also reads the interface again.
                self.frames.is_drained &= busy;
            } else if self.carrier.prepare_sleep() {
                self.sleep(now, stop)?;
                self.busy_poll.note_sleep();
            }
        }
    }

    fn sleep(&mut self, now: Instant, stop: &Stop) -> Result<(), HostError> {
        let link = self.link.as_ref();
        let probe = now + PROBE_INTERVAL;
        let deadlines = [
            self.carrier.deadline(),
            link.and_then(Link::deadline),
            (self.phase == Phase::Disconnected).then_some(self.redial.0),
            Some(probe),
        ];
        let until = deadlines.into_iter().flatten().min();
        // Frames stay in the kernel's queue while there is no room for them.
        let queue = self.shared_tap.queue(self.options.lane).map(AsFd::as_fd);
        let queue = queue.filter(|_| self.reads_frames());
        // After a request it stays readable.
        let stop = (!stop.is_requested()).then_some(stop.as_fd());
        let rare = [
            Some(self.watch.as_fd()),
            self.status_socket.wait_fd(now),
            stop,
        ];
        let rare = rare.into_iter().flatten();
        let carrier = core::iter::once(&*self.carrier);
        let woken = sleep(carrier, queue, rare, until)?;
        self.is_check_due |= woken.rare;
        self.frames.is_drained &= !woken.frames;
        Ok(())
    }

    /// Calls a function on the link, if there is one; its error ends the link.
    fn with_link<T>(
        &mut self,
        what: impl FnOnce(&mut Link, &mut dyn Carrier) -> Result<T, LinkError>,
    ) -> Option<T> {
        let link = self.link.as_mut()?;
        match what(link, &mut *self.carrier) {
            Ok(done) => Some(done),
            Err(lost) => {
                self.drop_connection(&lost.to_string());
                None
            }
        }
    }

    /// The connection has ended: its memory is freed, and the unit is dialled again after a wait.
    fn drop_connection(&mut self, why: &str) {
        if let Some(link) = self.link.take() {
            link.close(&mut *self.carrier);
        }
        self.is_stale = true;
        let was = self.phase;
        self.phase = was.after(PhaseEvent::Lost);
        self.pending_requests.clear();
        self.reported = ReportedState::default();
        if self.why.as_deref() != Some(why) {
            self.journal.note(&format!("{}: {why}", self.unit));
            self.why = Some(why.to_owned());
        }
        let now = Instant::now();
        let (_, wait) = self.redial;
        let wait = if was == Phase::Up { REDIAL_MIN } else { wait };
        self.redial = (now + wait, (wait * 2).min(REDIAL_MAX));
        self.set_carrier(false);
        self.shared_tap.remove_connected(self.options.lane);
    }

    fn set_carrier(&mut self, on: bool) {
        if let Err(error) = self.shared_tap.set_queue_up(self.options.lane, on) {
            self.journal.note(&error.to_string());
        }
    }

    fn handle_event(&mut self, news: CarrierEvent, now: Instant) {
        let ours = |link: &Option<Link>, pair: Pair| link.as_ref().is_some_and(|l| l.owns(pair));
        match news {
            CarrierEvent::Connected {
                pair,
                private_data: private,
            } if ours(&self.link, pair) => {
                if let Err(stray) = self.shared_tap.add_connected(self.options.lane, &private) {
                    return self.drop_connection(&stray.to_string());
                }
                if self.kinds.connectionless {
                    let Some(number) = Welcome::data_pair(&private) else {
                        return self.drop_connection("the unit did not name its data channel");
                    };
                    self.with_link(|link, carrier| link.bind_datagrams(carrier, number));
                }
                let open = self.with_link(|link, carrier| link.connected(carrier, pair));
                if open == Some(true) {
                    self.begin(now);
                }
            }
            CarrierEvent::Refused {
                pair,
                why,
                private_data: private,
            } if ours(&self.link, pair) => {
                let said = String::from_utf8_lossy(&private);
                let why = if said.is_empty() {
                    why
                } else {
                    format!("{why}: {}", said.escape_default())
                };
                self.drop_connection(&why);
            }
            CarrierEvent::Ended { pair, .. }
                if self.link.as_ref().is_some_and(|l| l.outlives(pair)) => {}
            CarrierEvent::Ended { pair, why } if ours(&self.link, pair) => {
                self.drop_connection(&why);
            }
            // A host accepts no connections.
            CarrierEvent::Request { ticket, .. } => self.carrier.reject(ticket, b"this is a host"),
            CarrierEvent::Connected { .. }
            | CarrierEvent::Refused { .. }
            | CarrierEvent::Ended { .. }
            | CarrierEvent::Rejected { .. } => {}
        }
    }

    /// Work that depends on time, and changes of the interface.
    fn check_timers(&mut self, now: Instant) -> Result<(), HostError> {
        match self.phase {
            Phase::Disconnected if self.redial.0 <= now => self.dial(now),
            Phase::Dialling | Phase::Starting | Phase::Up => {
                let formed = self.since_dial.advance(now);
                let (carrier, patience) = (&mut *self.carrier, self.options.patience);
                if let Some(link) = &mut self.link
                    && link.is_lost(carrier, now, patience)
                {
                    let silent = link.silence(now);
                    self.drop_connection(&format!("silent for {silent:.1?}"));
                } else if self.phase != Phase::Up && formed > FORMING_TIMEOUT.max(patience) {
                    self.drop_connection(&format!(
                        "the connection was not set up within {formed:.1?}"
                    ));
                } else if self.phase == Phase::Up && now > self.last_probe + PROBE_INTERVAL {
                    self.probe(now);
                }
            }
            Phase::Disconnected | Phase::Leaving => {}
        }
        if self.is_check_due || now > self.last_check + CHECK_INTERVAL {
            (self.is_check_due, self.last_check) = (false, now);
            if self.watch.take_changed()? {
                self.report_changes();
            }
            self.status_socket.serve(|| self.status_json());
            if self.phase != Phase::Leaving && self.shared_tap.must_redial(self.options.lane) {
                self.drop_connection(
                    "another queue reaches only another unit: all of them dial again",
                );
            }
        }
        Ok(())
    }
}
