//! Service connections over iWARP (P5): each pair is a queue pair of the adapter on a TCP connection of its own. A peer without receives
//! is retried without limit, the end of a connection is reported after the completions before it, and completions of a destroyed pair are
//! dropped. Unacknowledged pairs are the same as acknowledged ones, since TCP loses nothing.
//!
//! All pairs complete in one queue: one descriptor is enough to wait for all, and the waiting thread can serve all connections.

mod bell;
mod contract;
mod memory;
mod seat;

use core::fmt;
use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use verbena::access::AccessList;
use verbena::low::{BLANK, BareCq};
use verbena::{Config, Device, Listener, Pd, Request, Status};
use verbena_nic::{Wc, WcOp};

use super::{Carrier, CarrierError, News, Pair, Result, Source, Ticket};
use bell::{Bell, Told};
use seat::{Seat, Stage};

/// Completions polled at once.
const SOME: usize = 64;
/// Completions per turn, so that the driver returns to its other work.
const MOST: usize = 1024;
/// Packets of at least this length are taken as part of a stream.
const LONG: u32 = 16 << 10;
/// Requests that wait for the driver's answer; more wait in the listener, which rejects those that it has no room for.
const TICKETS: usize = 128;

/// Queue pairs on connections of the adapter.
pub struct IwarpCarrier {
    /// Dropped first, which rejects the open requests.
    tickets: BTreeMap<Ticket, Request>,
    seats: BTreeMap<Pair, Seat>,
    /// The pair of each queue pair number: the adapter may reuse a number while the driver still holds old completions.
    names: BTreeMap<u32, Pair>,
    cq: BareCq,
    /// Capacity of the completion queue, and what all pairs together need.
    room: usize,
    needed: usize,
    pd: Pd,
    way: Way,
    device: Device,
    bell: Arc<Bell>,
    /// Events not yet handled, each with the number of completions to return before it: the end of a pair is reported after the completions
    /// before it, even if the queue never becomes empty.
    told: VecDeque<(u64, Told)>,
    rung: VecDeque<Told>,
    /// Completions returned since the start.
    handed: u64,
    news: VecDeque<News>,
    /// Completions polled by `doze`.
    early: Vec<Wc>,
    /// Long packets came in the last turn.
    streams: bool,
    /// The last turn stopped at a bound.
    more: bool,
    /// The listener may have requests.
    asked: bool,
    next_pair: u32,
    next_ticket: u64,
}

/// Whether it listens or dials.
enum Way {
    Listens(Listener, SocketAddr),
    Dials(SocketAddr),
}

impl IwarpCarrier {
    /// Listens on this address; port 0 selects a free one.
    pub fn listen(at: SocketAddr, config: Config) -> Result<IwarpCarrier> {
        let device = Device::with(config)?;
        let listener = device.listen(at)?;
        let local = listener.local()?;
        IwarpCarrier::new(device, Way::Listens(listener, local))
    }

    /// Dials the unit at this address.
    pub fn dial(unit: SocketAddr, config: Config) -> Result<IwarpCarrier> {
        IwarpCarrier::new(Device::with(config)?, Way::Dials(unit))
    }

    fn new(device: Device, way: Way) -> Result<IwarpCarrier> {
        let bell = Arc::new(Bell::new()?);
        let (cq, pd) = (device.bare_cq(SOME)?, device.pd()?);
        let told = bell.clone();
        cq.listen(Some(Arc::new(move || told.ring())));
        let told = bell.clone();
        device.on_event(move |event| told.event(event));
        if let Way::Listens(listener, _) = &way {
            let told = bell.clone();
            listener.on_request(Arc::new(move || told.tell(Told::Request)));
        }
        Ok(IwarpCarrier {
            tickets: BTreeMap::new(),
            seats: BTreeMap::new(),
            names: BTreeMap::new(),
            cq,
            room: SOME,
            needed: 0,
            pd,
            way,
            device,
            bell,
            told: VecDeque::new(),
            rung: VecDeque::new(),
            handed: 0,
            news: VecDeque::new(),
            early: Vec::new(),
            streams: false,
            more: false,
            // Requests that came before the callback was set.
            asked: true,
            next_pair: 1,
            next_ticket: 1,
        })
    }

    /// The access lists of its adapter.
    pub fn access(&self) -> &AccessList {
        self.device.access()
    }

