//! Sockets with a path in a folder that processes in other network namespaces see, too: abstract names do not cross these namespaces.
//! The folder must belong to this user, and no other may enter it. The file of a socket is removed when its listener is dropped and at the exit of
//! the process; what a killed process left is removed by the next process that uses the folder.

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{self, FileType, Mode};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};
use verbena_sync::locks::Mutex;

use super::fd::FLAGS;
use super::{Error, PacketChannel, PacketListener, Result, effective_uid, fork_count, watch_forks};

/// Names that are examined for stale sockets at most.
const MAX_EXAMINED: usize = 4096;
/// Younger sockets are left alone: one may not be bound yet although its file exists.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// Files to be removed at the exit of the process, each with the fork count of the process that made it.
static FILES: Mutex<Vec<(u64, PathBuf)>> = Mutex::new(Vec::new());

/// A folder for sockets.
#[derive(Debug)]
pub struct SocketFolder {
    path: PathBuf,
}

impl SocketFolder {
    /// Checks the folder: EPERM if it is another user's, or if others may enter it.
    pub fn open(path: &Path) -> Result<SocketFolder> {
        let found = fs::stat(path).map_err(Error::of("stat"))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
            return Err(Error::new("stat", Errno::NOTDIR));
        }
        let others = Mode::from_raw_mode(found.st_mode) & (Mode::RWXG | Mode::RWXO);
        if found.st_uid != effective_uid() || !others.is_empty() {
            return Err(Error::new("stat", Errno::PERM));
        }
        Ok(SocketFolder {
            path: path.to_owned(),
        })
    }

    /// Listens at the name.
    pub fn bind(&self, name: &str) -> Result<FolderListener> {
        let path = self.path.join(name);
        let listener = PacketListener::bind_to(&address(&path, "bind")?)?;
        let forks = remove_at_exit(&path);
        Ok(FolderListener {
            listener,
            _file: SocketFile { path, forks },
        })
    }

    /// Connects to the listener with this name.
    pub fn connect(&self, name: &str) -> Result<PacketChannel> {
        PacketChannel::connect_to(&address(&self.path.join(name), "connect")?)
    }

    /// Removes the sockets whose names begin with `prefix` and which no process has any more.
    pub fn remove_stale(&self, prefix: &str) -> Result<()> {
        let read = |error: std::io::Error| {
            let code = error.raw_os_error().map(Errno::from_raw_os_error);
            Error::new("readdir", code.unwrap_or(Errno::IO))
        };
        for entry in std::fs::read_dir(&self.path)
            .map_err(read)?
            .take(MAX_EXAMINED)
        {
            let entry = entry.map_err(read)?;
            let ours = entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with(prefix));
            if ours && is_stale(&entry.path()) {
                // Another process may have removed it first.
                let _ = fs::unlink(entry.path());
            }
        }
        Ok(())
    }
}

/// A listener in a folder; its file is removed with it.
#[derive(Debug)]
pub struct FolderListener {
    /// The listener itself.
    pub listener: PacketListener,
    _file: SocketFile,
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// The fork count of the process it was made in: a child leaves the file alone.
    forks: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fork_count() == self.forks {
            let _ = fs::unlink(&self.path);
            FILES.lock().retain(|(_, path)| *path != self.path);
        }
    }
}

fn address(path: &Path, call: &'static str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(Error::of(call))
}

/// Whether the socket has no owner. One with an owner answers that it has another type.
fn is_stale(path: &Path) -> bool {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return false;
    };
    let made = found.modified().ok();
    let age = made.and_then(|made| SystemTime::now().duration_since(made).ok());
    if age.is_none_or(|age| age < STALE_AFTER) {
        return false;
    }
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None);
    let (Ok(socket), Ok(address)) = (socket, SocketAddrUnix::new(path)) else {
        return false;
    };
    let is_socket = std::os::unix::fs::FileTypeExt::is_socket(&found.file_type());
    is_socket && net::connect(&socket, &address) == Err(Errno::CONNREFUSED)
}

/// Has the file removed when the process exits, even if nothing is dropped then. Returns the fork count.
fn remove_at_exit(path: &Path) -> u64 {
    let forks = watch_forks();
    let mut files = FILES.lock();
    // In a forked child the handler of the parent is still registered.
    if files.capacity() == 0 {
        // SAFETY: `remove_files` can be called at any time. Without memory `atexit` fails, and files are left for the next process.
        unsafe { libc::atexit(remove_files) };
    }
    files.push((forks, path.to_owned()));
    forks
}

