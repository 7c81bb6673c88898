//! A small, conforming adapter on `verbena-stream`: simple memory, a receive queue, a send queue, and the stage.
//! It follows the stream's contract in both forms of receiving, and reports everything a program could see. Simplicity has precedence
//! over speed.

mod ending;
mod memory;
mod post;
mod receive;
mod transmit;

pub use memory::{Memory, RegionSpec, Right, Rights};

use core::time::Duration;
use std::collections::VecDeque;

use verbena_stream::startup::State as StartupState;
use verbena_stream::{Endpoint, Outcome, RnrRetry, Role, Settings, Stream, Terms, Time};
use verbena_wire::ext::{Caps, Features, Personality, QpType, RnrTimer};
use verbena_wire::mpa::startup::Revision;

use crate::actor::{Actor, Leftovers};
use crate::image::{FRESH_BYTE, Guarded, Image, ReceiveImage, RegionImage};
use crate::rng::{Ratio, Rng};
use crate::work::{Report, Work};
use post::Request;
use receive::Response;
use transmit::Sending;

/// Options of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Terms of the startup.
    pub terms: Terms,
    /// Private data of the startup frame.
    pub private_data: Vec<u8>,
    /// A responder that rejects every Request.
    pub rejects: bool,
    /// A responder that implements RFC 5044 only and drops a Request of revision 2.
    pub rfc5044_only: bool,
    /// Longest ULPDU it sends.
    pub max_ulpdu: u16,
    /// RFC 7306 messages are accepted from standard peers, too.
    pub rfc7306: bool,
    /// Features it offers in its CAPS.
    pub features: Features,
    /// RNR timer that it announces to the peer.
    pub rnr_timer: RnrTimer,
    /// RNR retries.
    pub rnr_retry: RnrRetry,
    /// Payload is placed directly where checksums allow it, instead of through the stage.
    pub direct: bool,
    /// Plain frames are sent as header, payload and trailer instead of through a stage.
    pub gather: bool,
    /// How long an acknowledgement that can wait is delayed.
    pub ack_delay: Duration,
    /// How often a response precedes a request when both can be sent.
    pub responses_first: Ratio,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            terms: Terms::default(),
            private_data: Vec::new(),
            rejects: false,
            rfc5044_only: false,
            max_ulpdu: 1400,
            rfc7306: true,
            features: Features::READ_V2 | Features::SEND_IMM,
            rnr_timer: RnrTimer::new(12).unwrap_or_else(|| unreachable!("12 is a code")),
            rnr_retry: RnrRetry::Forever,
            direct: false,
            gather: false,
            ack_delay: Duration::ZERO,
            responses_first: Ratio::ALWAYS,
        }
    }
}

/// A posted receive, consumed or not.
#[derive(Debug, Clone)]
struct Receive {
    id: u64,
    memory: Guarded,
}

/// The adapter at one end of a link.
#[derive(Debug)]
pub struct Peer {
    profile: Profile,
    rng: Rng,
    /// Present until the startup is over.
    endpoint: Option<Endpoint>,
    /// Present from then on.
    stream: Option<Stream>,
    /// Checksums are on, so payload must pass the stage.
    crc: bool,
    /// Requests are acknowledged.
    tracked: bool,
    memory: Memory,
    /// Bytes received and not consumed.
    stage: Vec<u8>,
    /// Bytes that the stage must hold before the stream is called again.
    need: usize,
    receives: VecDeque<Receive>,
    claimed: Option<Receive>,
    consumed: Vec<Receive>,
    /// Requests not finished, in the order they were posted.
    requests: VecDeque<Request>,
    /// How many of them have begun.
    begun: usize,
    sending: Option<Sending>,
    answers: VecDeque<Response>,
    /// Bytes framed and not accepted by the link.
    outbox: VecDeque<u8>,
    /// Bytes framed since the beginning.
    framed: u64,
    /// Bytes accepted by the link since the beginning.
    accepted: u64,
    ack_at: Option<Time>,
    reports: Vec<Report>,
    closing: bool,
    /// The stream is over and all outstanding work was flushed.
    ended: bool,
    /// The violation that ended the stream was reported.
    violation_reported: bool,
    /// The peer's direction has ended.
    eof: bool,
}

