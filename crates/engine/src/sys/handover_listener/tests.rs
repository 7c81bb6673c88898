//! Tests of a path that is in use, stale or another user's, and of clients of both kinds of users.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::super::testing::TEST_TIMEOUT as LONG;
use super::*;

/// A directory of its own, removed on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("verbena-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        TempDir(path)
    }

    fn path(&self) -> PathBuf {
        self.0.join("listener")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Leaves a stale socket file: the standard library does not remove what it binds.
fn leave_stale_socket(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    // Shut down, not only dropped: a child that another test forks at this moment has a copy.
    net::shutdown(&listener, net::Shutdown::Both).unwrap();
}

#[test]
fn listener_accepts_and_removes_its_path() {
    let directory = TempDir::new("visitors");
    let path = directory.path();
    let handover_listener = HandoverListener::bind(&path).unwrap();
    let meta = std::fs::symlink_metadata(&path).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert!(handover_listener.accept(Duration::ZERO).unwrap().is_none());
    assert!(
        handover_listener
            .accept(Duration::from_millis(5))
            .unwrap()
            .is_none()
    );
    let mut visitor = FdChannel::connect(&path).unwrap();
    let mut host = handover_listener.accept(LONG).unwrap().unwrap();
    visitor
        .send(b"hello", &[handover_listener.as_fd()])
        .unwrap();
    let (bytes, came) = host.receive().unwrap();
    assert_eq!((&bytes[..], came.len()), (&b"hello"[..], 1));
    drop(came);
    assert_eq!(handover_listener.path(), path);
    drop(handover_listener);
    assert!(!path.exists());
    let refused = FdChannel::connect(&path).unwrap_err();
    assert!(matches!(refused, FdChannelError::System(e) if e.call() == "connect"));
}

#[test]
fn only_a_stale_path_is_replaced() {
    let directory = TempDir::new("dead");
    let path = directory.path();
    let first = HandoverListener::bind(&path).unwrap();
    assert!(HandoverListener::bind(&path).unwrap_err().is_in_use());
    // A full backlog is no sign of a dead process.
    let mut crowd = Vec::new();
    loop {
        let fd = socket().unwrap();
        match net::connect(&fd, &SocketAddrUnix::new(&path).unwrap()) {
            Ok(()) => crowd.push(fd),
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                break;
            }
        }
    }
    assert!(HandoverListener::bind(&path).unwrap_err().is_in_use());
    drop(crowd);
    drop(first);
    leave_stale_socket(&path);
    assert!(path.exists());
    let second = HandoverListener::bind(&path).unwrap();
    let _visitor = FdChannel::connect(&path).unwrap();
    assert!(second.accept(LONG).unwrap().is_some());
}

#[test]
fn path_of_a_regular_file_is_kept() {
    let directory = TempDir::new("file");
    let path = directory.path();
    std::fs::write(&path, b"precious").unwrap();
    assert!(HandoverListener::bind(&path).unwrap_err().is_in_use());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let long = directory.0.join("x".repeat(120));
    let refused = HandoverListener::bind(&long).unwrap_err();
    assert_eq!(refused.code(), Errno::NAMETOOLONG.raw_os_error());
    let nowhere = directory.0.join("no/where");
    let refused = HandoverListener::bind(&nowhere).unwrap_err();
    assert_eq!(refused.code(), Errno::NOENT.raw_os_error());
}

/// The path was replaced while this listener had it: it must not remove the other one's file.
#[test]
fn replaced_path_is_not_removed() {
    let directory = TempDir::new("another");
    let path = directory.path();
    let first = HandoverListener::bind(&path).unwrap();
    // Kept under another name, so that the new file does not get its inode number.
    std::fs::rename(&path, directory.0.join("old")).unwrap();
    let second = HandoverListener::bind(&path).unwrap();
    drop(first);
    let _visitor = FdChannel::connect(&path).unwrap();
    assert!(second.accept(LONG).unwrap().is_some());
}

/// Many threads find the same stale path: one gets it, and keeps it.
#[test]
fn stale_path_goes_to_one_listener() {
    let directory = TempDir::new("many");
    let path = directory.path();
    for _ in 0..20 {
        leave_stale_socket(&path);
        let start = std::sync::Barrier::new(4);
        let all: Vec<_> = std::thread::scope(|scope| {
            let bind = || {
                start.wait();
                HandoverListener::bind(&path)
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let (lucky, others): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
        assert_eq!(lucky.len(), 1);
        assert!(others.into_iter().all(|e| e.unwrap_err().is_in_use()));
        let _visitor = FdChannel::connect(&path).unwrap();
        let handover_listener = lucky.into_iter().next().unwrap().unwrap();
        // The losers have connected, too.
        let mut visits = 0;
        while handover_listener.accept(Duration::ZERO).unwrap().is_some() {
            visits += 1;
        }
        assert!(visits >= 1);
    }
}

/// Every user can open the temporary directory, and hold a lock on it for any time.
#[test]
fn directory_lock_does_not_block_bind() {
    let directory = TempDir::new("locked");
    let path = directory.path();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = fs::open(&directory.0, flags, Mode::empty()).unwrap();
    fs::flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    drop(HandoverListener::bind(&path).unwrap());
    let left = std::fs::read_dir(&directory.0).unwrap().count();
    assert_eq!(left, 0, "neither the socket nor its lock");
}

#[test]
fn lock_file_open_to_others_is_refused() {
    let directory = TempDir::new("open-lock");
    let lock = directory.0.join("listener.lock");
    std::fs::write(&lock, "").unwrap();
    std::fs::set_permissions(&lock, PermissionsExt::from_mode(0o666)).unwrap();
    let refused = HandoverListener::bind(&directory.path()).unwrap_err();
    assert_eq!(refused.code(), Errno::PERM.raw_os_error());
    assert!(lock.exists(), "it is not ours to remove");
}

const OTHER_USER_ROLE: &str = "VERBENA_TEST_CONNECT";

#[test]
fn as_other_user() {
    if let Ok(path) = std::env::var(OTHER_USER_ROLE) {
        let fd = socket().unwrap();
        let name = SocketAddrUnix::new(path).unwrap();
        net::connect(&fd, &name).unwrap();
        // The listener's process is root's, another user for this one.
        let refused = FdChannel::new(fd).unwrap_err();
        assert!(matches!(
            refused,
            FdChannelError::OtherUser { theirs: 0, .. }
        ));
    }
}

/// Only root can act as another user, and the mode of the file must allow the connection.
#[test]
fn other_users_are_refused() {
    let directory = TempDir::new("strangers");
    let path = directory.path();
    let handover_listener = HandoverListener::bind(&path).unwrap();
    for (path, mode) in [(&directory.0, 0o755), (&path, 0o777)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let other_uid = 65_534;
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "sys::handover_listener::tests::as_other_user",
            "--exact",
            "--nocapture",
        ])
        .env(OTHER_USER_ROLE, &path)
        .uid(other_uid)
        .output();
    match child {
        Ok(output) => {
            assert!(output.status.success(), "{output:?}");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("1 passed"), "{said}");
            let refused = handover_listener.accept(LONG).unwrap_err();
            let (theirs, ours) = (other_uid, effective_uid());
            assert_eq!(refused, FdChannelError::OtherUser { theirs, ours });
        }
        Err(error) => {
            let may_not = error.kind() == std::io::ErrorKind::PermissionDenied;
            assert!(may_not, "{error}");
            println!("not shown: {error}");
        }
    }
}
