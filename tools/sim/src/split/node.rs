//! A host or an I/O unit: a port, its memory, and the ends of its service connections.
//! An end that is over leaves only memory that must not be written any more; that memory is kept for the check. A node
//! learns of others only through cells.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use verbena_cells::{Config, EndReason, Notice, Peer, Port, Ticket};
use verbena_mem::{Pd, Policy, Tpt};
use verbena_nic::Outbox;
use verbena_push::Arrangement;
use verbena_split_wire::cell::PacketSeq;
use verbena_stream::Time;
use verbena_wire::number::Qpn;

use super::accounting::PacketAccounting;
use super::end::{Activity, End, EndContext};
use super::memory::Memory;
use super::service_id::ServiceId;
use super::switches::{Switches, address};
use crate::rng::Rng;

/// The numbers at which units accept requests, for channels with and without acknowledgement.
const LISTENERS: [(bool, u32); 2] = [(true, 7), (false, 8)];
/// The first number of a work queue pair.
const FIRST: u32 = 100;

/// What a node shares with the run.
pub(super) struct RunContext<'a> {
    pub(super) fabric: &'a mut Switches,
    pub(super) accounting: &'a mut BTreeMap<u32, PacketAccounting>,
    pub(super) rng: &'a mut Rng,
    pub(super) now: Time,
}

/// Why an end is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PairEnd {
    /// The channel adapter ended it.
    Ended(EndReason),
    /// It was refused or not answered.
    Refused,
    /// The peer was silent for too long.
    PeerSilent,
    /// The host has made a new one.
    Replaced,
    /// The host has closed it.
    Closed,
}

/// A host or a unit.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) index: usize,
    port: Port,
    tpt: Arc<Tpt>,
    out: Outbox,
    room: usize,
    pub(super) ends: Vec<End>,
    ended_memory: Vec<Memory>,
    domains: u32,
    /// Ends that are over, to be checked.
    pub(super) ended: Vec<(ServiceId, PairEnd)>,
    pub(super) deadline: Option<Time>,
}

impl Node {
    pub(super) fn new(place: usize, is_unit: bool, rng: &mut Rng) -> Result<Node, String> {
        let config = Config {
            cell: rng.pick(&[64, 200, 256, 256, 512]),
            window: rng.len(2, 16),
            timeout: Duration::from_millis(3),
            retries: 8,
            connect_timeout: Duration::from_millis(5),
            ..Config::default()
        };
        let mut port = Port::new(address(place), config).map_err(|e| e.to_string())?;
        for (acknowledged, number) in LISTENERS.iter().filter(|_| is_unit) {
            let listening = port.listen(Qpn::wrapping(*number), *acknowledged);
            listening.map_err(|e| e.to_string())?;
        }
        Ok(Node {
            index: place,
            port,
            tpt: Arc::new(Tpt::new(1..4096, Policy::Verbs, rng.draw())),
            out: Outbox::new(),
            room: rng.len(600, 1400),
            ends: Vec::new(),
            ended_memory: Vec::new(),
            domains: 0,
            ended: Vec::new(),
            deadline: None,
        })
    }

