//! A request of the peer that is owed a response: the request itself, the message that answers it, and the memory that it reads.
//! It is plain data; whether the peer may read the memory is checked anew for every part of the response.

use serde::{Deserialize, Serialize};

use verbena_mem::{Access, Gather, MemAccess, Refusal};
use verbena_stream::{Message, Offender};
use verbena_wire::ddp::{Header, Untagged};
use verbena_wire::ext::ReadV2Request;
use verbena_wire::rdmap::{AtomicRequest, AtomicResponse, ReadRequest};
use verbena_wire::{Stag, To};

use super::QpInit;

/// A request of the peer that is owed an answer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Owed {
    Read(Untagged, ReadRequest),
    ReadV2(Untagged, ReadV2Request),
    /// It was executed: the last value is the previous content of the word.
    Atomic(Untagged, AtomicRequest, u64),
}

impl Owed {
    pub(super) fn header(&self) -> &Untagged {
        match self {
            Owed::Read(header, _) | Owed::ReadV2(header, _) | Owed::Atomic(header, ..) => header,
        }
    }

    /// The source of a read: entry, address, bytes.
    pub(super) fn source(&self) -> (Stag, To, u32) {
        match self {
            Owed::Read(_, r) => (r.source_stag, r.source_to, r.size),
            Owed::ReadV2(_, r) => (r.source_stag, r.source_to, r.size),
            Owed::Atomic(_, r, _) => (r.stag, r.to, 8),
        }
    }

    /// Bytes of memory that the response carries.
    pub(super) fn read_len(&self) -> u32 {
        match self {
            Owed::Read(_, r) => r.size,
            Owed::ReadV2(_, r) => r.size,
            Owed::Atomic(..) => 0,
        }
    }

    pub(super) fn message(&self) -> Message {
        match self {
            Owed::Read(_, request) => Message::ReadResponse {
                stag: request.sink_stag,
                to: request.sink_to,
                len: request.size,
            },
            Owed::ReadV2(_, request) => Message::ReadV2Response { len: request.size },
            Owed::Atomic(_, request, original) => Message::AtomicResponse(AtomicResponse {
                id: request.id,
                original: *original,
            }),
        }
    }

    /// The offending segment for a Terminate, with what was already answered.
    pub(super) fn offender(&self, sent: u32) -> Offender {
        let header = Header::Untagged(*self.header());
        let (len, request) = match self {
            Owed::Read(_, request) => (46, Some(*request)),
            Owed::ReadV2(..) => (34, None),
            Owed::Atomic(..) => (70, None),
        };
        Offender::of(&header, len, request).advanced(sent)
    }
}

/// Grants a part of a response, with the present rights.
pub(super) fn gather_part<'a>(
    init: &'a QpInit,
    owed: &Owed,
    offset: u32,
    len: u32,
) -> Result<Gather<'a>, Refusal> {
    let (stag, to, _) = owed.source();
    let at = to.get().wrapping_add(u64::from(offset));
    init.tpt.gather_remote(&read_access(init, stag, at, len))
}

/// The access of a read to its source.
pub(super) fn read_access(init: &QpInit, stag: Stag, at: u64, len: u32) -> MemAccess {
    MemAccess {
        stag,
        at,
        len: u64::from(len),
        pd: init.pd,
        qp: init.number,
        needs: Access::REMOTE_READ,
    }
}
