//! Connection setup: Connects to a peer, and requests of peers that wait for the consumer. Requests are limited in number and time, and
//! a repeated one counts once. The first packet number of each direction is chosen by the consumer.

use verbena_split_wire::cell::{
    CellRoute, MAX_PRIVATE, PacketSeq, PortAddress, RejectReason, Terms,
};
use verbena_stream::Time;
use verbena_wire::number::Qpn;

use super::{Port, get};
use crate::descriptor::Peer;
use crate::error::Error;
use crate::notice::{Notice, StrayAnswer, StrayBody, Ticket};
use crate::wqp::EventContext;

/// A Connect that waits for the consumer.
#[derive(Debug)]
pub(super) struct Request {
    ticket: Ticket,
    listener: Qpn,
    from: Peer,
    first: PacketSeq,
    cell: u16,
    acknowledged: bool,
    private: Vec<u8>,
    /// The consumer has been told.
    notified: bool,
    pub(super) deadline: Time,
}

impl Port {
    /// Accepts requests at this number, for acknowledged channels or for unacknowledged ones.
    pub fn listen(&mut self, number: Qpn, acknowledged: bool) -> Result<(), Error> {
        let key = number.get();
        if self.wqps.contains_key(&key) || self.listeners.contains_key(&key) {
            return Err(Error::InUse(number));
        }
        if self.listeners.len() >= self.config.pairs {
            return Err(Error::Full(self.config.pairs));
        }
        self.listeners.insert(key, acknowledged);
        Ok(())
    }

    /// Stops listening; waiting requests are rejected.
    pub fn unlisten(&mut self, number: Qpn) -> Result<(), Error> {
        let gone = self.listeners.remove(&number.get());
        gone.ok_or(Error::Unknown(u64::from(number.get())))?;
        let waiting: Vec<Ticket> = self
            .requests
            .iter()
            .filter(|request| request.listener == number)
            .map(|request| request.ticket)
            .collect();
        for ticket in waiting {
            self.reject(ticket, &[])?;
        }
        Ok(())
    }

    /// Requests a connection from a listener. `first` is the number of the first packet, preferably random, so that cells of an earlier
    /// connection between the two are told apart.
    pub fn connect(
        &mut self,
        number: Qpn,
        to: Peer,
        first: PacketSeq,
        private: &[u8],
    ) -> Result<(), Error> {
        check(private)?;
        let wqp = get(&mut self.wqps, number)?;
        if !wqp.init.kind.connected {
            return Err(Error::Kind);
        }
        if !wqp.connect(to, first, private) {
            return Err(Error::State(wqp.state));
        }
        self.wake(number.get());
        Ok(())
    }

    /// Accepts a request: this work queue pair, which is idle and of the listener's kind, is then connected.
    pub fn accept(
        &mut self,
        ticket: Ticket,
        number: Qpn,
        first: PacketSeq,
        private: &[u8],
    ) -> Result<(), Error> {
        check(private)?;
        let at = self.find(ticket)?;
        let request = self.requests.get(at).ok_or(Error::Unknown(ticket.0))?;
        let wqp = get(&mut self.wqps, number)?;
        if !wqp.init.kind.connected || wqp.init.kind.acknowledged != request.acknowledged {
            return Err(Error::Kind);
        }
        let numbers = (first, request.first);
        if !wqp.accept(request.from, numbers, request.cell, private) {
            return Err(Error::State(wqp.state));
        }
        self.accepted.insert(request.from, number.get());
        self.requests.remove(at);
        self.wake(number.get());
        Ok(())
    }

    /// Rejects a request, with private data.
    pub fn reject(&mut self, ticket: Ticket, private: &[u8]) -> Result<(), Error> {
        check(private)?;
        let at = self.find(ticket)?;
        if let Some(request) = self.requests.remove(at) {
            let way = reply_way(self.address, request.from, request.listener);
            self.queue_reject(way, request.first, RejectReason::Consumer, private);
        }
        Ok(())
    }

    fn find(&self, ticket: Ticket) -> Result<usize, Error> {
        let at = self.requests.iter().position(|r| r.ticket == ticket);
        at.ok_or(Error::Unknown(ticket.0))
    }

    pub(super) fn next_request(&mut self) -> Option<Notice> {
        let request = self.requests.iter_mut().find(|request| !request.notified)?;
        request.notified = true;
        Some(Notice::Request {
            ticket: request.ticket,
            listener: request.listener,
            from: request.from,
            private: request.private.clone(),
        })
    }

    /// Handles a Connect.
    pub(super) fn on_connect(
        &mut self,
        from: Peer,
        listener: Qpn,
        first: PacketSeq,
        terms: &Terms<'_>,
        moment: &EventContext<'_>,
    ) {
        // The Accept was lost, or the Connect was duplicated.
        if let Some(&served) = self.accepted.get(&from)
            && let Some(wqp) = self.wqps.get_mut(&served)
            && wqp.on_repeated_connect(from, first)
        {
            self.wake(served);
            return;
        }
        let same = |r: &Request| r.from == from && r.first == first && r.listener == listener;
        if self.requests.iter().any(same) {
            return;
        }
        let way = reply_way(self.address, from, listener);
        let of_port = |r: &&Request| r.from.port == from.port;
        let many = self.requests.len() >= self.config.requests
            || self.requests.iter().filter(of_port).count() >= self.config.requests_per_peer;
        let no = match self.listeners.get(&listener.get()) {
            None => Some(RejectReason::NoListener),
            Some(acknowledged) if *acknowledged != terms.acknowledged => {
                Some(RejectReason::Attributes)
            }
            Some(_) if terms.max_payload == 0 => Some(RejectReason::Attributes),
            Some(_) if many => Some(RejectReason::Busy),
            Some(_) => None,
        };
        if let Some(reason) = no {
            self.counters.rejected += 1;
            return self.queue_reject(way, first, reason, &[]);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.requests.push_back(Request {
            ticket,
            listener,
            from,
            first,
            cell: terms.max_payload,
            acknowledged: terms.acknowledged,
            private: terms.private.to_vec(),
            notified: false,
            // As long as the peer repeats its Connect.
            deadline: moment.now
                + self.config.connect_timeout * (self.config.retries.saturating_add(2)),
        });
    }

    fn queue_reject(
        &mut self,
        way: CellRoute,
        echo: PacketSeq,
        reason: RejectReason,
        private: &[u8],
    ) {
        self.effects.queue_stray(StrayAnswer {
            way,
            packet: PacketSeq::default(),
            body: StrayBody::Reject(echo, reason, private.to_vec()),
        });
    }
}

/// The addressing of an answer to a cell that came to this number.
pub(crate) fn reply_way(here: PortAddress, to: Peer, number: Qpn) -> CellRoute {
    CellRoute {
        to: to.port,
        from: here,
        to_wqp: to.wqp,
        from_wqp: number,
    }
}

fn check(private: &[u8]) -> Result<(), Error> {
    if private.len() > MAX_PRIVATE {
        return Err(Error::Private(private.len()));
    }
    Ok(())
}
