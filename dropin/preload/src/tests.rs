//! Which sockets become rsockets, and which calls are passed on.

use crate::fd_table;
use crate::lifecycle::is_tcp;

#[test]
fn only_tcp_sockets_become_rsockets() {
    let stream = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    assert!(is_tcp(libc::AF_INET, stream, 0));
    assert!(is_tcp(libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_TCP));
    assert!(!is_tcp(
        libc::AF_INET,
        libc::SOCK_STREAM,
        libc::IPPROTO_SCTP
    ));
    assert!(!is_tcp(libc::AF_INET, libc::SOCK_DGRAM, 0));
    assert!(!is_tcp(libc::AF_UNIX, libc::SOCK_STREAM, 0));
}

#[test]
fn descriptor_is_tracked_until_removed() {
    assert!(
        !fd_table::is_rsocket(777) && !fd_table::is_rsocket(-1) && !fd_table::is_rsocket(1 << 20)
    );
    assert!(fd_table::add(777) && fd_table::is_rsocket(777));
    assert!(fd_table::remove(777) && !fd_table::remove(777));
    assert!(
        !fd_table::add(-1) && !fd_table::add(1 << 20),
        "no place for them"
    );
}

#[test]
fn untracked_descriptors_are_passed_to_libc() {
    let mut ends = [0; 2];
    // SAFETY: every pointer is to a local of the test or to a string literal, valid for the length that is passed with it; the descriptors
    // are those that `pipe` returned.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        assert_eq!(
            crate::socket_calls::write(ends[1], c"hello".as_ptr().cast(), 5),
            5
        );
        let mut fd = libc::pollfd {
            fd: ends[0],
            events: libc::POLLIN,
            revents: 0,
        };
        assert_eq!(crate::wait::poll(&raw mut fd, 1, 1000), 1);
        let mut got = [0_u8; 9];
        assert_eq!(
            crate::socket_calls::read(ends[0], got.as_mut_ptr().cast(), 9),
            5
        );
        assert_eq!(&got[..5], b"hello");
        assert_eq!(crate::lifecycle::close(ends[0]), 0);
        assert_eq!(crate::lifecycle::close(ends[1]), 0);
        assert_eq!(crate::lifecycle::close(ends[1]), -1);
    }
}
