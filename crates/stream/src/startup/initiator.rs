//! The initiator's half of a startup: it sends the Request and validates the Reply.
//! Read depths and the ready-to-receive message are computed as RFC 6581 §9 says. A peer that only echoes the Request's reserved
//! bits does not agree to the extensions: the Reply must have `EXT_AGREE` and not `EXT_OFFER`.

use verbena_wire::mpa::enhanced::{Enhanced, RtrKinds};
use verbena_wire::mpa::startup::{EXT_AGREE, EXT_OFFER, Frame, Kind};
use verbena_wire::rdmap::LlpError;

use super::{Agreement, Endpoint, Event, Failure, Misuse, Outcome, Role, Rtr, State, Terms};
use crate::time::Time;

impl Endpoint {
    /// Begins a startup on a new connection: the Request is ready to be sent.
    pub fn initiator(terms: Terms, private_data: &[u8], now: Time) -> Result<Endpoint, Misuse> {
        let frame = Frame::new(
            Kind::Request,
            terms.revision,
            terms.request_flags(),
            terms.request_block(),
            private_data,
        )?;
        let mut outbox = Vec::new();
        frame.emit(&mut outbox);
        Ok(Endpoint {
            role: Role::Initiator,
            state: State::AwaitReply,
            deadline: now + terms.timeout,
            inbox: Vec::new(),
            outbox,
            outcome: None,
            terms,
        })
    }

    pub(super) fn handle_reply(&mut self, reply: &Frame<'_>) {
        if reply.flags().reject {
            let private_data = reply.private_data().to_vec();
            return self.enter(
                Event::FrameRejects,
                Some(Outcome::Rejected { private_data }),
            );
        }
        // A peer that replies in another revision did not understand the Request.
        if reply.revision() != self.terms.revision {
            return self.fail(Event::FrameBad, Failure::RevisionChanged);
        }
        let mut agreement = self.agreement_with(reply);
        if let Some(block) = reply.enhanced() {
            match self.read_depths(&block) {
                Ok((ird, ord)) => (agreement.ird, agreement.ord) = (ird, ord),
                Err(reason) => {
                    return self.fail_with_terminate(reason, LlpError::InsufficientIrd, &agreement);
                }
            }
        }
        match self.choose_rtr(reply.enhanced(), agreement.extensions) {
            Some(rtr) => agreement.rtr = rtr,
            None => {
                return self.fail_with_terminate(
                    Failure::NoCommonRtr,
                    LlpError::NoMatchingRtr,
                    &agreement,
                );
            }
        }
        self.enter(Event::FrameGood, Some(Outcome::Established(agreement)));
    }

    fn agreement_with(&self, reply: &Frame<'_>) -> Agreement {
        let flags = reply.flags();
        Agreement {
            role: self.role,
            revision: reply.revision(),
            // RFC 5044 §7.1.1: either C bit enables checksums; M is for the direction towards its sender.
            crc: self.terms.crc || flags.crc,
            markers_tx: flags.markers,
            markers_rx: self.terms.markers,
            ird: self.terms.ird,
            ord: self.terms.ord,
            rtr: Rtr::None,
            // A peer that echoes reserved bits returns EXT_OFFER; Verbena answers with EXT_AGREE alone.
            extensions: self.terms.extensions
                && flags.reserved & EXT_AGREE != 0
                && flags.reserved & EXT_OFFER == 0,
            private_data: reply.private_data().to_vec(),
        }
    }

    /// RFC 6581 §9.1: fails if this side's IRD is below the responder's ORD; lowers the ORD to the responder's IRD.
    fn read_depths(&self, block: &Enhanced) -> Result<(u16, u16), Failure> {
        let (limit, wanted) = (self.terms.ird, block.ord.get());
        if block.ord.is_negotiated() && wanted > limit {
            return Err(Failure::InsufficientIrd { wanted, limit });
        }
        let ord = if block.ird.is_negotiated() {
            self.terms.ord.min(block.ird.get())
        } else {
            self.terms.ord
        };
        Ok((limit, ord))
    }

    /// RFC 6581 §9.2: in the peer-to-peer model the first message is one that both sides support.
    fn choose_rtr(&self, block: Option<Enhanced>, extensions: bool) -> Option<Rtr> {
        if extensions {
            return Some(Rtr::Caps);
        }
        let Some(block) = block.filter(|b| b.peer_to_peer && self.terms.peer_to_peer) else {
            return Some(Rtr::None);
        };
        let common = RtrKinds {
            send: self.terms.rtr.send && block.rtr.send,
            write: self.terms.rtr.write && block.rtr.write,
            read: self.terms.rtr.read && block.rtr.read,
        };
        match common {
            RtrKinds { write: true, .. } => Some(Rtr::Write),
            RtrKinds { read: true, .. } => Some(Rtr::Read),
            RtrKinds { send: true, .. } => Some(Rtr::Send),
            _ => None,
        }
    }
}
