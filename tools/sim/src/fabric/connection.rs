//! One connection of a fabric: two queue pairs, their startup, and a link in each direction.
//! Bytes, ends of stream and timeouts reach the queue pairs as with sockets. The caller decides when each step takes place.

use std::sync::Arc;

use verbena_events::event::Outbox;
use verbena_nic::{MemoryCarrier, Qp, QpState, Receiving};
use verbena_stream::startup::State as Startup;
use verbena_stream::{Endpoint, Outcome, Role, Settings, Stream, Time};
use verbena_wire::ext::{Caps, QpType};

use super::host::HostId;
use super::wants::check_wants;
use super::{ConnectOptions, SideOptions};
use crate::link::Link;
use crate::rng::Rng;

/// A queue pair at one end.
#[derive(Debug)]
pub(super) struct End {
    host: HostId,
    qp: Arc<Qp>,
    options: SideOptions,
    /// Present until the startup is over.
    endpoint: Option<Endpoint>,
    /// Bytes of the startup for which the link had no room.
    unsent: Vec<u8>,
    /// Bytes received that the queue pair does not read yet.
    inbox: Vec<u8>,
    /// The peer's direction is closed behind the bytes received.
    ended: bool,
    /// The queue pair was told so.
    eof_delivered: bool,
    /// The queue pair was told that both directions are closed.
    close_notified: bool,
    /// Buffer for bytes that are not placed directly.
    scratch: Vec<u8>,
    pub(super) outcome: Option<Outcome>,
    /// The queue pair has the stream.
    attached: bool,
    /// Nothing happens here any more.
    finished: bool,
    out: Outbox,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) ends: [End; 2],
    links: [Link; 2],
    held_until: Time,
    pub(super) reset: bool,
}

impl End {
    fn new(
        role: Role,
        (host, qp): (HostId, Arc<Qp>),
        options: SideOptions,
        scratch: usize,
        now: Time,
    ) -> End {
        let terms = options.terms.clone();
        let endpoint = match role {
            Role::Initiator => Endpoint::initiator(terms, &[], now).ok(),
            Role::Responder => Some(Endpoint::responder(terms, now)),
        };
        let mut out = Outbox::new();
        qp.set_rnr_timer(options.rnr_timer, &mut out);
        End {
            host,
            qp,
            options,
            endpoint,
            unsent: Vec::new(),
            inbox: Vec::new(),
            ended: false,
            eof_delivered: false,
            close_notified: false,
            scratch: vec![0; scratch],
            outcome: None,
            attached: false,
            finished: false,
            out,
        }
    }

    fn settings(&self, ird: u16) -> Settings {
        let options = &self.options;
        Settings {
            max_ulpdu: options.max_ulpdu,
            rfc7306: options.rfc7306,
            rnr_retry: options.rnr_retry,
            drop_overlong: self.qp.init().qp_type == QpType::Uc,
            caps: Caps {
                version: Caps::VERSION,
                max_ulpdu: u16::MAX,
                features: options.features,
                personality: self.qp.init().personality,
                qp_type: self.qp.init().qp_type,
                min_rnr_timer: options.rnr_timer,
                ird,
                nonce: u64::from(self.qp.number()),
                same_host: None,
                path: None,
            },
        }
    }

    fn receive(&mut self, bytes: &[u8], now: Time) {
        let mut rest = bytes;
        if self.endpoint.is_none() && !self.attached {
            return;
        }
        if let Some(endpoint) = &mut self.endpoint {
            let used = endpoint.handle_bytes(rest);
            if endpoint.state() == Startup::Deciding {
                // An empty reply always fits, so this cannot fail.
                let (ird, ord) = (self.options.terms.ird, self.options.terms.ord);
                let _ = endpoint.accept(ird, ord, &[]);
            }
            rest = &rest[used..];
            self.advance_startup();
        }
        self.inbox.extend_from_slice(rest);
        self.read(now);
    }

    /// Lets the queue pair read the bytes received; false if it read nothing.
    fn read(&mut self, now: Time) -> bool {
        if !self.attached {
            return false;
        }
        let mut carrier = MemoryCarrier::with_input(&self.inbox);
        let (scratch, out) = (&mut self.scratch, &mut self.out);
        while !carrier.input.is_empty() {
            let received = self.qp.receive(&mut carrier, scratch, now, out);
            check_wants(&self.qp, received.demand, now, out);
            match received.receiving {
                Receiving::Some(_) => {}
                Receiving::WouldBlock | Receiving::Held => break,
                // Nothing reads them any more.
                Receiving::Ended => carrier.input = &[],
            }
        }
        let left = carrier.input.len();
        let read = self.inbox.len() - left;
        self.inbox.drain(..read);
        read > 0
    }

