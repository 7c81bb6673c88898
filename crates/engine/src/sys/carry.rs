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
        carry(libc::SYS_recvmsg, self.as_fd(), targets.spans(), 0)
    }

    fn write(&mut self, sources: &Sources<'_>) -> Moved {
        let flags = libc::MSG_NOSIGNAL;
        match carry(libc::SYS_sendmsg, self.as_fd(), sources.spans(), flags) {
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
    loop {
        // SAFETY: the caller's list keeps every span granted or borrowed until we return, for writing if this
        // receives, and the kernel checks the addresses themselves; the header is ours. The kernel reads the list of
        // spans and writes only the header's lengths.
        let n = unsafe { libc::syscall(call, fd.as_raw_fd(), &raw mut message, flags) };
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

fn counted(n: usize) -> Moved {
    if n == 0 { Moved::End } else { Moved::Bytes(n) }
}

const _: () = assert!(size_of::<Span>() == size_of::<libc::iovec>());
const _: () = assert!(align_of::<Span>() == align_of::<libc::iovec>());

#[cfg(test)]
mod tests;
