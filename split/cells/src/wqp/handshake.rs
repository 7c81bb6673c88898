//! Connection setup of a work queue pair: a Connect until it is answered, and an Accept for every Connect received. Each side starts
//! with the packet number that the other one named, and the smaller cell size applies.

use verbena_split_wire::cell::{
    Body, Cell, Cookie, NakReason, PacketSeq, PortAddress, RejectReason, Terms,
};
use verbena_stream::Time;

use super::Wqp;
use crate::config::Config;
use crate::descriptor::Peer;
use crate::notice::{Effects, Notice};
use crate::state::{Event, State};

/// A Connect or an Accept, and how often it was sent.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) private: Vec<u8>,
    /// The cookie from the listener's Retry.
    cookie: Option<Cookie>,
    /// The number of the Connect that is answered; `None` in a Connect.
    pub(crate) echo: Option<PacketSeq>,
    /// It is to be sent now.
    pub(crate) due: bool,
    pub(crate) tries: u32,
}

impl Wqp {
    /// Starts to connect to a peer.
    pub(crate) fn connect(&mut self, to: Peer, first: PacketSeq, private: &[u8]) -> bool {
        let Some(next) = self.state.next(Event::Connect) else {
            return false;
        };
        self.state = next;
        self.peer = Some(to);
        self.set_first_tx(first);
        self.handshake = Some(Handshake {
            private: private.to_vec(),
            cookie: None,
            echo: None,
            due: true,
            tries: 0,
        });
        true
    }