    /// Takes the output and the result of the startup.
    fn advance_startup(&mut self) {
        let Some(mut endpoint) = self.endpoint.take() else {
            return;
        };
        self.unsent.extend(endpoint.poll_transmit());
        if !endpoint.state().is_final() {
            self.endpoint = Some(endpoint);
            return;
        }
        self.outcome = endpoint.into_outcome();
        if let Some(Outcome::Established(agreement)) = &self.outcome {
            let stream = Stream::new(agreement, self.settings(agreement.ird));
            let rfc7306 = self.options.rfc7306 || agreement.extensions;
            self.attached = self.qp.attach(stream, rfc7306, &mut self.out);
        }
    }

    /// Whether checksums cover what the queue pair sends, so that damage is detected.
    fn has_crc(&self) -> bool {
        let agreed = matches!(&self.outcome, Some(Outcome::Established(a)) if a.crc);
        agreed && self.attached && self.unsent.is_empty()
    }

    /// The queue pair has no stream any more: bytes received are dropped, and nothing more is sent.
    fn detach(&mut self) {
        self.endpoint = None;
        self.attached = false;
        self.unsent.clear();
        self.inbox.clear();
    }

    fn transmit(&mut self, room: usize, now: Time) -> Vec<u8> {
        if !self.unsent.is_empty() {
            let n = room.min(self.unsent.len());
            return self.unsent.drain(..n).collect();
        }
        if self.attached {
            let mut carrier = MemoryCarrier::with_room(room);
            self.qp.transmit(&mut carrier, now, &mut self.out);
            carrier.output
        } else {
            Vec::new()
        }
    }

    /// Whether nothing more will be sent.
    fn wants_close(&self) -> bool {
        if self.endpoint.is_some() || !self.unsent.is_empty() {
            return false;
        }
        // A queue pair that was reset has left its stream without a close.
        !self.attached || self.qp.wants_close()
    }

    fn end_of_stream(&mut self, reset: bool) {
        self.eof_delivered = true;
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.handle_eof();
            self.advance_startup();
        } else if self.attached {
            self.qp.handle_eof(reset, &mut self.out);
        }
    }

    fn deadline(&self) -> Option<Time> {
        match &self.endpoint {
            Some(endpoint) => endpoint.deadline(),
            None if self.attached => self.qp.deadline(),
            None => None,
        }
    }

    fn expire(&mut self, now: Time) {
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.handle_timeout(now);
            self.advance_startup();
        } else {
            self.qp.handle_timeout(now, &mut self.out);
        }
    }
}

impl Connection {
    pub(super) fn new(
        parties: [(HostId, Arc<Qp>); 2],
        options: ConnectOptions,
        rng: &mut Rng,
        now: Time,
    ) -> Connection {
        let [a, b] = parties;
        let [oa, ob] = options.sides;
        Connection {
            ends: [
                End::new(Role::Initiator, a, oa, scratch(rng), now),
                End::new(Role::Responder, b, ob, scratch(rng), now),
            ],
            links: options.links.map(|link| Link::new(link, rng.fork())),
            held_until: now,
            reset: false,
        }
    }

    /// One turn of one end at the current time; false when nothing moved.
    pub(super) fn turn(&mut self, side: usize, now: Time) -> bool {
        if self.ends[side].finished {
            return false;
        }
        let arrived = self.arrive(side, now);
        let end = &mut self.ends[side];
        let expired = end.deadline().is_some_and(|d| d <= now);
        if expired {
            end.expire(now);
        }
        let sent = self.transmit(side, now);
        self.notify_closed(side);
        if self.ends[side].qp.wants_reset() {
            self.abort();
        }
        arrived | expired | sent
    }

