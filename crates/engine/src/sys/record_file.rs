//! A small file of text records that outlives the process: slots of one size, each a line, in the user's runtime directory.
//! A record is written by one pwrite(2) without waiting for a disk, so that it is there even if the process is killed a moment later. The file is
//! removed when the process exits; if it is to be kept, its last record tells that the process was not killed. Files of earlier processes are removed after a day, and the oldest if there are too many.

use core::sync::atomic::{AtomicBool, Ordering};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use verbena_events::event::has_unhandled_failures;
use verbena_sync::locks::Mutex;

use super::{effective_uid, fork_count, runtime, watch_forks};

/// How the names of these files begin; the process id, `-` and its start time in clock ticks since boot follow.
pub const PREFIX: &str = "failures-";
/// Bytes of a record, its newline included.
pub const SLOT: usize = 1024;
/// Records of a file.
pub const SLOTS: usize = 64;
/// How long a file is kept after its last record.
pub const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Files of one user that are kept at most.
pub const MAX_FILES: usize = 64;
/// Names that are examined at most.
const MAX_EXAMINED: usize = 4096;

/// The record of a process that exited, in the last slot.
pub const EXITED: &str = "exited";

/// The file at the exit of the process, with the fork count of the process that made it, and whether it is kept.
static AT_EXIT: Mutex<Option<(u64, PathBuf, bool)>> = Mutex::new(None);
static HANDLER: AtomicBool = AtomicBool::new(false);

/// A file that is being written.
#[derive(Debug)]
pub struct RecordFile {
    /// Opened for each record: a program that closes descriptors which it did not open must not get records into its own files.
    path: PathBuf,
    /// The fork count of the process that made it: a child does not write it.
    forks: u64,
}

impl RecordFile {
    /// Makes the file of this process in the runtime directory. Too many or old ones of others are removed first.
    pub fn create() -> std::io::Result<RecordFile> {
        RecordFile::create_in(&runtime::directory()?)
    }

    fn create_in(folder: &Path) -> std::io::Result<RecordFile> {
        remove_old(folder, SystemTime::now(), MAX_FILES - 1);
        let pid = std::process::id();
        let started = start_time(pid).unwrap_or(0);
        let path = folder.join(format!("{PREFIX}{pid}-{started}"));
        // A file with this name was left by this process under another engine.
        open(&path, OpenOptions::new().create(true).truncate(true))?;
        let forks = watch_forks();
        *AT_EXIT.lock() = Some((forks, path.clone(), false));
        if !HANDLER.swap(true, Ordering::AcqRel) {
            // SAFETY: `end_at_exit` can be called at any time. Without memory `atexit` fails, and the file is left for the next process.
            unsafe { libc::atexit(end_at_exit) };
        }
        Ok(RecordFile { path, forks })
    }

    /// Writes a record; what does not fit its slot is cut off, and a line is a line whatever it contains.
    pub fn write(&self, slot: usize, text: &str) -> std::io::Result<()> {
        if fork_count() != self.forks || slot >= SLOTS {
            return Ok(());
        }
        let file = open(&self.path, &mut OpenOptions::new())?;
        file.write_all_at(&record(text), (slot * SLOT) as u64)
    }

    /// The file stays when the process ends.
    pub fn keep(&self) {
        if let Some((_, path, kept)) = &mut *AT_EXIT.lock() {
            *kept |= *path == self.path;
        }
    }
}

/// Opens a file for writing; a link is not followed.
fn open(path: &Path, options: &mut OpenOptions) -> std::io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    options
        .write(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
}

