//! A request of a peer that waits for the program's decision, over TCP or RoCEv2. It is answered once: a later answer has no effect.

use core::net::SocketAddr;
use std::sync::Arc;

use crate::connection::{Connection, Decision, Done};
use crate::error::Error;
use crate::roce::cm::request::{RoceRequest, RoceRequestRef};
use crate::verbs::queue_pair::QueuePair;

/// A request.
pub(crate) enum Request {
    /// A connection in its startup.
    Tcp(Decision),
    /// A REQ of the connection manager of RoCEv2.
    Roce(RoceRequest),
}

/// A reference to a request, which may have been answered.
pub(super) enum RequestRef {
    Tcp(Arc<Connection>),
    Roce(RoceRequestRef),
}

impl RequestRef {
    /// The request waits for the program's decision.
    pub(super) fn awaits_decision(&self) -> bool {
        match self {
            RequestRef::Tcp(connection) => connection.awaits_decision(),
            RequestRef::Roce(request) => request.awaits_decision(),
        }
    }

    pub(super) fn is_same(&self, other: &RequestRef) -> bool {
        match (self, other) {
            (RequestRef::Tcp(one), RequestRef::Tcp(other)) => Arc::ptr_eq(one, other),
            (RequestRef::Roce(one), RequestRef::Roce(other)) => one.is_same(other),
            _ => false,
        }
    }
}

impl Request {
    pub(super) fn downgrade(&self) -> RequestRef {
        match self {
            Request::Tcp(decision) => RequestRef::Tcp(decision.connection.clone()),
            Request::Roce(request) => RequestRef::Roce(request.downgrade()),
        }
    }

    pub(super) fn peer_addr(&self) -> SocketAddr {
        match self {
            Request::Tcp(decision) => decision.connection.peer(),
            Request::Roce(request) => request.peer_addr(),
        }
    }

    pub(super) fn local_addr(&self) -> Result<SocketAddr, Error> {
        match self {
            Request::Tcp(decision) => Ok(decision.connection.transport().socket().local_addr()?),
            Request::Roce(request) => Ok(request.local_addr()),
        }
    }

    /// Reads and atomics at once that the connection would serve (IRD) and may issue (ORD).
    pub(super) fn depths(&self) -> (u16, u16) {
        match self {
            Request::Tcp(decision) => (decision.proposal.ird, decision.proposal.ord),
            Request::Roce(request) => request.depths(),
        }
    }

    pub(super) fn private_data(&self) -> &[u8] {
        match self {
            Request::Tcp(decision) => &decision.proposal.private_data,
            Request::Roce(request) => request.private_data(),
        }
    }

    /// Accepts with a queue pair that can be connected; `done` is called with the result unless this fails at once.
    pub(super) fn accept(
        &self,
        qp: &QueuePair,
        private_data: &[u8],
        done: Done,
    ) -> Result<(), Error> {
        let decision = match self {
            Request::Tcp(decision) => decision,
            Request::Roce(request) => return request.accept(qp, private_data, done),
        };
        let connection = decision.connection.clone();
        qp.check_own(&connection)?;
        let mut options = qp.options(private_data);
        if let Some(proven) = &decision.verified_request {
            proven.prove_reply(&mut options)?;
        }
        connection.accept(options, done)
    }

    /// Rejects, with private data for the peer's program. No effect on a request that was answered.
    pub(super) fn reject(&self, private_data: &[u8]) {
        match self {
            Request::Tcp(decision) => decision.connection.clone().reject(private_data),
            Request::Roce(request) => request.reject(private_data),
        }
    }
}
