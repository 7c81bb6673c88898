//! What ended processes of this user left: the files of `crates/engine/src/sys/record_file.rs`, read as strictly as what arrives over a socket.
//! A file counts only if it is a regular one of this user, of limited size and not older than a day.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

use verbena::unstable::monitor::files::{
    EXITED, KEPT, MAX_FILES, SLOT, SLOTS, folders, process_of, start_time,
};

use crate::events::printable;
use crate::objects::Object;

/// Names of a folder that are examined at most.
const MAX_EXAMINED: usize = 4096;

/// What a process left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// It has not ended.
    pub runs: bool,
    /// Connections that were not closed.
    pub connections: Vec<Object>,
    /// Failures, oldest first.
    pub failures: Vec<Object>,
}

/// What processes of this user left, or the one with this id.
pub fn left(pid: Option<u32>) -> Vec<Left> {
    let mut all = Vec::new();
    for folder in folders() {
        all.extend(left_in(&folder, pid, SystemTime::now()));
    }
    all
}

fn left_in(folder: &Path, wanted: Option<u32>, now: SystemTime) -> Vec<Left> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.take(MAX_EXAMINED).flatten() {
        let name = entry.file_name();
        let Some((pid, started)) = name.to_str().and_then(process_of) else {
            continue;
        };
        if wanted.is_none_or(|wanted| wanted == pid)
            && let Some(text) = read(&entry.path(), now)
        {
            let runs = start_time(pid) == Some(started);
            found.push((started, parse(pid, runs, &text)));
        }
        if found.len() >= MAX_FILES {
            break;
        }
    }
    found.sort_by_key(|(started, left)| (*started, left.pid));
    found.into_iter().map(|(_, left)| left).collect()
}

/// The content of a file, if it may be trusted as far as its size and its owner go.
fn read(path: &Path, now: SystemTime) -> Option<String> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).ok()?;
    let file = File::options()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    let is = file.metadata().ok()?;
    let age = now.duration_since(is.modified().ok()?).unwrap_or_default();
    let ours = is.uid() == rustix::process::geteuid().as_raw();
    if !is.is_file() || !ours || age > KEPT {
        return None;
    }
    let mut bytes = Vec::new();
    file.take((SLOT * SLOTS) as u64)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
}

fn parse(pid: u32, runs: bool, text: &str) -> Left {
    let mut left = Left {
        pid,
        program: "?".to_owned(),
        runs,
        connections: Vec::new(),
        failures: Vec::new(),
    };
    let mut exited = false;
    for line in text.lines().take(SLOTS) {
        let line = line.trim();
        if line == EXITED {
            exited = true;
        }
        let Some(object) = Object::parse(0, line) else {
            continue;
        };
        match object.kind.as_str() {
            "process" => left.program = printable(object.get("cause").unwrap_or("?")),
            "connection" => left.connections.push(object),
            "failure" => left.failures.push(object),
            _ => {}
        }
    }
    if exited {
        // They ended with the process, which was not killed.
        left.connections.clear();
    }
    left.failures.sort_by_key(|failure| failure.number("at_ms"));
    left
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Folder {
            let name = format!("verbena-left-{}-{test}", std::process::id());
            let folder = Folder(std::env::temp_dir().join(name));
            fs::create_dir(&folder.0).unwrap();
            folder
        }

        fn write(&self, name: &str, content: &[u8]) {
            fs::write(self.0.join(name), content).unwrap();
        }

        fn left(&self) -> Vec<Left> {
            left_in(&self.0, None, SystemTime::now())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// No process has this id.
    const NAME: &str = "failures-4194305-7";

    #[test]
    fn records_of_an_ended_process_are_read() {
        let folder = Folder::new("read");
        let text = "process pid=4194305 cause=a program\n\nconnection number=2 peer=192.0.2.1:7\n\
                    failure number=3 at_ms=9 cause=second\nfailure number=2 at_ms=5 cause=first\n";
        folder.write(NAME, text.as_bytes());
        let all = folder.left();
        assert_eq!(all.len(), 1);
        let left = &all[0];
        assert_eq!((left.pid, left.runs), (4_194_305, false));
        assert_eq!(left.program, "a program");
        assert_eq!(left.connections[0].get("peer"), Some("192.0.2.1:7"));
        let causes: Vec<_> = left.failures.iter().map(|f| f.get("cause")).collect();
        assert_eq!(causes, [Some("first"), Some("second")]);
    }

    #[test]
    fn hostile_files_are_bounded_and_harmless() {
        let folder = Folder::new("hostile");
        folder.write(NAME, &[0xff; 4 * SLOT * SLOTS]);
        let all = folder.left();
        assert!(all[0].failures.is_empty() && all[0].program == "?");
        let escape = b"process pid=1 cause=\x1b]0;title\x07\nfailure cause=\x1b[2J\n";
        folder.write(NAME, escape);
        let all = folder.left();
        assert!(all[0].failures.is_empty(), "{all:?}");
        assert_eq!(all[0].program, "?");
        let lines = "failure number=1 cause=x\n".repeat(100_000);
        folder.write(NAME, lines.as_bytes());
        assert!(folder.left()[0].failures.len() <= SLOTS);
        // Neither a folder nor a pipe blocks or is read.
        fs::create_dir(folder.0.join("failures-4194306-1")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.0.join("failures-4194307-1"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        std::os::unix::fs::symlink(folder.0.join(NAME), folder.0.join("failures-4194308-1"))
            .unwrap();
        assert_eq!(folder.left().len(), 1);
    }

    #[test]
    fn old_files_are_not_shown() {
        let folder = Folder::new("old");
        folder.write(NAME, b"failure number=1 cause=x\n");
        let later = SystemTime::now() + KEPT + Duration::from_secs(60);
        assert!(left_in(&folder.0, None, later).is_empty());
        assert!(left_in(&folder.0, Some(1), SystemTime::now()).is_empty());
        assert_eq!(folder.left().len(), 1);
    }
}
