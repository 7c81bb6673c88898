//! Threads of the adapter inside another program.
//! All signals are blocked from the thread's first instruction, so that the program's handlers do not run on it, except SIGSEGV and
//! SIGBUS, which a copy from or to registered memory must receive (`verbena_mem::guarded`).

use core::mem::MaybeUninit;
use std::cell::Cell;
use std::thread::Builder;

pub use std::thread::{JoinHandle, current as current_thread};

use rustix::io::Errno;

use super::{Error, Result};

thread_local! {
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread was started by [`spawn`].
pub fn is_own_thread() -> bool {
    OWN.get()
}

/// Starts a thread with a name (the system shows 15 bytes of it) and blocked signals.
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    // A new thread inherits the mask of its creator; blocking in the thread itself would leave a gap.
    let before = block()?;
    let run = move || {
        OWN.set(true);
        run()
    };
    let thread = Builder::new().name(name.to_owned()).spawn(run);
    restore(&before);
    thread.map_err(|error| {
        let code = error.raw_os_error();
        Error::new(
            "pthread_create",
            code.map_or(Errno::INVAL, Errno::from_raw_os_error),
        )
    })
}

fn block() -> Result<libc::sigset_t> {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initializes the whole set, and `sigdelset` changes it.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigdelset(all.as_mut_ptr(), libc::SIGSEGV);
        libc::sigdelset(all.as_mut_ptr(), libc::SIGBUS);
    }
    // SAFETY: reads the set just filled and writes `before`; both outlive the call.
    let refused =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    if refused != 0 {
        let errno = Errno::from_raw_os_error(refused);
        return Err(Error::new("pthread_sigmask", errno));
    }
    // SAFETY: initialized by the call that has just succeeded.
    Ok(unsafe { before.assume_init() })
}

fn restore(mask: &libc::sigset_t) {
    // SAFETY: reads a mask that `pthread_sigmask` returned. It cannot fail with these arguments.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, core::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(signal: i32) -> bool {
        let mut now = MaybeUninit::uninit();
        // SAFETY: with a null set this only queries the mask, which initializes `now`; then reads it.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), now.as_mut_ptr());
            libc::sigismember(now.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn thread_has_a_name_and_blocked_signals() {
        let seen = spawn("verbena-shard", || {
            let name = std::thread::current().name().map(str::to_owned);
            let signals = [libc::SIGTERM, libc::SIGUSR1, libc::SIGSEGV, libc::SIGBUS];
            (name, signals.map(blocked))
        });
        let (name, blocked) = seen.unwrap().join().unwrap();
        assert_eq!(name.as_deref(), Some("verbena-shard"));
        assert_eq!(blocked, [true, true, false, false]);
    }

    #[test]
    fn spawning_thread_keeps_its_signal_mask() {
        let before = blocked(libc::SIGUSR2);
        spawn("verbena-shard", || ()).unwrap().join().unwrap();
        assert_eq!(blocked(libc::SIGUSR2), before);
        assert!(!before);
    }
}
