//! The answers of the peer: acknowledgements complete requests in order, responses say where their payload goes, and NAKs and missing
//! responses make the requester send again.
//! The position of the oldest request that is not complete only moves forward here, and the cursor is never before it.

use verbena_stream::Time;
use verbena_wire::roce::{Nak, Operation, Packet, Psn, Syndrome};

use super::retry::Verdict;
use super::{Cursor, Event, Failure, MESSAGE_MASK, Requester, ResponseStep, State};
use crate::message::Message;

impl Requester {
    /// An answer of the peer arrived. `packet` must be one for which [`Operation::is_response`] is true; others are ignored.
    pub fn handle(&mut self, packet: &Packet<'_>, now: Time) -> ResponseStep {
        let acked = self.acked();
        let is_outstanding = packet.psn.minus(acked) < self.sent.minus(acked);
        if self.state == State::Failed || !is_outstanding {
            return self.ignore();
        }
        match packet.operation {
            Operation::Acknowledge(aeth) => {
                self.handle_syndrome(packet.psn, aeth.syndrome, aeth.msn, now)
            }
            Operation::ReadResponseFirst(_)
            | Operation::ReadResponseMiddle
            | Operation::ReadResponseLast(_)
            | Operation::ReadResponseOnly(_) => self.handle_read_response(packet, now),
            Operation::AtomicAcknowledge(aeth, original) => {
                if !matches!(aeth.syndrome, Syndrome::Ack { .. }) {
                    return self.handle_syndrome(packet.psn, aeth.syndrome, aeth.msn, now);
                }
                self.handle_atomic(packet.psn, original, now)
            }
            _ => self.ignore(),
        }
    }

    fn ignore(&mut self) -> ResponseStep {
        self.counters.ignored += 1;
        ResponseStep::Ignored
    }

    fn handle_syndrome(
        &mut self,
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
        now: Time,
    ) -> ResponseStep {
        let (end, event) = match syndrome {
            Syndrome::Ack { credits } => {
                self.credit_limit = credit_limit(credits, msn);
                (psn.next(), Event::Ack)
            }
            Syndrome::RnrNak(_) => (psn, Event::RnrNak),
            Syndrome::Nak(Nak::PsnSequence) => (psn, Event::SequenceNak),
            Syndrome::Nak(_) => (psn, Event::Failure),
        };
        if event == Event::RnrNak && self.state == State::Waiting {
            // A repetition of the NAK that began the wait.
            return self.ignore();
        }
        if !self.acknowledge(end, now) {
            // The responder answers in order: the response to a request before this one is lost.
            return self.handle_missing_response(now);
        }
        match syndrome {
            Syndrome::Ack { .. } => ResponseStep::Progress,
            Syndrome::RnrNak(timer) => {
                self.counters.rnr_naks += 1;
                match self.retry.handle_rnr(timer.duration(), now) {
                    Verdict::Repeat => {
                        self.state = self.state.next(event);
                        self.go_back();
                        ResponseStep::Progress
                    }
                    Verdict::GiveUp => self.fail(Failure::RnrRetryExceeded),
                }
            }
            Syndrome::Nak(Nak::PsnSequence) => {
                self.counters.sequence_naks += 1;
                self.state = self.state.next(event);
                self.handle_loss(now)
            }
            Syndrome::Nak(nak) => self.fail(Failure::Nak(nak)),
        }
    }

    fn handle_read_response(&mut self, packet: &Packet<'_>, now: Time) -> ResponseStep {
        if !self.acknowledge(packet.psn, now) {
            return self.handle_missing_response(now);
        }
        let mtu = self.mtu.bytes();
        let Some(front) = self.requests.front_mut() else {
            return self.ignore();
        };
        let is_last = front.done + 1 == front.psns;
        let ends_response = self.reads.front() == Some(&packet.psn.next());
        let (says_last, syndrome) = match packet.operation {
            Operation::ReadResponseFirst(aeth) => (false, aeth.syndrome),
            Operation::ReadResponseLast(aeth) | Operation::ReadResponseOnly(aeth) => {
                (true, aeth.syndrome)
            }
            _ => (false, Syndrome::ACK),
        };
        let offset = front.done.saturating_mul(mtu);
        let len = front.message.len().saturating_sub(offset).min(mtu);
        let fits = matches!(front.message, Message::Read { .. })
            && says_last == ends_response
            && matches!(syndrome, Syndrome::Ack { .. })
            && packet.payload.len() == len as usize;
        if !fits {
            return self.ignore();
        }
        front.done += 1;
        let request = self.completed;
        if is_last {
            self.pop_front();
        }
        self.handle_progress(1, now);
        ResponseStep::Sink {
            request,
            offset,
            is_last,
        }
    }

