//! The cells without data: acknowledgements, and those that make and end connections (docs/cells.md).
//! `parse` checks that a payload has the length of its kind; unknown reasons are kept as numbers.

use core::fmt;

use verbena_wire::Malformed;

use super::header::ACKNOWLEDGED;
use super::{Body, CRC_LEN, Header, Kind, PacketSeq};

/// Payload of a Nak: two bytes of zero and the reason.
const NAK_LEN: usize = 4;
/// Payload of a Connect before cookie and private data: largest cell payload that it takes, length of the cookie.
const CONNECT_LEN: usize = 4;
/// Payload of an Accept or Reject before private data: largest cell payload or reason, two bytes of zero, echo.
const ANSWER_LEN: usize = 8;
/// Payload of a Disconnect: reason, two bytes of zero.
const DISCONNECT_LEN: usize = 4;
/// Payload of a Retry: echo, cookie.
const RETRY_LEN: usize = 4 + Cookie::LEN;
/// Bytes of a Retry cell. A datagram with a Connect is at least as long, or the Retry, which may not be longer, is not sent.
pub const RETRY_CELL: usize = Header::LEN + RETRY_LEN + CRC_LEN;

/// Most private data of the consumers in a connection request and its answer.
pub const MAX_PRIVATE: usize = 512;

/// Declares a 16-bit reason with its known values.
macro_rules! reason {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $code:literal $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
            /// A value without a variant.
            Unknown(u16),
        }

        impl $name {
            /// The reason with this code.
            pub const fn from_code(code: u16) -> $name {
                match code {
                    $($code => $name::$variant,)*
                    code => $name::Unknown(code),
                }
            }

            /// The integer of this value.
            pub const fn code(self) -> u16 {
                match self {
                    $($name::$variant => $code,)*
                    $name::Unknown(code) => code,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($name::$variant => f.write_str($word),)*
                    $name::Unknown(code) => write!(f, "unknown({code})"),
                }
            }
        }
    };
}

reason! {
    /// Why a packet is missing.
    NakReason {
        /// Cells are missing.
        Gap = 1 "gap",
        /// No receive is posted for it.
        NoBuffer = 2 "no-buffer",
        /// The memory handle is not valid.
        Handle = 3 "handle",
        /// It exceeds the memory that the handle names, or its receive.
        Bounds = 4 "bounds",
        /// The memory may not be written.
        Right = 5 "right",
        /// The packet's checksum is wrong.
        Crc = 6 "crc",
    }
}

reason! {
    /// Why a connection is not made.
    RejectReason {
        /// The consumer rejected it.
        Consumer = 1 "consumer",
        /// There is no listener at that number.
        NoListener = 2 "no-listener",
        /// Too many requests are pending.
        Busy = 3 "busy",
        /// One side wants acknowledgements and the other does not.
        Attributes = 4 "attributes",
    }
}

reason! {
    /// Why a connection ends.
    DisconnectReason {
        /// The consumer closed it.
        Closed = 1 "closed",
        /// The channel failed.
        Failed = 2 "failed",
        /// There is no such connection here; the cell's packet is that of the cell which is answered.
        NoChannel = 3 "no-channel",
    }
}

/// What a listener returns to the source address of a Connect, and requires in the next Connect before it keeps any state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie(pub [u8; Cookie::LEN]);

impl Cookie {
    /// Bytes on the wire.
    pub const LEN: usize = 16;
}

/// What one side of a connection supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms<'a> {
    /// Packets are acknowledged.
    pub acknowledged: bool,
    /// Most payload bytes of a cell that it accepts.
    pub max_payload: u16,
    /// Private data of the consumer.
    pub private: &'a [u8],
}

impl fmt::Display for Terms<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            " cell={} private={}",
            self.max_payload,
            self.private.len()
        )?;
        f.write_str(if self.acknowledged {
            " acknowledged"
        } else {
            ""
        })
    }
}

/// Reads the payload of a cell without data.
pub(super) fn parse<'a>(header: &Header, payload: &'a [u8]) -> Result<Body<'a>, Malformed> {
    let kind = header.kind;
    let terms = |cell, private| Terms {
        acknowledged: header.has(ACKNOWLEDGED),
        max_payload: cell,
        private,
    };
    match kind {
        Kind::Ack => exact(kind, payload).map(|[]| Body::Ack),
        Kind::Nak => {
            let [a, b, c, d] = exact::<NAK_LEN>(kind, payload)?;
            check_reserved(a, b)?;
            let code = u16::from_be_bytes([c, d]);
            Ok(Body::Nak(NakReason::from_code(code)))
        }
        Kind::Connect => {
            let ([a, b, c, d], rest) = front::<CONNECT_LEN>(kind, payload)?;
            let (cookie, private) = match usize::from(u16::from_be_bytes([c, d])) {
                Cookie::LEN => {
                    let (cookie, private) = front::<{ Cookie::LEN }>(kind, rest)?;
                    (Some(Cookie(cookie)), private)
                }
                _ => {
                    check_reserved(c, d)?;
                    (None, rest)
                }
            };
            let terms = terms(u16::from_be_bytes([a, b]), check_private(private)?);
            Ok(Body::Connect { terms, cookie })
        }
        Kind::Accept => {
            let (number, echo, private) = answer(kind, payload)?;
            let terms = terms(number, private);
            Ok(Body::Accept { echo, terms })
        }
        Kind::Reject => {
            let (number, echo, private) = answer(kind, payload)?;
            let reason = RejectReason::from_code(number);
            Ok(Body::Reject {
                echo,
                reason,
                private,
            })
        }
        Kind::Disconnect => {
            let [a, b, c, d] = exact::<DISCONNECT_LEN>(kind, payload)?;
            check_reserved(c, d)?;
            let code = u16::from_be_bytes([a, b]);
            Ok(Body::Disconnect(DisconnectReason::from_code(code)))
        }
        Kind::Retry => {
            let [a, b, c, d, cookie @ ..] = exact::<RETRY_LEN>(kind, payload)?;
            let echo = PacketSeq::new(u32::from_be_bytes([a, b, c, d]));
            let cookie = Cookie(cookie);
            Ok(Body::Retry { echo, cookie })
        }
        Kind::Send | Kind::Write => Err(Malformed::CellKind { got: kind as u8 }),
    }
}

