//! Access to registered memory for requests: gather, scatter, and the meaning of a refusal for a peer.
//! Every element is checked each time it is accessed (M6, M7). A grant is not held longer than for the frames that are sent together.

use smallvec::SmallVec;
use verbena_mem::{Access, Gather, MemAccess, Placement, Policy, Refusal, Unmapped};
use verbena_stream::{AccessFault, Violation};
use verbena_wire::Stag;
use verbena_wire::rdmap::Opcode;

use super::QpInit;
use super::transmit_buffer::Granted;
use super::wqe::{Payload, Wqe};
use crate::wr::Sge;

/// Grants on the elements of one frame, with the offset of each in the message.
pub(super) type Pieces<'a> = SmallVec<[(u32, Gather<'a>); 2]>;

/// The source of a frame's payload.
pub(super) enum Source<'a> {
    Memory(Pieces<'a>),
    /// The same in one element, as for nearly all requests, with its offset.
    Piece(u32, Gather<'a>),
    Inline(&'a [u8]),
}

impl Source<'_> {
    /// Appends `len` of the message's bytes from `offset` on. If that fails, as many are appended, and the frame must not be sent.
    #[inline]
    pub(super) fn append(&self, offset: u32, len: usize, to: &mut Vec<u8>) -> Result<(), Unmapped> {
        let end = to.len() + len;
        let copied = self.copy(offset, len, to);
        if copied.is_err() {
            to.resize(end, 0);
        }
        copied
    }

    fn copy(&self, offset: u32, len: usize, to: &mut Vec<u8>) -> Result<(), Unmapped> {
        match self {
            Source::Inline(bytes) => {
                let from = offset as usize;
                to.extend_from_slice(bytes.get(from..from + len).unwrap_or_default());
            }
            Source::Piece(start, gather) => {
                gather.append_to(u64::from(offset.wrapping_sub(*start)), len, to)?;
            }
            Source::Memory(pieces) => {
                let (begin, end) = (offset as usize, offset as usize + len);
                for (start, gather) in pieces {
                    let (from, until) = (*start as usize, *start as usize + gather.len() as usize);
                    let (low, high) = (from.max(begin), until.min(end));
                    if low < high {
                        gather.append_to((low - from) as u64, high - low, to)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Grants for bytes `offset..offset + len` of a request's data in memory.
pub(super) fn gathers<'a>(
    init: &'a QpInit,
    wqe: &Wqe,
    offset: u32,
    len: u32,
) -> Result<Granted<'a>, Refusal> {
    let Payload::Gather(sges) = &wqe.payload else {
        return Ok(Granted::new());
    };
    let pieces = sge_parts(sges, offset, len);
    let grant = |(_, sge)| init.tpt.gather_local(&mem_access(init, &sge, Access::NONE));
    pieces.map(grant).collect()
}

/// Grants for bytes `offset..offset + len` of a request's data.
pub(super) fn source<'a>(
    init: &'a QpInit,
    wqe: &'a Wqe,
    offset: u32,
    len: u32,
) -> Result<Source<'a>, Refusal> {
    match &wqe.payload {
        Payload::Inline(bytes) => Ok(Source::Inline(bytes)),
        Payload::Gather(sges) => {
            if let [sge] = &**sges
                && let Some(part) = part_of(sge, offset, len)
            {
                let gather = init
                    .tpt
                    .gather_local(&mem_access(init, &part, Access::NONE))?;
                return Ok(Source::Piece(offset, gather));
            }
            let mut pieces = Pieces::new();
            for (start, sge) in sge_parts(sges, offset, len) {
                let gather = init
                    .tpt
                    .gather_local(&mem_access(init, &sge, Access::NONE))?;
                pieces.push((start, gather));
            }
            Ok(Source::Memory(pieces))
        }
    }
}

/// Whose right decides whether local memory is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// The local program's (M6).
    Local,
    /// The peer's, which names the sink of a classic read: under *windows only* that must be a window (M7).
    Peer,
}

impl Right {
    /// The right for placing the response to a read or an atomic.
    pub(super) fn of_sink(init: &QpInit, classic_read: bool) -> Right {
        if classic_read && init.tpt.policy() == Policy::WindowsOnly {
            Right::Peer
        } else {
            Right::Local
        }
    }

    fn place<'a>(self, init: &'a QpInit, sge: &Sge) -> Result<Placement<'a>, Refusal> {
        match self {
            Right::Local => init
                .tpt
                .place_local(&mem_access(init, sge, Access::LOCAL_WRITE)),
            Right::Peer => init
                .tpt
                .place_remote(&mem_access(init, sge, Access::REMOTE_WRITE)),
        }
    }
}

