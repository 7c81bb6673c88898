//! The nine messages of the push-push layer (docs/push.md, P6): function code, version, transaction context, and a body.
//! Lists and data of a parsed message end where the message ends; they are borrowed and read on iteration. An unknown function
//! or version is [`Parsed::Unknown`] and not an error, because the receiver answers it.

mod config;
mod entries;
mod indication;

pub use config::{Operation, Status};
pub use entries::{Element, Elements, Entries, Entry, Pool, Range, Reference};
pub use indication::Indication;

use core::fmt;

use zerocopy::byteorder::big_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use verbena_wire::{Malformed, raw};

#[cfg(test)]
mod tests;

/// The version of this implementation.
pub const VERSION: u16 = 1;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    function: U16,
    version: U16,
    context: U64,
}

/// The first bytes of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The function code.
    pub function: u16,
    /// The version.
    pub version: u16,
    /// The sender's number of the transaction, repeated in replies.
    pub context: u64,
}

impl Envelope {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    /// Reads the front of a message.
    pub fn parse(bytes: &[u8]) -> Result<Envelope, Malformed> {
        let raw: Raw = raw::prefix("push-push message", bytes)?;
        Ok(Envelope {
            function: raw.function.get(),
            version: raw.version.get(),
            context: raw.context.get(),
        })
    }

    /// The bytes.
    pub fn emit(&self) -> [u8; Envelope::LEN] {
        zerocopy::transmute!(Raw {
            function: U16::new(self.function),
            version: U16::new(self.version),
            context: U64::new(self.context),
        })
    }

    /// The answer to a message with an unknown function or version; such a message does not end the session.
    pub fn unknown_reply(&self) -> Message<'static> {
        Message {
            context: self.context,
            body: Body::CfgUtilReply {
                operation: Operation::None,
                status: Status::UnknownMessage,
                data: &[],
            },
        }
    }
}

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Envelope {
            function,
            version,
            context,
        } = self;
        write!(
            f,
            "message {function} version={version} context={context:#x}"
        )
    }
}

/// The function codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
#[expect(missing_docs, reason = "the names are those of the messages")]
pub enum Function {
    BufferRecvPool = 1,
    BufferRecvPoolGet = 2,
    BufferRecvPoolUpdate = 3,
    BufferPoolFlushRequest = 4,
    BufferPoolFlushReply = 5,
    SendData = 6,
    BufferRdmaIndicate = 7,
    CfgUtilRequest = 8,
    CfgUtilReply = 9,
}

impl Function {
    /// Every function, in the order of their codes, which begin with 1.
    pub const ALL: [Function; 9] = [
        Function::BufferRecvPool,
        Function::BufferRecvPoolGet,
        Function::BufferRecvPoolUpdate,
        Function::BufferPoolFlushRequest,
        Function::BufferPoolFlushReply,
        Function::SendData,
        Function::BufferRdmaIndicate,
        Function::CfgUtilRequest,
        Function::CfgUtilReply,
    ];

    /// The function with this code.
    pub fn from_code(code: u16) -> Option<Function> {
        let at = usize::from(code).checked_sub(1)?;
        Function::ALL.get(at).copied()
    }
}

/// The result of parsing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// One of the nine.
    Known(Message<'a>),
    /// Another function or version: count it, and send its [`unknown_reply`](Envelope::unknown_reply).
    Unknown(Envelope),
}

/// One of the nine messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The transaction.
    pub context: u64,
    /// The content.
    pub body: Body<'a>,
}

