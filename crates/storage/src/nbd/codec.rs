//! The bytes of the NBD protocol: magic numbers, options, requests and replies, all big-endian.
//! It promises that a request which parses has a known command with flags that the command may have.
//! It refuses to know sockets, memory and who may ask for what.

/// What the server says first.
pub(super) const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// What begins every option.
pub(super) const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// What begins the answer to an option.
pub(super) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const CHUNK: u32 = 0x668e_33ef;

/// The server's flags: options may fail without ending everything, and nobody wants 124 zeroes.
pub(super) const FIXED_NEWSTYLE: u16 = 1;
pub(super) const NO_ZEROES: u16 = 2;

/// What a client may negotiate.
pub(super) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
}

/// What the server answers.
pub(super) mod answer {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const UNSUPPORTED: u32 = 1 << 31 | 1;
    pub(crate) const INVALID: u32 = 1 << 31 | 3;
    pub(crate) const UNKNOWN: u32 = 1 << 31 | 6;
    pub(crate) const TOO_BIG: u32 = 1 << 31 | 9;
}

/// What a client may be told about an export.
pub(super) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// What an export is like.
pub(super) mod transmission {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
}

const FUA: u16 = 1;
const NO_HOLE: u16 = 1 << 1;
const DO_NOT_FRAGMENT: u16 = 1 << 2;

/// A client's request begins with so many bytes.
pub(super) const HEAD: usize = 28;

/// Errors in the protocol's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Errno {
    /// Not allowed.
    Perm = 1,
    /// Input or output failed.
    Io = 5,
    /// The request makes no sense.
    Inval = 22,
    /// Beyond the end, or no room left.
    NoSpace = 28,
}

/// What a client wants to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Read,
    Write {
        fua: bool,
    },
    Disconnect,
    Flush,
    Trim {
        fua: bool,
    },
    Zero {
        fua: bool,
        /// May not be turned into a hole.
        no_hole: bool,
    },
}

/// A request without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// `None`: nothing that we know, or with flags that it may not have.
    pub(super) command: Option<Command>,
    /// Payload follows, of `len` bytes, known or not.
    pub(super) payload: bool,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// It does not begin as a request does: nobody knows where the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a request begins with {0:#010x} instead of {REQUEST:#010x}")]
pub(super) struct NoRequest(u32);

impl Head {
    pub(super) fn parse(bytes: &[u8; HEAD]) -> Result<Head, NoRequest> {
        let [m0, m1, m2, m3, f0, f1, t0, t1, rest @ ..] = *bytes;
        let magic = u32::from_be_bytes([m0, m1, m2, m3]);
        if magic != REQUEST {
            return Err(NoRequest(magic));
        }
        let flags = u16::from_be_bytes([f0, f1]);
        let kind = u16::from_be_bytes([t0, t1]);
        let number = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&rest[at..at + 8]);
            u64::from_be_bytes(eight)
        };
        let [.., l0, l1, l2, l3] = rest;
        Ok(Head {
            command: command(kind, flags),
            payload: kind == 1,
            cookie: number(0),
            offset: number(8),
            len: u32::from_be_bytes([l0, l1, l2, l3]),
        })
    }

    /// For tests: what a client sends.
    #[cfg(test)]
    pub(super) fn emit(kind: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> [u8; HEAD] {
        let mut out = [0; HEAD];
        out[..4].copy_from_slice(&REQUEST.to_be_bytes());
        out[4..6].copy_from_slice(&flags.to_be_bytes());
        out[6..8].copy_from_slice(&kind.to_be_bytes());
        out[8..16].copy_from_slice(&cookie.to_be_bytes());
        out[16..24].copy_from_slice(&offset.to_be_bytes());
        out[24..].copy_from_slice(&len.to_be_bytes());
        out
    }
}

/// The command, if it may have these flags. FUA is allowed with every command once it was offered.
fn command(kind: u16, flags: u16) -> Option<Command> {
    let fua = flags & FUA != 0;
    let (command, allowed) = match kind {
        0 => (Command::Read, FUA | DO_NOT_FRAGMENT),
        1 => (Command::Write { fua }, FUA),
        2 => (Command::Disconnect, FUA),
        3 => (Command::Flush, FUA),
        4 => (Command::Trim { fua }, FUA),
        6 => {
            let no_hole = flags & NO_HOLE != 0;
            (Command::Zero { fua, no_hole }, FUA | NO_HOLE)
        }
        _ => return None,
    };
    (flags & !allowed == 0).then_some(command)
}

/// The bytes in front of a reply's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplyHead {
    bytes: [u8; LONGEST_REPLY],
    len: u8,
}

const LONGEST_REPLY: usize = 28;
/// The last chunk of a reply.
const DONE: u16 = 1;
const OFFSET_DATA: u16 = 1;
const ERROR: u16 = 1 << 15 | 1;

impl ReplyHead {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The old form: an error or none, and then the payload of a read that had none.
    pub(super) fn simple(cookie: u64, error: Option<Errno>) -> ReplyHead {
        ReplyHead::of(&[
            &SIMPLE_REPLY.to_be_bytes(),
            &error.map_or(0, |error| error as u32).to_be_bytes(),
            &cookie.to_be_bytes(),
        ])
    }

    /// All that a read brought, in one chunk.
    pub(super) fn data(cookie: u64, offset: u64, len: u32) -> ReplyHead {
        ReplyHead::of(&[
            &CHUNK.to_be_bytes(),
            &DONE.to_be_bytes(),
            &OFFSET_DATA.to_be_bytes(),
            &cookie.to_be_bytes(),
            &len.saturating_add(8).to_be_bytes(),
            &offset.to_be_bytes(),
        ])
    }

    /// A read that failed, in the form of chunks; without words.
    pub(super) fn failed(cookie: u64, error: Errno) -> ReplyHead {
        ReplyHead::of(&[
            &CHUNK.to_be_bytes(),
            &DONE.to_be_bytes(),
            &ERROR.to_be_bytes(),
            &cookie.to_be_bytes(),
            &6_u32.to_be_bytes(),
            &(error as u32).to_be_bytes(),
            &0_u16.to_be_bytes(),
        ])
    }

    fn of(parts: &[&[u8]]) -> ReplyHead {
        let mut head = ReplyHead {
            bytes: [0; LONGEST_REPLY],
            len: 0,
        };
        for part in parts {
            let at = usize::from(head.len);
            head.bytes[at..at + part.len()].copy_from_slice(part);
            head.len += part.len() as u8;
        }
        head
    }
}

#[cfg(test)]
mod tests;
