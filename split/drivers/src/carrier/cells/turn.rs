//! One turn: receives datagrams, handles timeouts, transmits, and reports completions and events. Every step is bounded, whatever arrives;
//! if work is left, the carrier does not become idle and the next turn continues.

use std::os::fd::AsFd;
use std::time::Instant;

use verbena_cells::{EndReason, Notice};
use verbena_nic::{Outbox, Wc};
use verbena_split_wire::cell::{DisconnectReason, RejectReason};
use verbena_stream::Time;

use super::datagram::PeerAddr;
use super::{ACKNOWLEDGED, CellCarrier};
use crate::carrier::{CarrierEvent, CarrierFd, Pair, Result, Ticket};

/// Receive calls per turn.
const RECEIVES: usize = 8;
/// Bytes sent per turn, exceeded by one batch at most.
const BYTES: usize = 1 << 20;

/// The reason reported for hosts without support for cookies.
const TOO_OLD: &str = "the host is too old: it does not support cookies (docs/cells.md); use the same version of Verbena on both sides";

impl CellCarrier {
    pub(super) fn take_turn(&mut self, now: Instant, done: &mut Vec<Wc>) -> Result<()> {
        let time = self.time(now);
        self.busy = false;
        self.receive(now, time)?;
        if self.due.is_some_and(|due| due <= time) {
            self.port.handle_timeout(time, &mut self.outbox);
            self.collect();
        }
        self.transmit(time)?;
        self.take_notices(now);
        self.due = self.port.deadline();
        done.append(&mut self.done);
        Ok(())
    }

    fn receive(&mut self, now: Instant, time: Time) -> Result<()> {
        if let Some(gate) = &mut self.cookie_check {
            gate.begin_batch(time)?;
        }
        for _ in 0..RECEIVES {
            let (port, outbox) = (&mut self.port, &mut self.outbox);
            let (cq, scratch, done) = (&self.cq, &mut self.scratch, &mut self.done);
            let gate = self.cookie_check.as_mut();
            let passed = self.socket.receive(now, gate, |from, proven, datagram| {
                match proven {
                    true => port.handle_cells_from(from, datagram, time, outbox),
                    false => port.handle_cells_unproven(from, datagram, time, outbox),
                }
                super::pairs::collect(cq, scratch, done);
            })?;
            self.send_cookies()?;
            self.counters.datagrams_in += passed.datagrams;
            self.counters.dropped += passed.dropped;
            self.counters.spoofed += passed.spoofed;
            if !passed.more {
                return Ok(());
            }
        }
        self.busy = true;
        Ok(())
    }

    /// Sends the gate's answers to requests without a cookie; what the socket does not take is dropped.
    fn send_cookies(&mut self) -> Result<()> {
        let Some(gate) = &mut self.cookie_check else {
            return Ok(());
        };
        if !gate.answers().is_empty() {
            self.counters.retries += gate.answers().len() as u64;
            self.socket.send(gate.answers())?;
        }
        for place in gate.finish_batch() {
            self.events.push_back(CarrierEvent::Rejected {
                from: place.to_string(),
                why: TOO_OLD.to_owned(),
            });
        }
        Ok(())
    }

    fn transmit(&mut self, time: Time) -> Result<()> {
        let mut bytes = 0;
        loop {
            self.send()?;
            if self.full {
                return Ok(());
            }
            if bytes >= BYTES {
                self.busy = true;
                return Ok(());
            }
            let filled = self.fill(time);
            if filled == 0 {
                return Ok(());
            }
            bytes += filled;
        }
    }

    /// Fills a batch; returns its bytes.
    fn fill(&mut self, time: Time) -> usize {
        let mut bytes = 0;
        while !self.outgoing.is_full() {
            let mut datagram = self.outgoing.take_spare();
            let line = &self.socket;
            let room = |port| line.max_datagram(port);
            let to = self
                .port
                .poll_transmit_to(room, time, &mut datagram, &mut self.outbox);
            self.collect();
            let Some(port) = to else {
                self.outgoing.return_spare(datagram);
                break;
            };
            if self.cookie_check.is_none() {
                verbena_cells::cookie::pad(&mut datagram);
            }
            bytes += datagram.len();
            match self.socket.peer_addr(port) {
                Some(place) => self.outgoing.push(port, place, datagram),
                None => {
                    self.counters.lost += 1;
                    self.outgoing.return_spare(datagram);
                }
            }
        }
        self.outgoing.sort();
        // The adapter's events are not used: completions are polled, and notices report the rest.
        if !self.outbox.is_empty() {
            self.outbox = Outbox::new();
        }
        bytes
    }

