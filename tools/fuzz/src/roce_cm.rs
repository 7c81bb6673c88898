//! Management datagrams of the connection manager: the codec of every message, and a communication identifier that gets messages of a peer
//! and calls of its program in any order.
//! A message makes at most one answer, repetitions are bounded by the retries, and each outcome is reported once.

use core::time::Duration;

use verbena_roce::cm::{CmTimers, CommunicationId, Mad, Outcome, State};
use verbena_stream::Time;
use verbena_wire::roce::cm::{CmMessage, CmPath, CmTransport, RejReason, Rep, Req};
use verbena_wire::roce::{MadHeader, Psn, Qpn};

use crate::source::{Source, bit};

const LOCAL: u32 = 0xa;
const REMOTE: u32 = 0xb;
const TRANSACTION: u64 = 7;
const TIMERS: CmTimers = CmTimers {
    first: Duration::from_millis(100),
    longest: Duration::from_millis(400),
    retries: 3,
};

/// Runs one input.
pub fn target(data: &[u8]) {
    codec(data);
    let mut source = Source::new(data);
    let mut world = World::new(source.byte());
    while !source.is_empty() {
        world.step(&mut source);
    }
    world.finish();
}

/// A message that parses is emitted so that it parses as the same, whatever its header was.
fn codec(data: &[u8]) {
    if let Err(error) = CmMessage::parse(data) {
        drop(error.to_string());
    }
    let Some((attribute, body)) = data.split_first() else {
        return;
    };
    let mad = mad(u16::from(*attribute), TRANSACTION, body);
    if let Ok((transaction, message)) = CmMessage::parse(&mad) {
        let again = message.emit(transaction);
        assert_eq!(CmMessage::parse(&again), Ok((transaction, message)));
        let _ = message.to_string();
    }
}

/// A datagram with a valid header.
fn mad(attribute: u16, transaction: u64, body: &[u8]) -> Mad {
    let header = MadHeader {
        transaction,
        attribute,
    };
    let mut mad = [0; MadHeader::MAD_LEN];
    let front = header.emit();
    for (to, from) in mad.iter_mut().zip(front.iter().chain(body)) {
        *to = *from;
    }
    mad
}

fn req(local_id: u32) -> Req<'static> {
    Req {
        local_id,
        service: 0x0106_1c06,
        ca_guid: 1,
        qkey: 0,
        qpn: Qpn::wrapping(0x11),
        responder_resources: 4,
        initiator_depth: 4,
        remote_response_timeout: 20,
        transport: CmTransport::Rc,
        flow_control: false,
        starting_psn: Psn::wrapping(100),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        mtu: 3,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        primary: CmPath::default(),
        alternate: CmPath::default(),
        private: b"hello",
    }
}

const REP: Rep<'static> = Rep {
    local_id: 0,
    remote_id: 0,
    qkey: 0,
    qpn: Qpn::wrapping(0x22),
    starting_psn: Psn::wrapping(200),
    responder_resources: 4,
    initiator_depth: 4,
    target_ack_delay: 0,
    failover: 1,
    flow_control: false,
    rnr_retry_count: 7,
    srq: false,
    ca_guid: 2,
    private: b"welcome",
};

struct World {
    id: CommunicationId,
    now: Time,
    /// Messages that were sent, and the most that may have been.
    sent: u32,
    allowed: u32,
    /// Accepted or established; rejected or not reachable; ended.
    outcomes: [u32; 3],
}

impl World {
    fn new(switches: u8) -> World {
        let now = Time::ZERO;
        let id = if bit(switches, 0) {
            CommunicationId::connect(&req(LOCAL), TRANSACTION, TIMERS, now)
        } else {
            CommunicationId::listen(&req(REMOTE), TRANSACTION, LOCAL, TIMERS)
        };
        let mut world = World {
            id,
            now,
            sent: 0,
            allowed: 0,
            outcomes: [0; 3],
        };
        world.expect_sent(1);
        world
    }

    fn step(&mut self, source: &mut Source<'_>) {
        let before = self.id.state();
        match source.byte() % 6 {
            0 => {
                let done = self.id.accept(&REP, self.now);
                assert_eq!(done, before == State::Deciding);
            }
            1 => {
                let done = self.id.reject(RejReason::CONSUMER, source.slice(4));
                assert!(!done || before != State::Established);
            }
            2 => {
                self.id.disconnect(TRANSACTION + 1, b"", self.now);
            }
            3 => {
                let outcome = self.id.handle_data();
                self.note(&outcome);
            }
            4 => return self.wait(),
            _ => self.receive(source),
        }
        self.expect_sent(1);
        let is_final = |state| matches!(state, State::Ended);
        assert!(!is_final(before) || is_final(self.id.state()));
    }

    /// A message of the peer, with identifiers and a transaction that are mostly right.
    fn receive(&mut self, source: &mut Source<'_>) {
        let (attribute, switches) = (0x10 + source.byte() % 11, source.byte());
        let transaction = match switches & 3 {
            0 => source.u64(),
            1 => TRANSACTION + 1,
            _ => TRANSACTION,
        };
        let mut body = Vec::new();
        if bit(switches, 2) {
            body.extend(REMOTE.to_be_bytes());
            body.extend(LOCAL.to_be_bytes());
        }
        let len = usize::from(source.byte() % 64);
        body.extend(source.slice(len));
        let mad = mad(u16::from(attribute), transaction, &body);
        let Ok((transaction, message)) = CmMessage::parse(&mad) else {
            return;
        };
        let outcome = self.id.handle(&message, transaction, self.now);
        self.note(&outcome);
    }

    fn wait(&mut self) {
        let Some(deadline) = self.id.deadline() else {
            return;
        };
        assert_eq!(self.id.handle_timeout(self.now), Outcome::Nothing);
        self.now = self.now.max(deadline);
        let outcome = self.id.handle_timeout(self.now);
        self.note(&outcome);
        self.expect_sent(1);
    }

    fn note(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Nothing => {}
            Outcome::Accepted(_) | Outcome::Established => self.outcomes[0] += 1,
            Outcome::Rejected { .. } | Outcome::Unreachable => self.outcomes[1] += 1,
            Outcome::Disconnected => self.outcomes[2] += 1,
        }
        assert!(self.outcomes.iter().all(|count| *count <= 1), "{outcome:?}");
    }

    /// Takes what is to be sent: at most `most` messages, each of which parses.
    fn expect_sent(&mut self, most: u32) {
        self.allowed += most;
        while let Some(mad) = self.id.poll() {
            self.sent += 1;
            let parsed = CmMessage::parse(&mad);
            assert!(parsed.is_ok(), "{parsed:?}");
        }
        assert!(self.sent <= self.allowed, "more answers than messages");
    }

    /// Without an answer it ends after its retries.
    fn finish(mut self) {
        for _ in 0..=TIMERS.retries {
            self.wait();
        }
        assert_eq!(self.id.deadline(), None, "{:?}", self.id.state());
    }
}
