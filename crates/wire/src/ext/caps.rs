//! The capability list in the first message of a stream: tagged values (docs/extensions.md). After
//! `parse` every mandatory value has appeared exactly once and is in its range; unknown tags are
//! skipped so that later versions can add some. The two sides are compared elsewhere.

use core::fmt;
use core::ops::{BitAnd, BitOr};
use serde::{Deserialize, Serialize};

use super::MAX_CONTROL_PAYLOAD;
use super::rnr_timer::RnrTimer;
use crate::Malformed;

#[cfg(test)]
mod tests;

const TAG_VERSION: u8 = 1;
const TAG_MAX_ULPDU: u8 = 2;
const TAG_FEATURES: u8 = 3;
const TAG_PERSONALITY: u8 = 4;
const TAG_QP_TYPE: u8 = 5;
const TAG_MIN_RNR_TIMER: u8 = 6;
const TAG_IRD: u8 = 7;
const TAG_NONCE: u8 = 8;
const TAG_SAME_HOST: u8 = 9;
const TAG_PATH: u8 = 10;

/// Tag and length before each value.
const TLV_HEADER: usize = 2;
/// Smallest segment limit that a side may announce (RFC 5044 §4.5).
const MIN_MAX_ULPDU: u16 = 128;

// The whole list fits a control message.
const _: () = assert!(Caps::MAX_LEN <= MAX_CONTROL_PAYLOAD);

/// Optional abilities, one bit each. Bits without a name are kept and ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Features(u32);

impl Features {
    /// Nothing optional.
    pub const NONE: Self = Self(0);
    /// Read V2.
    pub const READ_V2: Self = Self(1);
    /// Send with Immediate.
    pub const SEND_IMM: Self = Self(2);
    /// Shared-memory rings between processes of one host.
    pub const RINGS: Self = Self(4);
    /// The last acknowledgement is repeated before an orderly close.
    pub const CLOSING_ACK: Self = Self(8);
    /// Atomic Write and Flush.
    pub const MEMORY_PLACEMENT: Self = Self(16);
    /// Each FPDU begins a TCP segment, which holds it whole while path and window allow it.
    pub const ALIGNED: Self = Self(32);

    /// The set with these bits.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether every feature of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Features {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [
            (Self::READ_V2, "read_v2"),
            (Self::SEND_IMM, "send_imm"),
            (Self::RINGS, "rings"),
            (Self::CLOSING_ACK, "closing_ack"),
            (Self::MEMORY_PLACEMENT, "memory_placement"),
            (Self::ALIGNED, "aligned"),
        ];
        let mut names = known
            .into_iter()
            .filter_map(|(bit, name)| self.contains(bit).then_some(name));
        f.write_str(names.next().unwrap_or("none"))?;
        names.try_for_each(|name| write!(f, "+{name}"))
    }
}

/// Which kind of adapter the queue pair presents itself as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Personality {
    /// Completions and errors as an iWARP adapter gives them.
    Iwarp,
    /// Completions and errors as a RoCE adapter gives them.
    Roce,
}

impl Personality {
    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Iwarp),
            1 => Some(Self::Roce),
            _ => None,
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Iwarp => 0,
            Self::Roce => 1,
        }
    }
}

impl fmt::Display for Personality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Iwarp => "iwarp",
            Self::Roce => "roce",
        })
    }
}

/// The transport service of the queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Extended reliable connection, initiator: it sends to an XRC target, and each request names a shared receive queue there.
    XrcSend,
    /// Extended reliable connection, target: it sends no requests, and receives into the queues that its initiator names.
    XrcRecv,
}

impl QpType {
    pub(super) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Rc),
            1 => Some(Self::Uc),
            2 => Some(Self::XrcSend),
            3 => Some(Self::XrcRecv),
            _ => None,
        }
    }

    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::Rc => 0,
            Self::Uc => 1,
            Self::XrcSend => 2,
            Self::XrcRecv => 3,
        }
    }

    /// The type that the queue pair at the other end of the connection must have.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Rc => Self::Rc,
            Self::Uc => Self::Uc,
            Self::XrcSend => Self::XrcRecv,
            Self::XrcRecv => Self::XrcSend,
        }
    }

    /// Messages are acknowledged and none is lost.
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Self::Uc)
    }

    /// An end of an extended reliable connection.
    pub const fn is_xrc(self) -> bool {
        matches!(self, Self::XrcSend | Self::XrcRecv)
    }
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::XrcSend => "xrc_send",
            Self::XrcRecv => "xrc_recv",
        })
    }
}

/// The capabilities of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    /// Version of the extensions; [`Caps::VERSION`] is ours. Never 0.
    pub version: u16,
    /// Longest segment this side wants to receive; at least 128.
    pub max_ulpdu: u16,
    /// Optional abilities.
    pub features: Features,
    /// Which kind of adapter the queue pair presents itself as.
    pub personality: Personality,
    /// The transport service.
    pub qp_type: QpType,
    /// How long the peer shall wait when no receive is posted here.
    pub min_rnr_timer: RnrTimer,
    /// Read and atomic requests this side can hold.
    pub ird: u16,
    /// Identifies this incarnation of the connection.
    pub nonce: u64,
    /// A secret of this host, if shared-memory rings are on offer.
    pub same_host: Option<[u8; 16]>,
    /// A digest of both addresses of the TCP connection as this side sees them: equal on both sides if nothing between them
    /// ends the connection or translates its addresses.
    pub path: Option<u64>,
}

