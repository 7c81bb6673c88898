//! Carriers over loopback: connecting, the three ways to send, every way to end, and the state after a pair is destroyed. They wait on the
//! carriers' descriptors, so that a missing wakeup is found.

mod peer_death;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use verbena_nic::wr::RemoteAddr;
use verbena_testing::wait_until;
use verbena_wire::To;

use super::*;
use crate::carrier::{Memory, MemoryAccess, PairOptions, WaitFd};

const PATIENCE: Duration = Duration::from_secs(10);
const SMALL: PairOptions = PairOptions {
    acknowledged: true,
    sends: 16,
    receives: 16,
};
const SLOT: usize = 64;

/// A carrier with its events and completions, and memory to use with it.
#[derive(Debug)]
struct Side {
    carrier: IwarpCarrier,
    done: Vec<Wc>,
    events: Vec<CarrierEvent>,
    own: Box<dyn Memory>,
    lent: Box<dyn Memory>,
}

impl Side {
    fn new(mut carrier: IwarpCarrier) -> Side {
        let own = carrier
            .register_memory(64 * SLOT, MemoryAccess::Local)
            .unwrap();
        let lent = carrier
            .register_memory(1 << 20, MemoryAccess::RemoteWrite)
            .unwrap();
        let (done, news) = (Vec::new(), Vec::new());
        Side {
            carrier,
            done,
            events: news,
            own,
            lent,
        }
    }

    fn turn(&mut self) {
        self.carrier.turn(Instant::now(), &mut self.done).unwrap();
        self.events
            .extend(core::iter::from_fn(|| self.carrier.next_event()));
    }

    fn remote(&self, offset: u64) -> RemoteAddr {
        RemoteAddr {
            stag: self.lent.stag(),
            to: To::new(self.lent.address().get() + offset),
        }
    }

    fn receive(&mut self, pair: Pair, id: u64) {
        let piece = self.own.sge((id as usize % 32) * SLOT, SLOT as u32);
        self.carrier.post_receive(pair, id, Some(piece)).unwrap();
    }

    fn send(&mut self, pair: Pair, id: u64, text: &[u8]) {
        let at = (32 + id as usize % 32) * SLOT;
        assert!(self.own.write(at, text));
        let piece = self.own.sge(at, text.len() as u32);
        self.carrier.post_send(pair, id, piece).unwrap();
    }

    /// The data of a receive posted by [`receive`](Side::receive).
    fn got(&self, wc: &Wc) -> Vec<u8> {
        let mut text = vec![0; wc.len as usize];
        assert!(self.own.read((wc.id as usize % 32) * SLOT, &mut text));
        text
    }

    fn take_done(&mut self, id: u64) -> Option<Wc> {
        let at = self.done.iter().position(|wc| wc.id == id)?;
        Some(self.done.remove(at))
    }

    fn take_request(&mut self) -> Option<(Ticket, Vec<u8>)> {
        let is = |news: &CarrierEvent| matches!(news, CarrierEvent::Request { .. });
        let at = self.events.iter().position(is)?;
        match self.events.remove(at) {
            CarrierEvent::Request {
                ticket,
                private_data: private,
                ..
            } => Some((ticket, private)),
            _ => None,
        }
    }

    fn take_connected(&mut self, of: Pair) -> Option<Vec<u8>> {
        let is = |news: &CarrierEvent| matches!(news, CarrierEvent::Connected { pair, .. } if *pair == of);
        let at = self.events.iter().position(is)?;
        match self.events.remove(at) {
            CarrierEvent::Connected {
                private_data: private,
                ..
            } => Some(private),
            _ => None,
        }
    }

    fn take_end(&mut self, of: Pair) -> Option<String> {
        let is =
            |news: &CarrierEvent| matches!(news, CarrierEvent::Ended { pair, .. } if *pair == of);
        let at = self.events.iter().position(is)?;
        match self.events.remove(at) {
            CarrierEvent::Ended { why, .. } => Some(why),
            _ => None,
        }
    }
}

