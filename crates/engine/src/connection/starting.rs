//! A connection during its startup: which side it is, the state of MPA, and what is left to send.
//! It advances as far as the socket allows without blocking, and returns what is to be done after the lock is released.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Weak;

use verbena_nic::IoOutcome;
use verbena_stream::startup::State;
use verbena_stream::{Agreement, Endpoint, Outcome, Terms, Time};
use verbena_wire::mpa::startup::Revision;

use super::{Done, Options, Transport};
use crate::accept::acceptor::{Acceptor, ArrivalGuard, Permit};
use crate::error::Error;
use crate::security::tls::TlsError;
use crate::sys::{self, Socket};

/// How long a refused connection attempt is repeated: a peer that has just announced its address may not listen yet (perftest's
/// servers listen after they have told their clients).
const REDIAL_TIMEOUT: Duration = Duration::from_millis(200);
/// The first wait before an attempt is repeated; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// A connection during its startup.
pub(super) struct Starting {
    side: Side,
    /// None while TCP connects.
    endpoint: Option<Endpoint>,
    unsent: Vec<u8>,
    outcome: Option<Outcome>,
    early: Vec<u8>,
    deadline: Time,
    begun: Time,
    /// When to connect again.
    redial: Option<Time>,
    /// The peer began with TLS, which is off here.
    speaks_tls: bool,
    /// The peer has sent something.
    has_input: bool,
    /// The result was returned: later events are ignored.
    finished: bool,
}

pub(super) enum Side {
    /// This side connects.
    Dialled {
        terms: Terms,
        options: Options,
        done: Option<Done>,
    },
    /// Accepted by a listener; the options are set when the program accepts.
    Accepted {
        arrived: ArrivalGuard,
        options: Option<(Options, Done)>,
        presented: bool,
        /// Limits the number of startups at a time.
        permit: Option<Permit>,
    },
}

/// What is to be done after the lock is released.
pub(super) enum FollowUp {
    Nothing,
    /// Nothing before this time: the peer refused, and may not listen yet.
    Redial(Time),
    /// The request with this number at the listener is complete.
    Decide(Weak<Acceptor>, u64, Agreement),
    Run(Box<(Agreement, Options)>, Option<Done>, Vec<u8>),
    End(Error, Option<Done>),
    Retry(Box<(Options, Terms)>, Option<Done>),
}

impl Starting {
    pub(super) fn new(side: Side, endpoint: Option<Endpoint>, deadline: Time) -> Starting {
        Starting {
            side,
            endpoint,
            unsent: Vec::new(),
            outcome: None,
            early: Vec::new(),
            deadline,
            begun: sys::now(),
            redial: None,
            speaks_tls: false,
            has_input: false,
            finished: false,
        }
    }

    pub(super) fn take_permit(&mut self) -> Option<Permit> {
        match &mut self.side {
            Side::Dialled { .. } => None,
            Side::Accepted { permit, .. } => permit.take(),
        }
    }

    /// The permit, and whether the request was shown to the program.
    pub(super) fn permit(&self) -> Option<(&Permit, bool)> {
        match &self.side {
            Side::Dialled { .. } => None,
            Side::Accepted {
                permit, presented, ..
            } => permit.as_ref().map(|permit| (permit, *presented)),
        }
    }

    /// Another startup takes the permit.
    pub(super) fn displace(&mut self) -> Option<FollowUp> {
        if self.finished {
            return None;
        }
        self.finished = true;
        Some(FollowUp::End(Error::Closed, self.take_done()))
    }

    /// The request waits for the program's decision.
    pub(super) fn awaits_decision(&self) -> bool {
        let is_deciding = |endpoint: &Endpoint| endpoint.state() == State::Deciding;
        self.endpoint.as_ref().is_some_and(is_deciding)
    }

    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// It waits for the socket to become writable: to connect, or to send.
    pub(super) fn has_unsent(&self, line: &Transport) -> bool {
        // A port tells when it has connected; the pair before it is always writable.
        (self.is_dialling() && line.socket().line().is_none())
            || line.wants_room(!self.unsent.is_empty())
    }

    /// The peer connected to this side.
    pub(super) fn is_accepted(&self) -> bool {
        matches!(self.side, Side::Accepted { .. })
    }

    /// TCP is not connected yet.
    fn is_dialling(&self) -> bool {
        self.endpoint.is_none() && self.outcome.is_none()
    }

