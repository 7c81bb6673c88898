//! Errors of connections that were not made, as the program gets them.
//! They are those of TCP where TCP has the same case.

use core::net::SocketAddr;

use verbena_stream::startup::Failure;
use verbena_wire::roce::cm::RejReason;

use crate::error::Error;
use crate::sys;

/// The error of a request that the peer has rejected.
pub(super) fn rejection(peer: SocketAddr, reason: RejReason, private_data: Vec<u8>) -> Error {
    match reason {
        RejReason::CONSUMER => Error::Rejected { peer, private_data },
        RejReason::INVALID_SERVICE_ID => rejected_service(peer),
        reason => Error::CmRejected { peer, reason },
    }
}

/// Nothing listens at this port of the peer: reported as TCP does.
pub(super) fn rejected_service(peer: SocketAddr) -> Error {
    let cause = sys::Error::refused();
    Error::Unreachable { peer, cause }
}

/// The peer has left before there was a connection.
pub(super) fn gone(peer: SocketAddr) -> Error {
    let cause = Failure::Closed;
    Error::Startup { peer, cause }
}
