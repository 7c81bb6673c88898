//! Records between a target and the process of the shared receive queue that a message is for.
//! They stay on the host and are written by a process of the same user; nevertheless each is checked, and one that does not parse ends
//! the conversation. A request that has an answer is followed by no other until the answer has come.

use verbena_stream::AccessFault;
use verbena_wire::{Srqn, Stag, To};

use crate::wc::Status;

/// Records of another version are not understood.
pub(crate) const VERSION: u32 = 1;
/// Bytes before the payload.
pub(crate) const HEAD: usize = 24;
/// Most payload of a record.
pub(crate) const MAX_BODY: usize = 32 << 10;
/// The longest record.
pub const LONGEST: usize = HEAD + MAX_BODY;

/// What a target tells or asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// The first record: the version, and the target's number in completions.
    Hello { version: u32, qpn: u32 },
    /// A message needs a receive of the queue: granted, not ready, refused.
    Claim { srq: Srqn },
    /// Payload of the message, from this offset on. No answer.
    Piece { offset: u32 },
    /// The message is complete: done or refused.
    End(End),
    /// The message failed at the target: its receive completes with this status. No answer.
    Fail(Status),
    /// Payload of an RDMA Write: the first bytes of a run of `run` bytes that must be accessible. No answer.
    Write {
        srq: Srqn,
        stag: Stag,
        to: To,
        run: u32,
    },
    /// The RDMA Write is complete: done or refused.
    WriteEnd,
    /// Bytes of memory: data or refused.
    Read {
        srq: Srqn,
        stag: Stag,
        to: To,
        len: u32,
    },
    /// The payload is the Atomic Request of the wire: a value, or refused.
    Atomic { srq: Srqn },
}

/// What the completion of a receive says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) len: u32,
    pub(crate) immediate: Option<u32>,
    pub(crate) invalidate: Option<Stag>,
    pub(crate) solicited: bool,
    /// It is the immediate data of an RDMA Write.
    pub(crate) write: bool,
}

/// What the process of the queue answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The message has a receive for so many bytes.
    Granted { capacity: u32 },
    /// There is none; `Ready` follows when there is one.
    NotReady,
    /// A receive is reserved for the target. Not an answer: it comes at any time after `NotReady`.
    Ready,
    /// Completed or placed.
    Done,
    /// The payload is what was asked for.
    Data,
    /// The previous value of the word.
    Value(u64),
    /// Why not.
    Refused(Reason),
}

/// Why a request is not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// There is no such queue, or not any more. Also sent instead of `Ready`.
    NoSuchSrq,
    /// Memory refused it.
    Access(Stag, AccessFault),
    /// The word of an atomic is not aligned.
    Unaligned,
    /// The receive names memory that may not be written; it has completed with that status.
    ReceiveBuffer,
    /// The receive or its completion queue failed.
    Failed,
}

const FAULTS: [AccessFault; 7] = [
    AccessFault::InvalidStag,
    AccessFault::Touched,
    AccessFault::Bounds,
    AccessFault::Rights,
    AccessFault::NotAssociated,
    AccessFault::Wrap,
    AccessFault::CannotInvalidate,
];

const IMMEDIATE: u8 = 1;
const INVALIDATE: u8 = 2;
const SOLICITED: u8 = 4;
const OF_WRITE: u8 = 8;

/// The fields of a head: kind, flags, number of a queue, and three numbers.
#[derive(Default)]
struct Raw {
    kind: u8,
    flags: u8,
    srq: u32,
    a: u32,
    b: u32,
    c: u64,
}

impl Raw {
    fn emit(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0] = self.kind;
        bytes[1] = self.flags;
        bytes[4..8].copy_from_slice(&self.srq.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.a.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.b.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.c.to_le_bytes());
        bytes
    }

    fn parse(record: &[u8]) -> Option<(Raw, &[u8])> {
        let (head, body) = record.split_first_chunk::<HEAD>()?;
        let word = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            u32::from_le_bytes(bytes)
        };
        let raw = Raw {
            kind: head[0],
            flags: head[1],
            srq: word(4),
            a: word(8),
            b: word(12),
            c: u64::from(word(16)) | u64::from(word(20)) << 32,
        };
        (body.len() <= MAX_BODY).then_some((raw, body))
    }
}