/// Turns of all sides until `look` returns a value; they sleep in between.
fn until<const N: usize, R>(
    mut sides: [&mut Side; N],
    mut look: impl FnMut(&mut [&mut Side; N]) -> Option<R>,
) -> R {
    let start = Instant::now();
    loop {
        sides.iter_mut().for_each(|side| side.turn());
        if let Some(found) = look(&mut sides) {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "nothing came: {sides:?}");
        if sides.iter_mut().all(|side| side.carrier.prepare_sleep()) {
            let mut on = Vec::new();
            sides.iter().for_each(|side| side.carrier.wait_fds(&mut on));
            assert!(on.iter().all(|sleeper| !sleeper.write));
            let mut fds: Vec<PollFd<'_>> = on
                .iter()
                .map(|sleeper| PollFd::from_borrowed_fd(sleeper.fd, PollFlags::IN))
                .collect();
            let limit = Timespec::try_from(PATIENCE).unwrap();
            poll(&mut fds, Some(&limit)).unwrap();
        }
    }
}

fn unit() -> Side {
    let at = "127.0.0.1:0".parse().unwrap();
    Side::new(IwarpCarrier::listen(at, Config::default()).unwrap())
}

fn host(unit: &Side) -> Side {
    let unit = unit.carrier.address().unwrap();
    Side::new(IwarpCarrier::dial(unit, Config::default()).unwrap())
}

/// One more pair on each side, connected, with receives 0 to 7 posted.
fn connect_pair(host: &mut Side, unit: &mut Side) -> (Pair, Pair) {
    let (a, b) = (
        host.carrier.create_pair(SMALL).unwrap(),
        unit.carrier.create_pair(SMALL).unwrap(),
    );
    for id in 0..8 {
        host.receive(a, id);
        unit.receive(b, id);
    }
    host.carrier.connect(a, b"may I?").unwrap();
    let (ticket, said) = until([host, unit], |[_, unit]| unit.take_request());
    assert_eq!(said, b"may I?");
    unit.carrier.accept(ticket, b, b"you may").unwrap();
    let mut answers = (None, None);
    let answers = until([host, unit], |[host, unit]| {
        answers.0 = answers.0.take().or_else(|| host.take_connected(a));
        answers.1 = answers.1.take().or_else(|| unit.take_connected(b));
        answers.0.clone().zip(answers.1.clone())
    });
    assert_eq!(answers, (b"you may".to_vec(), Vec::new()));
    (a, b)
}

fn connected() -> (Side, Side, Pair, Pair) {
    let mut unit = unit();
    let mut host = host(&unit);
    let (a, b) = connect_pair(&mut host, &mut unit);
    (host, unit, a, b)
}

#[test]
fn private_data_and_messages_pass_both_ways() {
    let (mut host, mut unit, a, b) = connected();
    host.send(a, 100, b"to the unit");
    let wc = until([&mut host, &mut unit], |[_, unit]| unit.take_done(0));
    assert_eq!((wc.qpn, wc.status), (b.0, Status::Success));
    assert_eq!(unit.got(&wc), b"to the unit");
    let wc = until([&mut host, &mut unit], |[host, _]| host.take_done(100));
    assert_eq!((wc.qpn, wc.op), (a.0, verbena::low::WcOp::Send));
    unit.send(b, 200, b"to the host");
    let wc = until([&mut host, &mut unit], |[host, _]| host.take_done(0));
    assert_eq!(host.got(&wc), b"to the host");
    assert_eq!(host.carrier.name(), "iwarp");
    assert!(!host.carrier.is_lossy() && host.carrier.deadline().is_none());
    assert_eq!(
        unit.carrier.local_addr(),
        unit.carrier.address().unwrap().to_string()
    );
}

#[test]
fn rejection_delivers_private_data() {
    let mut unit = unit();
    let mut host = host(&unit);
    let a = host.carrier.create_pair(SMALL).unwrap();
    host.carrier.connect(a, b"please").unwrap();
    let (ticket, _) = until([&mut host, &mut unit], |[_, unit]| unit.take_request());
    unit.carrier.reject(ticket, b"no such port");
    let (pair, private) = until([&mut host, &mut unit], |[host, _]| {
        match host.events.pop()? {
            CarrierEvent::Refused {
                pair,
                private_data: private,
                ..
            } => Some((pair, private)),
            news => panic!("{news:?}"),
        }
    });
    assert_eq!((pair, &private[..]), (a, &b"no such port"[..]));
    assert!(unit.carrier.accept(ticket, a, b"").is_err(), "answered");
    host.carrier.destroy(a);
}

