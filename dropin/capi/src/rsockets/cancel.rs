//! Socket calls of the C library in which a program may cancel a thread, for sockets that are passed on to it.
//! The C library then unwinds the stack, so they are declared as functions that unwind: a call that is declared not to would
//! end the process (docs/dropin.md).

use core::ffi::{c_int, c_void};

use libc::{iovec, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t};

unsafe extern "C-unwind" {
    pub(super) fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    pub(super) fn connect(socket: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    pub(super) fn close(fd: c_int) -> c_int;
    pub(super) fn recv(socket: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    pub(super) fn recvfrom(
        socket: c_int,
        buf: *mut c_void,
        len: size_t,
        flags: c_int,
        addr: *mut sockaddr,
        addrlen: *mut socklen_t,
    ) -> ssize_t;
    pub(super) fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    pub(super) fn recvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t;
    pub(super) fn send(socket: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    pub(super) fn sendto(
        socket: c_int,
        buf: *const c_void,
        len: size_t,
        flags: c_int,
        addr: *const sockaddr,
        addrlen: socklen_t,
    ) -> ssize_t;
    pub(super) fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    pub(super) fn sendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> ssize_t;
}