    fn arrive(&mut self, side: usize, now: Time) -> bool {
        let (end, link) = (&mut self.ends[side], &mut self.links[1 - side]);
        // A stall delays what is under way. What arrived before can be read, as from the buffer of a socket.
        if now >= self.held_until {
            if let Some(bytes) = link.arrive(now) {
                end.receive(&bytes, now);
                return true;
            }
            end.ended |= link.take_eof(now);
        }
        if !end.inbox.is_empty() {
            return end.read(now);
        }
        // As with a socket, the end is seen when everything before it has been read.
        let eof = core::mem::take(&mut end.ended);
        if eof {
            end.end_of_stream(false);
        }
        eof
    }

    /// iWARP: a graceful close is over when both directions are closed; then the queue pair is idle and the stream is gone.
    fn notify_closed(&mut self, side: usize) {
        let (end, link) = (&mut self.ends[side], &self.links[side]);
        if end.attached && end.eof_delivered && link.is_closed() && !end.close_notified {
            end.close_notified = true;
            end.qp.handle_closed(&mut end.out);
            if end.qp.state() == QpState::Init {
                end.detach();
            }
        }
    }

    /// A queue pair that was reset leaves its stream; its peer sees the end of it.
    pub(super) fn forget(&mut self, qp: &Arc<Qp>) {
        for end in self.ends.iter_mut().filter(|end| Arc::ptr_eq(&end.qp, qp)) {
            end.detach();
        }
    }

    fn transmit(&mut self, side: usize, now: Time) -> bool {
        let (end, link) = (&mut self.ends[side], &mut self.links[side]);
        let room = link.room();
        if room > 0 {
            end.advance_startup();
            let summed = end.has_crc();
            let bytes = end.transmit(room, now);
            assert!(bytes.len() <= room, "sent more than there was room for");
            if !bytes.is_empty() {
                link.send(&bytes, summed, now);
                return true;
            }
        }
        let closes = end.wants_close() && !link.is_closed();
        if closes {
            link.close(now);
        }
        closes
    }

    /// When something happens next.
    pub(super) fn next_moment(&self) -> Option<Time> {
        let arrivals = [0, 1]
            .into_iter()
            .filter(|side| !self.ends[*side].finished)
            .filter_map(|side| self.links[1 - side].next_arrival())
            .map(|at| at.max(self.held_until));
        let live = self.ends.iter().filter(|end| !end.finished);
        arrivals.chain(live.filter_map(End::deadline)).min()
    }

    /// Resets both directions at once; everything under way is lost.
    pub(super) fn abort(&mut self) {
        if self.reset {
            return;
        }
        self.reset = true;
        for side in 0..2 {
            self.links[side].cut();
            if !self.ends[side].finished {
                self.ends[side].end_of_stream(true);
            }
        }
    }

    /// Ends one side without telling its queue pair.
    pub(super) fn abandon(&mut self, host: HostId) {
        let ends = self.ends.iter_mut().filter(|end| end.host == host);
        let mut left = false;
        for end in ends {
            end.finished = true;
            left = true;
        }
        if left {
            self.abort();
        }
    }

    /// The connection continues in another queue pair.
    pub(super) fn replace(&mut self, old: &Arc<Qp>, new: &Arc<Qp>) {
        for end in self.ends.iter_mut().filter(|end| Arc::ptr_eq(&end.qp, old)) {
            end.qp = new.clone();
        }
    }

    /// The host of an end, and the outbox of its calls.
    pub(super) fn take_outbox(&mut self, side: usize) -> (HostId, Outbox) {
        let end = &mut self.ends[side];
        (end.host, core::mem::take(&mut end.out))
    }

    /// Nothing arrives before `until`.
    pub(super) fn hold(&mut self, until: Time) {
        self.held_until = self.held_until.max(until);
    }

    /// Whether both directions have ended.
    pub(super) fn is_closed(&self) -> bool {
        self.links.iter().all(Link::is_closed)
    }

    /// The positions of flipped bits in what each side sent, and how much it sent.
    pub(super) fn flips(&self) -> [(&[u64], u64); 2] {
        [0, 1].map(|side| (self.links[side].flipped(), self.links[side].sent()))
    }

    /// Bytes sent in both directions.
    pub(super) fn bytes(&self) -> u64 {
        self.links.iter().map(Link::sent).sum()
    }
}

/// A random size for the buffer of one end: any must do, even one smaller than a frame.
fn scratch(rng: &mut Rng) -> usize {
    rng.pick(&[32, 700, 8 << 10, 80 << 10])
}