#[test]
fn connecting_without_a_listener_is_refused() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = port.local_addr().unwrap();
    drop(port);
    let mut host = Side::new(IwarpCarrier::dial(closed, Config::default()).unwrap());
    let a = host.carrier.create_pair(SMALL).unwrap();
    host.carrier.connect(a, b"").unwrap();
    let why = until([&mut host], |[host]| match host.events.pop()? {
        CarrierEvent::Refused { why, .. } => Some(why),
        news => panic!("{news:?}"),
    });
    assert!(why.contains(&closed.to_string()), "{why}");
    assert!(unit().carrier.connect(a, b"").is_err(), "it listens");
}

#[test]
fn only_a_write_with_immediate_consumes_a_receive() {
    let (mut host, mut unit, a, b) = connected();
    assert!(host.own.write(40 * SLOT, b"first, second"));
    let (first, second) = (host.own.sge(40 * SLOT, 5), host.own.sge(40 * SLOT + 7, 6));
    host.carrier
        .post_write(a, 1000, first, unit.remote(3000), None)
        .unwrap();
    host.carrier
        .post_write(a, 1001, second, unit.remote(5000), Some(0x0102_0304))
        .unwrap();
    let wc = until([&mut host, &mut unit], |[_, unit]| unit.take_done(0));
    assert_eq!(wc.op, verbena::low::WcOp::ReceiveWriteImm);
    assert_eq!((wc.immediate, wc.len, wc.qpn), (Some(0x0102_0304), 6, b.0));
    for id in [1000, 1001] {
        let wc = until([&mut host, &mut unit], |[host, _]| host.take_done(id));
        assert_eq!(
            (wc.op, wc.status),
            (verbena::low::WcOp::Write, Status::Success)
        );
    }
    let (mut one, mut two) = ([0; 5], [0; 6]);
    assert!(unit.lent.read(3000, &mut one) && unit.lent.read(5000, &mut two));
    assert_eq!((&one, &two), (b"first", b"second"));
    assert!(unit.done.is_empty(), "the other write is not told");
    // Without a piece, as arrangement B posts them.
    unit.carrier.post_receive(b, 9, None).unwrap();
}

#[test]
fn copies_beyond_the_memory_are_refused() {
    let unit = unit();
    let len = unit.lent.len();
    assert!(unit.lent.write(len - 4, b"fits") && !unit.lent.write(len - 3, b"fits"));
    let mut four = [0; 4];
    assert!(unit.lent.read(len - 4, &mut four) && !unit.lent.read(len - 3, &mut four));
    assert_eq!(&four, b"fits");
    assert!(!unit.lent.read(usize::MAX, &mut four));
}

#[test]
fn write_to_local_memory_ends_both_pairs() {
    let (mut host, mut unit, a, b) = connected();
    assert!(unit.own.write(0, b"untouched"));
    let place = RemoteAddr {
        stag: unit.own.stag(),
        to: unit.own.address(),
    };
    let piece = host.own.sge(0, 9);
    host.carrier
        .post_write(a, 1000, piece, place, None)
        .unwrap();
    let why = until([&mut host, &mut unit], |[_, unit]| unit.take_end(b));
    let wc = until([&mut host, &mut unit], |[host, _]| host.take_done(1000));
    assert_eq!(wc.status, Status::RemAccessErr, "{why}");
    until([&mut host, &mut unit], |[host, _]| host.take_end(a));
    let mut still = [0; 9];
    assert!(unit.own.read(0, &mut still));
    assert_eq!(&still, b"untouched");
    // Posted receives complete as flushed, on both sides.
    for id in 0..8 {
        let wc = until([&mut host, &mut unit], |[_, unit]| unit.take_done(id));
        assert_eq!(wc.status, Status::WrFlushErr);
        let wc = until([&mut host, &mut unit], |[host, _]| host.take_done(id));
        assert_eq!(wc.status, Status::WrFlushErr);
    }
    assert!(
        unit.take_end(b).is_none() && host.take_end(a).is_none(),
        "told once"
    );
}

#[test]
fn send_beyond_own_memory_ends_the_pair() {
    let (mut host, mut unit, a, b) = connected();
    let beyond = host.own.sge(64 * SLOT - 1, 2);
    host.carrier.post_send(a, 1000, beyond).unwrap();
    let why = until([&mut host, &mut unit], |[host, _]| host.take_end(a));
    let wc = until([&mut host, &mut unit], |[host, _]| host.take_done(1000));
    assert_eq!(wc.status, Status::LocProtErr, "{why}");
    until([&mut host, &mut unit], |[_, unit]| unit.take_end(b));
}

