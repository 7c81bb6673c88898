//! The transmit half of a stream: whether a message may be sent now, and its frames.
//! RNR, the limit of unacknowledged requests, the read depth and the opening rules are checked in any order of calls. Messages are
//! not kept: after READY the caller begins them again.

use verbena_wire::ext::{Control, Features};
use verbena_wire::rdmap::{Opcode, ReadRequest};
use verbena_wire::{Rsn, Srqn, Stag, To};

use super::{Event, State, Stream};
use crate::frame::{Frame, Plain};
use crate::outgoing::{Message, Outgoing};
use crate::reads::Requested;
use crate::requester::State as Requesting;
use crate::responder::Due;
use crate::startup::Rtr;

/// Why a message cannot begin now. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// The stream is not open yet, or its first message was not sent.
    #[error("the stream is not open yet")]
    Opening,
    /// The stream is over.
    #[error("the stream is over")]
    Closed,
    /// Another message is unfinished.
    #[error("another message is unfinished")]
    Busy,
    /// The peer has no receive; wait for [`Ready`](crate::Delivery::Ready).
    #[error("the peer is not ready")]
    NotReady,
    /// Too many requests are unacknowledged.
    #[error("too many requests are unacknowledged")]
    Window,
    /// As many reads and atomics are outstanding as the peer serves.
    #[error("all {0} outstanding reads are in use")]
    Depth(usize),
    /// The peer does not accept this message.
    #[error("the peer does not support {}", .0.name())]
    Unsupported(Opcode),
    /// The end of the message exceeds the largest offset.
    #[error("the message ends beyond the last offset")]
    TooLong,
}

/// More than an acknowledgement may be due: call [`poll_control`](Stream::poll_control).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlPending;

impl Stream {
    /// The next control frame to send, if any; `flush` also sends an acknowledgement that could wait.
    ///
    /// To be called before every frame of a message, and until it returns `None` before sleeping. A failing stream for which it
    /// returns `None` may wait for responses: see [`owes_responses`](Stream::owes_responses).
    pub fn poll_control(&mut self, flush: bool) -> Option<Frame> {
        match self.state {
            State::Opening | State::Running => {}
            State::Failing => return self.final_frame(),
            State::Terminated | State::PeerTerminated | State::Ended => return None,
        }
        let quiet = self.state == State::Running && self.rtr.is_none();
        if !quiet || !self.control.is_empty() {
            return self.next_control(flush);
        }
        self.ack_frame(flush)
    }

    /// Frames of the opening, and control messages other than acknowledgements.
    #[cold]
    fn next_control(&mut self, flush: bool) -> Option<Frame> {
        if self.must_await_first() {
            return None;
        }
        if let Some(rtr) = self.rtr.take() {
            return self.rtr_frame(rtr);
        }
        if let Some(control) = self.control.next() {
            if matches!(control, Control::Ready(_)) {
                self.accounting.responder.handle_ready_sent();
            }
            return Some(self.tx.control(&control));
        }
        self.ack_frame(flush)
    }

    /// Whether [`poll_control`](Stream::poll_control) would return a frame: without `flush`, with it, or not at all.
    pub fn control_due(&self) -> Due {
        let quiet = self.state == State::Running && self.rtr.is_none() && self.control.is_empty();
        if !quiet {
            return Due::Now;
        }
        if !self.extensions {
            return Due::Nothing;
        }
        let oldest = self.accounting.reads_in.oldest();
        self.accounting.responder.will_be_due(oldest)
    }

    /// To be called when a peer without the extensions has sent nothing for a while. An initiator that has sent something sends
    /// an empty RDMA Write: Linux's siw may leave the first frame unread until more arrives, and for other peers it has no effect. A
    /// responder without peer-to-peer mode stops waiting for the first frame of RFC 5044 §7.1.2: a client on siw may
    /// itself wait for its server. True if either was done.
    pub fn nudge(&mut self) -> bool {
        if self.state == State::Opening && !self.is_initiator && self.rx.accepts_any_first() {
            self.enter(Event::Opened);
            return true;
        }
        let waits = self.state == State::Running && self.is_initiator && !self.extensions;
        // In the middle of a message more frames follow anyway.
        let due =
            waits && self.tx.has_begun() && !self.tx.is_open() && !self.rx.has_received_first();
        if due {
            self.rtr.get_or_insert(Rtr::Write);
        }
        due
    }

    /// The next request is for this shared receive queue of the peer (XRC). True if the peer must be told first: a control frame is
    /// queued, and no request begins before it is sent.
    pub fn name_srq(&mut self, number: Srqn) -> bool {
        if self.named_srq == Some(number) {
            return false;
        }
        self.named_srq = Some(number);
        self.control.srq = Some(number);
        true
    }

