//! Tests over real sockets: scattered reads, short writes, ends, resets and inaccessible memory.

use verbena_mem::Access;

use super::super::testing::{
    WRITE, await_ready, connection, loopbacks, memory, part, receive, send,
};
use super::super::{Interest, Socket};
use super::*;

/// A reserved page without access rights: the kernel returns EFAULT for it.
struct UnmappedPage(*mut u8);

const PAGE: usize = 4096;

impl UnmappedPage {
    fn new() -> UnmappedPage {
        let (rights, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: maps a new page at an address of the kernel's choice, then removes its access rights. The mapping stays
        // reserved until `drop`, so no other allocation gets the address.
        unsafe {
            let page = libc::mmap(core::ptr::null_mut(), PAGE, rights, kind, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(page, PAGE, libc::PROT_NONE), 0);
            UnmappedPage(page.cast())
        }
    }

    /// As a span, which no grant would name: what the kernel sees when a program unmaps registered memory.
    fn span(&self) -> Span {
        Span::new(self.0, PAGE)
    }
}

impl Drop for UnmappedPage {
    fn drop(&mut self) {
        // SAFETY: the page mapped in `new`, whose address no other code has.
        unsafe { libc::munmap(self.0.cast(), PAGE) };
    }
}

#[test]
fn reads_scatter_over_registered_memory_and_stages() {
    for ip in loopbacks() {
        let (a, b) = connection(ip);
        let (tpt, buffer) = memory(64);
        send(&a, b"abcdefghij");
        await_ready(&b, Interest::READ);
        let mut stage = [0; 8];
        let mut targets = Targets::new();
        let granted = |offset, len| {
            let reach = part(&buffer, offset, len, Access::LOCAL_WRITE);
            tpt.place_local(&reach).unwrap()
        };
        targets.place(granted(32, 3));
        targets.place(granted(0, 4));
        targets.stage(&mut stage);
        assert_eq!((&b).read(&mut targets), IoOutcome::Bytes(10));
        assert_eq!((&b).read(&mut targets), IoOutcome::WouldBlock);
        drop(targets);
        assert_eq!(buffer.read(32, 3), b"abc");
        assert_eq!(buffer.read(0, 4), b"defg");
        assert_eq!(&stage[..3], b"hij");
    }
}

#[test]
fn writes_gather_until_the_socket_is_full() {
    for ip in loopbacks() {
        let (a, b) = connection(ip);
        let (tpt, buffer) = memory(1 << 20);
        let pattern: Vec<u8> = (0..1_u32 << 20).map(|i| (i % 251) as u8).collect();
        assert!(buffer.write(0, &pattern));
        let mut stream = b"head".to_vec();
        stream.extend_from_slice(&pattern);
        let mut sent = 0;
        loop {
            // Like a queue pair: names the rest, and is told the count.
            let left = sent % stream.len();
            let mut sources = Sources::new();
            sources.borrow_bytes(&stream[left.min(4)..4]);
            let from = left.saturating_sub(4) as u64;
            let reach = part(&buffer, from, (1 << 20) - from, Access::LOCAL_READ);
            sources.gather(tpt.gather_local(&reach).unwrap());
            match (&a).write(&sources) {
                IoOutcome::Bytes(n) => sent += n,
                IoOutcome::WouldBlock => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(sent > 0);
        let mut got = 0;
        while got < sent {
            await_ready(&b, Interest::READ);
            let (moved, bytes) = receive(&b, 1 << 16);
            assert!(matches!(moved, IoOutcome::Bytes(_)));
            for byte in bytes {
                assert_eq!(byte, stream[got % stream.len()], "at {got}");
                got += 1;
            }
        }
        await_ready(&a, WRITE);
        send(&a, b"more");
    }
}

#[test]
fn empty_targets_and_sources_move_nothing() {
    let (a, b) = Socket::pair().unwrap();
    send(&a, b"x");
    assert_eq!((&b).read(&mut Targets::new()), IoOutcome::WouldBlock);
    assert_eq!((&a).write(&Sources::new()), IoOutcome::WouldBlock);
    assert_eq!(receive(&b, 9), (IoOutcome::Bytes(1), b"x".to_vec()));
}

#[test]
fn end_of_stream_follows_the_last_byte() {
    for ip in loopbacks() {
        let (a, b) = connection(ip);
        send(&a, b"last");
        a.shutdown_write().unwrap();
        await_ready(&b, Interest::READ);
        assert_eq!(receive(&b, 9), (IoOutcome::Bytes(4), b"last".to_vec()));
        await_ready(&b, Interest::READ);
        assert_eq!(receive(&b, 9).0, IoOutcome::Eof);
        assert_eq!(receive(&b, 9).0, IoOutcome::Eof, "it stays at the end");
        // The other direction still works.
        send(&b, b"heard");
        await_ready(&a, Interest::READ);
        assert_eq!(receive(&a, 9), (IoOutcome::Bytes(5), b"heard".to_vec()));
    }
}

/// SIGPIPE would kill this test.
#[test]
fn reset_breaks_both_directions_without_sigpipe() {
    for ip in loopbacks() {
        let (a, b) = connection(ip);
        a.abort();
        assert!(await_ready(&b, Interest::READ).hangup);
        assert_eq!(receive(&b, 9).0, IoOutcome::Broken);
        let mut sources = Sources::new();
        sources.borrow_bytes(b"x");
        assert_eq!((&b).write(&sources), IoOutcome::Broken);
    }
}

#[test]
fn write_after_shutdown_is_broken() {
    let (a, _b) = Socket::pair().unwrap();
    a.shutdown_write().unwrap();
    let mut sources = Sources::new();
    sources.borrow_bytes(b"x");
    assert_eq!((&a).write(&sources), IoOutcome::Broken);
}

#[test]
fn read_into_unmapped_memory_loses_no_bytes() {
    let gone = UnmappedPage::new();
    for ip in loopbacks() {
        let (a, b) = connection(ip);
        send(&a, b"abc");
        await_ready(&b, Interest::READ);
        let into = carry(libc::SYS_recvmsg, b.as_fd(), &[gone.span()], 0);
        assert_eq!(into, IoOutcome::Fault);
        assert_eq!(receive(&b, 9), (IoOutcome::Bytes(3), b"abc".to_vec()));
    }
}

#[test]
fn write_from_unmapped_memory_is_a_fault() {
    let gone = UnmappedPage::new();
    for ip in loopbacks() {
        let (a, _b) = connection(ip);
        let from = carry(libc::SYS_sendmsg, a.as_fd(), &[gone.span()], 0);
        assert_eq!(from, IoOutcome::Fault);
    }
}
