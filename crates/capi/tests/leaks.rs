//! Objects that were made and destroyed leave nothing: neither memory, nor descriptors, nor threads.
//! Alone in its process, since it looks at all of it.

mod common;

use common::*;
use core::ffi::{c_int, c_void};
use core::ptr;
use libc::{sockaddr, sockaddr_in, socklen_t};
use std::sync::Mutex;
use std::time::Duration;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

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

/// Tests of this program measure the whole process: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Resident memory in kilobytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Descriptors but for sockets: numbers of queue pairs rest for a while, and their ports stay open meanwhile (RC.md).
fn descriptors() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter(|entry| {
        let target = std::fs::read_link(entry.as_ref().unwrap().path());
        !target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
    })
    .count()
}

/// Threads, the fewest within a tenth of a second: the kernel lists a thread for a moment after it was joined.
fn threads() -> usize {
    let count = || {
        std::thread::sleep(Duration::from_millis(5));
        std::fs::read_dir("/proc/self/task").unwrap().count()
    };
    (0..20).map(|_| count()).min().unwrap()
}

#[test]
fn nothing_stays() {
    let _alone = ALONE.lock().unwrap();
    objects();
    devices();
}

fn objects() {
    let wanted = Wanted {
        told: true,
        shared: 4,
        operations: IBV_QP_EX_WITH_SEND.into(),
        ..Wanted::default()
    };
    let side = Side::new(wanted);
    let round = || {
        // SAFETY: objects that are there, destroyed in order.
        unsafe {
            let pd = ibv_alloc_pd(side.context);
            let mr = ibv_reg_mr(pd, side.memory.as_ptr().cast_mut().cast(), 64, 1);
            let mw = alloc_mw(pd, IBV_MW_TYPE_2);
            let cq = ibv_create_cq(side.context, 16, ptr::null_mut(), side.channel, 0);
            let qp = side.make();
            // A failure leaves nothing either.
            let mut wrong = side.init_ex();
            wrong.send_ops_flags = 1 << 30;
            let create = slots(side.context).create_qp_ex.unwrap();
            assert!(create(side.context, &raw mut wrong).is_null());
            let mut attr = side.rtr_attr(0).0.ah_attr;
            let ah = ibv_create_ah(pd, &raw mut attr);
            assert_eq!(ibv_destroy_ah(ah), 0);
            assert_eq!(ibv_destroy_qp(qp), 0);
            assert_eq!(ibv_destroy_cq(cq), 0);
            assert_eq!(dealloc_mw(mw), 0);
            assert_eq!(ibv_dereg_mr(mr), 0);
            assert_eq!(ibv_dealloc_pd(pd), 0);
        }
    };
    let rounds: usize = std::env::var("ROUNDS").map_or(2000, |n| n.parse().unwrap());
    for _ in 0..rounds {
        round();
    }
    let before = (resident(), descriptors(), threads());
    for _ in 0..rounds {
        round();
    }
    let after = (resident(), descriptors(), threads());
    println!("kilobytes, descriptors, threads: {before:?}, then {after:?}");
    assert!(
        after.0 < before.0 + 1024,
        "{} kB more after {rounds} rounds",
        after.0 - before.0
    );
    assert_eq!((before.1, before.2), (after.1, after.2));
}

fn devices() {
    let round = |_| drop(pair(Wanted::default()));
    (0..20).for_each(round);
    let before = (resident(), descriptors(), threads());
    (0..100).for_each(round);
    let after = (resident(), descriptors(), threads());
    assert!(after.0 < before.0 + 4096, "{before:?}, then {after:?}");
    assert_eq!((before.1, before.2), (after.1, after.2));
}

/// So many connections over loopback: the sockets that connected and those that were accepted.
fn connections(count: usize) -> Vec<(c_int, c_int)> {
    // SAFETY: zeroes are a value of it, and every pointer is to it or to its length.
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
        // SAFETY: numbers.
        unsafe { assert_eq!((verbena_rclose(*client), verbena_rclose(*server)), (0, 0)) };
    }
}

#[test]
fn idle_sockets_take_little_memory() {
    let _alone = ALONE.lock().unwrap();
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
    // SAFETY: both buffers have that many bytes.
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
