//! Why a queue pair failed: the first cause as one sentence, its kind, and the numbers that belong to it.
//! The record is made when the queue pair fails, under its lock; later failures do not change it. The kind decides where the fault lies. What a request
//! or a refused access was is added by the flush that follows.

use core::cell::Cell;

use serde::{Deserialize, Serialize};

use verbena_mem::{Access, MemAccess, Pd};
use verbena_roce::responder::Violation as Breach;
use verbena_stream::{Time, Violation};
use verbena_wire::rdmap::Cause;
use verbena_wire::{Stag, To};

use super::wqe::Wqe;
use crate::memory_scope::MemoryScope;
use crate::wc::{Status, WcOp, status_of};
use crate::wr::SendOp;

/// Where the fault of a failure lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The program that owns the queue pair.
    Program,
    /// The peer: its program or its adapter.
    Peer,
    /// The network between them, or a peer that cannot be told from a broken network.
    Network,
    /// This adapter.
    Adapter,
    /// A fault that was injected for a test.
    Injected,
}

impl Blame {
    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Blame::Program => "program",
            Blame::Peer => "peer",
            Blame::Network => "network",
            Blame::Adapter => "adapter",
            Blame::Injected => "injected",
        }
    }
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailureKind {
    /// The program moved the queue pair to an error state or disconnected it: not a failure.
    Requested,
    /// The program closed it while its requests were outstanding.
    ClosedBusy,
    /// A request was invalid, or could not be executed.
    Request,
    /// A registration by a request could not be executed.
    Registration,
    /// The memory of a local request is not accessible.
    LocalMemory,
    /// A completion queue overflowed.
    CqOverflow,
    /// A message found no receive, and its sender cannot be asked to wait.
    NoReceive,
    /// The peer accessed memory that it may not access so.
    Access,
    /// The peer used an operation that is not enabled here.
    NotEnabled,
    /// A message was longer than the receive that it took.
    TooLong,
    /// The peer broke another rule of the protocol.
    Protocol,
    /// Bytes arrived with a wrong checksum.
    Corrupted,
    /// The peer refused an access of this side to its memory.
    AccessRefused,
    /// The peer refused a request of this side as invalid.
    RequestRefused,
    /// The peer could not execute a request.
    PeerFailed,
    /// The peer reported that this side broke the protocol.
    PeerComplained,
    /// The peer had no receive for too long.
    RnrExceeded,
    /// The peer is gone, and requests were outstanding.
    PeerGone,
    /// The peer does not answer.
    PeerSilent,
    /// The peer began something and did not go on.
    PeerStopped,
    /// The two queue pairs do not fit together: key, type, or packet sequence numbers.
    Mismatch,
    /// A fault that was injected for a test.
    Injected,
}

impl FailureKind {
    /// A few words for it, joined by hyphens.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Requested => "requested",
            FailureKind::ClosedBusy => "closed-busy",
            FailureKind::Request => "request",
            FailureKind::Registration => "registration",
            FailureKind::LocalMemory => "local-memory",
            FailureKind::CqOverflow => "cq-overflow",
            FailureKind::NoReceive => "no-receive",
            FailureKind::Access => "access",
            FailureKind::NotEnabled => "not-enabled",
            FailureKind::TooLong => "too-long",
            FailureKind::Protocol => "protocol",
            FailureKind::Corrupted => "corrupted",
            FailureKind::AccessRefused => "access-refused",
            FailureKind::RequestRefused => "request-refused",
            FailureKind::PeerFailed => "peer-failed",
            FailureKind::PeerComplained => "peer-complained",
            FailureKind::RnrExceeded => "rnr-exceeded",
            FailureKind::PeerGone => "peer-gone",
            FailureKind::PeerSilent => "peer-silent",
            FailureKind::PeerStopped => "peer-stopped",
            FailureKind::Mismatch => "mismatch",
            FailureKind::Injected => "injected",
        }
    }

    /// Where the fault lies.
    pub fn blame(self) -> Blame {
        match self {
            FailureKind::Requested
            | FailureKind::ClosedBusy
            | FailureKind::Request
            | FailureKind::Registration
            | FailureKind::LocalMemory
            | FailureKind::CqOverflow
            | FailureKind::NoReceive
            | FailureKind::AccessRefused
            | FailureKind::RequestRefused
            | FailureKind::Mismatch => Blame::Program,
            FailureKind::Access
            | FailureKind::NotEnabled
            | FailureKind::TooLong
            | FailureKind::Protocol
            | FailureKind::PeerFailed
            | FailureKind::RnrExceeded
            | FailureKind::PeerGone
            | FailureKind::PeerStopped => Blame::Peer,
            FailureKind::Corrupted | FailureKind::PeerSilent => Blame::Network,
            FailureKind::PeerComplained => Blame::Adapter,
            FailureKind::Injected => Blame::Injected,
        }
    }

    /// The kind of the failure of a local request with this status.
    pub(super) fn of_status(status: Status) -> FailureKind {
        match status {
            Status::LocProtErr | Status::LocAccessErr => FailureKind::LocalMemory,
            Status::MwBindErr => FailureKind::Registration,
            _ => FailureKind::Request,
        }
    }

    /// The kind of a violation.
    pub(super) fn of_violation(violation: &Violation) -> FailureKind {
        match violation {
            Violation::Crc { .. } => FailureKind::Corrupted,
            Violation::CutFpdu | Violation::CutMessage => FailureKind::PeerGone,
            Violation::Access { .. } => FailureKind::Access,
            Violation::NotEnabled(_) => FailureKind::NotEnabled,
            Violation::NoReceive { .. } => FailureKind::NoReceive,
            Violation::TooLong { .. } => FailureKind::TooLong,
            Violation::ReceiveBuffer => FailureKind::LocalMemory,
            _ => FailureKind::Protocol,
        }
    }

    /// The kind of a violation over RoCEv2.
    pub(super) fn of_breach(_: &Breach) -> FailureKind {
        FailureKind::Protocol
    }

    /// The kind of a peer's Terminate.
    pub(super) fn of_terminate(cause: Cause) -> FailureKind {
        match cause {
            // It found wrong bytes.
            Cause::Llp(_) => FailureKind::Corrupted,
            _ => FailureKind::of_report(status_of(cause)),
        }
    }

    /// The kind of a failure that the peer reported with this status.
    pub(super) fn of_report(status: Status) -> FailureKind {
        match status {
            Status::RemAccessErr => FailureKind::AccessRefused,
            Status::RemInvReqErr => FailureKind::RequestRefused,
            Status::RemOpErr => FailureKind::PeerFailed,
            _ => FailureKind::PeerComplained,
        }
    }
}

