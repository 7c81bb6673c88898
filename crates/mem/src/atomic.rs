//! Atomic operations on remote words (M15): locked processor instructions on registered memory.
//! Atomic against every other atomic and against aligned accesses of the host's processors; bulk writes may tear.
//! It refuses words that are not aligned, which the caller reports.

use core::sync::atomic::{AtomicU64, Ordering};

use verbena_wire::rdmap::AtomicOp;

use crate::grant::Placement;

/// Executes `op` on the first word of the grant and returns the value before; `None` if the word is not aligned.
pub fn execute(grant: &Placement<'_>, op: AtomicOp) -> Option<u64> {
    let word = grant.word()?;
    // SAFETY: the grant keeps the word mapped and writable until we are done, `word` is aligned, and everybody who
    // shares the word with us does so by atomic operations or takes the consequences (documented: aligned accesses of
    // processors are atomic, bulk copies may tear).
    let word = unsafe { AtomicU64::from_ptr(word) };
    Some(match op {
        AtomicOp::FetchAdd { add, mask: 0 } => word.fetch_add(add, Ordering::SeqCst),
        _ => update(word, op),
    })
}

/// The first word of the grant is aligned.
pub fn is_aligned(grant: &Placement<'_>) -> bool {
    grant.word().is_some()
}

fn update(word: &AtomicU64, op: AtomicOp) -> u64 {
    let mut original = word.load(Ordering::SeqCst);
    loop {
        let new = op.apply(original);
        if new == original {
            // Nothing to store; the value was read atomically.
            return original;
        }
        match word.compare_exchange_weak(original, new, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(before) => return before,
            Err(now) => original = now,
        }
    }
}

#[cfg(test)]
mod tests;