impl Peer {
    /// Creates a peer that begins or awaits a startup.
    ///
    /// # Panics
    /// If the profile's private data does not fit a frame.
    pub fn new(role: Role, profile: Profile, regions: &[RegionSpec], rng: Rng, now: Time) -> Peer {
        let endpoint = match role {
            Role::Initiator => {
                Endpoint::initiator(profile.terms.clone(), &profile.private_data, now)
                    .expect("private data fits")
            }
            Role::Responder => Endpoint::responder(profile.terms.clone(), now),
        };
        let mut memory = Memory::default();
        for spec in regions {
            memory.register(spec);
        }
        Peer {
            profile,
            rng,
            endpoint: Some(endpoint),
            stream: None,
            crc: false,
            tracked: false,
            memory,
            stage: Vec::new(),
            need: 0,
            receives: VecDeque::new(),
            claimed: None,
            consumed: Vec::new(),
            requests: VecDeque::new(),
            begun: 0,
            sending: None,
            answers: VecDeque::new(),
            outbox: VecDeque::new(),
            framed: 0,
            accepted: 0,
            ack_at: None,
            reports: Vec::new(),
            closing: false,
            ended: false,
            violation_reported: false,
            eof: false,
        }
    }

    /// The stream, once there is one.
    pub fn stream(&self) -> Option<&Stream> {
        self.stream.as_ref()
    }

    fn caps(&self, ird: u16) -> Caps {
        Caps {
            version: Caps::VERSION,
            max_ulpdu: self.profile.max_ulpdu,
            features: self.profile.features,
            personality: Personality::Roce,
            qp_type: QpType::Rc,
            min_rnr_timer: self.profile.rnr_timer,
            ird,
            nonce: 0,
            same_host: None,
            path: None,
        }
    }

    /// Feeds the startup; returns the bytes behind it.
    fn start<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(endpoint) = &mut self.endpoint else {
            return bytes;
        };
        let used = endpoint.handle_bytes(bytes);
        if endpoint.state() == StartupState::Deciding {
            let (ird, ord) = (self.profile.terms.ird, self.profile.terms.ord);
            let private_data = &self.profile.private_data;
            let enhanced = endpoint
                .proposal()
                .is_some_and(|p| p.revision == Revision::Two);
            let decided = if self.profile.rfc5044_only && enhanced {
                endpoint.handle_eof();
                Ok(())
            } else if self.profile.rejects {
                endpoint.reject(private_data)
            } else {
                endpoint.accept(ird, ord, private_data)
            };
            decided.expect("a request waits and the private data fits");
        }
        self.settle_startup();
        &bytes[used..]
    }

    /// Takes the startup's result, if there is one.
    fn settle_startup(&mut self) {
        let over = self.endpoint.as_ref().is_some_and(|e| e.state().is_final());
        let Some(mut endpoint) = self.endpoint.take_if(|_| over) else {
            return;
        };
        self.enqueue_bytes(&endpoint.poll_transmit());
        let outcome = endpoint.into_outcome().expect("a final state has one");
        let Outcome::Established(agreement) = outcome else {
            self.reports.push(Report::NotEstablished(outcome));
            return self.end_all();
        };
        let settings = Settings {
            max_ulpdu: self.profile.max_ulpdu,
            rfc7306: self.profile.rfc7306,
            rnr_retry: self.profile.rnr_retry,
            drop_overlong: false,
            caps: self.caps(agreement.ird),
        };
        self.stream = Some(Stream::new(&agreement, settings));
        (self.crc, self.tracked) = (agreement.crc, agreement.extensions);
        self.reports.push(Report::Established {
            extensions: agreement.extensions,
            crc: agreement.crc,
            private_data: agreement.private_data,
        });
    }
}