/// The text as the content of a slot: one line, padded with spaces.
fn record(text: &str) -> [u8; SLOT] {
    let mut slot = [b' '; SLOT];
    let mut end = text.len().min(SLOT - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in slot.iter_mut().zip(&text.as_bytes()[..end]) {
        *to = if from.is_ascii_control() { b' ' } else { *from };
    }
    slot[SLOT - 1] = b'\n';
    slot
}

/// How long the end of a process waits for failures that other threads are recording: a program may end as soon as it has polled a
/// completion with an error.
const EXIT_WAIT: Duration = Duration::from_millis(200);

extern "C" fn end_at_exit() {
    let is_own = |file: &Option<(u64, PathBuf, bool)>| {
        let own = file.as_ref();
        own.is_some_and(|(forks, ..)| *forks == fork_count())
    };
    // Those threads do not exist in a forked child.
    if AT_EXIT.try_lock().is_some_and(|file| is_own(&file)) {
        super::wait(super::now() + EXIT_WAIT, || !has_unhandled_failures());
    }
    // Another thread that holds the lock is not waited for: in a forked child it does not exist.
    if let Some(mut file) = AT_EXIT.try_lock()
        && let Some((forks, path, kept)) = file.take()
        && forks == fork_count()
    {
        if kept && let Ok(file) = open(&path, &mut OpenOptions::new()) {
            let _ = file.write_all_at(&record(EXITED), ((SLOTS - 1) * SLOT) as u64);
        } else {
            let _ = fs::remove_file(path);
        }
    }
}

/// The start time of a process in clock ticks since boot; with its id it identifies the process.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything; 20 fields lie between its end and the start time.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(19)?.parse().ok()
}

/// The process id and start time in a file's name.
pub fn process_of(name: &str) -> Option<(u32, u64)> {
    let (pid, started) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((pid.parse().ok()?, started.parse().ok()?))
}

/// Removes files whose last record is too old, and the oldest so that `most` are left. Those of running processes are left alone, unless they are
/// too many.
fn remove_old(folder: &Path, now: SystemTime, most: usize) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut found = Vec::new();
    for entry in entries.take(MAX_EXAMINED).flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(process_of);
        let is = entry
            .metadata()
            .ok()
            .filter(|is| is.uid() == effective_uid());
        if let (Some((pid, started)), Some(is)) = (process, is)
            && let Ok(written) = is.modified()
        {
            let age = now.duration_since(written).unwrap_or_default();
            let runs = start_time(pid) == Some(started);
            if age > KEPT && !runs {
                let _ = fs::remove_file(entry.path());
            } else {
                found.push((runs, written, entry.path()));
            }
        }
    }
    found.sort();
    let surplus = found.len().saturating_sub(most);
    for (_, _, path) in found.iter().take(surplus) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Folder {
            let name = format!("verbena-records-{}-{test}", std::process::id());
            let folder = Folder(std::env::temp_dir().join(name));
            fs::create_dir(&folder.0).unwrap();
            folder
        }

        fn count(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn record_is_one_line_of_fixed_size() {
        let folder = Folder::new("line");
        let file = RecordFile::create_in(&folder.0).unwrap();
        file.write(1, "a\nb\u{1b}[2J").unwrap();
        file.write(0, &"ü".repeat(SLOT)).unwrap();
        file.write(SLOTS, "beyond the end").unwrap();
        let bytes = fs::read(&file.path).unwrap();
        assert_eq!(bytes.len(), 2 * SLOT);
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].trim_end(), "ü".repeat((SLOT - 1) / 2));
        assert_eq!(lines[1].trim_end(), "a b [2J");
        let mode = fs::metadata(&file.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn name_identifies_the_process() {
        let folder = Folder::new("name");
        let file = RecordFile::create_in(&folder.0).unwrap();
        let name = file.path.file_name().unwrap().to_str().unwrap();
        let pid = std::process::id();
        let started = start_time(pid).unwrap();
        assert_eq!(process_of(name), Some((pid, started)));
        for wrong in ["failures-", "failures-1", "failures-x-1", "sockets-1-1"] {
            assert_eq!(process_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn old_and_surplus_files_are_removed() {
        let folder = Folder::new("old");
        // No process has this id.
        for started in 0..5 {
            let name = format!("{PREFIX}4194305-{started}");
            fs::write(folder.0.join(name), "").unwrap();
        }
        fs::write(folder.0.join("other"), "").unwrap();
        remove_old(&folder.0, SystemTime::now(), 3);
        assert_eq!(folder.count(), 4, "three, and the other one");
        let tomorrow = SystemTime::now() + KEPT + Duration::from_secs(60);
        let _own = RecordFile::create_in(&folder.0).unwrap();
        remove_old(&folder.0, tomorrow, 3);
        assert_eq!(folder.count(), 2, "that of a running process stays");
    }

    #[test]
    fn link_is_not_followed() {
        let folder = Folder::new("link");
        let pid = std::process::id();
        let name = format!("{PREFIX}{pid}-{}", start_time(pid).unwrap());
        let target = folder.0.join("target");
        fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, folder.0.join(name)).unwrap();
        assert!(RecordFile::create_in(&folder.0).is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    }
}
