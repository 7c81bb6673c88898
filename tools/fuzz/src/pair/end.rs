//! One end of the pair: a caller that keeps its requests until they are executed, answers reads and posts receives.
//! It checks every byte and every delivery against what the other end submitted.

use std::collections::VecDeque;

use verbena_stream::stream::State;
use verbena_stream::{
    Agreement, BeginError, Claim, Delivery, Frame, Message, Outgoing, Place, Run, Settings, Step,
    Stream, Time, Violation,
};
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Rsn, Stag, To};

use super::job::{Job, payload, response};

/// Bytes in transit.
pub(super) type Wire = VecDeque<u8>;

const CAPACITY: u32 = 1 << 20;

/// Whether the read that opens a stream has arrived.
#[derive(PartialEq)]
enum Opening {
    Awaited,
    Past,
}

/// One end.
pub(super) struct End {
    stream: Stream,
    settings: Settings,
    extensions: bool,
    stage: Vec<u8>,
    /// All requests, in order; the number of each is its index.
    pub(super) submitted: Vec<Message>,
    /// The next request to begin; moves back when the peer was not ready.
    next: usize,
    /// The message being sent, and the index of the request that determines its payload.
    current: Option<(Outgoing, usize)>,
    /// Responses to send, and the request each answers.
    responses: VecDeque<(Message, usize)>,
    /// How many of the peer's requests took effect here.
    executed: usize,
    /// How many of this end's reads and atomics were answered.
    answered: usize,
    acked: usize,
    receives: usize,
    /// Messages that need a receive are discarded, and count as executed.
    pub(super) drops: bool,
    dropping: bool,
    /// The peer opens with a zero-length read (RFC 6581 §9.2), which is not in `submitted` but has a number and is answered.
    opening_read: Option<Opening>,
    /// Counts frames sent and messages delivered.
    pub(super) activity: u64,
    /// The number of the peer's request that failed, if this end failed the stream and its Terminate names the request.
    failed_request: Option<usize>,
}

impl End {
    pub(super) fn new(agreement: &Agreement, settings: Settings, opening_read: bool) -> End {
        End {
            stream: Stream::new(agreement, settings),
            settings,
            extensions: agreement.extensions,
            stage: Vec::new(),
            submitted: Vec::new(),
            next: 0,
            current: None,
            responses: VecDeque::new(),
            executed: 0,
            answered: 0,
            acked: 0,
            receives: 0,
            drops: false,
            dropping: false,
            opening_read: opening_read.then_some(Opening::Awaited),
            activity: 0,
            failed_request: None,
        }
    }

    /// Adds a request to those that will be sent. A peer without the extensions gets a Write instead of a message it does not support.
    pub(super) fn submit(&mut self, Job(message): Job) {
        let standard = match &message {
            Message::AtomicRequest(request) => !request.op.is_extension(),
            other => !other.opcode().is_extension(),
        };
        self.submitted.push(if standard || self.extensions {
            message
        } else {
            Message::Write {
                stag: Stag::new(1),
                to: To::new(0),
                len: 1,
            }
        });
    }

    pub(super) fn post(&mut self, count: usize) {
        self.receives += count;
        self.stream.receive_posted();
    }

    /// Fails the stream, as if the next message of the peer were a violation.
    pub(super) fn fail(&mut self) {
        let tells = self.stream.state() == State::Running && self.extensions;
        let owed = self.stream.accounting().reads_in.len();
        self.stream.fail(Violation::NotEnabled(Opcode::Write));
        // docs/connections.md: if a request of this end is partly sent, the responses owed are dropped, and the peer blames the oldest of them.
        if tells && self.stream.accounting().reads_in.len() == owed {
            self.failed_request = Some(self.executed);
        }
    }

    /// Sends one control frame, if one is pending.
    pub(super) fn control(&mut self, flush: bool, wire: &mut Wire) {
        if let Some(frame) = self.stream.poll_control(flush) {
            self.put(&frame, usize::MAX, wire);
        }
    }

    /// Sends a frame of the message being sent, or of the next request.
    pub(super) fn transmit(&mut self, wire: &mut Wire) {
        if self.current.is_none()
            && let Some(message) = self.submitted.get(self.next)
            && let Some(outgoing) = begun(self.stream.begin(message.clone()))
        {
            let rsn = outgoing.rsn().expect("a request has a number");
            assert_eq!(rsn.get() as usize, self.next, "numbering");
            self.current = Some((outgoing, self.next));
            self.next += 1;
        }
        self.pump(wire);
    }

