//! Advice about registered memory (`ibv_advise_mr`): pages are faulted in before a request needs them.
//! The list is checked as the scatter/gather list of a request would be. Pages are faulted in by the calling thread, with the flag
//! `IBV_ADVISE_MR_FLAG_FLUSH` and without it; without it a page that is not mapped is no error.

use core::ffi::c_int;

use verbena::Error;
use verbena::low::Prefetch;
use verbena::mr::Refusal;

use crate::abi::*;
use crate::caller::handle;
use crate::errno::{Errno, number};
use crate::pd;
use crate::scatter::{list, to_sge};

/// Gives advice about the memory of a scatter/gather list.
///
/// # Safety
/// `pd` is null or was created by this library; `sg_list` is null or has `num_sge` entries.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: u32,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    let domain = handle!(pd::of(pd));
    number(domain.and_then(|domain| {
        let count = c_int::try_from(num_sge).map_err(|_| Errno::INVAL)?;
        // SAFETY: the caller guarantees that `sg_list` is null or has `num_sge` entries.
        let entries = unsafe { list(sg_list, count)? };
        if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 || entries.is_empty() {
            return Err(Errno::INVAL);
        }
        let pages = match advice {
            IBV_ADVISE_MR_ADVICE_PREFETCH => Prefetch::Read,
            IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => Prefetch::Write,
            // Its pages are those that are present, for which nothing has to be done.
            IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => Prefetch::None,
            _ => return Err(Errno::NOSUPP),
        };
        for entry in entries {
            match domain.pd.prefetch(&[to_sge(entry)], pages) {
                Err(Error::Refused(Refusal::Unmapped)) if flags == 0 => {}
                Err(Error::Refused(refusal)) => return Err(refused(refusal)),
                done => done?,
            }
        }
        Ok(())
    }))
}

/// The error numbers of the manual page.
fn refused(refusal: Refusal) -> Errno {
    Errno(match refusal {
        Refusal::Stag { .. } | Refusal::Touched { .. } | Refusal::Pending { .. } => libc::ENOENT,
        Refusal::Kind { .. } => libc::EINVAL,
        Refusal::Domain { .. } | Refusal::Scope { .. } | Refusal::Right { .. } => libc::EPERM,
        Refusal::Bounds { .. } | Refusal::Wrap { .. } | Refusal::Unmapped => libc::EFAULT,
    })
}