    /// Begins a message, if it may be sent now; on a failing stream only a response that is due.
    pub fn begin(&mut self, message: Message) -> Result<Outgoing, BeginError> {
        self.may_begin(&message)?;
        let rsn = (!message.is_response()).then(|| self.accounting.requester.begin_request());
        if let (Some(rsn), Some(asked)) = (rsn, requested(&message)) {
            self.accounting.reads_out.push(rsn, asked);
        }
        Ok(self.tx.begin(message, rsn))
    }

    /// Begins a Send or a Write and frames it, if it may be sent now and fits one plain frame: a fast path instead of
    /// [`begin`](Stream::begin) and [`next_frame`](Stream::next_frame). `None` if not, and nothing has changed.
    #[inline]
    pub fn frame_single(&mut self, message: &Message) -> Option<(Plain, Rsn)> {
        self.may_begin(message).ok()?;
        let plain = self.tx.frame_single(message)?;
        Some((plain, self.accounting.requester.number_request()))
    }

    /// The acknowledgement that [`poll_control`](Stream::poll_control) would return, as a plain frame: `Ok(None)` if none is
    /// due. An error if there may be other frames: then `poll_control` is to be called.
    #[inline]
    pub fn poll_ack(&mut self, flush: bool) -> Result<Option<Plain>, ControlPending> {
        let quiet = self.state == State::Running && self.rtr.is_none() && self.control.is_empty();
        if !quiet || !self.tx.is_plain() {
            return Err(ControlPending);
        }
        Ok(self.ack_due(flush).and_then(|n| self.tx.ack(n)))
    }

    /// The message's next frame; `None` when all are made, or when the peer discards it and it must begin again.
    pub fn next_frame(&mut self, outgoing: &mut Outgoing) -> Option<Frame> {
        let owed = outgoing.message().is_response() && self.owes_responses();
        if !self.state.is_open() && !owed {
            return None;
        }
        let (frame, last) = self.tx.frame(outgoing)?;
        match last {
            true if outgoing.message().is_response() => self.record_response(),
            true => self.accounting.requester.finish_request(),
            false => {}
        }
        Some(frame)
    }

    /// The caller does not continue the unfinished request, and begins no other: if no frame of it was made, responses may
    /// begin. One that was partly sent still prevents them.
    pub fn give_up_request(&mut self) {
        self.tx.abandon_if_unsent();
    }

    /// Largest ULPDU that is sent.
    pub fn max_ulpdu(&self) -> u16 {
        self.tx.max_ulpdu()
    }

    /// Frames have markers, whose positions depend on every byte that was framed before (RFC 5044 §4.3).
    pub fn sends_markers(&self) -> bool {
        self.tx.has_markers()
    }

    /// The size of a full frame towards a peer whose frames should end with their TCP segments: one without the extensions
    /// and without markers.
    #[inline]
    pub fn full_frame_size(&self) -> Option<usize> {
        let fits = !self.extensions && !self.tx.has_markers();
        fits.then(|| usize::from(self.max_ulpdu()) + 6)
    }

    /// A response can begin now; to be checked before a request is executed in order to answer it.
    pub fn can_respond(&self) -> bool {
        self.check_state(true).is_ok()
    }

    /// A request, or a response, is not held by the state of the stream or another message.
    fn check_state(&self, response: bool) -> Result<(), BeginError> {
        match self.state {
            State::Opening => return Err(BeginError::Opening),
            State::Running if self.rtr.is_some() => return Err(BeginError::Opening),
            State::Running => {}
            State::Failing if response && self.owes_responses() => {}
            _ => return Err(BeginError::Closed),
        }
        if self.tx.is_open() {
            return Err(BeginError::Busy);
        }
        if self.control.caps.is_some() {
            return Err(BeginError::Opening);
        }
        Ok(())
    }

    fn may_begin(&self, message: &Message) -> Result<(), BeginError> {
        self.check_state(message.is_response())?;
        if !fits(message) {
            return Err(BeginError::TooLong);
        }
        self.check_peer_support(message)?;
        if message.is_response() {
            return Ok(());
        }
        let requester = &self.accounting.requester;
        if !requester.may_send() || self.control.blocks_requests() {
            return Err(
                if requester.state() == Requesting::Flowing && !self.control.blocks_requests() {
                    BeginError::Window
                } else {
                    BeginError::NotReady
                },
            );
        }
        let reads = &self.accounting.reads_out;
        if message.wants_response() && !reads.has_room() {
            return Err(BeginError::Depth(reads.len()));
        }
        Ok(())
    }

