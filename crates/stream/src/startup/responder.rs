//! The responder's half of a startup: it validates the Request, waits for the upper layer's decision, and sends the Reply.
//! Nothing is sent before a Request was validated; the Reply has the Request's revision and agrees to nothing that the Request
//! did not offer.

use verbena_wire::mpa::enhanced::{Depth, Enhanced, RtrKinds};
use verbena_wire::mpa::startup::{EXT_AGREE, EXT_OFFER, Flags, Frame, Kind};

use super::terms::{depth, served_depth};
use super::{Agreement, Endpoint, Event, Misuse, Outcome, Role, Rtr, State, Terms};
use crate::time::Time;

impl Endpoint {
    /// Waits for a Request on a new connection.
    pub fn responder(terms: Terms, now: Time) -> Endpoint {
        Endpoint {
            role: Role::Responder,
            state: State::AwaitRequest,
            deadline: now + terms.timeout,
            inbox: Vec::new(),
            outbox: Vec::new(),
            outcome: None,
            terms,
        }
    }

    /// What the Request offers, while it waits for a decision: the agreement if it were accepted with the current terms.
    pub fn proposal(&self) -> Option<Agreement> {
        let request = self.request()?;
        let mut agreement = self.agree(&request, self.reply_block(&request));
        // The initiator will not use more inbound reads than its own ORD.
        let asked = request.enhanced().map(|block| block.ord);
        if let Some(asked) = asked.filter(|depth| depth.is_negotiated()) {
            agreement.ird = agreement.ird.min(asked.get());
        }
        Some(agreement)
    }

    /// The upper layer accepts, with private data and read depths.
    pub fn accept(&mut self, ird: u16, ord: u16, private_data: &[u8]) -> Result<(), Misuse> {
        if self.state != State::Deciding {
            return Err(Misuse::NotDeciding(self.state));
        }
        self.terms.ird = ird;
        self.terms.ord = ord;
        let request = self.request().ok_or(Misuse::NotDeciding(self.state))?;
        let block = self.reply_block(&request);
        let agreement = self.agree(&request, block);
        let reply = self.reply(&request, false, block, private_data)?;
        self.answer(Event::Accept, reply, Outcome::Established(agreement));
        Ok(())
    }

    /// The upper layer rejects, with private data.
    pub fn reject(&mut self, private_data: &[u8]) -> Result<(), Misuse> {
        let request = self.request().ok_or(Misuse::NotDeciding(self.state))?;
        let block = self.reply_block(&request);
        let reply = self.reply(&request, true, block, private_data)?;
        self.answer(Event::Reject, reply, Outcome::Refused);
        Ok(())
    }

    pub(super) fn handle_request(&mut self, request: &Frame<'_>) {
        // Kept as bytes until the decision: the parsed frame borrows the input.
        self.inbox.clear();
        request.emit(&mut self.inbox);
        self.enter(Event::FrameGood, None);
    }

    fn request(&self) -> Option<Frame<'_>> {
        if self.state != State::Deciding {
            return None;
        }
        let parsed = Frame::parse(Kind::Request, &self.inbox).ok().flatten();
        parsed.map(|(frame, _)| frame)
    }

    fn answer(&mut self, event: Event, reply: Vec<u8>, outcome: Outcome) {
        self.outbox.extend(reply);
        self.enter(event, Some(outcome));
    }

    fn reply(
        &self,
        request: &Frame<'_>,
        reject: bool,
        block: Option<Enhanced>,
        private_data: &[u8],
    ) -> Result<Vec<u8>, Misuse> {
        let agreed = self.extensions_with(request) && !reject;
        let flags = Flags {
            markers: self.terms.markers,
            crc: request.flags().crc || self.terms.crc,
            reject,
            reserved: if agreed { EXT_AGREE } else { 0 },
        };
        let frame = Frame::new(Kind::Reply, request.revision(), flags, block, private_data)?;
        let mut out = Vec::new();
        frame.emit(&mut out);
        Ok(out)
    }

    fn extensions_with(&self, request: &Frame<'_>) -> bool {
        self.terms.extensions && request.flags().reserved & EXT_OFFER != 0
    }

    fn agree(&self, request: &Frame<'_>, block: Option<Enhanced>) -> Agreement {
        let extensions = self.extensions_with(request);
        let rtr = match block {
            _ if extensions => Rtr::Caps,
            Some(block) if block.peer_to_peer => Rtr::AnyOf(block.rtr),
            _ => Rtr::None,
        };
        let or = |depth: Depth, ours: u16| {
            if depth.is_negotiated() {
                depth.get()
            } else {
                ours
            }
        };
        Agreement {
            role: Role::Responder,
            revision: request.revision(),
            crc: self.terms.crc || request.flags().crc,
            markers_tx: request.flags().markers,
            markers_rx: self.terms.markers,
            ird: block.map_or(self.terms.ird, |b| or(b.ird, self.served(&b))),
            ord: block.map_or(self.terms.ord, |b| or(b.ord, self.terms.ord)),
            rtr,
            extensions,
            private_data: request.private_data().to_vec(),
        }
    }

    /// RFC 6581 §9.1: the ORD of the Reply fits the initiator's IRD; "not negotiated" is answered by "not negotiated".
    fn reply_block(&self, request: &Frame<'_>) -> Option<Enhanced> {
        let asked = request.enhanced()?;
        let rtr = self.reply_rtr(&asked);
        let ord = if asked.ird.is_negotiated() {
            depth(self.terms.ord.min(asked.ird.get()))
        } else {
            Depth::NOT_NEGOTIATED
        };
        let block = Enhanced {
            ird: Depth::NOT_NEGOTIATED,
            ord,
            peer_to_peer: asked.peer_to_peer,
            rtr,
        };
        Some(if asked.ord.is_negotiated() {
            let ird = served_depth(self.served(&block));
            Enhanced { ird, ..block }
        } else {
            block
        })
    }

    /// A zero-length Read as ready-to-receive message takes one slot even of an initiator that will never read.
    fn served(&self, reply: &Enhanced) -> u16 {
        let least = u16::from(reply.peer_to_peer && reply.rtr.read);
        self.terms.ird.max(least)
    }

    /// The kinds that both sides support; if there are none, all that this side supports, so that the initiator can report the mismatch.
    fn reply_rtr(&self, asked: &Enhanced) -> RtrKinds {
        let ours = self.terms.rtr;
        let none = RtrKinds {
            send: false,
            write: false,
            read: false,
        };
        if !asked.peer_to_peer {
            return none;
        }
        let common = RtrKinds {
            send: ours.send && asked.rtr.send,
            write: ours.write && asked.rtr.write,
            read: ours.read && asked.rtr.read,
        };
        if common == none { ours } else { common }
    }
}