    fn handle_atomic(&mut self, psn: Psn, original: u64, now: Time) -> ResponseStep {
        if !self.acknowledge(psn, now) {
            return self.handle_missing_response(now);
        }
        let is_atomic = self.requests.front().is_some_and(|front| {
            matches!(front.message, Message::CmpSwap(_) | Message::FetchAdd(_))
        });
        if !is_atomic {
            return self.ignore();
        }
        let request = self.completed;
        self.pop_front();
        self.handle_progress(1, now);
        ResponseStep::Atomic { request, original }
    }

    /// All packets before `end`, which is among those sent, have arrived. False if the response to one of them is missing.
    fn acknowledge(&mut self, end: Psn, now: Time) -> bool {
        let mut packets = 0;
        let complete = loop {
            let Some(front) = self.requests.front_mut() else {
                break true;
            };
            let reached = end.minus(front.first);
            if reached == front.done {
                break true;
            }
            if front.message.wants_response() {
                break false;
            }
            packets += reached.min(front.psns) - front.done;
            if reached < front.psns {
                front.done = reached;
                break true;
            }
            self.pop_front();
        };
        if packets > 0 {
            self.handle_progress(packets, now);
        }
        complete
    }

    /// The oldest request is complete.
    pub(super) fn pop_front(&mut self) {
        if self.requests.pop_front().is_none() {
            return;
        }
        self.completed += 1;
        match self.cursor.request.checked_sub(1) {
            Some(request) => self.cursor.request = request,
            // It was to be repeated, and the answer to the first time came.
            None => self.cursor.at = 0,
        }
    }

    fn handle_progress(&mut self, packets: u32, now: Time) {
        self.response_missing = None;
        let acked = self.acked();
        while let Some(end) = self.reads.front()
            && !acked.is_before(*end)
        {
            self.reads.pop_front();
        }
        // What was to be repeated is not any more.
        if let Some(front) = self.requests.front()
            && self.cursor.request == 0
            && self.cursor.at < front.done
        {
            self.cursor.at = front.done;
        }
        if self.recovery.is_some_and(|end| !acked.is_before(end)) {
            self.recovery = None;
        }
        self.window.handle_acked(packets);
        self.retry.handle_progress(acked, acked == self.sent, now);
    }

    /// The response to a request is lost: it is requested again, once for each loss.
    fn handle_missing_response(&mut self, now: Time) -> ResponseStep {
        let acked = self.acked();
        if self.response_missing == Some(acked) {
            return ResponseStep::Progress;
        }
        self.response_missing = Some(acked);
        self.handle_loss(now)
    }

    /// A packet was lost and others behind it were not.
    fn handle_loss(&mut self, now: Time) -> ResponseStep {
        if self.retry.handle_loss(now) == Verdict::GiveUp {
            return self.fail(Failure::RetryExceeded);
        }
        if self.recovery.is_none() {
            self.recovery = Some(self.sent);
            self.window.handle_loss();
        }
        self.go_back();
        ResponseStep::Progress
    }

    /// The peer reports congestion (CNP).
    pub fn handle_congestion(&mut self) {
        if self.recovery.is_none() {
            self.recovery = Some(self.sent);
            self.window.handle_notification();
        }
    }

    /// Everything that is not acknowledged is sent again.
    pub(super) fn go_back(&mut self) {
        let at = self.requests.front().map_or(0, |front| front.done);
        self.cursor = Cursor { request: 0, at };
    }
}

/// The number of the last message that the peer has a receive for, from the code of an acknowledgement and its MSN.
pub(super) fn credit_limit(code: u8, msn: u32) -> Option<u32> {
    // In the codes from 2 on even ones are powers of two, and odd ones lie halfway to the next.
    let credits = match code {
        Syndrome::NO_CREDITS.. => return None,
        0 | 1 => u32::from(code),
        code if code % 2 == 0 => 1 << (code / 2),
        code => 3 << (code / 2 - 1),
    };
    Some(msn.wrapping_add(credits) & MESSAGE_MASK)
}