    /// Accepts a peer's request.
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
        self.set_first_tx(first);
        self.set_first_rx(theirs, cell);
        self.handshake = Some(Handshake {
            private: private.to_vec(),
            cookie: None,
            echo: Some(theirs),
            due: true,
            tries: 0,
        });
        true
    }

    fn set_first_tx(&mut self, first: PacketSeq) {
        self.first_tx = first;
        self.una = first;
    }

    fn set_first_rx(&mut self, theirs: PacketSeq, cell: u16) {
        self.first_rx = theirs;
        self.expected = theirs;
        self.cell = self.cell.min(cell);
    }

    /// The same Connect arrived again: sends the Accept again.
    pub(crate) fn on_repeated_connect(&mut self, from: Peer, packet: PacketSeq) -> bool {
        let same = self.peer == Some(from) && self.first_rx == packet && self.state.is_active();
        if let Some(hello) = self.handshake.as_mut().filter(|_| same) {
            hello.due = true;
        }
        same
    }

    /// The Connect was addressed to this port.
    fn is_connect_target(&self, port: PortAddress) -> bool {
        let fits = |asked: PortAddress| asked == port || asked == PortAddress::ANY;
        self.peer.is_some_and(|peer| fits(peer.port))
    }

    /// A Retry: repeats the Connect at once with the cookie, unless it has that cookie already.
    pub(crate) fn on_retry(&mut self, from: Peer, echo: PacketSeq, cookie: Cookie) {
        let listener = self.peer.is_some_and(|peer| peer.wqp == from.wqp);
        let asked = self.is_connect_target(from.port) && listener && echo == self.first_tx;
        if let Some(hello) = self.handshake.as_mut()
            && asked
            && self.state == State::Connecting
            && hello.cookie != Some(cookie)
        {
            hello.cookie = Some(cookie);
            hello.due = true;
        }
    }

    /// An Accept. False if it does not match the Connect, or its terms are invalid.
    pub(crate) fn on_accept(
        &mut self,
        from: Peer,
        packet: PacketSeq,
        echo: PacketSeq,
        terms: &Terms<'_>,
        fx: &mut Effects,
    ) -> bool {
        let asked = self.is_connect_target(from.port) && echo == self.first_tx;
        let fits = terms.acknowledged == self.init.kind.acknowledged && terms.max_payload > 0;
        let next = self.state.next(Event::Accepted);
        let Some(next) = next.filter(|_| asked && fits) else {
            return false;
        };
        self.state = next;
        // The Accept may come from another number than the listener's.
        self.peer = Some(from);
        self.handshake = None;
        self.timer = None;
        self.set_first_rx(packet, terms.max_payload);
        fx.notices.push_back(Notice::Connected {
            wqp: self.init.number,
            peer: from,
            private: terms.private.to_vec(),
        });
        true
    }

    /// A Reject. False if it does not match the Connect.
    pub(crate) fn on_reject(
        &mut self,
        from: Peer,
        echo: PacketSeq,
        reason: RejectReason,
        private: &[u8],
        fx: &mut Effects,
    ) -> bool {
        let listener = self.peer.is_some_and(|peer| peer.wqp == from.wqp);
        let asked = self.is_connect_target(from.port) && listener && echo == self.first_tx;
        let next = self.state.next(Event::Refused);
        let Some(next) = next.filter(|_| asked) else {
            return false;
        };
        self.state = next;
        self.abandon_connect();
        fx.notices.push_back(Notice::Rejected {
            wqp: self.init.number,
            reason,
            private: private.to_vec(),
        });
        true
    }

    /// The Connect timed out: repeats it, or gives up.
    pub(super) fn on_connect_timeout(&mut self, now: Time, config: &Config, fx: &mut Effects) {
        let Some(hello) = self.handshake.as_mut() else {
            return;
        };
        if hello.tries < config.retries {
            hello.due = true;
            // Counted here, so that a carrier that takes nothing does not stop the timeout.
            hello.tries += 1;
            self.timer = Some(now + config.connect_timeout);
            return;
        }
        if let Some(next) = self.state.next(Event::Refused) {
            self.state = next;
            self.abandon_connect();
            let wqp = self.init.number;
            fx.notices.push_back(Notice::Unanswered { wqp });
        }
    }

    fn abandon_connect(&mut self) {
        self.peer = None;
        self.handshake = None;
        self.timer = None;
    }

    /// The Connect or Accept, if it is due.
    pub(super) fn handshake_cell<'a>(
        &'a self,
        here: PortAddress,
        config: &Config,
    ) -> Option<Cell<'a>> {
        let hello = self.handshake.as_ref().filter(|hello| hello.due)?;
        let terms = Terms {
            acknowledged: self.init.kind.acknowledged,
            max_payload: config.cell,
            private: &hello.private,
        };
        Some(Cell {
            route: self.way(here, self.peer?),
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

    /// The Connect or Accept was sent.
    pub(super) fn on_handshake_sent(&mut self, now: Time, config: &Config) {
        if let Some(hello) = self.handshake.as_mut() {
            hello.due = false;
            if hello.echo.is_none() && self.timer.is_none() {
                self.timer = Some(now + config.connect_timeout);
            }
        }
    }

    /// The acknowledgement of a connected channel, if it is due.
    pub(super) fn answer_cell(&self, here: PortAddress) -> Option<Cell<'static>> {
        let cell = |packet, body| Cell {
            route: self.way(here, self.peer.unwrap_or(NO_PEER)),
            connected: true,
            packet,
            body,
        };
        match (self.pending_nak, self.pending_ack) {
            (Some(reason), _) => Some(cell(self.expected, Body::Nak(reason))),
            (None, true) => Some(cell(self.expected.previous(), Body::Ack)),
            (None, false) => None,
        }
    }

    /// The next answer to a connectionless packet.
    pub(super) fn connectionless_ack_cell(&self, here: PortAddress) -> Option<Cell<'static>> {
        let (to, packet, nak): (Peer, PacketSeq, Option<NakReason>) =
            *self.pending_answers.front()?;
        Some(Cell {
            route: self.way(here, to),
            connected: false,
            packet,
            body: nak.map_or(Body::Ack, Body::Nak),
        })
    }
}

const NO_PEER: Peer = Peer {
    port: PortAddress([0; 6]),
    wqp: verbena_wire::number::Qpn::wrapping(0),
};
