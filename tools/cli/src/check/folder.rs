//! The folder into which checked processes write, only this user can; removed at the end. Files grow while they are read: the part after the last whole line is
//! kept for the next time.

use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::record::LONGEST;
use super::suppress::Suppressions;
use super::{Findings, MAX_PROCESSES};

/// Bytes of a file that are read at most.
const MAX_FILE: u64 = 64 << 20;
/// Bytes that are read at once.
const STEP: u64 = 1 << 20;

/// The folder.
pub struct Folder {
    path: PathBuf,
    changes: OwnedFd,
    /// How far each file has been read.
    read: HashMap<PathBuf, u64>,
}

impl Folder {
    /// Makes one for the reports of the programs that this process starts.
    pub fn create() -> io::Result<Folder> {
        let id = std::process::id();
        let base = std::path::absolute(std::env::temp_dir())?;
        for number in 0..100 {
            let path = base.join(format!("verbena-check-{id}-{number}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made?;
                    let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
                    let changes = inotify::init(flags)?;
                    let watched = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::ONLYDIR;
                    let folder = Folder {
                        path,
                        changes,
                        read: HashMap::new(),
                    };
                    inotify::add_watch(&folder.changes, &folder.path, watched)?;
                    return Ok(folder);
                }
            }
        }
        Err(io::Error::from(io::ErrorKind::AlreadyExists))
    }

    /// Its path, for the setting `check`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Readable when a file has changed.
    pub fn changes(&self) -> &OwnedFd {
        &self.changes
    }

    /// Forgets the changes until now; [`read`](Folder::read) follows.
    pub fn clear_changes(&self) {
        let mut events = [core::mem::MaybeUninit::uninit(); 4096];
        while rustix::io::read(&self.changes, &mut events[..])
            .is_ok_and(|(some, _)| !some.is_empty())
        {}
    }

    /// Reads what is new; the indices of new findings.
    pub fn read(
        &mut self,
        findings: &mut Findings,
        rules: &mut Suppressions,
    ) -> io::Result<Vec<usize>> {
        let mut new = Vec::new();
        let entries = std::fs::read_dir(&self.path)?.take(2 * MAX_PROCESSES);
        let mut files: Vec<PathBuf> = entries
            .map_while(Result::ok)
            .map(|entry| entry.path())
            .collect();
        files.sort_unstable();
        for path in files {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let Some(pid) = stem.and_then(|stem| stem.parse().ok()) else {
                continue;
            };
            let from = self.read.entry(path.clone()).or_default();
            // A file that cannot be read any more has nothing new.
            while let Ok((bytes, len)) = whole_lines(&path, *from) {
                let Some(len) = core::num::NonZeroU64::new(len) else {
                    break;
                };
                *from += len.get();
                let lines = bytes.split(|byte| *byte == b'\n');
                for line in lines.filter(|line| !line.is_empty()) {
                    new.extend(findings.add(pid, line, rules));
                }
            }
        }
        Ok(new)
    }
}

/// The whole lines from an offset on, and how many bytes are done with.
fn whole_lines(path: &Path, from: u64) -> io::Result<(Vec<u8>, u64)> {
    if from >= MAX_FILE {
        return Ok((Vec::new(), 0));
    }
    let mut options = File::options();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.read(true).custom_flags(flags.bits().cast_signed());
    let mut file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Ok((Vec::new(), 0));
    }
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(STEP).read_to_end(&mut bytes)?;
    let end = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map(|at| at + 1);
    match end {
        Some(end) => bytes.truncate(end),
        // A line without an end that is too long is not kept.
        None if bytes.len() > LONGEST => {}
        None => bytes.clear(),
    }
    let len = bytes.len() as u64;
    Ok((bytes, len))
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