/// Checks that every element may be written, before a read or an atomic is sent.
pub(super) fn check_sink(init: &QpInit, sges: &[Sge], right: Right) -> Result<(), Refusal> {
    for sge in sges.iter().filter(|sge| sge.len > 0) {
        right.place(init, sge)?;
    }
    Ok(())
}

/// The entry of an element, if it is pending: of a sink if a right is given, of a source otherwise (V5).
pub(super) fn is_pending(init: &QpInit, sge: &Sge, sink: Option<Right>) -> Option<Stag> {
    let refused = match sink {
        _ if sge.len == 0 => None,
        Some(right) => right.place(init, sge).err(),
        None => init
            .tpt
            .gather_local(&mem_access(init, sge, Access::NONE))
            .err(),
    };
    match refused {
        Some(Refusal::Pending { stag }) => Some(stag),
        _ => None,
    }
}

/// Grants for bytes `offset..offset + len` of a list of elements, one after the other until `each` returns false.
pub(super) fn places<'a>(
    init: &'a QpInit,
    sges: &[Sge],
    (offset, len): (u32, u32),
    right: Right,
    mut each: impl FnMut(Placement<'a>) -> bool,
) -> Result<(), Refusal> {
    if let [sge] = sges
        && let Some(part) = part_of(sge, offset, len)
    {
        // One element, the usual case.
        each(right.place(init, &part)?);
        return Ok(());
    }
    for (_, sge) in sge_parts(sges, offset, len) {
        if !each(right.place(init, &sge)?) {
            break;
        }
    }
    Ok(())
}

/// Scatters `bytes` to the beginning of a list of elements.
pub(super) fn scatter(init: &QpInit, sges: &[Sge], bytes: &[u8]) -> Result<(), Refusal> {
    let (mut rest, mut copied) = (bytes, Ok(0));
    let all = (0, bytes.len() as u32);
    places(init, sges, all, Right::Local, |place| {
        copied = place.write(0, rest);
        rest = &rest[copied.unwrap_or(0)..];
        copied.is_ok()
    })?;
    copied?;
    Ok(())
}

/// Bytes `offset..offset + len` of one element, if there are any and it has them all.
fn part_of(sge: &Sge, offset: u32, len: u32) -> Option<Sge> {
    let has = len > 0 && offset.checked_add(len)? <= sge.len;
    has.then(|| Sge {
        addr: sge.addr.wrapping_add(u64::from(offset)),
        len,
        stag: sge.stag,
    })
}

/// The parts of a list that bytes `offset..offset + len` lie in, each with its offset.
fn sge_parts(sges: &[Sge], offset: u32, len: u32) -> impl Iterator<Item = (u32, Sge)> + '_ {
    let end = u64::from(offset) + u64::from(len);
    let mut at = 0_u64;
    sges.iter().filter_map(move |sge| {
        let (from, to) = (at, at + u64::from(sge.len));
        at = to;
        let (low, high) = (from.max(u64::from(offset)), to.min(end));
        (low < high).then(|| {
            let part = Sge {
                addr: sge.addr.wrapping_add(low - from),
                len: (high - low) as u32,
                stag: sge.stag,
            };
            (low as u32, part)
        })
    })
}

/// The access to a local element, for the table.
pub(super) fn mem_access(init: &QpInit, sge: &Sge, needs: Access) -> MemAccess {
    MemAccess {
        stag: sge.stag,
        at: sge.addr,
        len: u64::from(sge.len),
        pd: init.pd,
        qp: init.number,
        needs,
    }
}

/// The protocol's name for a refusal.
pub(super) fn fault_of(refusal: &Refusal) -> AccessFault {
    match refusal {
        // An entry that is still pending at its deadline counts as invalid (V5).
        Refusal::Stag { .. } | Refusal::Pending { .. } | Refusal::Kind { .. } => {
            AccessFault::InvalidStag
        }
        // As if it had been deregistered.
        Refusal::Unmapped => AccessFault::InvalidStag,
        Refusal::Touched { .. } => AccessFault::Touched,
        Refusal::Domain { .. } | Refusal::Scope { .. } => AccessFault::NotAssociated,
        Refusal::Bounds { .. } => AccessFault::Bounds,
        Refusal::Wrap { .. } => AccessFault::Wrap,
        Refusal::Right { .. } => AccessFault::Rights,
    }
}

/// The violation of a peer whose access memory refused.
pub(super) fn access_violation(opcode: Opcode, stag: Stag, refusal: &Refusal) -> Violation {
    Violation::Access {
        opcode,
        stag,
        fault: fault_of(refusal),
    }
}