impl Request {
    pub(crate) fn emit(&self) -> [u8; HEAD] {
        let raw = match *self {
            Request::Hello { version, qpn } => Raw {
                kind: 1,
                a: version,
                b: qpn,
                ..Raw::default()
            },
            Request::Claim { srq } => Raw {
                kind: 2,
                srq: srq.get(),
                ..Raw::default()
            },
            Request::Piece { offset } => Raw {
                kind: 3,
                a: offset,
                ..Raw::default()
            },
            Request::End(end) => {
                let flag = |is: bool, flag: u8| if is { flag } else { 0 };
                Raw {
                    kind: 4,
                    flags: flag(end.immediate.is_some(), IMMEDIATE)
                        | flag(end.invalidate.is_some(), INVALIDATE)
                        | flag(end.solicited, SOLICITED)
                        | flag(end.write, OF_WRITE),
                    a: end.len,
                    b: end.immediate.unwrap_or(0),
                    c: end.invalidate.map_or(0, |stag| stag.get().into()),
                    ..Raw::default()
                }
            }
            Request::Fail(status) => Raw {
                kind: 5,
                flags: status as u8,
                ..Raw::default()
            },
            Request::Write { srq, stag, to, run } => Raw {
                kind: 6,
                srq: srq.get(),
                a: stag.get(),
                b: run,
                c: to.get(),
                ..Raw::default()
            },
            Request::WriteEnd => Raw {
                kind: 7,
                ..Raw::default()
            },
            Request::Read { srq, stag, to, len } => Raw {
                kind: 8,
                srq: srq.get(),
                a: stag.get(),
                b: len,
                c: to.get(),
                ..Raw::default()
            },
            Request::Atomic { srq } => Raw {
                kind: 9,
                srq: srq.get(),
                ..Raw::default()
            },
        };
        raw.emit()
    }

    /// The request and its payload; none if it is not one.
    pub(crate) fn parse(record: &[u8]) -> Option<(Request, &[u8])> {
        let (raw, body) = Raw::parse(record)?;
        let srq = Srqn::new(raw.srq)?;
        let (stag, to) = (Stag::new(raw.a), To::new(raw.c));
        let request = match raw.kind {
            1 => Request::Hello {
                version: raw.a,
                qpn: raw.b,
            },
            2 => Request::Claim { srq },
            3 => Request::Piece { offset: raw.a },
            4 => {
                let has = |flag: u8| raw.flags & flag != 0;
                Request::End(End {
                    len: raw.a,
                    immediate: has(IMMEDIATE).then_some(raw.b),
                    invalidate: has(INVALIDATE).then_some(Stag::new(raw.c as u32)),
                    solicited: has(SOLICITED),
                    write: has(OF_WRITE),
                })
            }
            5 => {
                let all = [Status::LocLenErr, Status::LocProtErr, Status::WrFlushErr];
                Request::Fail(all.into_iter().find(|s| *s as u8 == raw.flags)?)
            }
            6 => Request::Write {
                srq,
                stag,
                to,
                run: raw.b,
            },
            7 => Request::WriteEnd,
            8 => Request::Read {
                srq,
                stag,
                to,
                len: raw.b,
            },
            9 => Request::Atomic { srq },
            _ => return None,
        };
        let has_body = matches!(
            request,
            Request::Piece { .. } | Request::Write { .. } | Request::Atomic { .. }
        );
        (has_body || body.is_empty()).then_some((request, body))
    }
}

impl Answer {
    pub(crate) fn emit(&self) -> [u8; HEAD] {
        let refused = |flags: u8, a: u32| Raw {
            kind: 7,
            flags,
            a,
            ..Raw::default()
        };
        let plain = |kind: u8| Raw {
            kind,
            ..Raw::default()
        };
        let raw = match *self {
            Answer::Granted { capacity } => Raw {
                a: capacity,
                ..plain(1)
            },
            Answer::NotReady => plain(2),
            Answer::Ready => plain(3),
            Answer::Done => plain(4),
            Answer::Data => plain(5),
            Answer::Value(value) => Raw {
                c: value,
                ..plain(6)
            },
            Answer::Refused(Reason::Access(stag, fault)) => {
                let at = FAULTS.iter().position(|one| *one == fault).unwrap_or(0);
                refused(at as u8, stag.get())
            }
            Answer::Refused(Reason::NoSuchSrq) => refused(100, 0),
            Answer::Refused(Reason::Unaligned) => refused(101, 0),
            Answer::Refused(Reason::ReceiveBuffer) => refused(102, 0),
            Answer::Refused(Reason::Failed) => refused(103, 0),
        };
        raw.emit()
    }

    /// The answer and its payload; none if it is not one.
    pub(crate) fn parse(record: &[u8]) -> Option<(Answer, &[u8])> {
        let (raw, body) = Raw::parse(record)?;
        let answer = match raw.kind {
            1 => Answer::Granted { capacity: raw.a },
            2 => Answer::NotReady,
            3 => Answer::Ready,
            4 => Answer::Done,
            5 => Answer::Data,
            6 => Answer::Value(raw.c),
            7 => Answer::Refused(match raw.flags {
                100 => Reason::NoSuchSrq,
                101 => Reason::Unaligned,
                102 => Reason::ReceiveBuffer,
                103 => Reason::Failed,
                at => Reason::Access(Stag::new(raw.a), *FAULTS.get(usize::from(at))?),
            }),
            _ => return None,
        };
        (answer == Answer::Data || body.is_empty()).then_some((answer, body))
    }
}

#[cfg(test)]
mod tests;
