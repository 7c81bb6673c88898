//! The receive half of a stream: passes the stage to [`Rx`](crate::rx::Rx) and acts on what arrives.
//! After a violation or a Terminate received bytes are ignored. Completing work is up to the caller, which gets every [`Delivery`].

use verbena_wire::Msn;
use verbena_wire::ddp::Header;

use super::{Event, State, Stream};
use crate::delivery::{Claim, Delivery, Run, Step};
use crate::rx::{Look, Prediction, SendProgress, WriteRun};
use crate::time::Time;
use crate::violation::Violation;

impl Stream {
    /// Processes the stage: returns how many bytes were consumed from its front, and what is needed next.
    ///
    /// On a violation the Terminate is already queued; the caller sends responses while the stream
    /// [`owes_responses`](Stream::owes_responses), then the Terminate, and closes.
    pub fn handle(&mut self, stage: &[u8], now: Time) -> Result<(usize, Step), Violation> {
        if !self.state.is_open() {
            // RFC 5041 §7: what follows an error is dropped silently.
            return Ok((stage.len(), Step::More(1)));
        }
        match self.rx.handle(stage, now, &mut self.accounting) {
            Ok((used, step)) => {
                if self.rx.has_received_first() {
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

    /// The frame at the front of the stage, if it is complete and the expected next one: a fast path instead of
    /// [`handle`](Stream::handle). Nothing changes until [`commit_prediction`](Stream::commit_prediction), called when its payload has been placed.
    #[inline]
    pub fn predict<'a>(&self, stage: &'a [u8]) -> Option<Prediction<'a>> {
        if self.state != State::Running {
            return None;
        }
        self.rx.predict(stage, &self.accounting)
    }

    /// The checksum of a predicted frame at the front of the stage is right, or there is none. Otherwise [`handle`](Stream::handle) reports it.
    #[inline]
    pub fn is_intact(&self, stage: &[u8], prediction: &Prediction<'_>) -> bool {
        self.rx.is_intact(stage, prediction)
    }

    /// A predicted segment of a Write at the front of the stage, and those of the same message that follow it, if there are any. Nothing changes until
    /// [`commit_run`](Stream::commit_run), called when all their payload has been placed.
    pub fn predict_run<'a>(&self, stage: &'a [u8], first: &Prediction<'a>) -> Option<WriteRun<'a>> {
        self.rx.predict_run(stage, first)
    }

    /// Records the segments of [`predict_run`](Stream::predict_run), whose payload has been placed.
    pub fn commit_run(&mut self, run: &WriteRun<'_>) {
        self.rx.commit_run(run, &mut self.accounting);
    }

    /// Records a frame of [`predict`](Stream::predict), whose payload has been placed.
    #[inline]
    pub fn commit_prediction(&mut self, prediction: &Prediction<'_>) {
        self.rx.commit_prediction(prediction, &mut self.accounting);
    }

    /// The payload that comes next, for a caller that can read it directly into its place.
    pub fn pending(&mut self) -> Option<Run> {
        self.state.is_open().then(|| self.rx.pending()).flatten()
    }

    /// The segment being received is the last of its message, which touches a one-touch entry (M9).
    pub fn in_last_segment(&self) -> bool {
        self.rx.in_last_segment()
    }

    /// Payload may be read directly into its place: without checksums a frame need not be complete first.
    pub fn reads_directly(&self) -> bool {
        self.rx.reads_directly()
    }

    /// `n` bytes of the run were placed.
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
            _ => self.rx.claim(claim, &mut self.accounting),
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

    /// The number of the message that needs a receive; meaningless when none does.
    pub fn claimed_msn(&self) -> Msn {
        self.rx.claimed_msn().unwrap_or(Msn::FIRST)
    }

    /// How much of an unfinished Send has arrived, if there is one.
    pub fn send_progress(&self) -> Option<SendProgress> {
        self.rx.send_progress()
    }

    /// Drops the rest of the message being received (unreliable connections).
    pub fn drop_message(&mut self) {
        self.rx.drop_message();
    }

    /// The request that was delivered last is not executed yet: it is not acknowledged, and the caller must not call
    /// [`handle`](Stream::handle) until [`end_deferral`](Stream::end_deferral).
    pub fn defer_request(&mut self) {
        self.accounting.responder.defer();
    }

    /// The deferred request is executed now, or failed with [`fail`](Stream::fail).
    pub fn end_deferral(&mut self) {
        self.accounting.responder.end_deferral();
    }

    /// A receive was posted: a peer that waits for it gets READY.
    ///
    /// A caller that finds no receive and answers [`Claim::NotReady`] must prevent that one is posted in between, or call this
    /// once more afterwards: otherwise the peer waits although a receive is there.
    pub fn receive_posted(&mut self) {
        if let Some(rsn) = self.accounting.responder.handle_posted() {
            self.control.ready = Some(rsn);
        }
    }

    /// Markers and checksums of what arrives.
    pub(crate) fn framing_options(&self) -> (bool, bool) {
        self.rx.framing()
    }

    pub(crate) fn look_ahead(&self, header: &Header, len: u32) -> Look {
        self.rx.look_ahead(header, len, &self.accounting)
    }

    pub(crate) fn begin_placed(&mut self, head: &[u8]) -> Result<Option<Msn>, Violation> {
        if !self.state.is_open() {
            return Err(Violation::Misaligned);
        }
        self.rx.begin_placed(head, &mut self.accounting)
    }

    pub(crate) fn unplaced_run(&self) -> Option<Run> {
        self.rx.unplaced_run()
    }

    pub(crate) fn end_placed(&mut self, now: Time) -> Result<Option<Delivery>, Violation> {
        self.rx.end_placed(now, &mut self.accounting)
    }

    /// The stream is between two frames.
    pub fn is_between_frames(&self) -> bool {
        self.rx.is_between_frames()
    }

    pub(crate) fn act_on(&mut self, delivery: &Delivery) {
        match delivery {
            Delivery::Caps(caps) => {
                self.tx.limit_ulpdu(caps.max_ulpdu);
                self.accounting.reads_out.limit_to(caps.ird);
                self.peer_caps = Some(*caps);
            }
            // docs/extensions.md: the unfinished request is the refused one or a later one, and must begin again.
            Delivery::Rnr(_) => self.tx.abandon_request(),
            Delivery::Ready(n) => self.control.resume = Some(*n),
            Delivery::Terminate(..) => self.enter(Event::TerminateReceived),
            _ => {}
        }
    }
}