impl Actor for Peer {
    fn receive(&mut self, bytes: &[u8], now: Time) {
        let rest = self.start(bytes);
        self.receive_bytes(rest, now);
        self.settle_stream();
    }

    fn transmit(&mut self, room: usize, now: Time) -> Vec<u8> {
        if let Some(endpoint) = &mut self.endpoint {
            let bytes = endpoint.poll_transmit();
            self.enqueue_bytes(&bytes);
        }
        self.fill_outbox(room, now);
        let n = room.min(self.outbox.len());
        let bytes: Vec<u8> = self.outbox.drain(..n).collect();
        self.accepted += n as u64;
        self.accept_taken();
        self.settle_stream();
        bytes
    }

    fn deadline(&self) -> Option<Time> {
        let startup = self.endpoint.as_ref().and_then(Endpoint::deadline);
        let open = self.stream.as_ref().filter(|_| !self.ended);
        let stream = open.and_then(Stream::deadline);
        let ack = self.ack_at.filter(|_| open.is_some());
        [startup, stream, ack].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.handle_timeout(now);
            self.settle_startup();
        }
        if let Some(stream) = self.stream.as_mut().filter(|_| !self.ended)
            && stream.deadline().is_some_and(|d| d <= now)
            && stream.handle_timeout(now)
        {
            self.give_up();
        }
        self.flush_acks(now);
    }

    fn handle_eof(&mut self, reset: bool, _now: Time) {
        self.eof = true;
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.handle_eof();
            self.settle_startup();
        }
        self.finish(reset);
    }

    fn wants_close(&self) -> bool {
        let idle = self.requests.is_empty() && self.sending.is_none() && self.answers.is_empty();
        self.outbox.is_empty() && (self.ended || self.eof || (self.closing && idle))
    }

    fn post(&mut self, id: u64, work: Work, _now: Time) {
        self.enqueue(id, &work);
    }

    fn supply(&mut self, id: u64, capacity: u32, _now: Time) {
        let memory = Guarded::new(&vec![FRESH_BYTE; capacity as usize]);
        self.receives.push_back(Receive { id, memory });
        if let Some(stream) = &mut self.stream {
            stream.receive_posted();
        }
    }

    fn close(&mut self, _now: Time) {
        self.closing = true;
    }

    fn poll_reports(&mut self) -> Vec<Report> {
        core::mem::take(&mut self.reports)
    }

    fn image(&self) -> Image {
        let regions = self.memory.regions();
        let regions = regions.map(|(stag, valid, memory)| RegionImage {
            stag,
            valid,
            memory: memory.clone(),
        });
        let all = self
            .consumed
            .iter()
            .chain(&self.claimed)
            .chain(&self.receives);
        let mut receives: Vec<_> = all
            .map(|r| ReceiveImage {
                id: r.id,
                memory: r.memory.clone(),
            })
            .collect();
        receives.sort_by_key(|r| r.id);
        Image {
            regions: regions.collect(),
            receives,
        }
    }

    fn leftovers(&self) -> Leftovers {
        let accounting = self.stream.as_ref().map(Stream::accounting);
        Leftovers {
            works: self.requests.len(),
            unacknowledged: accounting.map_or(0, |l| l.requester.unacknowledged()),
            reads_out: accounting.map_or(0, |l| l.reads_out.len()),
            reads_in: accounting.map_or(0, |l| l.reads_in.len()),
            staged: self.stage.len(),
            outbox: self.outbox.len(),
            claimed: usize::from(self.claimed.is_some()),
            discarding: usize::from(accounting.is_some_and(|l| l.responder.is_discarding())),
        }
    }
}

#[cfg(test)]
mod tests;
