//! Scatter/gather lists and linked lists of receives, translated from C.
//! Receives before an invalid one are posted, and `bad_wr` points to the invalid one. Negative and too large counts are refused before the
//! list is read.

use core::ffi::c_int;
use core::ops::Range;

use smallvec::SmallVec;
use verbena::low::{PostRecvError, RecvWr, Sge, Stag};

use crate::abi::*;
use crate::errno::Errno;

/// Requests that are posted in one call.
pub(crate) const BATCH: usize = 16;

/// Scatter/gather entries of several requests.
pub(crate) type SgeList = SmallVec<[Sge; 2 * BATCH]>;

/// The adapter's form of an entry.
pub(crate) fn to_sge(sge: &ibv_sge) -> Sge {
    Sge {
        addr: sge.addr,
        len: sge.length,
        stag: Stag::new(sge.lkey),
    }
}

/// The entries of a request; none for an empty list.
///
/// # Safety
/// `list` is null or points to `count` valid entries.
pub(crate) unsafe fn list<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [ibv_sge], Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: `list` is not null, so the caller guarantees `count` entries.
    Ok(unsafe { core::slice::from_raw_parts(list, count) })
}

/// Adds the entries of a list whose length is not zero; returns their range.
pub(crate) fn gather(pieces: &mut SgeList, list: &[ibv_sge]) -> Range<usize> {
    let first = pieces.len();
    pieces.extend(list.iter().filter(|sge| sge.length > 0).map(to_sge));
    first..pieces.len()
}

/// Posts a linked list of receives of at most `limit` entries each by calling `post`.
///
/// # Safety
/// `wr` is null or a linked list of valid requests, `bad` is null or valid for writes.
pub(crate) unsafe fn post_receives(
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    limit: usize,
    post: impl Fn(&[RecvWr<'_>]) -> Result<(), PostRecvError>,
) -> Result<(), Errno> {
    let refuse = |at: *mut ibv_recv_wr, errno| {
        if !bad.is_null() {
            // SAFETY: `bad` is not null, so the caller guarantees that it is valid for writes.
            unsafe { *bad = at };
        }
        Err(errno)
    };
    while !wr.is_null() {
        let mut pieces = SgeList::new();
        let mut known: SmallVec<[(*mut ibv_recv_wr, u64, Range<usize>); BATCH]> = SmallVec::new();
        let mut wrong = None;
        while !wr.is_null() && known.len() < BATCH {
            // SAFETY: `wr` is not null, so the caller guarantees a valid request with `num_sge` entries at `sg_list`.
            let (request, scatter) = unsafe { (&*wr, list((*wr).sg_list, (*wr).num_sge)) };
            match scatter {
                Ok(scatter) if scatter.len() > limit => {
                    wrong = Some(Errno::INVAL);
                    break;
                }
                Ok(scatter) => {
                    let range = gather(&mut pieces, scatter);
                    known.push((wr, request.wr_id, range));
                }
                Err(errno) => {
                    wrong = Some(errno);
                    break;
                }
            }
            wr = request.next;
        }
        let requests: SmallVec<[RecvWr<'_>; BATCH]> = known
            .iter()
            .map(|(_, id, range)| RecvWr {
                id: *id,
                scatter: &pieces[range.clone()],
            })
            .collect();
        if let Err(PostRecvError {
            posted: at,
            source: error,
        }) = post(&requests)
        {
            return refuse(known[at].0, error.into());
        }
        if let Some(errno) = wrong {
            return refuse(wr, errno);
        }
    }
    Ok(())
}
