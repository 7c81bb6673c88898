//! Checks of memory before registration: mapped, readable and, for rights that write, writable.
//! The check reads the process's list of mappings and does not touch the pages: registering allocates no memory. Unmapped or
//! read-only memory is an error here instead of a fault in the middle of a transfer; memory that is unmapped afterwards is not checked again,
//! and memory that is registered on demand is not checked at all.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use crate::att::Att;
use crate::refusal::Misuse;
use crate::span::Span;

const PAGE: usize = 4096;
const MAPS: &str = "/proc/self/maps";

/// `PROCMAP_QUERY` of `linux/fs.h` (Linux 6.11): `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
const VMA_READABLE: u64 = 1;
const VMA_WRITABLE: u64 = 2;

/// `struct procmap_query`, without the name and the build ID that it can also return.
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev: [u32; 2],
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// One mapping of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Vma {
    start: usize,
    end: usize,
    read: bool,
    write: bool,
    /// It maps a file, which may be shorter than the mapping.
    file: bool,
}

/// The list of mappings cannot be read this way.
struct Unreadable;

/// Checks that a span is mapped, and writable if `write`.
pub fn check_mapped(span: &Span, write: bool) -> Result<(), Misuse> {
    let (at, len) = (span.as_ptr() as usize, span.len());
    let unmapped = Misuse::Unmapped { at, len, write };
    if len == 0 {
        return Ok(());
    }
    let end = at.checked_add(len).ok_or(unmapped)?;
    let is_mapped = query_maps(at, end, write)
        .or_else(|Unreadable| read_maps(at, end, write))
        // Neither a descriptor nor /proc is available: ask for the pages themselves.
        .unwrap_or_else(|Unreadable| is_populated(at, end, write));
    is_mapped.then_some(()).ok_or(unmapped)
}

/// The same for all runs of a translation.
pub fn check_all_mapped(att: &Att, write: bool) -> Result<(), Misuse> {
    if att.is_on_demand() {
        return Ok(());
    }
    att.runs().try_for_each(|span| check_mapped(&span, write))
}

/// Faults the pages of a span in, for reading or for writing, as an access would do; fails if one of them is not mapped so. Before Linux 5.14
/// and for mappings of devices nothing is done, which succeeds.
pub fn populate(span: &Span, write: bool) -> Result<(), Misuse> {
    // For rights that a mapping does not have, the kernel's answer is that of a device's mapping.
    check_mapped(span, write)?;
    let (at, len) = (span.as_ptr() as usize, span.len());
    let done = len == 0 || is_populated(at, at + len, write);
    done.then_some(())
        .ok_or(Misuse::Unmapped { at, len, write })
}

/// Asks the kernel for each mapping in `start..end`.
fn query_maps(start: usize, end: usize, write: bool) -> Result<bool, Unreadable> {
    // Opened each time: a descriptor that is kept would show a forked child its parent's mappings.
    let maps = File::open(MAPS).map_err(|_| Unreadable)?;
    is_covered(start, end, write, |at| {
        let mut query = ProcmapQuery {
            size: size_of::<ProcmapQuery>() as u64,
            query_addr: at as u64,
            ..ProcmapQuery::default()
        };
        // SAFETY: `maps` is open, and the kernel writes within the `size` bytes of `query`.
        let done = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
        match done {
            0 => Ok(Some(Vma {
                start: query.vma_start as usize,
                end: query.vma_end as usize,
                read: query.vma_flags & VMA_READABLE != 0,
                write: query.vma_flags & VMA_WRITABLE != 0,
                file: query.inode != 0,
            })),
            _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT) => Ok(None),
            _ => Err(Unreadable),
        }
    })
}

/// The same on kernels before 6.11, by reading the list up to `end`.
fn read_maps(start: usize, end: usize, write: bool) -> Result<bool, Unreadable> {
    let maps = File::open(MAPS).map_err(|_| Unreadable)?;
    let mut lines = BufReader::new(maps).lines();
    is_covered(start, end, write, |at| {
        for line in lines.by_ref() {
            match parse_vma(&line.map_err(|_| Unreadable)?) {
                Some(vma) if vma.end <= at => {}
                // In the order of their addresses.
                Some(vma) => return Ok(Some(vma)),
                None => return Err(Unreadable),
            }
        }
        Ok(None)
    })
}

/// A line of the list: `start-end rights offset device inode name`.
fn parse_vma(line: &str) -> Option<Vma> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?.as_bytes();
    let inode = fields.nth(2)?;
    Some(Vma {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        read: rights.first() == Some(&b'r'),
        write: rights.get(1) == Some(&b'w'),
        file: inode != "0",
    })
}

/// Mappings cover `start..end`; `find` returns the first that ends behind an address.
fn is_covered(
    start: usize,
    end: usize,
    write: bool,
    mut find: impl FnMut(usize) -> Result<Option<Vma>, Unreadable>,
) -> Result<bool, Unreadable> {
    let mut at = start;
    while at < end {
        let Some(vma) = find(at)?.filter(|vma| vma.start <= at && at < vma.end) else {
            return Ok(false);
        };
        at = vma.end.min(end);
        // If the file reaches to the last page, it has those before.
        if !vma.read || (write && !vma.write) || (vma.file && !is_populated(at - 1, at, false)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The pages of `start..end` can be faulted in, for reading or for writing; unknown before Linux 5.14 and for mappings of devices, and
/// then yes.
fn is_populated(start: usize, end: usize, write: bool) -> bool {
    let start = start & !(PAGE - 1);
    let advice = if write {
        Advice::LinuxPopulateWrite
    } else {
        Advice::LinuxPopulateRead
    };
    // SAFETY: populating changes no byte and frees nothing; for an address that is not mapped or not accessible the kernel
    // returns an error.
    let answer = unsafe { madvise(start as *mut _, end - start, advice) };
    matches!(answer, Ok(()) | Err(Errno::INVAL))
}

#[cfg(test)]
mod tests;
