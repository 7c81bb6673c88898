//! Tests of rings: taken, caught, waited for beside other descriptors, and interrupted by signals.

use core::sync::atomic::{AtomicU32, Ordering};
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Arc, mpsc};

use verbena_testing::{Tid, wait_blocked, wait_until};

use super::*;
use crate::sys::{Interest, Poller, poller};

#[test]
fn only_rings_of_the_catching_thread_are_caught() {
    let channel = Channel::new().unwrap();
    let other = Channel::new().unwrap();
    let caught = channel.catch_rings(|| {
        other.ring();
        std::thread::scope(|s| drop(s.spawn(|| channel.ring()).join()));
    });
    assert!(!caught && channel.try_take() && !channel.try_take() && other.try_take());
    assert!(channel.catch_rings(|| (0..3).for_each(|_| channel.ring())));
    assert!(channel.try_take() && channel.try_take() && !channel.try_take());
    channel.ring();
    assert!(channel.try_take(), "no wait takes the event any more");
}

#[test]
fn take_waits_for_one_ring() {
    let channel = Arc::new(Channel::new().unwrap());
    let taker = channel.clone();
    let taker = std::thread::spawn(move || (taker.take(), taker.take()));
    channel.ring();
    channel.ring();
    assert_eq!(taker.join().unwrap(), (Ok(true), Ok(true)));
}

#[test]
fn nonblocking_descriptor_take_returns_false() {
    let channel = Channel::new().unwrap();
    let fd = channel.as_fd().as_raw_fd();
    // SAFETY: sets flags of a descriptor that `channel` keeps open, as programs do.
    let refused = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(refused, 0);
    assert_eq!(channel.take(), Ok(false));
    channel.ring();
    assert_eq!((channel.take(), channel.take()), (Ok(true), Ok(false)));
}

#[test]
fn try_take_never_blocks() {
    let channel = Channel::new().unwrap();
    assert!(!channel.try_take());
    channel.ring();
    channel.ring();
    assert!(channel.try_take() && channel.try_take() && !channel.try_take());
}

#[test]
fn wait_distinguishes_own_ring_from_others() {
    let (own, other) = (Channel::new().unwrap(), Channel::new().unwrap());
    let beside = [other.as_fd().as_raw_fd()];
    other.ring();
    assert_eq!(own.wait_with_fds(&beside), Ok(false));
    own.ring();
    assert_eq!(own.wait_with_fds(&beside), Ok(true));
    assert!(own.is_blocking());
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

fn handle(flags: libc::c_int) {
    // SAFETY: `action` is zeroed and then filled in, which is a valid `sigaction`; the handler only increments an atomic.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        action.sa_flags = flags;
        let code = libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut());
        assert_eq!(code, 0);
    }
}

/// Waits in one of the two ways until the channel is rung.
fn sleep(channel: &Channel, in_poller: bool) -> Result<()> {
    if !in_poller {
        return channel.wait_with_fds(&[]).map(drop);
    }
    let poller = Poller::new()?;
    poller.add(&channel.duplicate()?, 7, Interest::READ)?;
    let mut ready = arrayvec::ArrayVec::new();
    poller::sleep(poller.as_fd().as_raw_fd(), &mut ready)?;
    assert_eq!(ready[0].token, 7);
    Ok(())
}

#[test]
fn signal_interrupts_a_wait_like_a_read() {
    for in_poller in [false, true] {
        for flags in [0, libc::SA_RESTART] {
            handle(flags);
            let channel = Arc::new(Channel::new().unwrap());
            let ours = channel.clone();
            let (tell, notified) = mpsc::channel();
            let sleeper = std::thread::spawn(move || {
                tell.send(Tid::current()).unwrap();
                sleep(&ours, in_poller)
            });
            let thread = notified.recv().unwrap();
            wait_blocked(thread);
            let before = SIGNALS.load(Ordering::SeqCst);
            // SAFETY: the thread has not been joined, so its handle is valid.
            unsafe { libc::pthread_kill(sleeper.as_pthread_t(), libc::SIGUSR1) };
            wait_until("the signal is handled", || {
                SIGNALS.load(Ordering::SeqCst) > before
            });
            if flags == 0 {
                wait_until("the wait ends", || sleeper.is_finished());
            } else {
                wait_blocked(thread);
            }
            channel.ring();
            let woken = sleeper.join().unwrap().map_err(|error| error.code());
            assert_eq!(woken, if flags == 0 { Err(libc::EINTR) } else { Ok(()) });
        }
    }
}
