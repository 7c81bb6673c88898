//! Is this memory really there? Registration asks before it promises anything to a peer.
//! It faults the pages in, for reading or for writing, so that unmapped or read-only memory is an error now and not a crash later.
//! It refuses to keep them there: what the program unmaps afterwards is the program's fault.

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use crate::att::Att;
use crate::refusal::Misuse;
use crate::span::Span;

const PAGE: usize = 4096;

/// Checks that a span is mapped, and writable if `write`.
pub fn mapped(span: &Span, write: bool) -> Result<(), Misuse> {
    let (at, len) = (span.as_ptr() as usize, span.len());
    let unmapped = Misuse::Unmapped { at, len, write };
    if len == 0 {
        return Ok(());
    }
    let start = at & !(PAGE - 1);
    let end = at.checked_add(len).ok_or(unmapped)?;
    let advice = if write {
        Advice::LinuxPopulateWrite
    } else {
        Advice::LinuxPopulateRead
    };
    // SAFETY: populating changes no byte and frees nothing; for an address that is not ours to touch the kernel
    // answers with an error.
    let answer = unsafe { madvise(start as *mut _, end - start, advice) };
    match answer {
        Ok(()) => Ok(()),
        // A kernel before 5.14 does not know the advice: ask the list of mappings instead.
        Err(Errno::INVAL) => listed(start, end, write).then_some(()).ok_or(unmapped),
        Err(_) => Err(unmapped),
    }
}

/// The same for all that a translation leads to.
pub fn all_mapped(att: &Att, write: bool) -> Result<(), Misuse> {
    att.runs().try_for_each(|span| mapped(&span, write))
}

/// Does the list of this process's mappings cover `start..end` with the right to read, or to write?
fn listed(start: usize, end: usize, write: bool) -> bool {
    match std::fs::read_to_string("/proc/self/maps") {
        Ok(maps) => covers(&maps, start, end, write),
        Err(_) => false,
    }
}

fn covers(maps: &str, start: usize, end: usize, write: bool) -> bool {
    let mut at = start;
    for line in maps.lines() {
        let Some((range, rest)) = line.split_once(' ') else {
            continue;
        };
        let Some((low, high)) = range.split_once('-') else {
            continue;
        };
        let (Ok(low), Ok(high)) = (
            usize::from_str_radix(low, 16),
            usize::from_str_radix(high, 16),
        ) else {
            continue;
        };
        let rights = rest.as_bytes();
        let allowed = rights.first() == Some(&b'r') && (!write || rights.get(1) == Some(&b'w'));
        if low <= at && at < high && allowed {
            at = high;
        }
        if at >= end {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests;
