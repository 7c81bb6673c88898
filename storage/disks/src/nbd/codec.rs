//! The encoding of the NBD protocol: magic numbers, options, requests and replies, all big-endian. A request with a `command` has a known
//! type with flags that are valid for it.

/// NBDMAGIC.
pub(super) const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// IHAVEOPT.
pub(super) const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Magic of an option reply.
pub(super) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const CHUNK: u32 = 0x668e_33ef;

/// Handshake flags: NBD_FLAG_FIXED_NEWSTYLE and NBD_FLAG_NO_ZEROES.
pub(super) const FIXED_NEWSTYLE: u16 = 1;
pub(super) const NO_ZEROES: u16 = 2;

/// NBD_OPT_*.
pub(super) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
}

/// NBD_REP_*; the errors are NBD_REP_ERR_*.
pub(super) mod reply_type {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const UNSUPPORTED: u32 = 1 << 31 | 1;
    pub(crate) const INVALID: u32 = 1 << 31 | 3;
    pub(crate) const UNKNOWN: u32 = 1 << 31 | 6;
    pub(crate) const TOO_BIG: u32 = 1 << 31 | 9;
}

/// NBD_INFO_*.
pub(super) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags, NBD_FLAG_*.
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

/// Bytes of a request without payload.
pub(super) const HEAD: usize = 28;

/// Error values of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Errno {
    /// NBD_EPERM.
    Perm = 1,
    /// NBD_EIO.
    Io = 5,
    /// NBD_EINVAL.
    Inval = 22,
    /// NBD_ENOSPC.
    NoSpace = 28,
}

/// Request types, NBD_CMD_*.
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
        /// NBD_CMD_FLAG_NO_HOLE.
        no_hole: bool,
    },
}

/// A request without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// `None`: an unknown type, or invalid flags.
    pub(super) command: Option<Command>,
    /// `len` bytes of payload follow, also if the request is invalid.
    pub(super) payload: bool,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// Wrong request magic: the stream is out of synchronisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a request begins with {0:#010x} instead of {REQUEST:#010x}")]
pub(super) struct BadRequestMagic(u32);

impl Head {
    pub(super) fn parse(bytes: &[u8; HEAD]) -> Result<Head, BadRequestMagic> {
        let [m0, m1, m2, m3, f0, f1, t0, t1, rest @ ..] = *bytes;
        let magic = u32::from_be_bytes([m0, m1, m2, m3]);
        if magic != REQUEST {
            return Err(BadRequestMagic(magic));
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

    /// Encodes a request, for tests.
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

/// The command, if the flags are valid for it. FUA is valid with every command once NBD_FLAG_SEND_FUA was set.
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

/// The bytes of a reply before its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplyHead {
    bytes: [u8; LONGEST_REPLY],
    len: u8,
}

const LONGEST_REPLY: usize = 28;
/// NBD_REPLY_FLAG_DONE.
const DONE: u16 = 1;
const OFFSET_DATA: u16 = 1;
const ERROR: u16 = 1 << 15 | 1;

impl ReplyHead {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// A simple reply; the payload of a successful read follows.
    pub(super) fn simple(cookie: u64, error: Option<Errno>) -> ReplyHead {
        ReplyHead::of(&[
            &SIMPLE_REPLY.to_be_bytes(),
            &error.map_or(0, |error| error as u32).to_be_bytes(),
            &cookie.to_be_bytes(),
        ])
    }

    /// A structured reply with all data of a read in one chunk (NBD_REPLY_TYPE_OFFSET_DATA).
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

    /// A structured reply to a failed read (NBD_REPLY_TYPE_ERROR), without a message.
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
