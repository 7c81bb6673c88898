//! What a work queue pair says while it connects: a Connect until it is answered, an Accept whenever it is asked for.
//! It promises that both sides begin with the numbers the other one named, and that the smaller cell size holds.
//! It refuses to know listeners.

use verbena_stream::Time;
use verbena_wire::cell::{
    Body, Cell, Cookie, NakReason, PacketSeq, PortAddress, RejectReason, Terms,
};

use super::Wqp;
use crate::config::Config;
use crate::descriptor::Peer;
use crate::notice::{Effects, Notice};
use crate::state::{Event, State};

/// What is said, and how often it was.
#[derive(Debug)]
pub(crate) struct Hello {
    pub(crate) private: Vec<u8>,
    /// What the listener wants to see in the Connect, once it has said it.
    cookie: Option<Cookie>,
    /// The number of the Connect that is answered; none if this is the Connect.
    pub(crate) echo: Option<PacketSeq>,
    /// It must be said now.
    pub(crate) due: bool,
    pub(crate) tries: u32,
}

impl Wqp {
    /// Begins to ask a peer.
    pub(crate) fn connect(&mut self, to: Peer, first: PacketSeq, private: &[u8]) -> bool {
        let Some(next) = self.state.next(Event::Connect) else {
            return false;
        };
        self.state = next;
        self.peer = Some(to);
        self.begin(first);
        self.hello = Some(Hello {
            private: private.to_vec(),
            cookie: None,
            echo: None,
            due: true,
            tries: 0,
        });
        true
    }

    /// Agrees to what a peer asked.
    pub(crate) fn accept(
        &mut self,
        from: Peer,
        (first, theirs): (PacketSeq, PacketSeq),
        cell: u16,
        private: &[u8],
    ) -> bool {
        let Some(next) = self.state.next(Event::Accept) else {
            return false;
        };
        self.state = next;
        self.peer = Some(from);
        self.begin(first);
        self.bind(theirs, cell);
        self.hello = Some(Hello {
            private: private.to_vec(),
            cookie: None,
            echo: Some(theirs),
            due: true,
            tries: 0,
        });
        true
    }

    fn begin(&mut self, first: PacketSeq) {
        self.first_tx = first;
        self.una = first;
    }

    fn bind(&mut self, theirs: PacketSeq, cell: u16) {
        self.first_rx = theirs;
        self.expected = theirs;
        self.cell = self.cell.min(cell);
    }

    /// The same Connect came again: the Accept was lost.
    pub(crate) fn repeats(&mut self, from: Peer, packet: PacketSeq) -> bool {
        let same = self.peer == Some(from) && self.first_rx == packet && self.state.works();
        if let Some(hello) = self.hello.as_mut().filter(|_| same) {
            hello.due = true;
        }
        same
    }

    /// Is this the port that was asked?
    fn was_asked(&self, port: PortAddress) -> bool {
        let fits = |asked: PortAddress| asked == port || asked == PortAddress::WHOEVER;
        self.peer.is_some_and(|peer| fits(peer.port))
    }

    /// The listener wants the Connect again, with a cookie; it goes at once. The cookie that is said already is no news.
    pub(crate) fn asked_again(&mut self, from: Peer, echo: PacketSeq, cookie: Cookie) {
        let listener = self.peer.is_some_and(|peer| peer.wqp == from.wqp);
        let asked = self.was_asked(from.port) && listener && echo == self.first_tx;
        if let Some(hello) = self.hello.as_mut()
            && asked
            && self.state == State::Connecting
            && hello.cookie != Some(cookie)
        {
            hello.cookie = Some(cookie);
            hello.due = true;
        }
    }

    /// The peer agreed. False if this is not what it was asked, or makes no sense.
    pub(crate) fn accepted(
        &mut self,
        from: Peer,
        packet: PacketSeq,
        echo: PacketSeq,
        terms: &Terms<'_>,
        fx: &mut Effects,
    ) -> bool {
        let asked = self.was_asked(from.port) && echo == self.first_tx;
        let fits = terms.acknowledged == self.init.kind.acknowledged && terms.cell > 0;
        let next = self.state.next(Event::Accepted);
        let Some(next) = next.filter(|_| asked && fits) else {
            return false;
        };
        self.state = next;
        // It may be served by another number than the one that was asked.
        self.peer = Some(from);
        self.hello = None;
        self.timer = None;
        self.bind(packet, terms.cell);
        fx.notices.push_back(Notice::Connected {
            wqp: self.init.number,
            peer: from,
            private: terms.private.to_vec(),
        });
        true
    }

