//! Lists of pieces of memory, and lists of receives, as C programs have them: linked, counted, of any length.
//! It promises to post what comes before a request that is refused, and to name that one.
//! It refuses lengths that make no sense before anything is read.

use core::ffi::c_int;
use core::ops::Range;

use smallvec::SmallVec;
use verbena::low::{PostError, RecvWr, Sge, Stag};

use crate::abi::*;
use crate::errno::Errno;

/// Requests handed over in one go.
pub(crate) const BATCH: usize = 16;

/// Pieces of memory of several requests.
pub(crate) type Pieces = SmallVec<[Sge; 2 * BATCH]>;

/// A piece as the adapter knows it.
pub(crate) fn piece(sge: &ibv_sge) -> Sge {
    Sge {
        at: sge.addr,
        len: sge.length,
        stag: Stag::new(sge.lkey),
    }
}

/// The pieces of a request; none for an empty list.
///
/// # Safety
/// `list` has `count` pieces.
pub(crate) unsafe fn list<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [ibv_sge], Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's word.
    Ok(unsafe { core::slice::from_raw_parts(list, count) })
}

/// Adds the pieces of a list that have a length; says where they are.
pub(crate) fn gather(pieces: &mut Pieces, list: &[ibv_sge]) -> Range<usize> {
    let first = pieces.len();
    pieces.extend(list.iter().filter(|sge| sge.length > 0).map(piece));
    first..pieces.len()
}

/// Posts a linked list of receives of at most `limit` pieces by `post`.
///
/// # Safety
/// `wr` is a list of requests, `bad` is null or the program's.
pub(crate) unsafe fn receives(
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    limit: usize,
    post: impl Fn(&[RecvWr<'_>]) -> Result<(), (usize, PostError)>,
) -> Result<(), Errno> {
    let refuse = |at: *mut ibv_recv_wr, errno| {
        if !bad.is_null() {
            // SAFETY: the program's word.
            unsafe { *bad = at };
        }
        Err(errno)
    };
    while !wr.is_null() {
        let mut pieces = Pieces::new();
        let mut known: SmallVec<[(*mut ibv_recv_wr, u64, Range<usize>); BATCH]> = SmallVec::new();
        let mut wrong = None;
        while !wr.is_null() && known.len() < BATCH {
            // SAFETY: the program's word.
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
        if let Err((at, error)) = post(&requests) {
            return refuse(known[at].0, error.into());
        }
        if let Some(errno) = wrong {
            return refuse(wr, errno);
        }
    }
    Ok(())
}