    pub(super) fn reject(&mut self, private_data: &[u8]) {
        if let Some(endpoint) = &mut self.endpoint {
            // Private data that does not fit is left out.
            if endpoint.reject(private_data).is_err() {
                let _ = endpoint.reject(&[]);
            }
        }
    }

    pub(super) fn advance(&mut self, line: &Transport, peer: SocketAddr) -> FollowUp {
        if self.finished {
            return FollowUp::Nothing;
        }
        if let Some(when) = self.redial {
            return FollowUp::Redial(when);
        }
        if self.is_dialling() {
            match line.socket().is_connected() {
                Ok(false) => return FollowUp::Nothing,
                Ok(true) => {}
                Err(cause) => return self.unreachable(peer, cause),
            }
            if let Side::Dialled { terms, options, .. } = &self.side {
                // `dial` has checked the length.
                let begun = Endpoint::initiator(terms.clone(), &options.private_data, sys::now());
                self.endpoint = begun.ok();
            }
        }
        self.read(line);
        if let Some(cause) = self.tls_failure(line) {
            self.finished = true;
            return FollowUp::End(Error::Tls { peer, cause }, self.take_done());
        }
        self.collect_output();
        if !self.write(line) {
            return FollowUp::Nothing;
        }
        self.follow_up(peer)
    }

    fn unreachable(&mut self, peer: SocketAddr, cause: sys::Error) -> FollowUp {
        let now = sys::now();
        let tried = now.since(self.begun);
        if cause.is_refused() && tried < REDIAL_TIMEOUT && self.may_retry() {
            // The time since the first attempt, so that the intervals double.
            let when = now + tried.max(FIRST_WAIT);
            self.redial = Some(when);
            return FollowUp::Redial(when);
        }
        self.finished = true;
        FollowUp::End(Error::Unreachable { peer, cause }, self.take_done())
    }

    /// Connects again if that is due.
    pub(super) fn redial(
        &mut self,
        socket: &Socket,
        peer: SocketAddr,
        now: Time,
    ) -> Option<FollowUp> {
        self.redial.take_if(|when| now >= *when)?;
        if self.finished {
            return None;
        }
        Some(match socket.reconnect(peer) {
            Ok(()) => FollowUp::Nothing,
            Err(cause) => self.unreachable(peer, cause),
        })
    }

    /// Why TLS failed, or TLS of the peer where it is off. Checked before the outcome: the end of the connection that follows says
    /// less.
    fn tls_failure(&self, line: &Transport) -> Option<TlsError> {
        if self.speaks_tls {
            return Some(TlsError::UnexpectedTls);
        }
        line.tls_failure()
    }

    fn read(&mut self, line: &Transport) {
        let mut bytes = [0; 2048];
        while let Some(endpoint) = self.endpoint.as_mut().filter(|e| !e.state().is_final()) {
            match line.read_local(&mut bytes) {
                IoOutcome::Bytes(n) => {
                    if !core::mem::replace(&mut self.has_input, true) && !line.has_tls() {
                        self.speaks_tls = TlsError::may_be_tls(&bytes[..n]);
                    }
                    let used = endpoint.handle_bytes(&bytes[..n]);
                    self.early.extend_from_slice(&bytes[used..n]);
                }
                IoOutcome::WouldBlock => return,
                IoOutcome::Eof | IoOutcome::Broken | IoOutcome::Fault => endpoint.handle_eof(),
            }
        }
    }

    /// Takes the output of the endpoint, and its result.
    fn collect_output(&mut self) {
        if let Some(endpoint) = &mut self.endpoint {
            self.unsent.extend(endpoint.poll_transmit());
            if endpoint.state().is_final() {
                self.outcome = self.endpoint.take().and_then(Endpoint::into_outcome);
            }
        }
    }

    /// False while something is left to send.
    fn write(&mut self, line: &Transport) -> bool {
        while !self.unsent.is_empty() {
            match line.write_local(&self.unsent) {
                IoOutcome::Bytes(n) => drop(self.unsent.drain(..n)),
                IoOutcome::WouldBlock => return false,
                IoOutcome::Eof | IoOutcome::Broken | IoOutcome::Fault => {
                    self.unsent.clear();
                    if let Some(endpoint) = &mut self.endpoint {
                        endpoint.handle_eof();
                    }
                    self.collect_output();
                }
            }
        }
        true
    }

