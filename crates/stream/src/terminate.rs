//! The total function from a [`Violation`] to the Terminate message that answers it (M19).
//! The codes are those of RFC 5040 §4.8, RFC 5041 §7 and RFC 5044 §8, with the headers that are echoed for each.

use serde::{Deserialize, Serialize};
use verbena_wire::Malformed;
use verbena_wire::ddp::Header;
use verbena_wire::rdmap::{
    Cause, DdpError, Echo, EchoHeader, LlpError, Opcode, RdmapError, ReadRequest, Terminate,
};

use crate::violation::{AccessFault, Violation};

/// The segment that broke the rule, as far as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offender {
    /// Length of the offending DDP segment, headers included (RFC 5040 §4.8).
    pub segment_len: u16,
    /// Its DDP header as received; raw, because the header itself may be invalid.
    pub header: EchoHeader,
    /// Its Read Request header, if it was one, advanced by what was already answered.
    pub read_request: Option<ReadRequest>,
}

impl Offender {
    /// The offender for a header that was parsed.
    pub fn of(header: &Header, segment_len: u16, read_request: Option<ReadRequest>) -> Offender {
        Offender {
            segment_len,
            header: EchoHeader::from(*header),
            read_request,
        }
    }

    /// The same read request after `sent` bytes of its response were sent (RFC 5040 §7.1).
    pub fn advanced(self, sent: u32) -> Offender {
        let read_request = self.read_request.map(|r| r.advanced(sent).unwrap_or(r));
        Offender {
            read_request,
            ..self
        }
    }
}

/// The Terminate for a violation; `None` when the peer has closed its direction and none is sent.
pub fn terminate_for(violation: &Violation, offender: Option<&Offender>) -> Option<Terminate> {
    let cause = cause_of(violation)?;
    let segment = match cause {
        // RFC 5040 §4.8: a lower-layer error and a local catastrophic error echo nothing.
        Cause::Llp(_) | Cause::Rdmap(RdmapError::LocalCatastrophic) | Cause::Unknown { .. } => None,
        Cause::Ddp(_) => offender.map(|o| echo(o, false)),
        // Only remote protection errors of a Read Request return the Read Request header.
        Cause::Rdmap(error) => offender.map(|o| echo(o, is_protection(error))),
    };
    Some(Terminate { cause, segment })
}

fn echo(offender: &Offender, with_request: bool) -> Echo {
    Echo {
        segment_len: offender.segment_len,
        header: Some(offender.header),
        read_request: offender.read_request.filter(|_| with_request),
    }
}

fn is_protection(error: RdmapError) -> bool {
    Cause::Rdmap(error).codes().1 == 1
}