#[test]
fn sends_wait_for_receives() {
    let (mut host, mut unit, a, b) = connected();
    for id in 0..12 {
        host.send(a, 100 + id, &[id as u8; 8]);
    }
    until([&mut host, &mut unit], |[host, unit]| {
        let refused = host.carrier.pairs[&a].qp.view().counters.rnr_received;
        (refused > 0 && unit.done.len() >= 8).then_some(())
    });
    assert_eq!(unit.done.len(), 8, "it has no more receives");
    (20..24).for_each(|id| unit.receive(b, id));
    for (id, word) in (20..24).zip(8..) {
        let wc = until([&mut host, &mut unit], |[_, unit]| unit.take_done(id));
        assert_eq!(unit.got(&wc), [word; 8]);
    }
    until([&mut host, &mut unit], |[host, _]| host.take_done(111));
    assert!(host.events.is_empty() && unit.events.is_empty());
}

#[test]
fn last_messages_arrive_before_the_end() {
    let (mut host, mut unit, a, b) = connected();
    for id in 0..8 {
        host.send(a, 100 + id, b"last words");
    }
    until([&mut host, &mut unit], |[host, _]| host.take_done(107));
    host.carrier.destroy(a);
    let received = until([&mut unit], |[unit]| {
        let words = unit.done.iter().filter(|wc| wc.status == Status::Success);
        let words = words.count();
        unit.take_end(b).map(|_| words)
    });
    assert_eq!(received, 8);
    unit.carrier.destroy(b);
    assert_eq!(unit.carrier.needed, 0);
}

#[test]
fn posted_receives_flush_when_the_peer_leaves() {
    let (mut host, mut unit, a, b) = connected();
    host.carrier.destroy(a);
    until([&mut unit], |[unit]| unit.take_end(b));
    for id in 0..8 {
        let wc = until([&mut unit], |[unit]| unit.take_done(id));
        assert_eq!((wc.status, wc.qpn), (Status::WrFlushErr, b.0));
    }
}

#[test]
fn pairs_of_one_carrier_are_independent() {
    const MANY: usize = 60;
    let mut unit = unit();
    let mut host = host(&unit);
    let pairs: Vec<_> = (0..MANY)
        .map(|_| connect_pair(&mut host, &mut unit))
        .collect();
    for (at, (a, _)) in pairs.iter().enumerate() {
        host.send(*a, 1000 + at as u64, b"one for each");
        until([&mut host, &mut unit], |[host, _]| {
            host.take_done(1000 + at as u64)
        });
    }
    let completed: BTreeSet<u32> = until([&mut host, &mut unit], |[_, unit]| {
        let completed: BTreeSet<u32> = unit.done.iter().map(|wc| wc.qpn).collect();
        (unit.done.len() >= MANY).then_some(completed)
    });
    assert_eq!(completed, pairs.iter().map(|(_, b)| b.0).collect());
    // The end of one affects no other.
    host.carrier.destroy(pairs[7].0);
    until([&mut host, &mut unit], |[_, unit]| {
        unit.take_end(pairs[7].1)
    });
    host.send(pairs[8].0, 5000, b"still here");
    until([&mut host, &mut unit], |[host, _]| host.take_done(5000));
    assert!(host.events.is_empty() && unit.events.is_empty());
}

#[test]
fn destroyed_pair_reports_and_places_nothing() {
    let (mut host, mut unit, a, b) = connected();
    for id in 0..8 {
        host.send(a, 100 + id, b"unheard");
    }
    until([&mut host], |[host]| host.take_done(107));
    // Some were polled already, and are kept for the next turn.
    assert!(!unit.carrier.prepare_sleep());
    let piece = host.lent.sge(0, 1 << 20);
    assert!(host.lent.write(0, &[7; 1 << 20]));
    for id in 0..16 {
        let to = unit.remote(0);
        host.carrier
            .post_write(a, 200 + id, piece, to, None)
            .unwrap();
    }
    assert_eq!(unit.carrier.early.len(), 8);
    unit.carrier.destroy(b);
    // Their number may be given to another pair later.
    assert!(unit.carrier.early.is_empty());
    let mut then = vec![0; 1 << 20];
    assert!(unit.lent.read(0, &mut then));
    until([&mut host], |[host]| host.take_end(a));
    unit.turn();
    let mut now = vec![0; 1 << 20];
    assert!(unit.lent.read(0, &mut now));
    assert!(then == now, "a write reached memory after the end");
    assert_eq!((&unit.done[..], &unit.events[..]), (&[][..], &[][..]));
    assert!(unit.carrier.post_receive(b, 1, None).is_err());
}

