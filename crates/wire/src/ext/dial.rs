//! What two queue pairs that were connected by hand say to each other in the private data of their
//! start-up frames (docs/extensions.md): who calls whom, who answers, and why not. Each promises one
//! format in both directions. Whether a proof is right, and what to do about it, is known to the engine.

use core::fmt;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ext::QpType;
use crate::number::Qpn;
use crate::{Malformed, raw};

#[cfg(test)]
mod tests;

/// The first bytes of all three.
const MAGIC: [u8; 4] = *b"VbQP";
/// The only version there is.
const VERSION: u8 = 1;

/// What the shared key makes of the words that were exchanged; all zero where no key is set.
pub type Proof = [u8; 32];

/// Nobody proves anything.
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
struct RawCall {
    head: Head,
    from: U32,
    to: U32,
    gid: [u8; 16],
    nonce: U64,
    proof: Proof,
}

/// A queue pair calls another: the private data of an MPA Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The service that both must offer.
    pub qp_type: QpType,
    /// The queue pair that calls.
    pub from: Qpn,
    /// The queue pair that is called.
    pub to: Qpn,
    /// The address that the calling program named as its own.
    pub gid: [u8; 16],
    /// Chosen anew each time the calling queue pair begins a new life.
    pub nonce: u64,
    /// The key's word on all before it.
    pub proof: Proof,
}

impl Call {
    /// Bytes on the wire.
    pub const LEN: usize = 72;
    /// Bytes that the proof is about.
    pub const PROVEN: usize = 40;

    /// Reads the private data of a Request.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let what = "call";
        let raw: RawCall = raw::prefix(what, bytes)?;
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

    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(RawCall {
            head: Head::new(self.qp_type.byte()),
            from: U32::new(self.from.get()),
            to: U32::new(self.to.get()),
            gid: self.gid,
            nonce: U64::new(self.nonce),
            proof: self.proof,
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.from.get(), self.to.get());
        write!(f, "{} queue pair {from:#08x} calls {to:#08x}", self.qp_type)
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAnswer {
    head: Head,
    nonce: U64,
    proof: Proof,
}

/// The queue pair that was called is there: the private data of an accepting MPA Reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Chosen anew each time the answering queue pair begins a new life.
    pub nonce: u64,
    /// The key's word on both nonces and both numbers.
    pub proof: Proof,
}

impl Answer {
    /// Bytes on the wire.
    pub const LEN: usize = 48;

    /// Reads the private data of an accepting Reply.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let raw: RawAnswer = raw::prefix("answer", bytes)?;
        raw.head.check("answer")?;
        Ok(Self {
            nonce: raw.nonce.get(),
            proof: raw.proof,
        })
    }

    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(RawAnswer {
            head: Head::new(0),
            nonce: U64::new(self.nonce),
            proof: self.proof,
        })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawKeyed {
    magic: [u8; 4],
    version: u8,
    reserved: [u8; 3],
    nonce: U64,
    proof: Proof,
}

/// The side that sent it knows a shared key: stands before the program's private data in the startup frames of a
/// connection by address, the Request and the accepting Reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keyed {
    /// Chosen anew for each frame.
    pub nonce: u64,
    /// The key's word on the nonces and on the private data behind it.
    pub proof: Proof,
}

impl Keyed {
    /// Bytes on the wire.
    pub const LEN: usize = 48;
    const MAGIC: [u8; 4] = *b"VbKy";

    /// Reads the private data of a startup frame; what is left is the program's.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let what = "proof of a key";
        let raw: RawKeyed = raw::prefix(what, bytes)?;
        if raw.magic != Self::MAGIC || raw.version != VERSION {
            return Err(Malformed::Dial { what });
        }
        let keyed = Self {
            nonce: raw.nonce.get(),
            proof: raw.proof,
        };
        Ok((keyed, bytes.get(Self::LEN..).unwrap_or_default()))
    }

    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(RawKeyed {
            magic: Self::MAGIC,
            version: VERSION,
            reserved: [0; 3],
            nonce: U64::new(self.nonce),
            proof: self.proof,
        })
    }
}

/// Why a call is not answered: the private data of a rejecting MPA Reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// There is no such queue pair, yet or any more: calling again may help.
    Unknown,
    /// It expects somebody else.
    Stranger,
    /// It offers another service.
    Service,
    /// It has a connection, or its own call is on its way and goes first.
    Taken,
    /// The keys differ, or one side has none.
    Key,
    /// Too many calls wait.
    Busy,
}

impl NoAnswer {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Every reason.
    pub const ALL: [NoAnswer; 6] = [
        NoAnswer::Unknown,
        NoAnswer::Stranger,
        NoAnswer::Service,
        NoAnswer::Taken,
        NoAnswer::Key,
        NoAnswer::Busy,
    ];

    /// Reads the private data of a rejecting Reply.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let what = "refusal of a call";
        let head: Head = raw::prefix(what, bytes)?;
        head.check(what)?;
        let at = usize::from(head.code).checked_sub(1);
        let reason = at.and_then(|at| Self::ALL.get(at));
        reason.copied().ok_or(Malformed::Dial { what })
    }

    /// Its bytes.
    pub fn emit(self) -> [u8; Self::LEN] {
        let at = Self::ALL.iter().position(|reason| *reason == self);
        zerocopy::transmute!(Head::new(at.unwrap_or(0) as u8 + 1))
    }

    /// Whether the same call may be answered a moment later.
    pub fn may_pass(self) -> bool {
        matches!(self, Self::Unknown | Self::Taken | Self::Busy)
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no such queue pair",
            Self::Stranger => "the queue pair expects somebody else",
            Self::Service => "the queue pair offers another service",
            Self::Taken => "the queue pair has a connection",
            Self::Key => "the keys differ",
            Self::Busy => "too many calls wait",
        })
    }
}
