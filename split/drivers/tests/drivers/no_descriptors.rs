//! A driver without free descriptors: a status client waits, and the driver does not spin meanwhile. The limit applies to the whole
//! process, so the test runs in one of its own.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use verbena::unstable::runtime;
use verbena_split::status::StatusSocket;
use verbena_testing::own_process;

#[test]
fn status_socket_pauses_without_free_descriptors() {
    own_process!();
    let name = format!("none-{}", std::process::id());
    let status_socket = StatusSocket::open(&name).unwrap();
    let now = Instant::now();
    assert!(status_socket.wait_fd(now).is_some());
    let mut who =
        UnixStream::connect(runtime::directory().unwrap().join(format!("{name}.sock"))).unwrap();
    let limit = getrlimit(Resource::Nofile);
    // No new descriptor is below it.
    let none = Rlimit {
        current: Some(0),
        ..limit
    };
    setrlimit(Resource::Nofile, none).unwrap();
    status_socket.serve(|| "never".to_owned());
    let shut = status_socket.wait_fd(Instant::now()).is_none();
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(shut, "it would wake at once");
    // The driver tries again after a while, and the client is answered.
    assert!(
        status_socket
            .wait_fd(now + Duration::from_secs(1))
            .is_some()
    );
    status_socket.serve(|| "here".to_owned());
    let mut answer = String::new();
    who.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "here");
    assert!(status_socket.wait_fd(Instant::now()).is_some());
}
