//! Tests of which descriptor ended the wait, and of waits that none ended.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::*;

const NO_TIME: Option<Duration> = Some(Duration::ZERO);

#[test]
fn ready_descriptors_are_reported_separately() {
    let (channel, own) = (Channel::new().unwrap(), Channel::new().unwrap());
    let ours = [own.as_fd().as_raw_fd()];
    let ((here, mut there), (quiet, _quiet)) =
        (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let mut others = [WaitFd::read(quiet.as_fd()), WaitFd::read(here.as_fd())];
    assert_eq!(wait(&channel, &ours, &mut others, NO_TIME), Ok(None));

    there.write_all(b"x").unwrap();
    let woken = wait(&channel, &ours, &mut others, None).unwrap().unwrap();
    assert_eq!((woken.rung, woken.adapter_ready), (false, false));
    assert_eq!(others.map(|other| other.ready), [false, true]);

    (&here).read_exact(&mut [0]).unwrap();
    own.ring();
    let woken = wait(&channel, &ours, &mut others, None).unwrap().unwrap();
    assert_eq!((woken.rung, woken.adapter_ready), (false, true));
    assert_eq!(others.map(|other| other.ready), [false; 2], "not any more");

    assert!(own.try_take());
    channel.ring();
    let woken = wait(&channel, &ours, &mut others, None).unwrap().unwrap();
    assert_eq!((woken.rung, woken.adapter_ready), (true, false));

    // There is room to write.
    others[0].write = true;
    wait(&channel, &ours, &mut others, None).unwrap().unwrap();
    assert!(others[0].ready);
    // The end of a stream counts as readable.
    others[0].write = false;
    drop(there);
    wait(&channel, &ours, &mut others, None).unwrap().unwrap();
    assert_eq!(others.map(|other| other.ready), [false, true]);
}

#[test]
fn wait_ends_at_its_timeout() {
    let channel = Channel::new().unwrap();
    let start = Instant::now();
    let limit = Duration::from_millis(20);
    assert_eq!(wait(&channel, &[], &mut [], Some(limit)), Ok(None));
    assert!(start.elapsed() >= limit);
    channel.ring();
    let for_ever = Some(Duration::MAX);
    assert!(
        wait(&channel, &[], &mut [], for_ever)
            .unwrap()
            .unwrap()
            .rung
    );
}
