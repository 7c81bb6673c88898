//! Functions and lines of frames, from the symbols and the debugging information of the files that they lie in. Files are read here and not in the program; only
//! regular files are opened, each once. Without symbols a frame is a file and an offset.

use core::fmt;
use std::collections::HashMap;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use addr2line::Loader;
use serde_json::{Value, json};

use super::record::Frame;
use crate::events::printable;

/// Files whose symbols are kept at most.
const MOST_FILES: usize = 256;
/// Functions of the C library from which programs and threads begin.
const BELOW: [&str; 4] = ["__libc_start_main", "start_thread", "clone", "__clone"];
/// Inlined functions of one address at most.
const MOST_INLINED: usize = 16;

/// Where a frame is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The function, if it is known.
    pub function: Option<String>,
    /// Source file and line, if they are known.
    pub line: Option<(String, u32)>,
    /// The program or library.
    pub object: String,
    /// The offset in it.
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.function {
            Some(function) => write!(f, "{function}")?,
            None => f.write_str("?")?,
        }
        match &self.line {
            Some((file, line)) => write!(f, " ({file}:{line})"),
            None => write!(f, " ({}+{:#x})", self.object, self.offset),
        }
    }
}

impl Place {
    /// The place as an object.
    pub fn json(&self) -> Value {
        json!({
            "function": self.function,
            "file": self.line.as_ref().map(|(file, _)| file),
            "line": self.line.as_ref().map(|(_, line)| line),
            "object": self.object,
            "offset": self.offset,
        })
    }
}

/// The symbols of one file.
struct Symbolized {
    loader: Loader,
    /// The address in the file that is mapped first.
    first: u64,
}

/// The symbols of the files that were needed.
#[derive(Default)]
pub struct Symbols(HashMap<String, Option<Symbolized>>);

impl Symbols {
    /// The places of a stack, up to `main`.
    pub fn places(&mut self, frames: &[Frame]) -> Vec<Place> {
        let mut all = Vec::new();
        for frame in frames {
            all.extend(self.places_of(frame));
            let last: Option<&Place> = all.last();
            match last.and_then(|place| place.function.as_deref()) {
                Some("main") => break,
                // What is below a program without symbols, or a thread.
                Some(name) if BELOW.iter().any(|below| name.starts_with(below)) => {
                    let object = all.pop().map(|place| place.object).unwrap_or_default();
                    while all.last().is_some_and(|place| place.object == object) {
                        all.pop();
                    }
                    break;
                }
                _ => {}
            }
        }
        all
    }

    /// The function of a frame, after those that were inlined into it.
    fn places_of(&mut self, frame: &Frame) -> Vec<Place> {
        let unknown = Place {
            function: None,
            line: None,
            object: printable(&frame.file),
            offset: frame.offset,
        };
        let Some(known) = self.file(&frame.file) else {
            return vec![unknown];
        };
        // A return address: the call is before it.
        let at = (frame.offset.saturating_sub(1)).saturating_add(known.first);
        let mut all = Vec::new();
        if let Ok(mut frames) = known.loader.find_frames(at) {
            while let Ok(Some(inner)) = frames.next()
                && all.len() < MOST_INLINED
            {
                let name = inner.function.as_ref().and_then(|function| {
                    let name = function.demangle().ok()?;
                    Some(printable(&name))
                });
                let line = inner.location.as_ref().and_then(|location| {
                    let file = Path::new(location.file?).file_name()?.to_string_lossy();
                    Some((printable(&file), location.line?))
                });
                all.push(Place {
                    function: name,
                    line,
                    ..unknown.clone()
                });
            }
        }
        let symbol = || {
            let name = known.loader.find_symbol(at)?;
            Some(printable(&addr2line::demangle_auto(name.into(), None)))
        };
        match all.last_mut() {
            Some(outer) if outer.function.is_none() => outer.function = symbol(),
            Some(_) => {}
            None => all.push(Place {
                function: symbol(),
                ..unknown
            }),
        }
        all
    }

    fn file(&mut self, path: &str) -> Option<&Symbolized> {
        if !self.0.contains_key(path) {
            if self.0.len() >= MOST_FILES {
                return None;
            }
            self.0.insert(path.to_owned(), load(path));
        }
        self.0.get(path)?.as_ref()
    }
}

fn load(path: &str) -> Option<Symbolized> {
    let path = Path::new(path);
    if !path.is_absolute() || !path.metadata().ok()?.is_file() {
        return None;
    }
    Some(Symbolized {
        first: first_address(path)?,
        loader: Loader::new(path).ok()?,
    })
}

/// The address of the first loaded segment of an ELF file: 0 but for programs that are not position independent.
fn first_address(path: &Path) -> Option<u64> {
    const HEADER: usize = 64;
    const ENTRY: usize = 56;
    const LOAD: u64 = 1;
    // The file may have become another one since it was looked at: opening a pipe must not wait.
    let mut options = std::fs::File::options();
    let options = options.read(true);
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits();
    let file = options
        .custom_flags(i32::try_from(nonblocking).ok()?)
        .open(path)
        .ok()?;
    let mut bytes = Vec::new();
    file.take(64 << 10).read_to_end(&mut bytes).ok()?;
    let number = |at: usize, len: usize| -> Option<u64> {
        let mut value = [0; 8];
        value[..len].copy_from_slice(bytes.get(at..at.checked_add(len)?)?);
        Some(u64::from_le_bytes(value))
    };
    // 64 bits, little-endian.
    if bytes.get(..6)? != b"\x7fELF\x02\x01" || bytes.len() < HEADER {
        return None;
    }
    let (table, count) = (usize::try_from(number(32, 8)?).ok()?, number(56, 2)?);
    for entry in 0..usize::try_from(count).ok()? {
        let at = table.checked_add(entry * ENTRY)?;
        if number(at, 4)? == LOAD {
            return number(at.checked_add(16)?, 8);
        }
    }
    None
}