    /// Calls a function with each end and its context.
    fn for_each_end(
        &mut self,
        shared: &mut RunContext<'_>,
        mut work: impl FnMut(&mut End, &mut EndContext<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut here = EndContext {
            port: &mut self.port,
            out: &mut self.out,
            accounting: shared.accounting,
            rng: shared.rng,
            now: shared.now,
        };
        self.ends
            .iter_mut()
            .try_for_each(|end| work(end, &mut here))
    }

    /// Makes an end with the lowest free numbers, so that they are reused often.
    fn make(
        &mut self,
        name: ServiceId,
        at_unit: bool,
        shared: &mut RunContext<'_>,
    ) -> Result<(), String> {
        let taken = |number: &u32| self.port.view(Qpn::wrapping(*number)).is_none();
        let numbers = (FIRST..).filter(taken).map(Qpn::wrapping);
        let pairs = numbers.take(ServiceId::channels(name.arrangement).len());
        let pairs: Vec<Qpn> = pairs.collect();
        self.domains += 1;
        let mut here = EndContext {
            port: &mut self.port,
            out: &mut self.out,
            accounting: shared.accounting,
            rng: shared.rng,
            now: shared.now,
        };
        let parts = (&self.tpt, Pd(self.domains), pairs);
        let end = End::new(name, at_unit, parts, &mut here)?;
        self.ends.push(end);
        Ok(())
    }

    /// A host requests a service connection from a unit.
    pub(super) fn connect(
        &mut self,
        name: ServiceId,
        shared: &mut RunContext<'_>,
    ) -> Result<(), String> {
        self.make(name, false, shared)?;
        let acknowledged = name.arrangement != Arrangement::Sends;
        let listener = LISTENERS.iter().find(|(kind, _)| *kind == acknowledged);
        let to = Peer {
            port: address(name.unit),
            wqp: Qpn::wrapping(listener.map_or(0, |(_, number)| *number)),
        };
        let pairs = self.ends.last().map(|end| end.pairs.clone());
        let channels = ServiceId::channels(name.arrangement);
        for (channel, pair) in channels.iter().zip(pairs.unwrap_or_default()) {
            let first = PacketSeq::new(shared.rng.draw() as u32);
            let asked = self
                .port
                .connect(pair, to, first, &name.private_data(*channel));
            asked.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Ends one end.
    pub(super) fn end(
        &mut self,
        at: usize,
        why: PairEnd,
        shared: &mut RunContext<'_>,
    ) -> Result<(), String> {
        let end = self.ends.swap_remove(at);
        self.ended.push((end.id, why));
        let mut here = EndContext {
            port: &mut self.port,
            out: &mut self.out,
            accounting: shared.accounting,
            rng: shared.rng,
            now: shared.now,
        };
        self.ended_memory.extend(end.close(&mut here)?);
        Ok(())
    }

    /// Cells arrived.
    pub(super) fn handle_cells(&mut self, cell: &[u8], now: Time) {
        self.port.handle_cells(cell, now, &mut self.out);
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.port.handle_timeout(now, &mut self.out);
    }

    /// Lets the programs act.
    pub(super) fn tick(
        &mut self,
        mood: Activity,
        shared: &mut RunContext<'_>,
    ) -> Result<(), String> {
        self.for_each_end(shared, |end, here| end.tick(mood, here))?;
        while let Some(at) = self
            .ends
            .iter()
            .position(|end| end.is_peer_silent(shared.now))
        {
            self.end(at, PairEnd::PeerSilent, shared)?;
        }
        Ok(())
    }

    /// Does everything that can be done at this time.
    pub(super) fn serve(&mut self, shared: &mut RunContext<'_>) -> Result<(), String> {
        self.for_each_end(shared, End::serve)?;
        while let Some(notice) = self.port.poll_notice() {
            self.handle_notice(notice, shared)?;
        }
        self.for_each_end(shared, End::serve)?;
        let mut datagram = Vec::new();
        let (room, now) = (self.room, shared.now);
        while let Some(_to) = self
            .port
            .poll_transmit(room, now, &mut datagram, &mut self.out)
        {
            shared.fabric.send(self.index, &datagram, now)?;
            // What was transmitted completes, and may cause more (P2).
            self.for_each_end(shared, End::serve)?;
        }
        self.deadline = self.port.deadline();
        Ok(())
    }

    fn handle_notice(&mut self, notice: Notice, shared: &mut RunContext<'_>) -> Result<(), String> {
        let find = |ends: &[End], wqp: Qpn| {
            let mut all = ends.iter().enumerate();
            all.find_map(|(at, end)| Some((at, end.pairs.iter().position(|p| *p == wqp)?)))
        };
        match notice {
            Notice::Request {
                ticket, private, ..
            } => self.request(ticket, &private, shared),
            Notice::Connected { wqp, .. } => {
                if let Some((at, channel)) = find(&self.ends, wqp) {
                    self.ends[at].connected[channel] = true;
                }
                Ok(())
            }
            Notice::Rejected { wqp, .. } | Notice::Unanswered { wqp } => {
                match find(&self.ends, wqp) {
                    Some((at, _)) => self.end(at, PairEnd::Refused, shared),
                    None => Ok(()),
                }
            }
            Notice::Ended { wqp, reason: why } => match find(&self.ends, wqp) {
                Some((at, _)) => self.end(at, PairEnd::Ended(why), shared),
                None => Ok(()),
            },
        }
    }

    /// A host requests a channel; a newer request replaces the connection that the host had before.
    fn request(
        &mut self,
        ticket: Ticket,
        private: &[u8],
        shared: &mut RunContext<'_>,
    ) -> Result<(), String> {
        let (name, channel) = ServiceId::parse(private).ok_or("an unknown connection request")?;
        let like = |end: &End| end.id.is_same_service(&name);
        let old = self.ends.iter().position(like);
        if let Some(at) = old
            && self.ends[at].id.number < name.number
        {
            self.end(at, PairEnd::Replaced, shared)?;
        }
        if self.ends.iter().all(|end| !like(end)) {
            self.make(name, true, shared)?;
        }
        let end = self.ends.iter_mut().find(|end| end.id == name);
        let channel = channel as usize;
        match end {
            Some(end) if !end.connected[channel] => {
                let first = PacketSeq::new(shared.rng.draw() as u32);
                let accepted = self.port.accept(ticket, end.pairs[channel], first, b"");
                accepted.map_err(|e| format!("{name}: {e}"))?;
                end.connected[channel] = true;
                Ok(())
            }
            // An older request that arrived after a newer one.
            _ => self.port.reject(ticket, &[]).map_err(|e| e.to_string()),
        }
    }

    /// Memory of ended connections was not written, and nothing of it is registered any more.
    pub(super) fn judge(mut self) -> Result<(), String> {
        let place = self.index;
        let of = |why| format!("node {place}: {why}");
        self.ended_memory
            .iter()
            .try_for_each(Memory::judge)
            .map_err(of)?;
        self.ended_memory.clear();
        match (self.ends.len(), self.tpt.len()) {
            (0, 0) => Ok(()),
            (ends, regions) => Err(of(format!("{ends} ends and {regions} regions are left"))),
        }
    }
}
