//! The calls as a C program makes them: numbers, errors, and waiting for sockets and other descriptors at once.

use core::mem::zeroed;
use core::ptr;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use libc::{pollfd, sockaddr_in, socklen_t};
use verbena_testing::{Tid, wait_blocked};

use super::incoming::*;
use super::lifecycle::*;
use super::name::*;
use super::option::*;
use super::outgoing::*;
use super::ready::*;
use super::*;

/// A call, and the number it failed with.
macro_rules! call {
    ($name:ident($( $arg:expr ),*)) => {{
        // SAFETY: all pointers are to memory of the test that outlives the call.
        let result = unsafe { $name($( $arg ),*) };
        if result < 0 { Err(Errno::last().0) } else { Ok(result) }
    }};
}

const LEN: socklen_t = size_of::<sockaddr_in>() as socklen_t;

fn loopback(port: u16) -> sockaddr_in {
    // SAFETY: `sockaddr_in` is integers and arrays of them, for which zeros are valid.
    let mut at: sockaddr_in = unsafe { zeroed() };
    at.sin_family = libc::AF_INET as libc::sa_family_t;
    at.sin_port = port.to_be();
    at.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
    at
}

fn stream() -> c_int {
    call!(verbena_rsocket(libc::AF_INET, libc::SOCK_STREAM, 0)).unwrap()
}

fn listener() -> (c_int, sockaddr_in) {
    let (listener, mut at) = (stream(), loopback(0));
    call!(verbena_rbind(listener, (&raw const at).cast(), LEN)).unwrap();
    call!(verbena_rlisten(listener, 8)).unwrap();
    let mut len = LEN;
    call!(verbena_rgetsockname(
        listener,
        (&raw mut at).cast(),
        &raw mut len
    ))
    .unwrap();
    (listener, at)
}

fn pair() -> (c_int, c_int) {
    let (listener, at) = listener();
    let client = stream();
    let server = thread::scope(|scope| {
        let accepting = scope.spawn(move || {
            call!(verbena_raccept(listener, ptr::null_mut(), ptr::null_mut())).unwrap()
        });
        call!(verbena_rconnect(client, (&raw const at).cast(), LEN)).unwrap();
        accepting.join().unwrap()
    });
    call!(verbena_rclose(listener)).unwrap();
    (client, server)
}

#[test]
fn invalid_sockets_fail_with_distinct_errno() {
    let made = |domain, kind, protocol| call!(verbena_rsocket(domain, kind, protocol));
    assert_eq!(
        made(libc::AF_UNIX, libc::SOCK_STREAM, 0),
        Err(libc::EAFNOSUPPORT)
    );
    assert_eq!(
        made(libc::AF_INET, libc::SOCK_RAW, 0),
        Err(libc::ESOCKTNOSUPPORT)
    );
    let sctp = libc::IPPROTO_SCTP;
    assert_eq!(
        made(libc::AF_INET, libc::SOCK_STREAM, sctp),
        Err(libc::EPROTONOSUPPORT)
    );
    for number in [-1, 0, 9999] {
        assert_eq!(call!(verbena_rclose(number)), Err(libc::EBADF));
        assert_eq!(call!(verbena_rlisten(number, 1)), Err(libc::EBADF));
    }
    let socket = stream();
    let sent = call!(verbena_rsend(socket, b"x".as_ptr().cast(), 1, 0));
    assert_eq!(sent, Err(libc::ENOTCONN));
    assert_eq!(
        call!(verbena_rconnect(socket, ptr::null(), 0)),
        Err(libc::EFAULT)
    );
    let at = loopback(1);
    let short = call!(verbena_rbind(socket, (&raw const at).cast(), 3));
    assert_eq!(short, Err(libc::EINVAL));
    call!(verbena_rclose(socket)).unwrap();
    assert_eq!(call!(verbena_rclose(socket)), Err(libc::EBADF));
}

#[test]
fn writev_and_readv_form_one_stream() {
    let (client, server) = pair();
    let piece = |bytes: &[u8]| libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let pieces = [piece(b"one "), piece(b""), piece(b"two")];
    assert_eq!(call!(verbena_rwritev(client, pieces.as_ptr(), 3)), Ok(7));
    let (mut first, mut second) = ([0_u8; 2], [0_u8; 9]);
    let room = [&mut first[..], &mut second[..]].map(|room| libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    });
    assert_eq!(call!(verbena_rreadv(server, room.as_ptr(), 2)), Ok(7));
    assert_eq!((&first[..], &second[..5]), (&b"on"[..], &b"e two"[..]));
    call!(verbena_rclose(client)).unwrap();
    let got = call!(verbena_rrecv(server, second.as_mut_ptr().cast(), 9, 0));
    assert_eq!(got, Ok(0), "the end");
    call!(verbena_rclose(server)).unwrap();
}

