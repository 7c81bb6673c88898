//! Resident memory of idle rsockets.
//! In a process of its own: resident memory is the process's, and sockets finish closing in the background.

use core::ffi::{c_int, c_void};
use core::ptr;

use libc::{sockaddr, sockaddr_in, socklen_t};
use verbena_capi as _;
use verbena_testing::own_process;

use crate::resident::resident;

// The names that `librdmacm.so.1` has for `rsocket` and the rest.
unsafe extern "C" {
    fn verbena_rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn verbena_rbind(socket: c_int, at: *const sockaddr, len: socklen_t) -> c_int;
    fn verbena_rlisten(socket: c_int, backlog: c_int) -> c_int;
    fn verbena_rgetsockname(socket: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn verbena_raccept(socket: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int;
    fn verbena_rconnect(socket: c_int, at: *const sockaddr, len: socklen_t) -> c_int;
    fn verbena_rsend(socket: c_int, bytes: *const c_void, len: usize, flags: c_int) -> isize;
    fn verbena_rrecv(socket: c_int, into: *mut c_void, len: usize, flags: c_int) -> isize;
    fn verbena_rclose(socket: c_int) -> c_int;
}

/// So many connections over loopback: the sockets that connected and those that were accepted.
fn connections(count: usize) -> Vec<(c_int, c_int)> {
    // SAFETY: zeros are a valid `sockaddr_in`, and every pointer is to it or to its length.
    unsafe {
        let mut at: sockaddr_in = core::mem::zeroed();
        at.sin_family = libc::AF_INET as libc::sa_family_t;
        at.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
        let mut len = size_of::<sockaddr_in>() as socklen_t;
        let listener = verbena_rsocket(libc::AF_INET, libc::SOCK_STREAM, 0);
        assert_eq!(verbena_rbind(listener, (&raw const at).cast(), len), 0);
        assert_eq!(verbena_rlisten(listener, 128), 0);
        let name = (&raw mut at).cast();
        assert_eq!(verbena_rgetsockname(listener, name, &raw mut len), 0);
        let accepting = std::thread::spawn(move || {
            let accept = |_| verbena_raccept(listener, ptr::null_mut(), ptr::null_mut());
            (0..count).map(accept).collect::<Vec<_>>()
        });
        let connect = |_| {
            let socket = verbena_rsocket(libc::AF_INET, libc::SOCK_STREAM, 0);
            assert_eq!(verbena_rconnect(socket, (&raw const at).cast(), len), 0);
            socket
        };
        let clients: Vec<_> = (0..count).map(connect).collect();
        let servers = accepting.join().unwrap();
        assert_eq!(verbena_rclose(listener), 0);
        clients.into_iter().zip(servers).collect()
    }
}

fn close(pairs: &[(c_int, c_int)]) {
    for (client, server) in pairs {
        // SAFETY: `verbena_rclose` takes an integer; the sockets are not used after this.
        unsafe { assert_eq!((verbena_rclose(*client), verbena_rclose(*server)), (0, 0)) };
    }
}

#[test]
fn idle_sockets_stay_below_memory_limit() {
    own_process!();
    close(&connections(2));
    let before = resident();
    let pairs = connections(100);
    let each = (resident() - before) / 200;
    println!("{each} kB for each of 200 idle sockets");
    assert!(each < 160, "{each} kB for each idle socket");
    // Rings of 2 MiB still carry what they did.
    let (client, server) = pairs[0];
    let bytes = vec![7_u8; 1 << 20];
    let mut got = vec![0_u8; 1 << 20];
    // SAFETY: `bytes` is valid for reads and `got` for writes of their lengths, which are passed.
    unsafe {
        let sent = verbena_rsend(client, bytes.as_ptr().cast(), bytes.len(), 0);
        assert_eq!(sent, 1 << 20);
        let wait = libc::MSG_WAITALL;
        let received = verbena_rrecv(server, got.as_mut_ptr().cast(), got.len(), wait);
        assert_eq!(received, 1 << 20);
    }
    assert_eq!(bytes, got);
    close(&pairs);
}
