//! Blocking calls interrupted by signals: the kernel restarts read(2) after a handler with `SA_RESTART`, but never `poll` or `epoll_wait`.
//! Such a call is repeated if all handlers of the program have `SA_RESTART`, since it is not known which signal came; otherwise it fails
//! with EINTR.

use rustix::io::Errno;

use super::{Error, Result};

/// Makes a call that returns a count or -1, and repeats it where a read would have been restarted.
pub(super) fn restart_like_read(
    name: &'static str,
    mut call: impl FnMut() -> libc::c_int,
) -> Result<usize> {
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        match Error::last(name) {
            e if e.code() == Errno::INTR.raw_os_error() && all_handlers_restart() => {}
            e => return Err(e),
        }
    }
}

/// Whether every handler that the program has for an asynchronous signal has `SA_RESTART`.
fn all_handlers_restart() -> bool {
    const FAULTS: [libc::c_int; 7] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGSYS,
    ];
    let restarts = |signal: libc::c_int| {
        let mut action = core::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: with a null new action this only queries, into `action`; the call fails for numbers that are no signals, and `assume_init` is
        // reached only after success.
        let action = unsafe {
            if libc::sigaction(signal, core::ptr::null(), action.as_mut_ptr()) != 0 {
                return true;
            }
            action.assume_init()
        };
        let handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !handled || action.sa_flags & libc::SA_RESTART != 0
    };
    (1..=libc::SIGRTMAX())
        .filter(|signal| !FAULTS.contains(signal))
        .all(restarts)
}
