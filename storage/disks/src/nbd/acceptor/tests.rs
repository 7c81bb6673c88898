//! Binding of Unix sockets over existing files, their permissions, and their removal.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A directory of this test, removed on drop.
struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> TestDir {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("verbena-nbd-{id}-{name}"));
        fs::create_dir_all(&path).unwrap();
        TestDir(path)
    }

    fn socket(&self) -> ExportAddr {
        ExportAddr::Unix(self.0.join("socket"))
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn socket_is_private_and_removed_on_drop() {
    let folder = TestDir::new("goes");
    let listener = Acceptor::open(&folder.socket()).unwrap();
    let path = folder.0.join("socket");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(listener.accept().unwrap().is_none());
    let _client = UnixStream::connect(&path).unwrap();
    assert!(listener.has_pending());
    assert!(matches!(listener.accept(), Ok(Some(Accepted::Client(_)))));
    assert!(!listener.has_pending());
    drop(listener);
    assert!(!path.exists());
}

/// Not even between two system calls.
#[test]
fn socket_mode_is_private_from_the_start() {
    let folder = TestDir::new("never");
    let path = folder.0.join("socket");
    let over = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                if let Ok(about) = fs::symlink_metadata(&path) {
                    seen.insert(about.permissions().mode() & 0o777);
                }
            }
            seen
        });
        for _ in 0..5000 {
            drop(Acceptor::open(&folder.socket()).unwrap());
        }
        over.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    });
    let others = seen.iter().find(|mode| **mode & 0o177 != 0);
    assert_eq!(others, None, "{seen:?}");
}

#[test]
fn only_a_dead_socket_is_replaced() {
    let folder = TestDir::new("dead");
    let path = folder.0.join("socket");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a dead socket stays");
    let listener = Acceptor::open(&folder.socket()).unwrap();
    let said = Acceptor::open(&folder.socket()).unwrap_err().to_string();
    assert!(
        said.contains("is a socket on which another process listens: remove it"),
        "{said}"
    );
    drop(listener);
    for make in [
        |path: &Path| fs::write(path, "precious").unwrap(),
        |path: &Path| fs::create_dir(path).unwrap(),
        |path: &Path| std::os::unix::fs::symlink("elsewhere", path).unwrap(),
    ] {
        make(&path);
        let said = Acceptor::open(&folder.socket()).unwrap_err().to_string();
        assert!(said.contains("exists and is no socket"), "{said}");
        assert!(fs::symlink_metadata(&path).is_ok());
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
    }
}

#[test]
fn socket_of_a_successor_is_not_removed() {
    let folder = TestDir::new("next");
    let path = folder.0.join("socket");
    let listener = Acceptor::open(&folder.socket()).unwrap();
    fs::rename(&path, folder.0.join("old")).unwrap();
    let next = UnixListener::bind(&path).unwrap();
    drop(listener);
    assert!(path.exists());
    drop(next);
}

#[test]
fn tcp_listens_on_loopback_only() {
    let listener = Acceptor::open(&ExportAddr::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    assert!(matches!(listener.local_addr().unwrap(), ExportAddr::Tcp(at) if at.port() > 0));
    let said = Acceptor::open(&ExportAddr::Tcp("0.0.0.0:0".parse().unwrap())).unwrap_err();
    assert!(
        said.to_string()
            .contains("can be reached from other machines")
    );
}

#[test]
fn missing_directory_error_names_the_path() {
    let place = ExportAddr::Unix("/nonexistent/folder/socket".into());
    let said = Acceptor::open(&place).unwrap_err().to_string();
    assert!(
        said.starts_with("cannot listen on /nonexistent/folder/socket: "),
        "{said}"
    );
}

/// The settings `allow` and `deny` apply to TCP clients.
#[test]
fn denied_sources_are_not_accepted() {
    use std::io::Read;
    use std::net::TcpStream;

    let mut config = verbena::Config::default();
    config.set("deny", "127.0.0.0/8").unwrap();
    let mut listener = Acceptor::open(&ExportAddr::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    listener.set_access(AccessList::new(&config));
    let ExportAddr::Tcp(at) = listener.local_addr().unwrap() else {
        panic!("it was opened by TCP");
    };
    let mut client = TcpStream::connect(at).unwrap();
    let refused = loop {
        match listener.accept() {
            Ok(None) => std::thread::yield_now(),
            other => break other.unwrap_err(),
        }
    };
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionAborted);
    let end = client.read(&mut [0; 1]);
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}
