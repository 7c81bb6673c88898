//! Work requests of a link: Sends, their elements, and the result of posting them. A PDU with data is one Send, whose data is gathered
//! from where it is.

use smallvec::SmallVec;
use verbena::Memory;
use verbena::low::{Data, Flags, PostError, PostSendError, SendOp, SendWr, Sge};

use super::HEADERS_LEN;

/// Work request id of Sends without a completion.
pub(super) const NO_COMPLETION: u64 = u64::MAX;
/// Bytes of a buffer for headers: behind them are zeros, from which the data is padded.
pub(super) const HEADER_BUFFER_LEN: usize = HEADERS_LEN + 4;
/// Most elements of a Send: headers, data, padding.
pub(super) const MAX_PIECES: usize = 3;

/// Result of posting a Send.
pub(super) enum PostOutcome {
    Posted,
    /// The send queue, or the buffers, are full.
    QueueFull,
}

impl PostOutcome {
    pub(super) fn of(posted: Result<(), PostSendError>) -> Result<PostOutcome, String> {
        match posted.map_err(|error| error.source) {
            // In `Err` the command is reported with the end of the link.
            Ok(()) | Err(PostError::State(_)) => Ok(PostOutcome::Posted),
            Err(PostError::Full(_)) => Ok(PostOutcome::QueueFull),
            Err(why) => Err(why.to_string()),
        }
    }
}

/// A PDU: headers, data, and zeros up to a multiple of 4 bytes (RFC 7143 §11.1).
pub(super) fn pieces(
    headers: &Memory,
    at: usize,
    data: Option<Sge>,
) -> Result<SmallVec<[Sge; MAX_PIECES]>, verbena::Error> {
    let mut all = SmallVec::new();
    all.push(headers.sge(at, HEADERS_LEN)?);
    if let Some(data) = data.filter(|data| data.len > 0) {
        all.push(data);
        let pad = data.len.next_multiple_of(4) - data.len;
        if pad > 0 {
            all.push(headers.sge(at + HEADERS_LEN, pad as usize)?);
        }
    }
    Ok(all)
}

/// A Send. A failure ends the queue pair, so only a Send with a buffer is signaled. RFC 7145 §7.3.1: with Solicited Event.
pub(super) fn send(id: u64, data: Data<'_>) -> SendWr<'_> {
    let flags = match id {
        NO_COMPLETION => Flags::SOLICITED,
        _ => Flags::SOLICITED | Flags::SIGNALED,
    };
    SendWr {
        id,
        op: SendOp::Send {
            invalidate: None,
            immediate: None,
        },
        flags,
        data,
    }
}