#[test]
fn pair_numbers_are_not_reused() {
    let mut unit = unit();
    let mut seen = BTreeSet::new();
    for _ in 0..3000 {
        let pair = unit.carrier.create_pair(SMALL).unwrap();
        assert!(seen.insert(pair));
        unit.carrier.destroy(pair);
    }
    let (mut host, mut unit, a, b) = connected();
    unit.carrier.next_pair = b.0;
    let other = unit.carrier.create_pair(SMALL).unwrap();
    assert_ne!(other, b, "it is in use");
    host.carrier.destroy(a);
    until([&mut unit], |[unit]| unit.take_end(b));
}

#[test]
fn posting_beyond_unreturned_completions_is_refused() {
    let (mut host, mut unit, a, b) = connected();
    for id in 8..16 {
        unit.receive(b, id);
    }
    let full = unit.carrier.post_receive(b, 99, None).unwrap_err();
    assert!(full.to_string().contains("16 receives"), "{full}");
    // The adapter's queue has room again, but their completions have not been returned.
    for id in 0..16 {
        host.send(a, 100 + id, b"x");
    }
    let sent = |host: &mut Side| host.carrier.pairs[&a].qp.view().sends == 0;
    wait_until("all are sent", || sent(&mut host));
    let piece = host.own.sge(0, 1);
    let full = host.carrier.post_send(a, 999, piece).unwrap_err();
    assert!(full.to_string().contains("16 sends"), "{full}");
    until([&mut host], |[host]| host.take_done(115));
    host.carrier.post_send(a, 999, piece).unwrap();
}

#[test]
fn sleep_wakes_for_messages_and_other_descriptors() {
    let (mut host, mut unit, a, b) = connected();
    let (tap, mut far) = UnixStream::pair().unwrap();
    let limit = Some(PATIENCE);
    let settle = |side: &mut Side| {
        while !side.carrier.prepare_sleep() {
            side.turn();
        }
    };
    settle(&mut unit);
    let mut others = [WaitFd::read(tap.as_fd())];
    unit.carrier
        .sleep(&mut others, Some(Duration::from_millis(5)))
        .unwrap();
    assert!(!others[0].ready, "it is the time");
    far.write_all(b"x").unwrap();
    unit.carrier.sleep(&mut others, limit).unwrap();
    assert!(others[0].ready);
    (&tap).read_exact(&mut [0]).unwrap();

    for round in 0..300 {
        settle(&mut unit);
        host.send(a, 100, b"wake up");
        host.turn();
        while unit.done.is_empty() {
            if unit.carrier.prepare_sleep() {
                let start = Instant::now();
                unit.carrier.sleep(&mut others, limit).unwrap();
                assert!(start.elapsed() < PATIENCE, "nothing woke it");
                assert!(!others[0].ready);
            }
            unit.turn();
        }
        assert_eq!(unit.done.remove(0).id, if round < 8 { round } else { 7 });
        unit.receive(b, 7);
        until([&mut host, &mut unit], |[host, _]| host.take_done(100));
    }
    // A signal that was taken by `sleep` is not taken twice, and none is left over.
    settle(&mut unit);
    host.carrier.destroy(a);
    until([&mut unit], |[unit]| unit.take_end(b));
}

/// On a queue that is never empty, events wait for the completions that existed, and not for ever.
#[test]
fn events_pass_a_queue_that_never_empties() {
    let mut carrier =
        IwarpCarrier::listen("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    carrier.defer(AdapterEvent::Request);
    assert!(carrier.next_deferred().is_some());
    carrier.more = true;
    carrier.defer(AdapterEvent::Request);
    let there = carrier.cq_capacity as u64;
    carrier.returned += there;
    assert!(carrier.next_deferred().is_none());
    carrier.returned += MAX_COMPLETIONS as u64;
    carrier.defer(AdapterEvent::Request);
    assert!(carrier.next_deferred().is_some());
    assert!(carrier.next_deferred().is_none(), "it came later");
}
