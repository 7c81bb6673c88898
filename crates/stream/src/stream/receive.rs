//! The receive half of a stream: passes the stage to [`Rx`](crate::rx::Rx) and acts on what arrives.
//! It promises that after a violation or a Terminate nothing received has any effect.
//! It refuses to complete work: that is its caller's, who sees every [`Delivery`].

use super::{Event, State, Stream};
use crate::delivery::{Claim, Delivery, Run, Step};
use crate::rx::{Foreseen, SendProgress};
use crate::time::Time;
use crate::violation::Violation;
use verbena_wire::Msn;

impl Stream {
    /// Looks at the stage: how many bytes were consumed from its front, and what is wanted next.
    ///
    /// On a violation the Terminate is already queued; the caller answers while the stream
    /// [`owes_answers`](Stream::owes_answers), sends the Terminate and closes.
    pub fn handle(&mut self, stage: &[u8], now: Time) -> Result<(usize, Step), Violation> {
        if !self.state.is_open() {
            // RFC 5041 §7: whatever follows an error is dropped silently.
            return Ok((stage.len(), Step::More(1)));
        }
        match self.rx.handle(stage, now, &mut self.ledger) {
            Ok((used, step)) => {
                if self.rx.saw_first() {
                    self.enter(Event::Opened);
                }
                if let Step::Deliver(delivery) = &step {
                    self.act_on(delivery);
                }
                Ok((used, step))
            }
            Err(violation) => {
                self.fail(violation);
                Err(violation)
            }
        }
    }

    /// What stands at the front of the stage, if it is a whole frame that had to come next: the short way past
    /// [`handle`](Stream::handle). Nothing has changed until [`came`](Stream::came) says that its payload is in its place.
    #[inline]
    pub fn foresee<'a>(&self, stage: &'a [u8]) -> Option<Foreseen<'a>> {
        if self.state != State::Running {
            return None;
        }
        self.rx.foresee(stage, &self.ledger)
    }

    /// What was foreseen has come, and its payload is where it belongs.
    #[inline]
    pub fn came(&mut self, foreseen: &Foreseen<'_>) {
        self.rx.came(foreseen, &mut self.ledger);
    }

    /// The payload that stands next, for a caller that can read it straight into its place.
    pub fn pending(&mut self) -> Option<Run> {
        self.state.is_open().then(|| self.rx.pending()).flatten()
    }

    /// The segment being received is the last of its message: what is placed ends in its memory (M9).
    pub fn in_last_segment(&self) -> bool {
        self.rx.in_last_segment()
    }

    /// Payload may be read straight into its place: nothing is summed, so nothing must be seen whole before.
    pub fn reads_directly(&self) -> bool {
        self.rx.reads_directly()
    }

    /// `n` bytes of the run were moved to their place.
    pub fn placed(&mut self, n: u32) {
        self.rx.placed(n);
    }

    /// Answers [`Step::Claim`].
    pub fn claim(&mut self, claim: Claim) -> Result<(), Violation> {
        let answered = match claim {
            // A standard peer cannot be told to wait (RFC 5041 §7).
            Claim::NotReady { .. } if !self.extensions => Err(Violation::NoReceive {
                msn: self.claimed_msn(),
            }),
            _ => self.rx.claim(claim, &mut self.ledger),
        };
        match (answered, claim) {
            (Ok(rnr), Claim::NotReady { timer }) => {
                if let Some(rsn) = rnr {
                    self.control.rnr = Some((rsn, timer));
                }
                Ok(())
            }
            (Ok(_), _) => Ok(()),
            (Err(violation), _) => {
                self.fail(violation);
                Err(violation)
            }
        }
    }

    /// The number of the message that wants a receive; meaningless when none does.
    pub fn claimed_msn(&self) -> Msn {
        self.rx.claimed_msn().unwrap_or(Msn::FIRST)
    }

    /// How much of the Send that is under way has come, if one is.
    pub fn send_progress(&self) -> Option<SendProgress> {
        self.rx.send_progress()
    }

    /// Throws the rest of the message being received away (unreliable connections).
    pub fn drop_message(&mut self) {
        self.rx.drop_message();
    }

    /// The request that was delivered last is not executed yet: it is not acknowledged, and nothing more is handed to
    /// [`handle`](Stream::handle), until [`take_up_request`](Stream::take_up_request).
    pub fn defer_request(&mut self) {
        self.ledger.responder.defer();
    }

    /// The request that was put off is executed now, or refused with [`fail`](Stream::fail).
    pub fn take_up_request(&mut self) {
        self.ledger.responder.take_up();
    }

    /// A receive was posted: a peer that waits for it is told.
    ///
    /// Whoever finds no receive and answers [`Claim::NotReady`] must keep others from posting in between, or call this
    /// once more afterwards: a receive that nobody is told of wakes nobody.
    pub fn receive_posted(&mut self) {
        if let Some(rsn) = self.ledger.responder.handle_posted() {
            self.control.ready = Some(rsn);
        }
    }

    fn act_on(&mut self, delivery: &Delivery) {
        match delivery {
            Delivery::Caps(caps) => {
                self.tx.limit_ulpdu(caps.max_ulpdu);
                self.ledger.reads_out.limit_to(caps.ird);
                self.peer = Some(*caps);
            }
            // docs/extensions.md: what is under way is the refused request or a later one, and must begin again.
            Delivery::Rnr(_) => self.tx.abandon_request(),
            Delivery::Ready(n) => self.control.resume = Some(*n),
            Delivery::Terminate(..) => self.enter(Event::TerminateReceived),
            _ => {}
        }
    }
}
