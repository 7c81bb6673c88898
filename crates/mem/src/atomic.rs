//! Atomic operations on remote words (M15): locked processor instructions on registered memory.
//! They are atomic with respect to each other and to aligned accesses of the host's processors; bulk writes may tear.
//! A word that is not aligned is reported to the caller and not changed.

use verbena_wire::rdmap::AtomicOp;

use crate::grant::Placement;
use crate::guarded::{self, Unmapped};

/// Executes `op` on the first word of the grant and returns the value before; `None` if the word is not aligned.
pub fn execute(grant: &Placement<'_>, op: AtomicOp) -> Result<Option<u64>, Unmapped> {
    let Some(word) = grant.word() else {
        return Ok(None);
    };
    let before = match op {
        // SAFETY: the grant keeps the word registered until it is dropped, `word` is aligned, and other code that shares the word uses
        // atomic operations or accepts torn values.
        AtomicOp::FetchAdd { add, mask: 0 } => unsafe { guarded::fetch_add(word, add)? },
        // SAFETY: `word` is the aligned word of `grant`, which is held until this function returns.
        _ => unsafe { update(word, op)? },
    };
    Ok(Some(before))
}

/// The first word of the grant is aligned.
pub fn is_aligned(grant: &Placement<'_>) -> bool {
    grant.word().is_some()
}

/// # Safety
/// `word` is aligned, and the caller holds a grant to write it.
unsafe fn update(word: *mut u64, op: AtomicOp) -> Result<u64, Unmapped> {
    // Adding zero reads the word.
    // SAFETY: the caller holds a grant for `word`, which is aligned.
    let mut original = unsafe { guarded::fetch_add(word, 0)? };
    loop {
        let new = op.apply(original);
        if new == original {
            // Nothing to store; the value was read atomically.
            return Ok(original);
        }
        // SAFETY: the caller holds the grant for `word` until this function returns; the word is aligned.
        let before = unsafe { guarded::compare_exchange(word, original, new)? };
        if before == original {
            return Ok(before);
        }
        original = before;
    }
}

#[cfg(test)]
mod tests;
