//! Waiting calls that signals interrupt: the system restarts a read after a signal whose handler asks for it, but no `poll`.
//! It promises that such a call goes on where a read would have, as far as that can be known. It refuses to guess which signal came:
//! a program whose handlers disagree is interrupted.

use rustix::io::Errno;

use super::{Error, Result};

/// Makes a call that answers with a count or -1, again and again while a read would have gone on.
pub(super) fn like_a_read(
    name: &'static str,
    mut call: impl FnMut() -> libc::c_int,
) -> Result<usize> {
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        match Error::last(name) {
            e if e.code() == Errno::INTR.raw_os_error() && signals_restart() => {}
            e => return Err(e),
        }
    }
}

/// Every handler that the program has for a signal from outside wants interrupted calls to go on (`SA_RESTART`).
fn signals_restart() -> bool {
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
        // SAFETY: asks only, into room of ours; numbers that are no signals are refused.
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
