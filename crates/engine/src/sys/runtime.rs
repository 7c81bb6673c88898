//! The runtime directory for a user's sockets and files: one directory that no other user can write, replace or create first.
//! Servers and clients use the same list of candidates.
//!
//! 1. `$XDG_RUNTIME_DIR/verbena`, not in a program with more rights than its caller;
//! 2. `/run/verbena`, if the user is root;
//! 3. `/tmp/verbena-UID` (or in `$TMPDIR`); if another user created it first, it is rejected.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::peer_credentials::PeerCredentials;
use super::{effective_uid, is_privileged};

const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// The backlog of pending connections.
const BACKLOG: i32 = 128;

/// The candidates for the directory, in order of preference.
pub fn candidates() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|_| !is_privileged());
    let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    // The XDG base directory specification requires that relative paths are ignored.
    let runtime = runtime.filter(|path| path.is_absolute());
    let temporary = variable("TMPDIR").map(PathBuf::from);
    let temporary = temporary
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| PathBuf::from("/tmp"));
    let user = effective_uid();
    let system = (user == 0).then(|| PathBuf::from("/run/verbena"));
    let own = temporary.join(format!("verbena-{user}"));
    let runtime = runtime.map(|path| path.join("verbena"));
    runtime.into_iter().chain(system).chain([own]).collect()
}

/// The directory of this user, created if necessary. The error names the problem of each candidate.
pub fn directory() -> io::Result<PathBuf> {
    first_of(&candidates(), effective_uid())
}

/// The directories that may contain sockets of this user: a client need not have the server's environment.
pub fn directories() -> Vec<PathBuf> {
    let mut all = candidates();
    all.retain(|path| check(path, effective_uid()).is_ok());
    all
}

/// Listens at `path` with a non-blocking socket. Only its owner can open it from the start: bind(2) takes the
/// permissions of the socket's own inode, less the umask.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    net::bind(&fd, &SocketAddrUnix::new(path)?)?;
    net::listen(&fd, BACKLOG)?;
    Ok(UnixListener::from(fd))
}

/// The user at the other end, if it is neither `owner` nor root.
pub fn other_user(stream: &UnixStream, owner: u32) -> io::Result<Option<u32>> {
    let user = PeerCredentials::of(stream)?.user;
    Ok((user != owner && user != 0).then_some(user))
}

fn first_of(candidates: &[PathBuf], user: u32) -> io::Result<PathBuf> {
    let mut refused = Vec::new();
    for path in candidates {
        match create_dir(path, user) {
            Ok(()) => return Ok(path.clone()),
            Err(why) => refused.push(format!("{} {why}", path.display())),
        }
    }
    let what = format!(
        "no directory that only this user can write: {}; set XDG_RUNTIME_DIR to a directory of your own with mode 0700, \
         or remove the entry that is in the way",
        refused.join("; ")
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

fn create_dir(path: &Path, user: u32) -> Result<(), String> {
    let above = path.parent().unwrap_or(path);
    check_parent(above, user)?;
    // `/run/verbena` is readable by all users; sockets in it have their own modes.
    let mode = if above == Path::new("/run") {
        0o755
    } else {
        0o700
    };
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("cannot be made: {error}"))
        }
        _ => check(path, user),
    }
}

/// Checks that entries of this directory can be replaced by their owner and root only.
fn check_parent(above: &Path, user: u32) -> Result<(), String> {
    let wrong = |what: String| Err(format!("lies in {}, which {what}", above.display()));
    // In a user namespace root's directories belong to an unmapped user.
    let roots = ["/tmp", "/run"].map(Path::new).contains(&above);
    match fs::metadata(above) {
        Err(error) => wrong(format!("cannot be used: {error}")),
        Ok(is) if !roots && is.uid() != user && is.uid() != 0 => wrong(describe_owner(&is)),
        Ok(is) if is.mode() & OTHERS_WRITE != 0 && is.mode() & STICKY == 0 => {
            wrong("others can write".to_owned())
        }
        Ok(_) => Ok(()),
    }
}

/// Checks that the directory exists, is no link, belongs to the user, and cannot be written by others.
fn check(path: &Path, user: u32) -> Result<(), String> {
    let is = fs::symlink_metadata(path).map_err(|error| format!("cannot be used: {error}"))?;
    if !is.is_dir() {
        return Err("is no directory".to_owned());
    }
    if is.uid() != user {
        return Err(describe_owner(&is));
    }
    if is.mode() & OTHERS_WRITE != 0 {
        return Err("can be written by others".to_owned());
    }
    Ok(())
}

fn describe_owner(is: &Metadata) -> String {
    format!("belongs to user {}", is.uid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    struct TempDir(PathBuf);

    impl TempDir {
        fn new(name: &str) -> TempDir {
            let name = format!("verbena-runtime-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            TempDir(path)
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn first_safe_directory_is_used() {
        let folder = TempDir::new("first");
        let [open, link, file, good] = ["open", "link", "file", "good"].map(|n| folder.0.join(n));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        symlink(&folder.0, &link).unwrap();
        fs::write(&file, "").unwrap();
        let inside = open.join("inside");
        let bad = [open, inside, link, file];
        let said = first_of(&bad, effective_uid()).unwrap_err().to_string();
        for word in [
            "written by others",
            "others can write",
            "no directory",
            "XDG_RUNTIME_DIR",
        ] {
            assert!(said.contains(word), "{said}");
        }
        let all: Vec<PathBuf> = bad.into_iter().chain([good.clone()]).collect();
        assert_eq!(first_of(&all, effective_uid()).unwrap(), good);
        assert_eq!(fs::metadata(&good).unwrap().mode() & 0o777, 0o700);
        assert_eq!(
            first_of(&all, effective_uid()).unwrap(),
            good,
            "a second time"
        );
    }

    /// A directory that another user created first is passed over for the next candidate.
    #[test]
    fn directories_of_other_users_are_skipped() {
        let folder = TempDir::new("strangers");
        let [taken, good] = ["taken", "good"].map(|name| folder.0.join(name));
        fs::create_dir(&taken).unwrap();
        if chown(&taken, Some(65_534), None).is_err() {
            println!("not shown: only root can give a directory away");
            return;
        }
        let said = first_of(std::slice::from_ref(&taken), effective_uid()).unwrap_err();
        assert!(said.to_string().contains("belongs to user 65534"), "{said}");
        assert_eq!(
            first_of(&[taken, good.clone()], effective_uid()).unwrap(),
            good
        );
    }
}
