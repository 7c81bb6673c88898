//! Sockets as carriers: bytes go between a stream and the places a queue pair names, in one system call each way.
//! It promises that the call neither waits nor raises a signal, and that places are touched only while their grants are held.
//! It refuses to look at the bytes, and hands raw spans to the kernel, because registered memory gets no Rust references.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use verbena_mem::{Sources, Span, Targets};
use verbena_nic::{Carrier, Moved};

use super::Socket;

impl Carrier for &Socket {
    fn read(&mut self, targets: &mut Targets<'_>) -> Moved {
        // A fault here leaves the bytes in the socket; those before the bad place were moved and counted.
        match targets.spans() {
            [one] => carry_one(libc::SYS_recvfrom, self.as_fd(), *one, 0),
            spans => carry(libc::SYS_recvmsg, self.as_fd(), spans, 0),
        }
    }

    fn expect(&mut self, bytes: usize) {
        // Refused, it is as it was: somebody is woken too often.
        let _ = self.set_low_water(bytes);
    }

    fn write(&mut self, sources: &Sources<'_>) -> Moved {
        let flags = libc::MSG_NOSIGNAL | self.record_end();
        let moved = match sources.spans() {
            [one] => carry_one(libc::SYS_sendto, self.as_fd(), *one, flags),
            spans => carry(libc::SYS_sendmsg, self.as_fd(), spans, flags),
        };
        match moved {
            // A stream takes at least one byte or says why not; nothing is the honest reading of zero.
            Moved::End => Moved::Nothing,
            moved => moved,
        }
    }
}

/// Moves bytes between the socket and the spans. The spans come from a list that holds their grants and borrows.
fn carry(call: libc::c_long, fd: BorrowedFd<'_>, spans: &[Span], flags: libc::c_int) -> Moved {
    if spans.is_empty() {
        // The kernel would answer zero, which means the end.
        return Moved::Nothing;
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
        // SAFETY: the caller's list keeps every span granted or borrowed until we return, for writing if this
        // receives, and the kernel checks the addresses themselves; the header is ours. The kernel reads the list of
        // spans and writes only the header's lengths.
        unsafe { libc::syscall(call, fd.as_raw_fd(), &raw mut message, flags) }
    })
}

/// The same for one span, which the kernel need not be given a list of: every empty poll of a connection is this call.
fn carry_one(call: libc::c_long, fd: BorrowedFd<'_>, span: Span, flags: libc::c_int) -> Moved {
    if span.is_empty() {
        return Moved::Nothing;
    }
    let flags = flags | libc::MSG_DONTWAIT;
    let nobody = core::ptr::null_mut::<libc::sockaddr>();
    repeat(|| {
        // SAFETY: as above, for the one span; no address is asked for or given.
        unsafe {
            let (at, len) = (span.as_ptr(), span.len());
            libc::syscall(call, fd.as_raw_fd(), at, len, flags, nobody, nobody)
        }
    })
}

/// Makes the call until no signal comes in between, and reads its answer.
fn repeat(mut call: impl FnMut() -> libc::c_long) -> Moved {
    loop {
        let n = call();
        if n >= 0 {
            return usize::try_from(n).map_or(Moved::Broken, counted);
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => return Moved::Nothing,
            Some(libc::EFAULT) => return Moved::Fault,
            // Reset, timed out, unreachable, shut down: none of them comes back.
            _ => return Moved::Broken,
        }
    }
}

/// Reads into a buffer of our own.
pub fn read_into(socket: &Socket, bytes: &mut [u8]) -> Moved {
    let mut targets = Targets::new();
    targets.stage(bytes);
    Carrier::read(&mut &*socket, &mut targets)
}

/// Writes from a buffer of our own.
pub fn write_from(socket: &Socket, bytes: &[u8]) -> Moved {
    let mut sources = Sources::new();
    sources.own(bytes);
    Carrier::write(&mut &*socket, &sources)
}

fn counted(n: usize) -> Moved {
    if n == 0 { Moved::End } else { Moved::Bytes(n) }
}

const _: () = assert!(size_of::<Span>() == size_of::<libc::iovec>());
const _: () = assert!(align_of::<Span>() == align_of::<libc::iovec>());

#[cfg(test)]
mod tests;