#[test]
fn rpoll_waits_for_sockets_and_other_descriptors() {
    let (client, server) = pair();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let wanted = |fd| pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [wanted(server), wanted(reader.as_raw_fd()), wanted(-1)];
    let start = Instant::now();
    assert_eq!(call!(verbena_rpoll(fds.as_mut_ptr(), 3, 40)), Ok(0));
    assert!(start.elapsed() >= Duration::from_millis(40));
    let waiter = Tid::current();
    thread::scope(|scope| {
        scope.spawn(|| {
            wait_blocked(waiter);
            call!(verbena_rsend(client, b"x".as_ptr().cast(), 1, 0)).unwrap();
        });
        assert_eq!(call!(verbena_rpoll(fds.as_mut_ptr(), 3, 10_000)), Ok(1));
        assert_eq!((fds[0].revents, fds[1].revents), (libc::POLLIN, 0));
    });
    let mut got = [0_u8; 4];
    assert_eq!(
        call!(verbena_rread(server, got.as_mut_ptr().cast(), 4)),
        Ok(1)
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            wait_blocked(waiter);
            writer.write_all(b"y").unwrap();
        });
        // SAFETY: `fd_set` is an array of integers; zeros are an empty set.
        let mut set: libc::fd_set = unsafe { zeroed() };
        for fd in [server, reader.as_raw_fd()] {
            // SAFETY: `set` is a local, and `fd`, one of the few descriptors of a test, is below `FD_SETSIZE`.
            unsafe { libc::FD_SET(fd, &raw mut set) };
        }
        let none = ptr::null_mut();
        let most = server.max(reader.as_raw_fd()) + 1;
        let ready = call!(verbena_rselect(
            most,
            &raw mut set,
            none,
            none,
            ptr::null_mut()
        ));
        assert_eq!(ready, Ok(1));
        // SAFETY: `set` is a local, and the descriptor of `reader` is below `FD_SETSIZE`, as when it was added.
        assert!(unsafe { libc::FD_ISSET(reader.as_raw_fd(), &raw const set) });
    });
    let on = call!(verbena_rfcntl(
        server,
        libc::F_SETFL,
        libc::O_NONBLOCK.into()
    ));
    assert_eq!(on, Ok(0));
    let flags = call!(verbena_rfcntl(server, libc::F_GETFL, 0)).unwrap();
    assert_eq!(flags & libc::O_NONBLOCK, libc::O_NONBLOCK);
    let nothing = call!(verbena_rread(server, got.as_mut_ptr().cast(), 4));
    assert_eq!(nothing, Err(libc::EAGAIN));
    for socket in [client, server] {
        call!(verbena_rclose(socket)).unwrap();
    }
}

#[test]
fn options_are_kept_and_unknown_ones_refused() {
    let socket = stream();
    let set = |level, name, value: c_int| {
        let at = (&raw const value).cast();
        call!(verbena_rsetsockopt(socket, level, name, at, 4))
    };
    let get = |level, name| {
        let (mut value, mut len) = (-1 as c_int, 4);
        let at = (&raw mut value).cast();
        call!(verbena_rgetsockopt(socket, level, name, at, &raw mut len)).map(|_| value)
    };
    for (level, name) in [
        (libc::SOL_SOCKET, libc::SO_RCVBUF),
        (libc::SOL_SOCKET, libc::SO_REUSEADDR),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY),
        (0x10000, 0),
        (0x10000, 3),
    ] {
        assert_eq!(set(level, name, 77), Ok(0));
        assert_eq!(get(level, name), Ok(77), "{level} {name}");
    }
    assert_eq!(
        set(libc::SOL_SOCKET, libc::SO_RCVBUF, -1),
        Err(libc::EINVAL)
    );
    let linger = |l_onoff, l_linger| {
        let value = libc::linger { l_onoff, l_linger };
        let (at, len) = ((&raw const value).cast(), size_of_val(&value) as u32);
        let name = (libc::SOL_SOCKET, libc::SO_LINGER);
        call!(verbena_rsetsockopt(socket, name.0, name.1, at, len))
    };
    assert_eq!([linger(0, -1), linger(1, -1), linger(0, 0)], [Ok(0); 3]);
    assert_eq!(set(0x10000, 4, 1), Err(libc::ENOPROTOOPT));
    assert_eq!(get(libc::SOL_SOCKET, libc::SO_ERROR), Ok(0));
    assert_eq!(get(libc::SOL_SOCKET, libc::SO_TYPE), Ok(libc::SOCK_STREAM));
    call!(verbena_rclose(socket)).unwrap();
}