    /// The address that it listens on.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.way {
            Way::Listens(_, local) => Some(*local),
            Way::Dials(_) => None,
        }
    }

    fn seat(&mut self, pair: Pair) -> Result<&mut Seat> {
        self.seats.get_mut(&pair).ok_or_else(|| unknown(pair))
    }

    /// A number that no pair has; numbers are reused after 2^32 others.
    fn number(&mut self) -> Pair {
        loop {
            let pair = Pair(self.next_pair);
            self.next_pair = self.next_pair.wrapping_add(1);
            if !self.seats.contains_key(&pair) {
                return pair;
            }
        }
    }

    /// Makes room for the completions of all pairs.
    fn make_room(&mut self, needed: usize) -> Result<()> {
        if needed > self.room {
            // Doubled, so that the queue is rarely resized.
            let room = needed.max(self.room * 2);
            self.cq.resize(room)?;
            self.room = room;
        }
        Ok(())
    }

    /// Returns completions in order, within bounds; true if none is left. While long packets come, the queue is polled until it is empty:
    /// what arrives meanwhile is handled in the same turn, and the answers share a system call.
    fn complete(&mut self, done: &mut Vec<Wc>) -> bool {
        self.streams = false;
        let mut early = core::mem::take(&mut self.early);
        early.drain(..).for_each(|wc| self.hand_over(wc, done));
        self.early = early;
        let mut some = [BLANK; SOME];
        for _ in 0..MOST / SOME {
            let n = self.cq.poll(&mut some);
            some[..n].iter().for_each(|wc| self.hand_over(*wc, done));
            if n == 0 || n < SOME && !self.streams {
                return true;
            }
        }
        false
    }

    fn hand_over(&mut self, wc: Wc, done: &mut Vec<Wc>) {
        // The adapter drops the completions of a destroyed queue pair, so there is always a pair.
        let Some(pair) = self.names.get(&wc.qpn).copied() else {
            return;
        };
        let Some(seat) = self.seats.get_mut(&pair) else {
            return;
        };
        seat.completed(wc.op);
        self.streams |= is_long(&wc);
        self.handed += 1;
        done.push(Wc { qpn: pair.0, ..wc });
        // A failed request moves the queue pair to the error state, and not every cause raises an event.
        if wc.status != Status::Success && seat.stage == Stage::Connected {
            self.note(Told::Failed(pair));
        }
    }

    /// Defers an event until the completions that exist now have been returned.
    fn note(&mut self, told: Told) {
        let waiting = self.room + self.early.len() + MOST;
        self.told.push_back((self.handed + waiting as u64, told));
    }

    /// The next deferred event that is due.
    fn next_told(&mut self) -> Option<Told> {
        let (behind, _) = self.told.front()?;
        let due = !self.more || *behind <= self.handed;
        due.then(|| self.told.pop_front())
            .flatten()
            .map(|(_, told)| told)
    }

    fn hear(&mut self, told: Told) {
        match told {
            Told::Request => self.asked = true,
            Told::Answer(pair, answer) => self.answered(pair, answer),
            Told::Failed(pair) => self.over(pair),
            Told::Event(qp) => {
                if let Some(pair) = self.names.get(&qp).copied() {
                    self.over(pair);
                }
            }
        }
    }

    fn answered(&mut self, pair: Pair, answer: core::result::Result<Vec<u8>, verbena::Error>) {
        let Some(seat) = self.seats.get_mut(&pair) else {
            return;
        };
        let (stage, news) = match answer {
            Ok(private) => (Stage::Connected, News::Connected { pair, private }),
            Err(error) => {
                let private = error.rejection().unwrap_or_default().to_vec();
                let why = error.to_string();
                (Stage::Over, News::Refused { pair, why, private })
            }
        };
        seat.stage = stage;
        self.news.push_back(news);
        // An end that came before the answer was ignored then.
        self.over(pair);
    }

    /// Reports the end of a pair, if it has ended.
    fn over(&mut self, pair: Pair) {
        let Some(seat) = self.seats.get_mut(&pair) else {
            return;
        };
        if let Some(why) = seat.end() {
            self.news.push_back(News::Ended { pair, why });
        }
    }

    /// Takes requests from the listener while there are tickets.
    fn greet(&mut self) -> Result<()> {
        let Way::Listens(listener, _) = &self.way else {
            return Ok(());
        };
        while self.asked && self.tickets.len() < TICKETS {
            let Some(request) = listener.try_next()? else {
                self.asked = false;
                break;
            };
            let ticket = Ticket(self.next_ticket);
            self.next_ticket += 1;
            self.news.push_back(News::Request {
                ticket,
                from: request.peer().to_string(),
                source: Some(Source::of(request.peer().ip())),
                private: request.private_data().to_vec(),
                // Both kinds are the same here.
                acknowledged: None,
            });
            self.tickets.insert(ticket, request);
        }
        Ok(())
    }
}

/// A received packet of a stream: segmentation of a byte stream makes packets of the greatest length.
fn is_long(wc: &Wc) -> bool {
    matches!(wc.op, WcOp::Receive | WcOp::ReceiveWriteImm) && wc.len >= LONG
}

fn unknown(pair: Pair) -> CarrierError {
    CarrierError::Post {
        pair,
        why: "there is no such pair".into(),
    }
}

impl fmt::Debug for IwarpCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IwarpCarrier")
            .field("local", &self.local())
            .field("pairs", &self.seats.len())
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
