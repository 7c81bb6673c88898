//! Work completions: what the consumer is told of each request.
//! The status is one of the verbs' words; the mapping from a peer's Terminate to a status is one total function.
//! It refuses to know queues.

use crate::event::Reason;
use serde::{Deserialize, Serialize};
use verbena_wire::Stag;
use verbena_wire::rdmap::{Cause, DdpError, RdmapError};

/// How a request ended, in the verbs' words and numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Status {
    /// As asked.
    Success = 0,
    /// The message did not fit its receive.
    LocLenErr = 1,
    /// The request itself makes no sense here.
    LocQpOpErr = 2,
    /// Our own memory refused.
    LocProtErr = 4,
    /// Not executed because the queue pair failed before.
    WrFlushErr = 5,
    /// A window could not be bound, or a prepared registration not be executed (M4): what InfiniBand calls a memory
    /// management operation error.
    MwBindErr = 6,
    /// The peer's answer does not match the question.
    BadRespErr = 7,
    /// Our own memory lacks a right.
    LocAccessErr = 8,
    /// The peer says the request makes no sense.
    RemInvReqErr = 9,
    /// The peer's memory refused.
    RemAccessErr = 10,
    /// The peer could not carry it out.
    RemOpErr = 11,
    /// The peer does not answer.
    RetryExcErr = 12,
    /// The peer had no receive for too long.
    RnrRetryExcErr = 13,
    /// The peer gave up the operation.
    RemAbortErr = 16,
    /// The adapter failed.
    FatalErr = 19,
    /// Something else.
    GeneralErr = 21,
}

/// What a completion is for.
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

/// What a request of a control queue pair was (V5).
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
    /// A queue pair was destroyed.
    DestroyQp,
    /// A completion queue was created.
    CreateCq,
    /// A completion queue was destroyed.
    DestroyCq,
}

/// Which header stands before a datagram in its receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Header {
    /// One of IPv4, in the second half of its room.
    V4,
    /// One of IPv6.
    V6,
}

/// One completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wc {
    /// The consumer's number of the request.
    pub id: u64,
    /// The queue pair it was posted to.
    pub qpn: u32,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub op: WcOp,
    /// Bytes received or read.
    pub len: u32,
    /// Immediate data that came along.
    pub immediate: Option<u32>,
    /// The entry that the peer's message invalidated.
    pub invalidated: Option<Stag>,
    /// The queue pair that sent the datagram; 0 for any other message.
    pub src_qp: u32,
    /// The peer asked for a solicited event.
    pub solicited: bool,
    /// The first 40 bytes of the receive say where the datagram came from.
    pub grh: Option<Header>,
}

impl Wc {
    /// A completion that says nothing, to make arrays of.
    pub const BLANK: Wc = Wc {
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
    };

    /// It notifies a queue that is armed for solicited completions: a solicited message, or any failure (N7).
    pub fn is_urgent(&self) -> bool {
        self.reason() != Reason::Next
    }

    /// What about it may be worth telling.
    pub fn reason(&self) -> Reason {
        match self.status {
            Status::Success if self.solicited => Reason::Solicited,
            Status::Success => Reason::Next,
            _ => Reason::Failure,
        }
    }
}

/// What a peer's Terminate means for the request it struck: the error table of docs/connections.md.
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
            DdpError::UntaggedTooLong => Status::RemInvReqErr,
            DdpError::UntaggedNoBuffer | DdpError::LocalCatastrophic => Status::RemOpErr,
            DdpError::TaggedVersion
            | DdpError::UntaggedQn
            | DdpError::UntaggedMsnRange
            | DdpError::UntaggedMo
            | DdpError::UntaggedVersion => Status::GeneralErr,
        },
        Cause::Llp(_) | Cause::Unknown { .. } => Status::GeneralErr,
    }
}

#[cfg(test)]
mod tests;
