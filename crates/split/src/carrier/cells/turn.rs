//! One turn: receives datagrams, handles timeouts, transmits, and reports completions and events. Every step is bounded, whatever arrives;
//! if work is left, the carrier does not become idle and the next turn continues.

use std::os::fd::AsFd;
use std::time::Instant;

use verbena_cells::{Notice, Why};
use verbena_nic::{Outbox, Wc};
use verbena_stream::Time;
use verbena_wire::cell::{Ending, RejectReason};

use super::line::Place;
use super::{ACKNOWLEDGED, CellCarrier};
use crate::carrier::{News, Pair, Result, Sleeper, Ticket};

/// Receive calls per turn.
const RECEIVES: usize = 8;
/// Bytes sent per turn, exceeded by one batch at most.
const BYTES: usize = 1 << 20;

/// The reason reported for hosts without support for cookies.
const TOO_OLD: &str = "the host is too old: it knows no cookies (docs/cells.md); take the same version of Verbena on both sides";

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
        if let Some(gate) = &mut self.gate {
            gate.begin(time)?;
        }
        for _ in 0..RECEIVES {
            let (port, outbox) = (&mut self.port, &mut self.outbox);
            let (cq, scratch, done) = (&self.cq, &mut self.scratch, &mut self.done);
            let gate = self.gate.as_mut();
            let passed = self.line.receive(now, gate, |from, proven, datagram| {
                match proven {
                    true => port.handle_cells_from(from, datagram, time, outbox),
                    false => port.handle_cells_unproven(from, datagram, time, outbox),
                }
                super::pairs::collect(cq, scratch, done);
            })?;
            self.answer_strangers()?;
            self.counters.datagrams_in += passed.datagrams;
            self.counters.strangers += passed.strangers;
            self.counters.diverted += passed.diverted;
            if !passed.more {
                return Ok(());
            }
        }
        self.busy = true;
        Ok(())
    }

    /// Sends the gate's answers to requests without a cookie; what the socket does not take is dropped.
    fn answer_strangers(&mut self) -> Result<()> {
        let Some(gate) = &mut self.gate else {
            return Ok(());
        };
        if !gate.answers().is_empty() {
            self.counters.retries += gate.answers().len() as u64;
            self.line.send(gate.answers())?;
        }
        for place in gate.answered() {
            self.news.push_back(News::Rejected {
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
            let line = &self.line;
            let room = |port| line.room(port);
            let to = self
                .port
                .poll_transmit_to(room, time, &mut datagram, &mut self.outbox);
            self.collect();
            let Some(port) = to else {
                self.outgoing.keep(datagram);
                break;
            };
            if self.gate.is_none() {
                verbena_cells::cookie::pad(&mut datagram);
            }
            bytes += datagram.len();
            match self.line.place(port) {
                Some(place) => self.outgoing.push(port, place, datagram),
                None => {
                    self.counters.lost += 1;
                    self.outgoing.keep(datagram);
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
        let sent = self.line.send(self.outgoing.waiting())?;
        self.outgoing.sent(sent.done);
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
                    News::Request {
                        ticket,
                        from: self.line.describe(from.port),
                        source: self.line.place(from.port).map(Place::counts_for),
                        private,
                        acknowledged: Some(listener == ACKNOWLEDGED),
                    }
                }
                Notice::Connected { wqp, private, .. } => News::Connected {
                    pair: Pair(wqp.get()),
                    private,
                },
                Notice::Rejected {
                    wqp,
                    reason,
                    private,
                } => News::Refused {
                    pair: Pair(wqp.get()),
                    why: rejected(reason).to_owned(),
                    private,
                },
                Notice::Unanswered { wqp } => News::Refused {
                    pair: Pair(wqp.get()),
                    why: "nobody answered".to_owned(),
                    private: Vec::new(),
                },
                Notice::Ended { wqp, why } => {
                    self.let_go(wqp.get());
                    News::Ended {
                        pair: Pair(wqp.get()),
                        why: ended(why).to_owned(),
                    }
                }
            };
            if self.is_wanted(&news) {
                self.news.push_back(news);
            }
        }
    }

    pub(super) fn sleeper(&self) -> Sleeper<'_> {
        Sleeper {
            fd: self.line.as_fd(),
            write: self.full,
        }
    }

    /// Whether there is nothing to do until an event.
    pub(super) fn is_idle(&self) -> bool {
        !self.busy && self.done.is_empty() && self.news.is_empty()
    }
}

fn rejected(reason: RejectReason) -> &'static str {
    match reason {
        RejectReason::Consumer => "the other side does not agree",
        RejectReason::NoListener => {
            "nobody listens there: the unit is too old, and knows no cookies (docs/cells.md); take the same version of Verbena on both sides"
        }
        RejectReason::Busy => "too many requests wait there",
        RejectReason::Attributes => "the other side wants another kind of channel",
        _ => "the other side says no for a reason that is not known here",
    }
}

fn ended(why: Why) -> &'static str {
    match why {
        Why::Peer(Ending::Closed) => "the other side closed it",
        Why::Peer(Ending::Failed) => "it failed at the other side",
        Why::Peer(Ending::NoChannel) => "the other side knows nothing of it",
        Why::Peer(_) => "the other side ended it for a reason that is not known here",
        Why::Silent => "the other side does not answer any more",
        Why::Busy => "the other side had no receive for too long",
        Why::Damaged => "the other side asked for the same packet too often",
        Why::Refused => "the other side's memory refused a packet",
        Why::Memory => "memory of this side refused a request",
        Why::Overflow => "completions were lost",
    }
}