/// Bytes of the payload that [`emit`] writes.
pub(super) fn payload_len(body: &Body<'_>) -> usize {
    match body {
        Body::Data(_) | Body::Ack => 0,
        Body::Nak(_) => NAK_LEN,
        Body::Connect { terms, cookie } => {
            CONNECT_LEN + cookie.map_or(0, |_| Cookie::LEN) + truncate_private(terms.private).len()
        }
        Body::Accept { terms, .. } => ANSWER_LEN + truncate_private(terms.private).len(),
        Body::Reject { private, .. } => ANSWER_LEN + truncate_private(private).len(),
        Body::Disconnect(_) => DISCONNECT_LEN,
        Body::Retry { .. } => RETRY_LEN,
    }
}

/// Appends the payload of a cell without data.
pub(super) fn emit(body: &Body<'_>, out: &mut Vec<u8>) {
    let words = |high: u16, low: u16| (u32::from(high) << 16 | u32::from(low)).to_be_bytes();
    match body {
        Body::Data(_) | Body::Ack => {}
        Body::Nak(reason) => out.extend_from_slice(&words(0, reason.code())),
        Body::Connect { terms, cookie } => {
            let cookie = cookie.as_ref().map_or(&[][..], |cookie| &cookie.0);
            out.extend_from_slice(&words(terms.max_payload, cookie.len() as u16));
            out.extend_from_slice(cookie);
            out.extend_from_slice(truncate_private(terms.private));
        }
        Body::Accept { echo, terms } => {
            out.extend_from_slice(&words(terms.max_payload, 0));
            out.extend_from_slice(&echo.get().to_be_bytes());
            out.extend_from_slice(truncate_private(terms.private));
        }
        Body::Reject {
            echo,
            reason,
            private,
        } => {
            out.extend_from_slice(&words(reason.code(), 0));
            out.extend_from_slice(&echo.get().to_be_bytes());
            out.extend_from_slice(truncate_private(private));
        }
        Body::Disconnect(ending) => out.extend_from_slice(&words(ending.code(), 0)),
        Body::Retry { echo, cookie } => {
            out.extend_from_slice(&echo.get().to_be_bytes());
            out.extend_from_slice(&cookie.0);
        }
    }
}

fn answer(kind: Kind, payload: &[u8]) -> Result<(u16, PacketSeq, &[u8]), Malformed> {
    let ([a, b, c, d, e, f, g, h], private) = front::<ANSWER_LEN>(kind, payload)?;
    check_reserved(c, d)?;
    let echo = PacketSeq::new(u32::from_be_bytes([e, f, g, h]));
    Ok((u16::from_be_bytes([a, b]), echo, check_private(private)?))
}

fn check_reserved(a: u8, b: u8) -> Result<(), Malformed> {
    match u16::from_be_bytes([a, b]) {
        0 => Ok(()),
        got => Err(Malformed::CellReserved {
            got: u32::from(got),
        }),
    }
}

fn front<const N: usize>(kind: Kind, payload: &[u8]) -> Result<([u8; N], &[u8]), Malformed> {
    let (front, rest) = payload.split_first_chunk().ok_or(Malformed::CellPayload {
        kind: kind as u8,
        need: N,
        got: payload.len(),
    })?;
    Ok((*front, rest))
}

/// Checks the length of private data.
fn check_private(private: &[u8]) -> Result<&[u8], Malformed> {
    if private.len() > MAX_PRIVATE {
        return Err(Malformed::TooLong {
            what: "private data of a cell",
            limit: MAX_PRIVATE,
            got: private.len(),
        });
    }
    Ok(private)
}

/// Private data as sent: bytes beyond [`MAX_PRIVATE`] are cut off.
fn truncate_private(private: &[u8]) -> &[u8] {
    private.get(..MAX_PRIVATE).unwrap_or(private)
}

fn exact<const N: usize>(kind: Kind, payload: &[u8]) -> Result<[u8; N], Malformed> {
    payload.try_into().map_err(|_| Malformed::CellPayload {
        kind: kind as u8,
        need: N,
        got: payload.len(),
    })
}