    /// Sends waiting datagrams until the socket's buffer is full.
    fn send(&mut self) -> Result<()> {
        self.full = false;
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let sent = self.socket.send(self.outgoing.waiting())?;
        self.outgoing.remove_sent(sent.done);
        self.counters.lost += sent.lost as u64;
        self.counters.datagrams_out += (sent.done - sent.lost) as u64;
        self.full = sent.full;
        Ok(())
    }

    fn take_notices(&mut self, now: Instant) {
        while let Some(notice) = self.port.poll_notice() {
            let news = match notice {
                Notice::Request {
                    ticket,
                    listener,
                    from,
                    private,
                } => {
                    let ticket = Ticket(ticket.0);
                    self.remember_request(ticket, from.port, now);
                    CarrierEvent::Request {
                        ticket,
                        from: self.socket.describe(from.port),
                        source: self.socket.peer_addr(from.port).map(PeerAddr::limit_source),
                        private_data: private,
                        acknowledged: Some(listener == ACKNOWLEDGED),
                    }
                }
                Notice::Connected { wqp, private, .. } => CarrierEvent::Connected {
                    pair: Pair(wqp.get()),
                    private_data: private,
                },
                Notice::Rejected {
                    wqp,
                    reason,
                    private,
                } => CarrierEvent::Refused {
                    pair: Pair(wqp.get()),
                    why: rejected(reason).to_owned(),
                    private_data: private,
                },
                Notice::Unanswered { wqp } => CarrierEvent::Refused {
                    pair: Pair(wqp.get()),
                    why: "the peer did not answer".to_owned(),
                    private_data: Vec::new(),
                },
                Notice::Ended { wqp, reason: why } => {
                    self.release_peer(wqp.get());
                    CarrierEvent::Ended {
                        pair: Pair(wqp.get()),
                        why: ended(why).to_owned(),
                    }
                }
            };
            if self.is_current(&news) {
                self.events.push_back(news);
            }
        }
    }

    pub(super) fn wait_fd(&self) -> CarrierFd<'_> {
        CarrierFd {
            fd: self.socket.as_fd(),
            write: self.full,
        }
    }

    /// Whether there is nothing to do until an event.
    pub(super) fn is_idle(&self) -> bool {
        !self.busy && self.done.is_empty() && self.events.is_empty()
    }
}

fn rejected(reason: RejectReason) -> &'static str {
    match reason {
        RejectReason::Consumer => "the peer refused the connection",
        RejectReason::NoListener => {
            "the peer has no listener: the unit is too old, and does not support cookies (docs/cells.md); use the same version of Verbena on both sides"
        }
        RejectReason::Busy => "the peer has too many pending requests",
        RejectReason::Attributes => "the peer requires another kind of channel",
        _ => "the peer refused the connection for an unknown reason",
    }
}

fn ended(why: EndReason) -> &'static str {
    match why {
        EndReason::Peer(DisconnectReason::Closed) => "the peer closed the connection",
        EndReason::Peer(DisconnectReason::Failed) => "the connection failed at the peer",
        EndReason::Peer(DisconnectReason::NoChannel) => "the peer does not know the connection",
        EndReason::Peer(_) => "the peer closed the connection for an unknown reason",
        EndReason::PeerTimeout => "the peer no longer answers",
        EndReason::NoReceive => "the peer had no receive posted for too long",
        EndReason::TooManyNaks => "the peer requested the same packet too often",
        EndReason::Refused => "the peer refused a packet: access to its memory failed",
        EndReason::LocalMemory => "access to local memory failed",
        EndReason::Overflow => "completions were lost",
    }
}