    fn check_peer_support(&self, message: &Message) -> Result<(), BeginError> {
        let takes = match message {
            Message::ReadV2Request(_) => self.has(Features::READ_V2),
            Message::SendImm { .. } => self.has(Features::SEND_IMM),
            Message::AtomicRequest(request) if request.op.is_extension() => {
                self.has(Features::MEMORY_PLACEMENT)
            }
            // RFC 7306 has no negotiation: the settings say what the peer accepts.
            _ => self.rfc7306 || !message.opcode().is_rfc7306(),
        };
        if takes {
            Ok(())
        } else {
            Err(BeginError::Unsupported(message.opcode()))
        }
    }

    /// RFC 5044 §7.1.2: a responder sends nothing until the first FPDU has arrived; an initiator sends CAPS at once.
    fn must_await_first(&self) -> bool {
        self.state == State::Opening && !self.is_initiator
    }

    fn ack_frame(&mut self, flush: bool) -> Option<Frame> {
        let n = self.ack_due(flush)?;
        Some(self.tx.control(&Control::Ack(n)))
    }

    /// The acknowledgement to send now.
    #[inline]
    fn ack_due(&mut self, flush: bool) -> Option<Rsn> {
        if !self.extensions {
            return None;
        }
        self.accounting.responder.confirm();
        let oldest = self.accounting.reads_in.oldest();
        let due = self.accounting.responder.due(oldest);
        let leaves = due == Due::Now || (flush && due == Due::Soon);
        leaves.then(|| self.accounting.responder.acknowledge(oldest))
    }

    /// The frame that announces an orderly close, after every acknowledgement that is due: the last acknowledgement once
    /// more (docs/extensions.md). `None` if the peer does not support it, or if the stream has ended in another way.
    pub fn closing_ack(&mut self) -> Option<Frame> {
        let known = self.state == State::Running && self.has(Features::CLOSING_ACK);
        let acked = self.accounting.responder.acked();
        known.then(|| self.tx.control(&Control::Ack(acked)))
    }

    /// The frames of a failing stream: acknowledgements of what was executed, as they become true, then the Terminate.
    fn final_frame(&mut self) -> Option<Frame> {
        let oldest = self.accounting.reads_in.oldest();
        let owed = self.accounting.responder.due(oldest) != Due::Nothing;
        if self.extensions && self.control.caps.is_none() && owed {
            let n = self.accounting.responder.acknowledge(oldest);
            return Some(self.tx.control(&Control::Ack(n)));
        }
        if self.owes_responses() {
            return None;
        }
        let terminate = self.control.terminate.take()?;
        self.enter(Event::TerminateSent);
        Some(self.tx.terminate(&terminate))
    }

    fn record_response(&mut self) {
        if let Some(rsn) = self.accounting.reads_in.pop() {
            self.accounting.responder.acknowledged_by_response(rsn);
        }
    }

    /// The zero-length message after which the responder may send (RFC 6581 §9.2). It completes no work on either side.
    fn rtr_frame(&mut self, rtr: Rtr) -> Option<Frame> {
        let junk = Stag::new(1);
        let message = match rtr {
            Rtr::Write => Message::Write {
                stag: junk,
                to: To::new(0),
                len: 0,
            },
            Rtr::Read => Message::ReadRequest(ReadRequest {
                sink_stag: Stag::new(0),
                sink_to: To::new(0),
                size: 0,
                source_stag: junk,
                source_to: To::new(0),
            }),
            Rtr::Send => Message::Send {
                solicited: false,
                invalidate: None,
                len: 0,
            },
            Rtr::None | Rtr::Caps | Rtr::AnyOf(_) => return None,
        };
        if rtr == Rtr::Read {
            let next = self.accounting.requester.next();
            self.accounting.reads_out.push(next, Requested::Rtr);
        }
        let mut outgoing = self.tx.begin(message, None);
        self.tx.frame(&mut outgoing).map(|(frame, _)| frame)
    }
}

/// The last byte of the message has an offset.
fn fits(message: &Message) -> bool {
    match *message {
        Message::Write { to, len, .. } | Message::ReadResponse { to, len, .. } => {
            len == 0 || to.checked_add(u64::from(len)).is_some()
        }
        Message::ReadRequest(request) => request.sink_fits(),
        Message::SendImm { len, .. } => len.checked_add(8).is_some(),
        _ => true,
    }
}

fn requested(message: &Message) -> Option<Requested> {
    match message {
        Message::ReadRequest(r) => Some(Requested::Read {
            stag: r.sink_stag,
            to: r.sink_to,
            size: r.size,
        }),
        Message::ReadV2Request(r) => Some(Requested::ReadV2 { size: r.size }),
        Message::AtomicRequest(r) => Some(Requested::Atomic { id: r.id }),
        _ => None,
    }
}
