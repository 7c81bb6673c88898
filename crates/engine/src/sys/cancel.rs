//! System calls in which a C program may cancel a waiting thread (`pthread_cancel`).
//! The C library then unwinds the stack, so they are declared as functions that unwind: a call that is declared not to would
//! end the process (docs/dropin.md). Callers hold no lock.

use core::ffi::{c_int, c_void};

unsafe extern "C-unwind" {
    pub(super) fn read(fd: c_int, buf: *mut c_void, count: usize) -> isize;
    pub(super) fn poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
    pub(super) fn ppoll(
        fds: *mut libc::pollfd,
        count: libc::nfds_t,
        timeout: *const libc::timespec,
        mask: *const libc::sigset_t,
    ) -> c_int;
    pub(super) fn epoll_wait(
        fd: c_int,
        events: *mut libc::epoll_event,
        most: c_int,
        timeout: c_int,
    ) -> c_int;
}