impl Caps {
    /// The version described in docs/extensions.md.
    pub const VERSION: u16 = 1;
    /// Bytes of the longest list this version writes.
    pub const MAX_LEN: usize = 10 * TLV_HEADER + 2 + 2 + 4 + 1 + 1 + 1 + 2 + 8 + 16 + 8;

    /// Reads the list, which must fill `payload` exactly.
    pub fn parse(payload: &[u8]) -> Result<Self, Malformed> {
        let found = TlvValues::collect(payload)?;
        let version = found.required(TAG_VERSION, u16::from_be_bytes)?;
        let max_ulpdu = found.required(TAG_MAX_ULPDU, u16::from_be_bytes)?;
        let caps = Self {
            version: valid_value(TAG_VERSION, (version != 0).then_some(version))?,
            max_ulpdu: valid_value(
                TAG_MAX_ULPDU,
                (max_ulpdu >= MIN_MAX_ULPDU).then_some(max_ulpdu),
            )?,
            features: Features(found.required(TAG_FEATURES, u32::from_be_bytes)?),
            personality: found.byte(TAG_PERSONALITY, Personality::from_byte)?,
            qp_type: found.byte(TAG_QP_TYPE, QpType::from_byte)?,
            min_rnr_timer: found.byte(TAG_MIN_RNR_TIMER, RnrTimer::new)?,
            ird: found.required(TAG_IRD, u16::from_be_bytes)?,
            nonce: found.required(TAG_NONCE, u64::from_be_bytes)?,
            same_host: found.optional(TAG_SAME_HOST)?,
            path: found.optional(TAG_PATH)?.map(u64::from_be_bytes),
        };
        Ok(caps)
    }

    /// Appends the list to `out`, in the order of the tags.
    pub fn emit(&self, out: &mut Vec<u8>) {
        put(out, TAG_VERSION, self.version.to_be_bytes());
        put(out, TAG_MAX_ULPDU, self.max_ulpdu.to_be_bytes());
        put(out, TAG_FEATURES, self.features.0.to_be_bytes());
        put(out, TAG_PERSONALITY, [self.personality.byte()]);
        put(out, TAG_QP_TYPE, [self.qp_type.byte()]);
        put(out, TAG_MIN_RNR_TIMER, [self.min_rnr_timer.code()]);
        put(out, TAG_IRD, self.ird.to_be_bytes());
        put(out, TAG_NONCE, self.nonce.to_be_bytes());
        if let Some(token) = self.same_host {
            put(out, TAG_SAME_HOST, token);
        }
        if let Some(path) = self.path {
            put(out, TAG_PATH, path.to_be_bytes());
        }
    }
}

impl fmt::Display for Caps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "caps v{} max_ulpdu={} features={} {} {} rnr={} ird={} nonce={:#018x}",
            self.version,
            self.max_ulpdu,
            self.features,
            self.personality,
            self.qp_type,
            self.min_rnr_timer,
            self.ird,
            self.nonce
        )?;
        // The token is a secret and is not printed.
        f.write_str(if self.same_host.is_some() {
            " same_host"
        } else {
            ""
        })
    }
}

fn put<const N: usize>(out: &mut Vec<u8>, tag: u8, value: [u8; N]) {
    // Every value of this list is at most 16 bytes long.
    out.extend_from_slice(&[tag, N as u8]);
    out.extend_from_slice(&value);
}

fn valid_value<T>(tag: u8, value: Option<T>) -> Result<T, Malformed> {
    value.ok_or(Malformed::CapsValue { tag })
}

/// The values of a list by tag; unknown tags are already gone.
struct TlvValues<'a>([Option<&'a [u8]>; TAG_PATH as usize + 1]);

impl<'a> TlvValues<'a> {
    fn collect(mut payload: &'a [u8]) -> Result<Self, Malformed> {
        if payload.len() > MAX_CONTROL_PAYLOAD {
            return Err(Malformed::TooLong {
                what: "capability list",
                limit: MAX_CONTROL_PAYLOAD,
                got: payload.len(),
            });
        }
        let mut found = Self([None; TAG_PATH as usize + 1]);
        while let [tag, tail @ ..] = payload {
            let tag = *tag;
            let cut = Malformed::CapsTruncated { tag };
            let (len, tail) = tail.split_first().ok_or(cut)?;
            let (value, rest) = tail.split_at_checked(usize::from(*len)).ok_or(cut)?;
            payload = rest;
            // Tag 0 has a slot but no meaning; it is skipped like every unknown tag.
            if tag == 0 {
                continue;
            }
            if let Some(slot) = found.0.get_mut(usize::from(tag))
                && slot.replace(value).is_some()
            {
                return Err(Malformed::CapsDuplicate { tag });
            }
        }
        Ok(found)
    }

    fn optional<const N: usize>(&self, tag: u8) -> Result<Option<[u8; N]>, Malformed> {
        let Some(value) = self.0.get(usize::from(tag)).copied().flatten() else {
            return Ok(None);
        };
        match value.try_into() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(_) => Err(Malformed::CapsLength {
                tag,
                need: N,
                got: value.len(),
            }),
        }
    }

    fn required<const N: usize, T>(
        &self,
        tag: u8,
        read: impl Fn([u8; N]) -> T,
    ) -> Result<T, Malformed> {
        match self.optional(tag)? {
            Some(bytes) => Ok(read(bytes)),
            None => Err(Malformed::CapsMissing { tag }),
        }
    }

    fn byte<T>(&self, tag: u8, read: impl Fn(u8) -> Option<T>) -> Result<T, Malformed> {
        valid_value(tag, self.required(tag, |[byte]: [u8; 1]| read(byte))?)
    }
}
