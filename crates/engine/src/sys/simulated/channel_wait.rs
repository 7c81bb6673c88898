//! Waits on a channel, on the adapter's descriptors and on the program's own at once.
//! All are simulated ones; rings of the channel are not taken.

use core::time::Duration;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use super::simulated::{block, with};
use super::{Channel, Result, now};

pub use super::readiness::{WaitFd, Woken};

/// Waits until the channel is rung, one of `ours` is readable or one of `others` ready, and marks those; `None` at the timeout.
pub fn wait(
    channel: &Channel,
    ours: &[RawFd],
    others: &mut [WaitFd<'_>],
    timeout: Option<Duration>,
) -> Result<Option<Woken>> {
    let own = channel.as_fd().as_raw_fd();
    let readable = ours.to_vec();
    let theirs: Vec<(RawFd, bool)> = others
        .iter()
        .map(|other| (other.fd.as_raw_fd(), other.write))
        .collect();
    let deadline = timeout.map(|timeout| now() + timeout);
    let watched = (readable.clone(), theirs.clone());
    let woken = block("ppoll", deadline, move |world| {
        let (ours, theirs) = &watched;
        let mut all = ours.iter().chain([&own]);
        let ready = |(fd, write): &(RawFd, bool)| {
            let state = world.state(*fd);
            state.readable || *write && state.writable
        };
        all.any(|fd| world.state(*fd).readable) || theirs.iter().any(ready)
    });
    Ok(with(|world| {
        for (other, (fd, write)) in others.iter_mut().zip(&theirs) {
            let state = world.state(*fd);
            other.ready = woken && (state.readable || *write && state.writable);
        }
        woken.then(|| Woken {
            rung: world.state(own).readable,
            adapter_ready: readable.iter().any(|fd| world.state(*fd).readable),
        })
    }))
}
