//! Reads memory of the program that it may unmap at any moment: by the kernel, which answers with an error instead of a signal. Snapshots of buffers
//! are copies while these take less than [`MOST_COPIED`], and hashes of blocks beyond that.

use core::fmt;
use core::hash::Hasher;
use core::sync::atomic::{AtomicUsize, Ordering};

use rustc_hash::FxHasher;

/// Bytes of copies at most.
const MOST_COPIED: usize = 256 << 20;
/// The longest buffer of which a copy is kept.
const LONGEST_COPY: usize = 1 << 20;
/// Bytes that one hash is of.
const BLOCK: usize = 256;
/// Bytes that are read at once.
const STEP: usize = 64 << 10;

/// Some of the memory is not mapped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unmapped;

/// Memory of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) len: usize,
}

/// Copies memory of this process; `Ok(false)` if the system does not allow it, and the memory is then not known to be unmapped.
fn read(at: usize, to: &mut [u8]) -> Result<bool, Unmapped> {
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    };
    let remote = libc::iovec {
        iov_base: at as *mut _,
        iov_len: to.len(),
    };
    // SAFETY: `local` describes `to`, which is valid for writes; addresses of `remote` are checked by the kernel.
    let got = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    if usize::try_from(got) == Ok(to.len()) {
        return Ok(true);
    }
    let refused = got < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT);
    if refused { Ok(false) } else { Err(Unmapped) }
}

/// The content of a buffer at some moment.
#[derive(Debug, Default)]
pub(super) enum Snapshot {
    /// Nothing is known.
    #[default]
    None,
    Copy(Copied),
    Hashes(Box<[u64]>),
}

/// Bytes that count towards [`MOST_COPIED`].
#[derive(Debug)]
pub(super) struct Copied(Box<[u8]>);

static COPIED: AtomicUsize = AtomicUsize::new(0);

impl Drop for Copied {
    fn drop(&mut self) {
        COPIED.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

fn hash(block: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(block);
    hasher.finish()
}

impl Snapshot {
    pub(super) fn take(span: Span) -> Result<Snapshot, Unmapped> {
        let len = span.len;
        let before = COPIED.fetch_add(len, Ordering::Relaxed);
        if len <= LONGEST_COPY && before + len <= MOST_COPIED {
            let mut copied = Copied(vec![0; len].into());
            return Ok(match read(span.start, &mut copied.0)? {
                true => Snapshot::Copy(copied),
                false => Snapshot::None,
            });
        }
        COPIED.fetch_sub(len, Ordering::Relaxed);
        let mut hashes = Vec::with_capacity(len.div_ceil(BLOCK));
        let known = steps(span, |_, bytes| {
            hashes.extend(bytes.chunks(BLOCK).map(hash));
            true
        })?;
        Ok(match known {
            true => Snapshot::Hashes(hashes.into()),
            false => Snapshot::None,
        })
    }

    /// The first byte from `from` on that is different now.
    pub(super) fn first_change(&self, span: Span, from: usize) -> Result<Option<Change>, Unmapped> {
        let mut found = None;
        // Whole blocks, so that hashes are comparable.
        let begin = (from - from % BLOCK).min(span.len);
        let rest = Span {
            start: span.start + begin,
            len: span.len - begin,
        };
        steps(rest, |at, bytes| {
            let at = begin + at;
            found = match self {
                Snapshot::None => None,
                Snapshot::Copy(Copied(before)) => {
                    let skipped = from.saturating_sub(at).min(bytes.len());
                    let (now, then) = (&bytes[skipped..], &before[at + skipped..at + bytes.len()]);
                    let position = || now.iter().zip(then).position(|(now, then)| now != then);
                    let changed = if now == then { None } else { position() };
                    changed.map(|n| Change {
                        at: at + skipped + n,
                        values: Some((then[n], now[n])),
                    })
                }
                Snapshot::Hashes(before) => {
                    let blocks = (at..).step_by(BLOCK).zip(bytes.chunks(BLOCK));
                    let mut later = blocks.filter(|(at, _)| *at >= from);
                    let changed =
                        later.find(|(at, block)| before.get(at / BLOCK) != Some(&hash(block)));
                    changed.map(|(at, _)| Change { at, values: None })
                }
            };
            found.is_none()
        })?;
        Ok(found)
    }
}

/// A byte that is not what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// The position, or that of its block.
    pub(super) at: usize,
    /// The byte before and now; none if only the block is known.
    pub(super) values: Option<(u8, u8)>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.values {
            Some((before, now)) => {
                write!(f, "byte {} was {before:#04x} and is {now:#04x}", self.at)
            }
            None => write!(f, "one of the {BLOCK} bytes from {}", self.at),
        }
    }
}

/// Reads a span step by step until `each` says that it has seen enough; false if it cannot be read, though it may be mapped.
fn steps(span: Span, mut each: impl FnMut(usize, &[u8]) -> bool) -> Result<bool, Unmapped> {
    let mut buffer = vec![0; span.len.min(STEP)];
    let mut at = 0;
    while at < span.len {
        let len = STEP.min(span.len - at);
        if !read(span.start + at, &mut buffer[..len])? {
            return Ok(false);
        }
        if !each(at, &buffer[..len]) {
            break;
        }
        at += len;
    }
    Ok(true)
}

/// Whether each page of a span is mapped.
pub(super) fn is_mapped(span: Span) -> bool {
    const PAGES: usize = 4096;
    // SAFETY: `sysconf` has no preconditions.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let (mut at, end) = (
        span.start & !(page - 1),
        span.start.saturating_add(span.len),
    );
    let mut residency = [0_u8; PAGES];
    while at < end {
        let len = (end - at).min(PAGES * page);
        // SAFETY: `residency` has a byte for each of the at most `PAGES` pages; the addresses are checked by the kernel.
        let known = unsafe { libc::mincore(at as *mut _, len, residency.as_mut_ptr()) };
        if known != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOMEM) {
            return false;
        }
        at += len;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(bytes: &[u8]) -> Span {
        Span {
            start: bytes.as_ptr() as usize,
            len: bytes.len(),
        }
    }

    #[test]
    fn first_changed_byte_is_found() {
        for len in [100, 200_000, LONGEST_COPY + 5000] {
            let mut bytes = vec![7_u8; len];
            let at = span(&bytes);
            let before = Snapshot::take(at).unwrap();
            assert_eq!(before.first_change(at, 0).unwrap(), None);
            bytes[90] = 8;
            bytes[len - 1] = 8;
            let first = before.first_change(span(&bytes), 0).unwrap().unwrap();
            let exact = Change {
                at: 90,
                values: Some((7, 8)),
            };
            assert!(first == exact || (first.at == 0 && first.values.is_none()));
            let from = 91.max(len.saturating_sub(300));
            let last = before.first_change(span(&bytes), from).unwrap().unwrap();
            assert!(last.at < len && last.at + BLOCK >= len, "{last}");
        }
    }

    #[test]
    fn unmapped_memory_is_an_error() {
        let nowhere = Span {
            start: 4096,
            len: 64,
        };
        assert_eq!(Snapshot::take(nowhere).unwrap_err(), Unmapped);
        assert!(!is_mapped(nowhere));
        assert!(is_mapped(span(&[1, 2, 3])));
    }
}