extern "C" fn remove_files() {
    // Another thread that holds the lock is not waited for: in a forked child it does not exist.
    if let Some(files) = FILES.try_lock() {
        let forks = fork_count();
        for (_, path) in files.iter().filter(|(made, _)| *made == forks) {
            let _ = fs::unlink(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
    use std::os::unix::fs::PermissionsExt;

    /// A folder that only this user can enter, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Folder {
            let name = format!("verbena-folder-{}-{test}", std::process::id());
            let folder = Folder(std::env::temp_dir().join(name));
            std::fs::create_dir(&folder.0).unwrap();
            folder.set_mode(0o700);
            folder
        }

        fn set_mode(&self, mode: u32) {
            std::fs::set_permissions(&self.0, std::fs::Permissions::from_mode(mode)).unwrap();
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }

        /// As if it had been made long ago.
        fn age(&self, name: &str) {
            let past = Timespec {
                tv_sec: 1_000_000_000,
                tv_nsec: 0,
            };
            let times = Timestamps {
                last_access: past,
                last_modification: past,
            };
            fs::utimensat(CWD, self.0.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_dropped_listener_leaves_no_file() {
        let folder = Folder::new("dropped");
        let sockets = SocketFolder::open(&folder.0).unwrap();
        assert_eq!(sockets.connect("a").unwrap_err().code(), libc::ENOENT);
        let listener = sockets.bind("a").unwrap();
        assert_eq!(folder.names(), ["a"]);
        let client = sockets.connect("a").unwrap();
        let server = listener.listener.accept().unwrap().unwrap();
        assert!(client.send(b"ab", b"").unwrap());
        let mut room = [0; 2];
        assert_eq!(server.receive(&mut room).unwrap(), Some(&b"ab"[..]));
        drop(listener);
        assert!(folder.names().is_empty());
    }

    #[test]
    fn folders_of_others_are_refused() {
        let folder = Folder::new("others");
        for mode in [0o710, 0o701, 0o770, 0o777, 0o1777] {
            folder.set_mode(mode);
            let refused = SocketFolder::open(&folder.0).unwrap_err();
            assert_eq!(refused.code(), libc::EPERM, "{mode:o}");
        }
        folder.set_mode(0o700);
        assert!(SocketFolder::open(&folder.0).is_ok());
        let file = folder.0.join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(SocketFolder::open(&file).unwrap_err().code(), libc::ENOTDIR);
        let none = SocketFolder::open(&folder.0.join("none")).unwrap_err();
        assert_eq!(none.code(), libc::ENOENT);
    }

    /// Only sockets without an owner, with the prefix, that are not new.
    #[test]
    fn stale_sockets_are_removed() {
        let folder = Folder::new("stale");
        let sockets = SocketFolder::open(&folder.0).unwrap();
        let leave = |name: &str| {
            let socket = std::os::unix::net::UnixListener::bind(folder.0.join(name)).unwrap();
            drop(socket);
        };
        let live = sockets.bind("verbena-live").unwrap();
        leave("verbena-dead");
        leave("verbena-new");
        leave("other");
        std::fs::write(folder.0.join("verbena-file"), "").unwrap();
        for name in ["verbena-live", "verbena-dead", "other", "verbena-file"] {
            folder.age(name);
        }
        sockets.remove_stale("verbena-").unwrap();
        let rest = ["other", "verbena-file", "verbena-live", "verbena-new"];
        assert_eq!(folder.names(), rest);
        assert!(live.listener.accept().unwrap().is_none(), "no client");
    }

    #[test]
    fn a_long_path_is_an_error() {
        let folder = Folder::new("long");
        let below = folder.0.join("x".repeat(100));
        std::fs::create_dir(&below).unwrap();
        std::fs::set_permissions(&below, std::fs::Permissions::from_mode(0o700)).unwrap();
        let sockets = SocketFolder::open(&below).unwrap();
        assert_eq!(sockets.bind("a").unwrap_err().code(), libc::ENAMETOOLONG);
        assert!(sockets.connect("a").is_err());
    }

    /// Names the folder to the process that exits.
    const CHILD: &str = "SOCKET_FOLDER_OF_CHILD";

    #[test]
    fn an_exit_without_drop_leaves_no_file() {
        if let Some(path) = std::env::var_os(CHILD) {
            let sockets = SocketFolder::open(Path::new(&path)).unwrap();
            let _kept = [sockets.bind("a").unwrap(), sockets.bind("b").unwrap()];
            assert!(sockets.connect("a").is_ok() && sockets.connect("b").is_ok());
            std::process::exit(7);
        }
        let folder = Folder::new("exit");
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["an_exit_without_drop_leaves_no_file", "--nocapture"])
            .env(CHILD, &folder.0)
            .output()
            .unwrap();
        assert_eq!(child.status.code(), Some(7), "{child:?}");
        assert!(folder.names().is_empty(), "{:?}", folder.names());
    }
}