/// The layer, type and code of each violation.
pub fn cause_of(violation: &Violation) -> Option<Cause> {
    use Violation as V;
    Some(match *violation {
        V::Crc { .. } => Cause::Llp(LlpError::Crc),
        V::Marker { .. } | V::Misaligned => Cause::Llp(LlpError::Marker),
        // The stream has ended; no Terminate is sent.
        V::CutFpdu | V::CutMessage => return None,

        V::Malformed(malformed) => malformed_cause(malformed),
        V::Opcode(_) | V::NotEnabled(_) => Cause::Rdmap(RdmapError::UnexpectedOpcode),
        // Without a code of their own: the message is not one that RDMAP could execute.
        V::TooShort { .. }
        | V::BodyLength { .. }
        | V::NotSingle(_)
        | V::Interleaved { .. }
        | V::Changed { .. } => Cause::Rdmap(RdmapError::UnspecifiedOperation),

        V::Queue { .. } | V::NoSuchSrq(_) => Cause::Ddp(DdpError::UntaggedQn),
        V::MsnRange { .. } => Cause::Ddp(DdpError::UntaggedMsnRange),
        V::NoReceive { .. } => Cause::Ddp(DdpError::UntaggedNoBuffer),
        V::Offset { .. } | V::OffsetWrap { .. } | V::ImmediateMissing { .. } => {
            Cause::Ddp(DdpError::UntaggedMo)
        }
        V::TooLong { .. } => Cause::Ddp(DdpError::UntaggedTooLong),

        V::Wrap { .. } => Cause::Ddp(DdpError::TaggedToWrap),
        V::TaggedGap { .. } | V::TaggedTooLong | V::ResponseOffset { .. } => {
            Cause::Ddp(DdpError::TaggedBounds)
        }
        V::ResponseTooLong { opcode, .. } if opcode.tagged() => Cause::Ddp(DdpError::TaggedBounds),
        V::ResponseTooLong { .. } => Cause::Ddp(DdpError::UntaggedTooLong),
        V::ResponseShort { opcode, .. } if opcode.tagged() => Cause::Ddp(DdpError::TaggedBounds),
        V::ResponseShort { .. } => Cause::Ddp(DdpError::UntaggedMo),
        V::TaggedStag { .. } | V::ResponseStag { .. } => Cause::Ddp(DdpError::TaggedInvalidStag),

        V::TooManyReads { .. } | V::Unaligned { .. } => {
            Cause::Rdmap(RdmapError::CatastrophicStream)
        }
        V::Unsolicited(opcode) => unsolicited(opcode),
        V::AtomicId { .. } => Cause::Rdmap(RdmapError::UnspecifiedOperation),
        V::NotRtr(_) => Cause::Llp(LlpError::NoMatchingRtr),

        V::Access { opcode, fault, .. } => access_cause(opcode, fault),
        V::ReceiveBuffer => Cause::Ddp(DdpError::LocalCatastrophic),

        V::Impossible { .. } | V::OutOfPlace(_) | V::Caps => {
            Cause::Rdmap(RdmapError::UnspecifiedOperation)
        }
    })
}

fn malformed_cause(malformed: Malformed) -> Cause {
    match malformed {
        Malformed::DdpVersion { tagged: true, .. } => Cause::Ddp(DdpError::TaggedVersion),
        Malformed::DdpVersion { tagged: false, .. } => Cause::Ddp(DdpError::UntaggedVersion),
        Malformed::RdmapVersion { .. } => Cause::Rdmap(RdmapError::InvalidVersion),
        // RFC 7306 §8: an atomic operation that is not known is an unexpected opcode.
        Malformed::AtomicCode { .. } | Malformed::FlushKind { .. } => {
            Cause::Rdmap(RdmapError::UnexpectedOpcode)
        }
        _ => Cause::Rdmap(RdmapError::UnspecifiedOperation),
    }
}

/// A response without a request: no buffer is associated with it.
fn unsolicited(opcode: Opcode) -> Cause {
    if opcode.tagged() {
        Cause::Ddp(DdpError::TaggedInvalidStag)
    } else {
        Cause::Ddp(DdpError::UntaggedMsnRange)
    }
}

/// Access errors: DDP reports those of a tagged message, RDMAP those of reads, atomics and invalidations.
fn access_cause(opcode: Opcode, fault: AccessFault) -> Cause {
    use AccessFault as F;
    if opcode.tagged() {
        return match fault {
            // M9: there is no code for a second touch; by then the STag is invalid.
            F::InvalidStag | F::Touched => Cause::Ddp(DdpError::TaggedInvalidStag),
            F::Bounds => Cause::Ddp(DdpError::TaggedBounds),
            F::NotAssociated => Cause::Ddp(DdpError::TaggedNotAssociated),
            F::Wrap => Cause::Ddp(DdpError::TaggedToWrap),
            // DDP has no code for a missing right; hardware sends RDMAP's.
            F::Rights | F::CannotInvalidate => Cause::Rdmap(RdmapError::AccessRights),
        };
    }
    Cause::Rdmap(match fault {
        F::CannotInvalidate => RdmapError::CannotInvalidateOperation,
        F::NotAssociated if opcode.invalidates() => RdmapError::CannotInvalidateProtection,
        F::InvalidStag | F::Touched if opcode.invalidates() => {
            RdmapError::CannotInvalidateOperation
        }
        F::InvalidStag | F::Touched => RdmapError::InvalidStag,
        F::Bounds => RdmapError::Bounds,
        F::Rights => RdmapError::AccessRights,
        F::NotAssociated => RdmapError::StagNotAssociated,
        F::Wrap => RdmapError::ToWrap,
    })
}

#[cfg(test)]
mod tests;