/// The content of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// The owner of memory offers pools of buffers.
    BufferRecvPool(Entries<'a, Pool>),
    /// The user of pools asks for another pool; no reply is required.
    BufferRecvPoolGet {
        /// Elements it shall have.
        count: u32,
        /// Bytes of each.
        size: u32,
    },
    /// The owner returns elements of pools for use.
    BufferRecvPoolUpdate(Entries<'a, Range>),
    /// The owner asks that these pools not be used any more.
    BufferPoolFlushRequest(Entries<'a, Reference>),
    /// The pools are no longer in use.
    BufferPoolFlushReply,
    /// A packet inline in the message.
    SendData(&'a [u8]),
    /// Data was written to these elements.
    BufferRdmaIndicate(Elements<'a>),
    /// A request to the configuration service.
    CfgUtilRequest {
        /// The operation.
        operation: Operation,
        /// Arguments of the operation.
        data: &'a [u8],
    },
    /// The answer of the configuration service.
    CfgUtilReply {
        /// The operation that was asked for.
        operation: Operation,
        /// The outcome.
        status: Status,
        /// Results of the operation.
        data: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Reads a whole message, which must fill `bytes` exactly.
    pub fn parse(bytes: &'a [u8]) -> Result<Parsed<'a>, Malformed> {
        let envelope = Envelope::parse(bytes)?;
        let known = Function::from_code(envelope.function);
        let Some(function) = known.filter(|_| envelope.version == VERSION) else {
            return Ok(Parsed::Unknown(envelope));
        };
        let rest = bytes.get(Envelope::LEN..).unwrap_or_default();
        let body = Body::parse(function, rest)?;
        let context = envelope.context;
        Ok(Parsed::Known(Message { context, body }))
    }

    /// Appends the message. Data beyond 2^32 − 1 bytes, which no message has, is cut there.
    pub fn emit(&self, out: &mut Vec<u8>) {
        begin(self.body.function(), self.context, out);
        self.body.emit(out);
    }

    /// Appends a BufferRecvPool; `parse` rejects one without pools.
    pub fn emit_pools(context: u64, pools: &[Pool], out: &mut Vec<u8>) {
        begin(Function::BufferRecvPool, context, out);
        pools.iter().for_each(|pool| pool.emit(out));
    }

    /// Appends a BufferRecvPoolUpdate; `parse` rejects one without ranges.
    pub fn emit_ranges(context: u64, ranges: &[Range], out: &mut Vec<u8>) {
        begin(Function::BufferRecvPoolUpdate, context, out);
        ranges.iter().for_each(|range| range.emit(out));
    }

    /// Appends a BufferPoolFlushRequest; `parse` rejects one without pools.
    pub fn emit_flush(context: u64, pools: &[Reference], out: &mut Vec<u8>) {
        begin(Function::BufferPoolFlushRequest, context, out);
        pools.iter().for_each(|pool| pool.emit(out));
    }

    /// Appends a BufferRDMAIndicate; `parse` rejects one without elements.
    pub fn emit_elements(context: u64, elements: &[Element], out: &mut Vec<u8>) {
        begin(Function::BufferRdmaIndicate, context, out);
        elements.iter().for_each(|element| element.emit(out));
    }
}

fn begin(function: Function, context: u64, out: &mut Vec<u8>) {
    let envelope = Envelope {
        function: function as u16,
        version: VERSION,
        context,
    };
    out.extend_from_slice(&envelope.emit());
}

impl<'a> Body<'a> {
    fn parse(function: Function, rest: &'a [u8]) -> Result<Body<'a>, Malformed> {
        let wrong = Malformed::PushLength {
            function: function as u16,
            got: rest.len(),
        };
        match function {
            Function::BufferRecvPool => Entries::parse(rest).map(Body::BufferRecvPool).ok_or(wrong),
            Function::BufferRecvPoolGet => {
                let [a, b, c, d, e, f, g, h] = *rest else {
                    return Err(wrong);
                };
                Ok(Body::BufferRecvPoolGet {
                    count: u32::from_be_bytes([a, b, c, d]),
                    size: u32::from_be_bytes([e, f, g, h]),
                })
            }
            Function::BufferRecvPoolUpdate => Entries::parse(rest)
                .map(Body::BufferRecvPoolUpdate)
                .ok_or(wrong),
            Function::BufferPoolFlushRequest => Entries::parse(rest)
                .map(Body::BufferPoolFlushRequest)
                .ok_or(wrong),
            Function::BufferPoolFlushReply if rest.is_empty() => Ok(Body::BufferPoolFlushReply),
            Function::BufferPoolFlushReply => Err(wrong),
            Function::SendData => sized(rest).map(Body::SendData).ok_or(wrong),
            Function::BufferRdmaIndicate => Elements::parse(rest)
                .map(Body::BufferRdmaIndicate)
                .ok_or(wrong),
            Function::CfgUtilRequest => {
                let (operation, reserved, data) = config(rest).ok_or(wrong)?;
                if reserved != 0 {
                    return Err(Malformed::PushReserved {
                        function: function as u16,
                        got: u32::from(reserved),
                    });
                }
                Ok(Body::CfgUtilRequest { operation, data })
            }
            Function::CfgUtilReply => {
                let (operation, status, data) = config(rest).ok_or(wrong)?;
                let status = Status::from_code(status);
                Ok(Body::CfgUtilReply {
                    operation,
                    status,
                    data,
                })
            }
        }
    }

    /// The function code.
    pub fn function(&self) -> Function {
        match self {
            Body::BufferRecvPool(_) => Function::BufferRecvPool,
            Body::BufferRecvPoolGet { .. } => Function::BufferRecvPoolGet,
            Body::BufferRecvPoolUpdate(_) => Function::BufferRecvPoolUpdate,
            Body::BufferPoolFlushRequest(_) => Function::BufferPoolFlushRequest,
            Body::BufferPoolFlushReply => Function::BufferPoolFlushReply,
            Body::SendData(_) => Function::SendData,
            Body::BufferRdmaIndicate(_) => Function::BufferRdmaIndicate,
            Body::CfgUtilRequest { .. } => Function::CfgUtilRequest,
            Body::CfgUtilReply { .. } => Function::CfgUtilReply,
        }
    }

    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Body::BufferRecvPool(pools) => out.extend_from_slice(pools.bytes()),
            Body::BufferRecvPoolGet { count, size } => {
                out.extend_from_slice(&count.to_be_bytes());
                out.extend_from_slice(&size.to_be_bytes());
            }
            Body::BufferRecvPoolUpdate(ranges) => out.extend_from_slice(ranges.bytes()),
            Body::BufferPoolFlushRequest(pools) => out.extend_from_slice(pools.bytes()),
            Body::BufferPoolFlushReply => {}
            Body::SendData(data) => emit_sized(data, out),
            Body::BufferRdmaIndicate(elements) => out.extend_from_slice(elements.bytes()),
            Body::CfgUtilRequest { operation, data } => {
                out.extend_from_slice(&operation.code().to_be_bytes());
                out.extend_from_slice(&[0, 0]);
                emit_sized(data, out);
            }
            Body::CfgUtilReply {
                operation,
                status,
                data,
            } => {
                out.extend_from_slice(&operation.code().to_be_bytes());
                out.extend_from_slice(&status.code().to_be_bytes());
                emit_sized(data, out);
            }
        }
    }
}

/// Data behind its size, which must equal the rest of the message.
fn sized(rest: &[u8]) -> Option<&[u8]> {
    let (size, data) = rest.split_first_chunk::<4>()?;
    (u32::from_be_bytes(*size) as usize == data.len()).then_some(data)
}

fn emit_sized(data: &[u8], out: &mut Vec<u8>) {
    let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&size.to_be_bytes());
    out.extend_from_slice(data.get(..size as usize).unwrap_or(data));
}

fn config(rest: &[u8]) -> Option<(Operation, u16, &[u8])> {
    let ([a, b, c, d], rest) = rest.split_first_chunk::<4>()?;
    let operation = Operation::from_code(u16::from_be_bytes([*a, *b]));
    Some((operation, u16::from_be_bytes([*c, *d]), sized(rest)?))
}

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} context={:#x}", self.body.function(), self.context)?;
        match &self.body {
            Body::BufferRecvPool(pools) => pools.iter().try_for_each(|p| write!(f, " {p}")),
            Body::BufferRecvPoolGet { count, size } => write!(f, " count={count} size={size}"),
            Body::BufferRecvPoolUpdate(ranges) => ranges.iter().try_for_each(|r| write!(f, " {r}")),
            Body::BufferPoolFlushRequest(pools) => pools.iter().try_for_each(|p| write!(f, " {p}")),
            Body::BufferPoolFlushReply => Ok(()),
            Body::SendData(data) => write!(f, " data={}", data.len()),
            Body::BufferRdmaIndicate(list) => list.iter().try_for_each(|e| write!(f, " {e}")),
            Body::CfgUtilRequest { operation, data } => {
                write!(f, " operation={operation} data={}", data.len())
            }
            Body::CfgUtilReply {
                operation,
                status,
                data,
            } => write!(
                f,
                " operation={operation} status={status} data={}",
                data.len()
            ),
        }
    }
}