    /// The peer did not agree. False if this is not what it was asked.
    pub(crate) fn rejected(
        &mut self,
        from: Peer,
        echo: PacketSeq,
        reason: RejectReason,
        private: &[u8],
        fx: &mut Effects,
    ) -> bool {
        let listener = self.peer.is_some_and(|peer| peer.wqp == from.wqp);
        let asked = self.was_asked(from.port) && listener && echo == self.first_tx;
        let next = self.state.next(Event::Refused);
        let Some(next) = next.filter(|_| asked) else {
            return false;
        };
        self.state = next;
        self.stop_asking();
        fx.notices.push_back(Notice::Rejected {
            wqp: self.init.number,
            reason,
            private: private.to_vec(),
        });
        true
    }

    /// No answer came in time: once more, or never again.
    pub(super) fn ask_again(&mut self, now: Time, config: &Config, fx: &mut Effects) {
        let Some(hello) = self.hello.as_mut() else {
            return;
        };
        if hello.tries < config.retries {
            hello.due = true;
            // If the carrier takes nothing, the clock runs all the same.
            hello.tries += 1;
            self.timer = Some(now + config.connect_timeout);
            return;
        }
        if let Some(next) = self.state.next(Event::Refused) {
            self.state = next;
            self.stop_asking();
            let wqp = self.init.number;
            fx.notices.push_back(Notice::Unanswered { wqp });
        }
    }

    fn stop_asking(&mut self) {
        self.peer = None;
        self.hello = None;
        self.timer = None;
    }

    /// The cell that connects, if it must be said now.
    pub(super) fn hello_cell<'a>(&'a self, here: PortAddress, config: &Config) -> Option<Cell<'a>> {
        let hello = self.hello.as_ref().filter(|hello| hello.due)?;
        let terms = Terms {
            acknowledged: self.init.kind.acknowledged,
            cell: config.cell,
            private: &hello.private,
        };
        Some(Cell {
            way: self.way(here, self.peer?),
            connected: true,
            packet: self.first_tx,
            body: match hello.echo {
                None => Body::Connect {
                    terms,
                    cookie: hello.cookie,
                },
                Some(echo) => Body::Accept { echo, terms },
            },
        })
    }

    /// It was said.
    pub(super) fn said_hello(&mut self, now: Time, config: &Config) {
        if let Some(hello) = self.hello.as_mut() {
            hello.due = false;
            if hello.echo.is_none() && self.timer.is_none() {
                self.timer = Some(now + config.connect_timeout);
            }
        }
    }

    /// The acknowledgement of a connected channel that must be said now.
    pub(super) fn answer_cell(&self, here: PortAddress) -> Option<Cell<'static>> {
        let cell = |packet, body| Cell {
            way: self.way(here, self.peer.unwrap_or(NOBODY)),
            connected: true,
            packet,
            body,
        };
        match (self.owed_nak, self.owed_ack) {
            (Some(reason), _) => Some(cell(self.expected, Body::Nak(reason))),
            (None, true) => Some(cell(self.expected.previous(), Body::Ack)),
            (None, false) => None,
        }
    }

    /// The answer to a connectionless packet that must be said now.
    pub(super) fn loose_answer_cell(&self, here: PortAddress) -> Option<Cell<'static>> {
        let (to, packet, nak): (Peer, PacketSeq, Option<NakReason>) = *self.owed.front()?;
        Some(Cell {
            way: self.way(here, to),
            connected: false,
            packet,
            body: nak.map_or(Body::Ack, Body::Nak),
        })
    }
}

const NOBODY: Peer = Peer {
    port: PortAddress([0; 6]),
    wqp: verbena_wire::number::Qpn::wrapping(0),
};
