//! Private data of MPA start-up frames (docs/extensions.md): the call, the answer and the refusal of
//! an out-of-band connection, and the proof of a shared key on a connection by address. The engine
//! computes and verifies the proofs.

use core::fmt;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ext::QpType;
use crate::number::Qpn;
use crate::{Malformed, raw};

#[cfg(test)]
mod tests;

/// The first bytes of call, answer and refusal.
const MAGIC: [u8; 4] = *b"VbQP";
/// The only version.
const VERSION: u8 = 1;

/// HMAC-SHA-256 with the shared key over what its message covers; all zero where no key is set.
pub type Proof = [u8; 32];

/// The proof where no key is set.
pub const NO_PROOF: Proof = [0; 32];

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Head {
    magic: [u8; 4],
    version: u8,
    code: u8,
    reserved: [u8; 2],
}

impl Head {
    fn new(code: u8) -> Head {
        Head {
            magic: MAGIC,
            version: VERSION,
            code,
            reserved: [0; 2],
        }
    }

    fn check(&self, what: &'static str) -> Result<(), Malformed> {
        if self.magic == MAGIC && self.version == VERSION {
            Ok(())
        } else {
            Err(Malformed::Dial { what })
        }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRequest {
    head: Head,
    from: U32,
    to: U32,
    gid: [u8; 16],
    nonce: U64,
    proof: Proof,
}

/// A call: the private data of an MPA Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialRequest {
    /// The service, which both queue pairs must have.
    pub qp_type: QpType,
    /// The queue pair that calls.
    pub from: Qpn,
    /// The queue pair that is called.
    pub to: Qpn,
    /// The GID that the calling program set as its own.
    pub gid: [u8; 16],
    /// Chosen anew for each incarnation of the calling queue pair.
    pub nonce: u64,
    /// HMAC over the [`DialRequest::COVERED_LEN`] bytes before it.
    pub proof: Proof,
}

impl DialRequest {
    /// Bytes on the wire.
    pub const LEN: usize = 72;
    /// Bytes that the proof covers.
    pub const COVERED_LEN: usize = 40;

    /// Reads the private data of a Request.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let what = "connection request";
        let raw: RawRequest = raw::prefix(what, bytes)?;
        raw.head.check(what)?;
        let number = |value: U32| Qpn::new(value.get()).ok_or(Malformed::Dial { what });
        Ok(Self {
            qp_type: QpType::from_byte(raw.head.code).ok_or(Malformed::Dial { what })?,
            from: number(raw.from)?,
            to: number(raw.to)?,
            gid: raw.gid,
            nonce: raw.nonce.get(),
            proof: raw.proof,
        })
    }

    /// The call's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(RawRequest {
            head: Head::new(self.qp_type.byte()),
            from: U32::new(self.from.get()),
            to: U32::new(self.to.get()),
            gid: self.gid,
            nonce: U64::new(self.nonce),
            proof: self.proof,
        })
    }
}

impl fmt::Display for DialRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.from.get(), self.to.get());
        write!(
            f,
            "{} queue pair {from:#08x} connects to {to:#08x}",
            self.qp_type
        )
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawReply {
    head: Head,
    nonce: U64,
    proof: Proof,
}

/// The answer to a call: the private data of an accepting MPA Reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialReply {
    /// Chosen anew for each incarnation of the answering queue pair.
    pub nonce: u64,
    /// HMAC over the covered bytes of the call and this nonce.
    pub proof: Proof,
}

impl DialReply {
    /// Bytes on the wire.
    pub const LEN: usize = 48;

    /// Reads the private data of an accepting Reply.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: RawReply = raw::prefix("connection reply", bytes)?;
        raw.head.check("connection reply")?;
        Ok(Self {
            nonce: raw.nonce.get(),
            proof: raw.proof,
        })
    }

    /// The answer's bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(RawReply {
            head: Head::new(0),
            nonce: U64::new(self.nonce),
            proof: self.proof,
        })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawKeyProof {
    magic: [u8; 4],
    version: u8,
    reserved: [u8; 3],
    nonce: U64,
    proof: Proof,
}

/// Proves knowledge of a shared key: stands before the program's private data in the startup frames of a connection by
/// address, the Request and the accepting Reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyProof {
    /// Chosen anew for each frame.
    pub nonce: u64,
    /// HMAC over a label, the nonces so far and the private data behind it (docs/extensions.md).
    pub proof: Proof,
}

impl KeyProof {
    /// Bytes on the wire.
    pub const LEN: usize = 48;
    const MAGIC: [u8; 4] = *b"VbKy";

    /// Reads the private data of a startup frame; the second value is the program's own private data.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let what = "key proof";
        let raw: RawKeyProof = raw::prefix(what, bytes)?;
        if raw.magic != Self::MAGIC || raw.version != VERSION {
            return Err(Malformed::Dial { what });
        }
        let keyed = Self {
            nonce: raw.nonce.get(),
            proof: raw.proof,
        };
        Ok((keyed, bytes.get(Self::LEN..).unwrap_or_default()))
    }

    /// The bytes before the program's private data.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(RawKeyProof {
            magic: Self::MAGIC,
            version: VERSION,
            reserved: [0; 3],
            nonce: U64::new(self.nonce),
            proof: self.proof,
        })
    }
}

/// Why a call is rejected: the private data of a rejecting MPA Reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialReject {
    /// There is no such queue pair, not yet or not any more: a later call may succeed.
    Unknown,
    /// The queue pair expects another peer.
    WrongPeer,
    /// The queue pair has another service.
    WrongService,
    /// The queue pair is connected, or its own call is under way and takes precedence.
    InUse,
    /// The keys differ, or one side has none.
    KeyMismatch,
    /// Too many calls are pending.
    Busy,
    /// The queue pair is connected over RoCEv2.
    OtherWire,
}

impl DialReject {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Every reason.
    pub const ALL: [DialReject; 7] = [
        DialReject::Unknown,
        DialReject::WrongPeer,
        DialReject::WrongService,
        DialReject::InUse,
        DialReject::KeyMismatch,
        DialReject::Busy,
        DialReject::OtherWire,
    ];

    /// Reads the private data of a rejecting Reply.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let what = "rejection of a connection request";
        let head: Head = raw::prefix(what, bytes)?;
        head.check(what)?;
        let at = usize::from(head.code).checked_sub(1);
        let reason = at.and_then(|at| Self::ALL.get(at));
        reason.copied().ok_or(Malformed::Dial { what })
    }

    /// The refusal's bytes.
    pub fn emit(self) -> [u8; Self::LEN] {
        let at = Self::ALL.iter().position(|reason| *reason == self);
        zerocopy::transmute!(Head::new(at.unwrap_or(0) as u8 + 1))
    }
}

impl fmt::Display for DialReject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no such queue pair",
            Self::WrongPeer => "the queue pair expects another peer",
            Self::WrongService => "the queue pair offers another service",
            Self::InUse => "the queue pair is already connected",
            Self::KeyMismatch => "the keys differ",
            Self::Busy => "too many connection requests are pending",
            Self::OtherWire => "the queue pair is connected over RoCEv2",
        })
    }
}
