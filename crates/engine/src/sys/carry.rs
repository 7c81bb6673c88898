//! Sockets as carriers: bytes move between a socket and the memory that a queue pair names, in one system call each way.
//! The call neither blocks nor raises SIGPIPE, and memory is accessed only while its grants are held. Raw spans go to the kernel, since
//! registered memory gets no Rust references.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use verbena_mem::{Sources, Span, Targets};
use verbena_nic::{Carrier, IoOutcome};

use super::Socket;

impl Carrier for &Socket {
    fn read(&mut self, targets: &mut Targets<'_>) -> IoOutcome {
        // EFAULT leaves the bytes in the socket; those before the bad address were moved and counted.
        match targets.spans() {
            [one] => carry_one(libc::SYS_recvfrom, self.as_fd(), *one, 0),
            spans => carry(libc::SYS_recvmsg, self.as_fd(), spans, 0),
        }
    }

    fn unacknowledged(&self) -> Option<u64> {
        Some(Socket::unacknowledged(self))
    }

    fn finish(&mut self) {
        // The connection may have failed already.
        let _ = self.shutdown_write();
    }

    fn expect_at_least(&mut self, bytes: usize) {
        // If this fails, the low-water mark stays as it was and a thread is only woken too often.
        let _ = self.set_low_water(bytes);
    }

    fn write(&mut self, sources: &Sources<'_>) -> IoOutcome {
        let flags = libc::MSG_NOSIGNAL | self.record_end();
        let moved = match sources.spans() {
            [one] => carry_one(libc::SYS_sendto, self.as_fd(), *one, flags),
            spans => carry(libc::SYS_sendmsg, self.as_fd(), spans, flags),
        };
        match moved {
            // A stream socket takes at least one byte or returns an error, so zero is treated as EAGAIN.
            IoOutcome::Eof => IoOutcome::WouldBlock,
            moved => moved,
        }
    }
}

/// Moves bytes between the socket and the spans. The caller's list of spans holds their grants and borrows.
fn carry(call: libc::c_long, fd: BorrowedFd<'_>, spans: &[Span], flags: libc::c_int) -> IoOutcome {
    if spans.is_empty() {
        // The kernel would return zero, which means the end of the stream.
        return IoOutcome::WouldBlock;
    }
    let mut message = libc::msghdr {
        msg_name: core::ptr::null_mut(),
        msg_namelen: 0,
        // A span is laid out like the kernel's `struct iovec`; see the assertions below.
        msg_iov: spans.as_ptr().cast_mut().cast(),
        msg_iovlen: spans.len(),
        msg_control: core::ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    };
    let flags = flags | libc::MSG_DONTWAIT;
    repeat(|| {
        // SAFETY: every span comes from the caller's `Targets` or `Sources`, which holds its grant or borrow (for writing if this receives)
        // until this function returns; the kernel checks the addresses and returns EFAULT for unmapped ones. `message` is on this stack
        // frame; the kernel reads `msg_iov` and writes only the header's lengths and flags.
        unsafe { libc::syscall(call, fd.as_raw_fd(), &raw mut message, flags) }
    })
}

/// The same for one span, without an iovec list: every empty poll of a connection makes this call.
fn carry_one(call: libc::c_long, fd: BorrowedFd<'_>, span: Span, flags: libc::c_int) -> IoOutcome {
    if span.is_empty() {
        return IoOutcome::WouldBlock;
    }
    let flags = flags | libc::MSG_DONTWAIT;
    let no_address = core::ptr::null_mut::<libc::sockaddr>();
    repeat(|| {
        // SAFETY: `at` and `len` are the caller's span, granted or borrowed until this function returns; the address arguments are null.
        unsafe {
            let (at, len) = (span.as_ptr(), span.len());
            libc::syscall(call, fd.as_raw_fd(), at, len, flags, no_address, no_address)
        }
    })
}

/// Repeats the call while signals interrupt it, and maps its result.
fn repeat(mut call: impl FnMut() -> libc::c_long) -> IoOutcome {
    loop {
        let n = call();
        if n >= 0 {
            return usize::try_from(n).map_or(IoOutcome::Broken, counted);
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => return IoOutcome::WouldBlock,
            Some(libc::EFAULT) => return IoOutcome::Fault,
            // Reset, timed out, unreachable, shut down: all of these are final.
            _ => return IoOutcome::Broken,
        }
    }
}

/// Reads into a buffer that is not registered memory.
pub fn read_into(socket: &Socket, bytes: &mut [u8]) -> IoOutcome {
    let mut targets = Targets::new();
    targets.stage(bytes);
    Carrier::read(&mut &*socket, &mut targets)
}

/// Bytes that could be read without waiting.
pub fn readable(socket: &Socket) -> u64 {
    // Fails only for sockets without a connection, which give no bytes.
    rustix::io::ioctl_fionread(socket).unwrap_or(u64::MAX)
}

/// How the peer ended the connection, if it did and no byte is left to read.
pub fn peek_end(socket: &Socket) -> Option<IoOutcome> {
    let mut byte = [0];
    let mut targets = Targets::new();
    targets.stage(&mut byte);
    let moved = match targets.spans() {
        [one] => carry_one(libc::SYS_recvfrom, socket.as_fd(), *one, libc::MSG_PEEK),
        _ => return None,
    };
    matches!(moved, IoOutcome::Eof | IoOutcome::Broken).then_some(moved)
}

/// Writes from a buffer that is not registered memory.
pub fn write_from(socket: &Socket, bytes: &[u8]) -> IoOutcome {
    let mut sources = Sources::new();
    sources.borrow_bytes(bytes);
    Carrier::write(&mut &*socket, &sources)
}

fn counted(n: usize) -> IoOutcome {
    if n == 0 {
        IoOutcome::Eof
    } else {
        IoOutcome::Bytes(n)
    }
}

const _: () = assert!(size_of::<Span>() == size_of::<libc::iovec>());
const _: () = assert!(align_of::<Span>() == align_of::<libc::iovec>());

#[cfg(test)]
mod tests;