    /// Sends a frame of the message being sent, or of the oldest response owed.
    pub(super) fn answer(&mut self, wire: &mut Wire) {
        if self.current.is_none()
            && let Some((message, index)) = self.responses.front()
            && let Some(outgoing) = begun(self.stream.begin(message.clone()))
        {
            self.current = Some((outgoing, *index));
            self.responses.pop_front();
        }
        self.pump(wire);
    }

    fn pump(&mut self, wire: &mut Wire) {
        let Some((mut outgoing, index)) = self.current.take() else {
            return;
        };
        if let Some(frame) = self.stream.next_frame(&mut outgoing) {
            self.put(&frame, index, wire);
            if !outgoing.is_done() {
                self.current = Some((outgoing, index));
            }
        }
    }

    fn put(&mut self, frame: &Frame, index: usize, wire: &mut Wire) {
        self.activity += 1;
        let mut bytes = Vec::new();
        let fill = |offset: u32, hole: &mut [u8]| {
            for (i, byte) in hole.iter_mut().enumerate() {
                *byte = payload(index, offset + i as u32);
            }
        };
        frame.write(&mut bytes, fill);
        assert_eq!(bytes.len(), frame.size());
        if frame.is_plain() {
            let mut hole = vec![0; usize::from(frame.payload_len())];
            fill(frame.payload_offset(), &mut hole);
            let parts = [frame.head(), &hole, frame.trailer()].concat();
            assert_eq!(parts, bytes, "plain parts differ from the written frame");
        }
        wire.extend(bytes);
    }

    /// Processes bytes that arrive from `sender`.
    pub(super) fn receive(&mut self, bytes: &[u8], sender: &End) {
        self.stage.extend(bytes);
        loop {
            let result = self.stream.handle(&self.stage, Time::ZERO);
            let (used, step) = result.expect("no violation between two correct ends");
            self.stage.drain(..used);
            match step {
                Step::More(_) => return,
                Step::Place(_) if self.stage.is_empty() => return,
                Step::Place(run) => {
                    let n = self.stage.len().min(run.len as usize);
                    let bytes: Vec<u8> = self.stage.drain(..n).collect();
                    self.check_placed(run, &bytes, sender);
                    self.stream.placed(n as u32);
                }
                Step::Claim { .. } => {
                    let claim = self.claim();
                    self.stream.claim(claim).expect("a valid claim");
                }
                Step::Deliver(delivery) => {
                    self.activity += 1;
                    self.deliver(&delivery, sender);
                }
            }
        }
    }

    fn claim(&mut self) -> Claim {
        if self.drops {
            self.dropping = true;
            return Claim::Drop;
        }
        if self.receives == 0 && self.extensions {
            let timer = self.settings.caps.min_rnr_timer;
            return Claim::NotReady { timer };
        }
        self.receives = self.receives.saturating_sub(1);
        Claim::Granted { capacity: CAPACITY }
    }

    fn check_placed(&self, run: Run, bytes: &[u8], sender: &End) {
        let (index, offset) = match run.place {
            Place::Write { stag, to } => match sender.submitted[self.executed] {
                Message::Write { stag: s, to: t, .. } if s == stag => {
                    (self.executed, (to.get() - t.get()) as u32)
                }
                ref other => panic!("a Write arrives, {other:?} is next"),
            },
            Place::Receive { offset } => (self.executed, offset),
            Place::Sink { offset } => {
                let head = self.stream.accounting().reads_out.head();
                (head.expect("a read waits").rsn.get() as usize, offset)
            }
            Place::Discard => return,
        };
        for (i, byte) in bytes.iter().enumerate() {
            assert_eq!(
                *byte,
                payload(index, offset + i as u32),
                "byte {i} of a run"
            );
        }
    }