    fn follow_up(&mut self, peer: SocketAddr) -> FollowUp {
        let Some(outcome) = self.outcome.take() else {
            return self.present_request();
        };
        self.finished = true;
        let done = self.take_done();
        match outcome {
            Outcome::Established(agreement) => match self.options() {
                Some(options) => {
                    let early = core::mem::take(&mut self.early);
                    FollowUp::Run(Box::new((agreement, options)), done, early)
                }
                None => FollowUp::End(Error::Closed, done),
            },
            Outcome::Rejected { private_data } => {
                FollowUp::End(Error::Rejected { peer, private_data }, done)
            }
            Outcome::Refused => {
                let private_data = Vec::new();
                FollowUp::End(Error::Rejected { peer, private_data }, done)
            }
            Outcome::Failed {
                retry: Some(revision),
                ..
            } if self.may_retry() => self.retry(revision, done),
            Outcome::Failed { reason, .. } => {
                let cause = reason;
                FollowUp::End(Error::Startup { peer, cause }, done)
            }
        }
    }

    /// Whether the attempt may be repeated here; an out-of-band connection is repeated by its [`OobHandshake`](crate::oob::handshake::OobHandshake).
    fn may_retry(&self) -> bool {
        matches!(&self.side, Side::Dialled { options, .. } if options.oob_hello.is_none())
    }

    /// RFC 6581 §6: a peer that does not know the newer revision is asked with the older one.
    fn retry(&mut self, revision: Revision, done: Option<Done>) -> FollowUp {
        let Side::Dialled { terms, options, .. } = &self.side else {
            return FollowUp::Nothing;
        };
        let terms = Terms {
            revision,
            ..terms.clone()
        };
        FollowUp::Retry(Box::new((options.clone(), terms)), done)
    }

    /// A complete request is shown to the program, once.
    fn present_request(&mut self) -> FollowUp {
        let Some(endpoint) = self.endpoint.as_ref() else {
            return FollowUp::Nothing;
        };
        match &mut self.side {
            Side::Accepted {
                arrived,
                presented,
                permit,
                ..
            } if endpoint.state() == State::Deciding && !*presented => {
                *presented = true;
                if let Some(permit) = permit {
                    permit.set_awaiting_decision();
                }
                match endpoint.proposal() {
                    Some(proposal) => {
                        FollowUp::Decide(arrived.acceptor.clone(), arrived.number, proposal)
                    }
                    None => FollowUp::Nothing,
                }
            }
            _ => FollowUp::Nothing,
        }
    }

    pub(super) fn accept(&mut self, options: Options, done: Done) {
        let Some(endpoint) = &mut self.endpoint else {
            return;
        };
        let proposal = endpoint.proposal();
        let (ird, ord) = options.depths(proposal.map_or((0, 0), |p| (p.ird, p.ord)));
        let accepted = endpoint.accept(ird, ord, &options.private_data);
        debug_assert!(
            accepted.is_ok(),
            "only a pending request is passed to the program"
        );
        if let Side::Accepted { options: slot, .. } = &mut self.side {
            *slot = Some((options, done));
        }
    }

    pub(super) fn expire(
        &mut self,
        line: &Transport,
        peer: SocketAddr,
        limit: Duration,
        now: Time,
    ) -> FollowUp {
        if self.finished {
            return FollowUp::Nothing;
        }
        if let Some(endpoint) = &mut self.endpoint {
            // The endpoint's own limit started later, when TCP was connected; the startup's limit counts.
            endpoint.handle_timeout(now + limit);
            self.collect_output();
            self.write(line);
            if self.outcome.is_some() {
                return self.follow_up(peer);
            }
        }
        // TCP is not connected.
        self.finished = true;
        FollowUp::End(Error::Timeout { peer, limit }, self.take_done())
    }

    pub(super) fn take_done(&mut self) -> Option<Done> {
        match &mut self.side {
            Side::Dialled { done, .. } => done.take(),
            Side::Accepted { options, .. } => {
                let (kept, done) = options.take()?;
                // The options are needed until the stream begins.
                *options = Some((kept, Box::new(|_| ())));
                Some(done)
            }
        }
    }

    fn options(&mut self) -> Option<Options> {
        match &mut self.side {
            Side::Dialled { options, .. } => Some(options.clone()),
            Side::Accepted { options, .. } => options.take().map(|(options, _)| options),
        }
    }
}
