//! Work completions: how each request ended.
//! The status is one of the verbs' (`ibv_wc_status`); the mapping from a peer's Terminate to a status is one total function.

use serde::{Deserialize, Serialize};
use verbena_events::event::Reason;
use verbena_wire::Stag;
use verbena_wire::rdmap::{Cause, DdpError, RdmapError};

/// How a request ended, with the names and numbers of verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Status {
    /// Success.
    Success = 0,
    /// The message did not fit its receive.
    LocLenErr = 1,
    /// The request is invalid on this queue pair.
    LocQpOpErr = 2,
    /// Local memory that may not be accessed so.
    LocProtErr = 4,
    /// Not executed because the queue pair failed before.
    WrFlushErr = 5,
    /// A window could not be bound, or a prepared registration not be executed (M4): InfiniBand's memory management operation error.
    MwBindErr = 6,
    /// The peer's response does not match the request.
    BadRespErr = 7,
    /// Local memory lacks an access right.
    LocAccessErr = 8,
    /// The peer reported an invalid request.
    RemInvReqErr = 9,
    /// The peer reported memory that may not be accessed so.
    RemAccessErr = 10,
    /// The peer could not execute it.
    RemOpErr = 11,
    /// The peer does not answer.
    RetryExcErr = 12,
    /// The peer had no receive for too long.
    RnrRetryExcErr = 13,
    /// The peer aborted the operation.
    RemAbortErr = 16,
    /// The adapter failed.
    FatalErr = 19,
    /// Any other error.
    GeneralErr = 21,
}

/// The operation that a completion is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WcOp {
    /// A Send.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// Compare and swap.
    CompSwap,
    /// Fetch and add.
    FetchAdd,
    /// An Atomic Write.
    AtomicWrite,
    /// A Flush.
    Flush,
    /// A window was bound.
    Bind,
    /// An entry was invalidated.
    LocalInvalidate,
    /// A registration was executed (M4); for one combined with a Send (M11), it was not, and nothing was sent.
    Register,
    /// A receive took a message.
    Receive,
    /// A receive was consumed by the immediate data of an RDMA Write.
    ReceiveWriteImm,
    /// A request of a control queue pair (V5); the completion's queue pair number is the control queue pair's.
    Control(ControlOp),
}

/// The operation of a control queue pair's request (V5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ControlOp {
    /// A region was registered, or registered once more.
    Register,
    /// A window was allocated.
    AllocateWindow,
    /// A region or window was removed.
    Deregister,
    /// A queue pair was created.
    CreateQp,
    /// A queue pair was moved to another state.
    ModifyQp,
    /// A queue pair was destroyed.
    DestroyQp,
    /// A completion queue was created.
    CreateCq,
    /// A completion queue was destroyed.
    DestroyCq,
    /// The size or the handler of a completion queue was changed.
    ModifyCq,
}

/// The header that precedes a datagram in its receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Header {
    /// IPv4, in the last 20 of the 40 bytes.
    V4,
    /// IPv6.
    V6,
}

/// One completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wc {
    /// The consumer's id of the request.
    pub id: u64,
    /// The queue pair it was posted to.
    pub qpn: u32,
    /// How it ended.
    pub status: Status,
    /// The operation.
    pub op: WcOp,
    /// Bytes received or read.
    pub len: u32,
    /// Immediate data of the message.
    pub immediate: Option<u32>,
    /// The entry that the peer's message invalidated.
    pub invalidated: Option<Stag>,
    /// The queue pair that sent the datagram; 0 for any other message.
    pub src_qp: u32,
    /// The peer asked for a solicited event.
    pub solicited: bool,
    /// The first 40 bytes of the receive hold the datagram's IP header.
    pub grh: Option<Header>,
}

impl Default for Wc {
    /// An empty completion, to initialise arrays.
    fn default() -> Wc {
        Wc {
            id: 0,
            qpn: 0,
            status: Status::Success,
            op: WcOp::Send,
            len: 0,
            immediate: None,
            invalidated: None,
            src_qp: 0,
            solicited: false,
            grh: None,
        }
    }
}

impl WcOp {
    /// It ends a receive.
    pub(crate) fn is_receive(self) -> bool {
        matches!(self, WcOp::Receive | WcOp::ReceiveWriteImm)
    }
}

impl Wc {
    /// It notifies a queue that is armed for solicited completions: a solicited message, or any failure (N7).
    pub fn is_urgent(&self) -> bool {
        self.reason() != Reason::Next
    }

    /// The reason for which it may raise an event.
    pub fn reason(&self) -> Reason {
        match self.status {
            Status::Success if self.solicited => Reason::Solicited,
            Status::Success => Reason::Next,
            _ => Reason::Failure,
        }
    }
}

/// The status of the request that a peer's Terminate refers to: the error table of docs/connections.md.
pub fn status_of(cause: Cause) -> Status {
    match cause {
        Cause::Rdmap(error) => match error {
            RdmapError::InvalidStag
            | RdmapError::Bounds
            | RdmapError::AccessRights
            | RdmapError::StagNotAssociated
            | RdmapError::ToWrap
            | RdmapError::CannotInvalidateProtection
            | RdmapError::CannotInvalidateOperation
            | RdmapError::UnspecifiedProtection => Status::RemAccessErr,
            RdmapError::UnexpectedOpcode | RdmapError::CatastrophicStream => Status::RemInvReqErr,
            RdmapError::LocalCatastrophic | RdmapError::CatastrophicGlobal => Status::RemOpErr,
            RdmapError::InvalidVersion | RdmapError::UnspecifiedOperation => Status::GeneralErr,
        },
        Cause::Ddp(error) => match error {
            DdpError::TaggedInvalidStag
            | DdpError::TaggedBounds
            | DdpError::TaggedNotAssociated
            | DdpError::TaggedToWrap => Status::RemAccessErr,
            // An XRC target has no queue with the number that the request names.
            DdpError::UntaggedTooLong | DdpError::UntaggedQn => Status::RemInvReqErr,
            DdpError::UntaggedNoBuffer | DdpError::LocalCatastrophic => Status::RemOpErr,
            DdpError::TaggedVersion
            | DdpError::UntaggedMsnRange
            | DdpError::UntaggedMo
            | DdpError::UntaggedVersion => Status::GeneralErr,
        },
        Cause::Llp(_) | Cause::Unknown { .. } => Status::GeneralErr,
    }
}

#[cfg(test)]
mod tests;