    fn deliver(&mut self, delivery: &Delivery, sender: &End) {
        match *delivery {
            Delivery::Send {
                rsn,
                opcode,
                len,
                invalidate,
                immediate,
            } => {
                let message = self.execute(rsn, sender);
                assert_eq!((opcode, len), (message.opcode(), message.payload_len()));
                match *message {
                    Message::Send { invalidate: i, .. } => assert_eq!(invalidate, i),
                    Message::SendImm {
                        invalidate: i,
                        immediate: data,
                        ..
                    } => assert_eq!((invalidate, immediate), (i, Some(data))),
                    _ => panic!("a Send was delivered for {message:?}"),
                }
            }
            Delivery::Write { rsn, stag, len } => {
                let message = self.execute(rsn, sender);
                assert!(
                    matches!(*message, Message::Write { stag: s, len: l, .. } if (s, l) == (stag, len))
                );
            }
            Delivery::Immediate { rsn, data, .. } => {
                let message = self.execute(rsn, sender);
                assert!(matches!(*message, Message::Immediate { data: d, .. } if d == data));
            }
            Delivery::ReadRequest { request, .. }
                if self.opening_read == Some(Opening::Awaited) =>
            {
                assert_eq!((request.size, self.executed), (0, 0));
                self.opening_read = Some(Opening::Past);
                let answer = response(&Message::ReadRequest(request));
                self.responses.push_back((answer.expect("it wants one"), 0));
            }
            Delivery::ReadRequest { rsn, request, .. } => {
                self.queue_response(rsn, &Message::ReadRequest(request), sender);
            }
            Delivery::ReadV2Request { rsn, request, .. } => {
                self.queue_response(rsn, &Message::ReadV2Request(request), sender);
            }
            Delivery::AtomicRequest { rsn, request, .. } => {
                self.queue_response(rsn, &Message::AtomicRequest(request), sender);
            }
            Delivery::ReadDone(read) => self.done(read.rsn),
            Delivery::AtomicDone(read, response) => {
                assert_eq!(response.original, u64::from(read.rsn.get()) + 1);
                self.done(read.rsn);
            }
            Delivery::Discarded(_) => {
                if core::mem::take(&mut self.dropping) {
                    self.executed += 1;
                }
            }
            Delivery::Ready(n) => self.next = n.get() as usize,
            Delivery::Acked(n) => {
                assert!(
                    n.get() as usize >= self.acked,
                    "an acknowledgement went back"
                );
                self.acked = n.get() as usize;
            }
            Delivery::Caps(_)
            | Delivery::Rtr
            | Delivery::Rnr(_)
            | Delivery::Resumed(_)
            | Delivery::Terminate(..) => {}
            Delivery::Active(_) | Delivery::Srq(_) => {
                panic!("{delivery:?} was not sent")
            }
        }
    }

    /// Counts the peer's next request as executed, and returns it.
    fn execute<'a>(&mut self, rsn: Rsn, sender: &'a End) -> &'a Message {
        let turn = self.executed + usize::from(self.opening_read.is_some());
        assert_eq!(rsn.get() as usize, turn, "executed out of turn");
        assert!(!self.dropping);
        self.executed += 1;
        let message = sender.submitted.get(self.executed - 1);
        message.expect("executed a request that was not submitted")
    }

    fn queue_response(&mut self, rsn: Rsn, came: &Message, sender: &End) {
        let index = self.executed;
        let message = self.execute(rsn, sender);
        assert_eq!(message, came);
        let answer = response(message).expect("it wants one");
        self.responses.push_back((answer, index));
    }

    fn done(&mut self, rsn: Rsn) {
        let mut reads = self.submitted.iter().enumerate();
        let nth = reads.by_ref().filter(|(_, m)| m.wants_response());
        let expected = nth.map(|(index, _)| index).nth(self.answered);
        assert_eq!(expected, Some(rsn.get() as usize), "answered out of turn");
        self.answered += 1;
    }

    /// Holds at any time: no request counts as acknowledged that the peer has not executed.
    pub(super) fn check_against(&self, peer: &End) {
        let accounting = self.stream.accounting();
        assert!(peer.executed <= self.submitted.len());
        if self.extensions {
            assert!(accounting.requester.acked().get() as usize <= peer.executed);
        }
        assert!(accounting.reads_out.len() <= 3 && accounting.reads_in.len() <= 3);
    }

    /// Holds when both ends are idle: everything was executed, answered and acknowledged, once.
    pub(super) fn check_rest(&self, peer: &End, failed: bool) {
        if failed {
            assert!(!self.stream.state().is_open());
            assert!(!self.stream.owes_responses(), "an answer was never sent");
            if let (Some(struck), State::PeerTerminated) =
                (peer.failed_request, self.stream.state())
            {
                let acked = self.stream.accounting().requester.acked();
                assert_eq!(
                    acked.get() as usize,
                    struck,
                    "another request is reported as refused"
                );
            }
            return;
        }
        assert!(self.stage.is_empty(), "half a frame is left");
        assert_eq!(peer.executed, self.submitted.len(), "requests were lost");
        assert!(peer.responses.is_empty() && self.stream.accounting().reads_out.is_empty());
        let reads = self.submitted.iter().filter(|m| m.wants_response());
        assert_eq!(self.answered, reads.count());
        if self.extensions {
            let requester = &self.stream.accounting().requester;
            assert_eq!(
                requester.unacknowledged(),
                0,
                "acknowledgements are missing"
            );
        }
    }
}

fn begun(result: Result<Outgoing, BeginError>) -> Option<Outgoing> {
    match result {
        Ok(outgoing) => Some(outgoing),
        Err(held @ (BeginError::Unsupported(_) | BeginError::TooLong)) => panic!("{held}"),
        Err(_) => None,
    }
}