/// A send request that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestInfo {
    /// The program's id of it.
    pub id: u64,
    /// Its number since the connection began, from 0.
    pub number: u64,
    /// The operation.
    pub op: WcOp,
    /// Bytes.
    pub len: u32,
    /// The peer's memory that it names.
    pub remote: Option<(Stag, To)>,
}

impl RequestInfo {
    pub(super) fn new(wqe: &Wqe, number: u64) -> RequestInfo {
        let remote = match wqe.op {
            SendOp::Write { remote, .. }
            | SendOp::Read { remote, .. }
            | SendOp::FetchAdd { remote, .. }
            | SendOp::CmpSwap { remote, .. }
            | SendOp::AtomicWrite { remote }
            | SendOp::Flush { remote, .. } => Some((remote.stag, remote.to)),
            SendOp::Send { .. }
            | SendOp::Bind(_)
            | SendOp::LocalInvalidate(_)
            | SendOp::Register(_)
            | SendOp::RegisterSend { .. } => None,
        };
        RequestInfo {
            id: wqe.id,
            number,
            op: wqe.wc_op(),
            len: wqe.len,
            remote,
        }
    }
}

/// An access by the peer that memory refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedAccess {
    /// The entry that it named.
    pub stag: Stag,
    /// The first byte, and bytes.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// The right that it needs.
    pub needs: Access,
    /// What the entry is; `None` if no entry is valid under this STag.
    pub entry: Option<EntryInfo>,
}

/// A region or window, as it was when an access to it was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryInfo {
    /// Its first byte.
    pub start: To,
    /// Bytes.
    pub len: u64,
    /// Its rights.
    pub access: Access,
    /// Its domain.
    pub pd: Pd,
}

/// Why a queue pair failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it was.
    pub kind: FailureKind,
    /// One sentence.
    pub sentence: String,
    /// The request that got the status of the failure, and the status. Not moved: a queue pair whose request has failed is not.
    #[serde(skip)]
    pub request: Option<(RequestInfo, Status)>,
    /// The access of the peer that memory refused.
    #[serde(skip)]
    pub access: Option<RefusedAccess>,
    /// Send requests that were flushed, the failed one included.
    #[serde(skip)]
    pub flushed: usize,
    /// When it failed.
    #[serde(skip)]
    pub at: Option<Time>,
}

/// The first cause of a failure, once there is one.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct FirstCause {
    failure: Option<Box<Failure>>,
    /// The last access by the peer that was refused.
    #[serde(skip)]
    refused: Cell<Option<MemAccess>>,
}

impl FirstCause {
    /// Records a cause, unless there is one.
    #[cold]
    pub(super) fn record(&mut self, kind: FailureKind, sentence: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(Box::new(Failure {
                kind,
                sentence: sentence(),
                request: None,
                access: None,
                flushed: 0,
                at: None,
            }));
        }
    }

    /// Remembers an access by the peer that memory refused, in case the queue pair fails because of it.
    #[cold]
    pub(super) fn note_refused(&self, access: &MemAccess) {
        self.refused.set(Some(*access));
    }

    /// Adds what is known of the memory of the refused access to this STag.
    pub(super) fn add_access(&mut self, stag: Stag, memory: &MemoryScope) {
        let refused = self.refused.take().filter(|access| access.stag == stag);
        let Some(failure) = self.failure.as_mut().filter(|f| f.access.is_none()) else {
            return;
        };
        let entry = memory.find_entry(stag).map(|entry| EntryInfo {
            start: entry.start,
            len: entry.len,
            access: entry.access.get(),
            pd: entry.pd,
        });
        failure.access = refused.map(|access| RefusedAccess {
            stag,
            at: access.at,
            len: access.len,
            needs: access.needs,
            entry,
        });
    }

    /// The queue pair fails now. True if that is to be reported: once, and not for what the program requested.
    pub(super) fn complete(
        &mut self,
        now: Time,
        flushed: usize,
        request: Option<(RequestInfo, Status)>,
    ) -> bool {
        let Some(failure) = self.failure.as_mut().filter(|f| f.at.is_none()) else {
            return false;
        };
        failure.at = Some(now);
        failure.flushed = flushed;
        failure.request = request;
        failure.kind != FailureKind::Requested
    }

    /// The sentence.
    pub(super) fn sentence(&self) -> Option<String> {
        self.failure
            .as_ref()
            .map(|failure| failure.sentence.clone())
    }

    pub(super) fn failure(&self) -> Option<&Failure> {
        self.failure.as_deref()
    }

    /// What was to be a failure is none.
    pub(super) fn clear(&mut self) {
        self.failure = None;
    }
}
