//! Two or more carriers in one thread, which takes turns and sleeps as a driver does.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbena_nic::wc::{Status, Wc};

use crate::carrier::cells::{CellCarrier, CellOptions};
use crate::carrier::{Carrier, CarrierEvent, Memory, MemoryAccess, Pair, PairOptions, Ticket};

/// Time limit on a loaded machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const LOCALHOST: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(super) const ROOM: usize = 1 << 20;

pub(super) fn pair_options(acknowledged: bool) -> PairOptions {
    PairOptions {
        acknowledged,
        sends: 64,
        receives: 64,
    }
}

/// A carrier, its memory, and its events and completions.
pub(super) struct Side {
    pub(super) carrier: CellCarrier,
    pub(super) memory: Box<dyn Memory>,
    pub(super) done: Vec<Wc>,
    pub(super) events: Vec<CarrierEvent>,
    /// Requests that it still accepts.
    pub(super) accepts_left: usize,
    /// Pairs that it accepted with.
    pub(super) accepted: Vec<Pair>,
}

impl Side {
    pub(super) fn of(mut carrier: CellCarrier) -> Side {
        let memory = carrier
            .register_memory(ROOM, MemoryAccess::RemoteWrite)
            .unwrap();
        Side {
            carrier,
            memory,
            done: Vec::new(),
            events: Vec::new(),
            accepts_left: 0,
            accepted: Vec::new(),
        }
    }

    pub(super) fn unit(options: CellOptions) -> Side {
        Side::of(CellCarrier::udp_listen(LOCALHOST, options).unwrap())
    }

    pub(super) fn host(unit: SocketAddr, options: CellOptions) -> Side {
        Side::of(CellCarrier::udp_dial(unit, options).unwrap())
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.carrier.local_addr().parse().unwrap()
    }

    pub(super) fn turn(&mut self) {
        self.carrier.turn(Instant::now(), &mut self.done).unwrap();
        while let Some(news) = self.carrier.next_event() {
            match news {
                CarrierEvent::Request {
                    ticket,
                    private_data: private,
                    acknowledged: Some(acknowledged),
                    ..
                } if self.accepts_left > 0 => {
                    self.accepts_left -= 1;
                    self.accept(ticket, acknowledged, &private);
                }
                news => self.events.push(news),
            }
        }
    }

    /// Accepts with a pair that has receives, and returns the private data.
    pub(super) fn accept(&mut self, ticket: Ticket, acknowledged: bool, private: &[u8]) {
        let pair = self
            .carrier
            .create_pair(pair_options(acknowledged))
            .unwrap();
        self.receives(pair, 8);
        self.carrier.accept(ticket, pair, private).unwrap();
        self.accepted.push(pair);
    }

    /// Posts receives of a sixteenth of the memory each, in its second half, numbered from 0.
    pub(super) fn receives(&mut self, pair: Pair, count: u64) {
        for id in 0..count {
            self.receive(pair, id);
        }
    }

    pub(super) fn receive(&mut self, pair: Pair, id: u64) {
        let piece = self.memory.sge(Side::slot(id), (ROOM / 16) as u32);
        self.carrier.post_receive(pair, id, Some(piece)).unwrap();
    }

    /// The offset of the receive with this number.
    pub(super) fn slot(id: u64) -> usize {
        ROOM / 2 + (id as usize % 8) * (ROOM / 16)
    }

    pub(super) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.memory.read(offset, &mut bytes));
        bytes
    }

    pub(super) fn take_done(&mut self) -> Vec<(u64, Status)> {
        let done = std::mem::take(&mut self.done);
        done.iter().map(|wc| (wc.id, wc.status)).collect()
    }

    pub(super) fn take_events(&mut self) -> Vec<CarrierEvent> {
        std::mem::take(&mut self.events)
    }

    /// Posts a send of these bytes from the start of its memory.
    pub(super) fn send(&mut self, pair: Pair, id: u64, bytes: &[u8]) {
        assert!(self.memory.write(0, bytes));
        let piece = self.memory.sge(0, bytes.len() as u32);
        self.carrier.post_send(pair, id, piece).unwrap();
    }
}

/// Takes turns until `so` is true, and sleeps in between as a driver would.
pub(super) fn until(
    sides: &mut [&mut Side],
    what: &str,
    mut so: impl FnMut(&mut [&mut Side]) -> bool,
) {
    let start = Instant::now();
    loop {
        for side in sides.iter_mut() {
            side.turn();
        }
        if so(sides) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        sleep(sides);
    }
}

/// Takes turns for this time.
pub(super) fn run_for(sides: &mut [&mut Side], span: Duration) {
    let start = Instant::now();
    until(sides, "time", |_| start.elapsed() >= span);
}

fn sleep(sides: &mut [&mut Side]) {
    let mut ready = true;
    for side in sides.iter_mut() {
        ready &= side.carrier.prepare_sleep();
    }
    if !ready {
        return;
    }
    let deadlines = sides.iter().filter_map(|side| side.carrier.deadline());
    let longest = Duration::from_millis(20);
    let span = deadlines.min().map_or(longest, |deadline| {
        deadline
            .saturating_duration_since(Instant::now())
            .min(longest)
    });
    let mut sleepers = Vec::new();
    for side in sides.iter() {
        side.carrier.wait_fds(&mut sleepers);
    }
    let mut on: Vec<PollFd<'_>> = sleepers
        .iter()
        .map(|sleeper| {
            let mut events = PollFlags::IN;
            events.set(PollFlags::OUT, sleeper.write);
            PollFd::from_borrowed_fd(sleeper.fd, events)
        })
        .collect();
    let span = Timespec::try_from(span).unwrap();
    poll(&mut on, Some(&span)).unwrap();
}

/// A unit and a host, connected by a pair of this kind.
pub(super) fn connected(acknowledged: bool, options: CellOptions) -> (Side, Side, Pair, Pair) {
    let mut unit = Side::unit(options);
    let mut host = Side::host(unit.local_addr(), options);
    let pair = connect_pair(&mut unit, &mut host, acknowledged);
    let served = *unit.accepted.last().unwrap();
    (unit, host, served, pair)
}

/// Connects one more pair, with receives on both sides.
pub(super) fn connect_pair(unit: &mut Side, host: &mut Side, acknowledged: bool) -> Pair {
    unit.accepts_left += 1;
    let pair = host
        .carrier
        .create_pair(pair_options(acknowledged))
        .unwrap();
    host.receives(pair, 8);
    host.carrier.connect(pair, b"hello").unwrap();
    let private = b"hello".to_vec();
    let event = CarrierEvent::Connected {
        pair,
        private_data: private,
    };
    until(&mut [unit, host], "connected", |sides| {
        let [_, host] = sides else { unreachable!() };
        host.events.contains(&event)
    });
    host.take_events();
    unit.take_events();
    pair
}
