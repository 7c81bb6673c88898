//! Call stacks as return addresses, and the files that these lie in. Frames of this library at the top are left out. Functions and lines are looked up by
//! the command, outside of the program.

use core::ffi::c_void;
use core::ops::Range;
use std::sync::OnceLock;

/// Frames of a stack that are kept.
const DEPTH: usize = 24;
/// Frames of this library above them, at most.
const OWN: usize = 16;

/// Return addresses, the innermost first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Stack(Box<[usize]>);

/// A frame: a file, and the offset from where it is mapped.
pub(super) struct Frame {
    pub(super) file: String,
    pub(super) offset: usize,
}

impl Stack {
    /// The stack of the calling thread.
    pub(super) fn capture() -> Stack {
        let mut all = [core::ptr::null_mut::<c_void>(); DEPTH + OWN];
        // SAFETY: `all` has room for as many addresses as the second argument says.
        let count = unsafe { libc::backtrace(all.as_mut_ptr(), all.len() as i32) };
        let count = usize::try_from(count).unwrap_or(0).min(all.len());
        let own = own_range();
        let frames = all[..count].iter().map(|at| *at as usize);
        let frames = frames.skip_while(|at| own.contains(at)).take(DEPTH);
        Stack(frames.collect())
    }

    /// Whether this library made the call, below a preloaded function.
    pub(super) fn is_called_by_library(&self) -> bool {
        let own = own_range();
        self.0.iter().take(3).any(|at| own.contains(at))
    }

    /// The files of its frames.
    pub(super) fn frames(&self) -> Vec<Frame> {
        let maps = Mapping::all();
        self.0.iter().map(|at| frame(&maps, *at)).collect()
    }
}

fn frame(maps: &[Mapping], at: usize) -> Frame {
    let found = maps.iter().find(|map| map.range.contains(&at));
    match found.filter(|map| map.path.starts_with('/')) {
        Some(map) => {
            // The first mapping of the file is where offset 0 is.
            let first = maps.iter().filter(|other| {
                other.path == map.path && other.offset == 0 && other.range.start <= at
            });
            let base = first.map(|map| map.range.start).max();
            Frame {
                file: map.path.clone(),
                offset: at - base.unwrap_or(map.range.start - map.offset.min(map.range.start)),
            }
        }
        None => Frame {
            file: String::new(),
            offset: at,
        },
    }
}

/// Addresses of this library.
fn own_range() -> &'static Range<usize> {
    static OWN: OnceLock<Range<usize>> = OnceLock::new();
    OWN.get_or_init(|| {
        let (maps, at) = (Mapping::all(), own_range as *const () as usize);
        let own = maps.iter().find(|map| map.range.contains(&at));
        let Some(own) = own.filter(|map| !map.path.is_empty()) else {
            return 0..0;
        };
        let same = || maps.iter().filter(|map| map.path == own.path);
        let start = same().map(|map| map.range.start).min();
        let end = same().map(|map| map.range.end).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    })
}

/// A line of `/proc/self/maps`.
struct Mapping {
    range: Range<usize>,
    offset: usize,
    path: String,
}

impl Mapping {
    fn all() -> Vec<Mapping> {
        let text = std::fs::read("/proc/self/maps").unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().filter_map(Mapping::parse).collect()
    }

    /// Parses `start-end rights offset device inode path`.
    fn parse(line: &str) -> Option<Mapping> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text: &str| usize::from_str_radix(text, 16).ok();
        let (_, offset) = (words.next()?, words.next()?);
        let path = words.nth(2).unwrap_or("").trim_start();
        Some(Mapping {
            range: hex(start)?..hex(end)?,
            offset: hex(offset)?,
            path: path.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_line_has_range_offset_and_path() {
        let line = "7f0000001000-7f0000002000 r-xp 00001000 08:01 1234                       /usr/lib/a file.so (deleted)";
        let map = Mapping::parse(line).unwrap();
        assert_eq!(map.range, 0x7f00_0000_1000..0x7f00_0000_2000);
        assert_eq!(map.offset, 0x1000);
        assert_eq!(map.path, "/usr/lib/a file.so (deleted)");
        let anonymous = "7ffd0000-7ffe0000 rw-p 00000000 00:00 0 ";
        assert_eq!(Mapping::parse(anonymous).unwrap().path, "");
    }

    #[test]
    fn frame_is_relative_to_the_first_mapping_of_its_file() {
        let lines = [
            "1000-2000 r--p 00000000 08:01 1 /a",
            "2000-3000 r-xp 00001000 08:01 1 /a",
        ];
        let maps: Vec<_> = lines.iter().filter_map(|l| Mapping::parse(l)).collect();
        let frame = frame(&maps, 0x2010);
        assert_eq!((frame.file.as_str(), frame.offset), ("/a", 0x1010));
    }
}
