//! Which descriptor ended the wait, and the timeout.

use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;

#[test]
fn poll_marks_ready_descriptors_of_the_caller() {
    let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
    let own = [CarrierFd {
        fd: pairs[0].0.as_fd(),
        write: false,
    }];
    let mut others = [1, 2].map(|at: usize| WaitFd::read(pairs[at].0.as_fd()));
    let start = Instant::now();
    let limit = Duration::from_millis(20);
    poll(&own, &mut others, Some(limit)).unwrap();
    assert!(start.elapsed() >= limit);
    assert_eq!(others.map(|other| other.ready), [false; 2]);

    (&pairs[0].1).write_all(b"x").unwrap();
    poll(&own, &mut others, None).unwrap();
    assert_eq!(others.map(|other| other.ready), [false; 2]);

    (&pairs[2].1).write_all(b"x").unwrap();
    poll(&own, &mut others, Some(Duration::MAX)).unwrap();
    assert_eq!(others.map(|other| other.ready), [false, true]);

    others[0].write = true;
    poll(&[], &mut others[..1], None).unwrap();
    assert!(others[0].ready);
}
