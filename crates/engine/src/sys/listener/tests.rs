//! Tests of listeners: under load, with both address families, and with ports in use.

use super::super::Interest;
use super::super::testing::{await_ready, connection, loopbacks};
use super::*;
use std::os::fd::AsRawFd;

#[test]
fn new_listener_has_no_connection() {
    for ip in loopbacks() {
        let listener = Listener::bind(SocketAddr::new(ip, 0), true).unwrap();
        assert!(listener.accept().unwrap().is_none());
        assert_eq!(listener.local_addr().unwrap().ip(), ip);
    }
}

#[test]
fn every_dialler_is_accepted_once_under_load() {
    const EACH: usize = 100;
    for ip in loopbacks() {
        let listener = Listener::bind(SocketAddr::new(ip, 0), true).unwrap();
        let to = listener.local_addr().unwrap();
        let diallers: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn(move || {
                    let dial = |_| Socket::connect(to, None, None).unwrap();
                    (0..EACH).map(dial).collect::<Vec<Socket>>()
                })
            })
            .collect();
        let mut origins = std::collections::BTreeSet::new();
        while origins.len() < 3 * EACH {
            await_ready(&listener, Interest::READ);
            while let Some((_, from)) = listener.accept().unwrap() {
                assert!(origins.insert(from), "{from} came twice");
            }
        }
        let dialled = diallers.into_iter().flat_map(|d| d.join().unwrap());
        let dialled: Vec<Socket> = dialled.collect();
        assert_eq!(dialled.len(), origins.len());
        assert!(
            dialled
                .iter()
                .all(|s| origins.contains(&s.local_addr().unwrap()))
        );
    }
}

#[test]
fn reset_connection_does_not_disturb_others() {
    for ip in loopbacks() {
        let listener = Listener::bind(SocketAddr::new(ip, 0), true).unwrap();
        let to = listener.local_addr().unwrap();
        Socket::connect(to, None, None).unwrap().abort();
        let good = Socket::connect(to, None, None).unwrap();
        let mut origins = Vec::new();
        while !origins.contains(&good.local_addr().unwrap()) {
            await_ready(&listener, Interest::READ);
            while let Some((_, from)) = listener.accept().unwrap() {
                origins.push(from);
            }
        }
    }
}

#[test]
fn port_has_one_listener_even_with_reuse() {
    for ip in loopbacks() {
        let first = Listener::bind(SocketAddr::new(ip, 0), true).unwrap();
        let again = Listener::bind(first.local_addr().unwrap(), true);
        assert!(again.unwrap_err().is_in_use());
    }
}

#[test]
fn ipv6_listener_is_v6only() {
    if loopbacks().len() < 2 {
        return;
    }
    let six = Listener::bind("[::]:0".parse().unwrap(), true).unwrap();
    assert!(sockopt::ipv6_v6only(&six).unwrap());
}

#[test]
fn accepted_sockets_are_nonblocking_and_cloexec() {
    let (_a, b) = connection(loopbacks()[0]);
    let fd_flags = rustix::io::fcntl_getfd(&b).unwrap();
    assert!(fd_flags.contains(rustix::io::FdFlags::CLOEXEC));
    // SAFETY: queries the flags of a descriptor that `b` keeps open.
    let flags = unsafe { libc::fcntl(b.as_fd().as_raw_fd(), libc::F_GETFL) };
    assert_ne!(flags & libc::O_NONBLOCK, 0);
}

/// Sets the descriptor limit of this process.
fn limit(descriptors: libc::rlim_t) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid `rlimit` on this stack frame.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = descriptors.min(limit.rlim_max);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

/// In a child, because the limit is per process.
#[test]
fn accept_without_descriptors_keeps_the_connection() {
    let at = SocketAddr::new(loopbacks()[0], 0);
    // SAFETY: the child makes bare system calls and exits; it takes no lock and allocates nothing.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // Made here: a child has none of its parent's. On loopback a connection is established when connect returns.
        let listener = Listener::bind(at, true).unwrap();
        let _dialled = Socket::connect(listener.local_addr().unwrap(), None, None).unwrap();
        limit(3);
        let full = matches!(listener.accept(), Err(e) if e.is_out_of_descriptors());
        limit(1024);
        let kept = matches!(listener.accept(), Ok(Some(_)));
        // SAFETY: ends the child at once, without running exit handlers of the parent.
        unsafe { libc::_exit(i32::from(!full) + 2 * i32::from(!kept)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 0, "1: not told, 2: lost");
}
