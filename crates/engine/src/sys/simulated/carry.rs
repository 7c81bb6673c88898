//! Simulated sockets as carriers: bytes move between a socket's buffer and the memory that a queue pair names.
//! Other threads may run before the bytes are moved, as during a system call, but not while they are moved.

use verbena_mem::{Sources, Span, Targets};
use verbena_nic::{Carrier, IoOutcome};

use rustix::io::Errno;

use super::Socket;
use super::simulated::{point, wake, with};

fn total(spans: &[Span]) -> usize {
    spans.iter().map(Span::len).sum()
}

impl Carrier for &Socket {
    fn read(&mut self, targets: &mut Targets<'_>) -> IoOutcome {
        point();
        let spans = targets.spans();
        let room = total(spans);
        if room == 0 {
            return IoOutcome::WouldBlock;
        }
        let fd = self.descriptor().raw();
        let bytes = match with(|world| world.receive(fd, room)) {
            Ok(bytes) if bytes.is_empty() => return IoOutcome::Eof,
            Ok(bytes) => bytes,
            Err(Errno::AGAIN) => return IoOutcome::WouldBlock,
            Err(_) => return IoOutcome::Broken,
        };
        let mut left = bytes.as_slice();
        for span in spans {
            let (now, later) = left.split_at(span.len().min(left.len()));
            // SAFETY: `targets` holds the grant or borrow of each span for writing until this function returns, and `now` is not longer than
            // the span. `bytes` is a buffer of its own, so they do not overlap.
            unsafe { core::ptr::copy_nonoverlapping(now.as_ptr(), span.as_ptr(), now.len()) };
            left = later;
        }
        wake();
        IoOutcome::Bytes(bytes.len())
    }

    fn expect_at_least(&mut self, bytes: usize) {
        // Fails only for a socket that is closed already.
        let _ = self.set_low_water(bytes.max(1));
    }

    fn write(&mut self, sources: &Sources<'_>) -> IoOutcome {
        point();
        let spans = sources.spans();
        let fd = self.descriptor().raw();
        let room = match with(|world| world.room(fd)) {
            Ok(room) => room.min(total(spans)),
            Err(Errno::AGAIN) => return IoOutcome::WouldBlock,
            Err(_) => return IoOutcome::Broken,
        };
        if room == 0 {
            return IoOutcome::WouldBlock;
        }
        let mut bytes = Vec::with_capacity(room);
        for span in spans {
            let count = span.len().min(room - bytes.len());
            let at = bytes.len();
            bytes.resize(at + count, 0);
            // SAFETY: `sources` holds the grant or borrow of each span for reading until this function returns; `bytes` has `count` bytes from
            // `at` on, and does not overlap the span.
            unsafe {
                let to = bytes.as_mut_ptr().add(at);
                core::ptr::copy_nonoverlapping(span.as_ptr().cast_const(), to, count);
            }
        }
        with(|world| world.transmit(fd, &bytes));
        wake();
        IoOutcome::Bytes(bytes.len())
    }
}

/// Reads into a buffer that is not registered memory.
pub fn read_into(socket: &Socket, bytes: &mut [u8]) -> IoOutcome {
    let mut targets = Targets::new();
    targets.stage(bytes);
    Carrier::read(&mut &*socket, &mut targets)
}

/// Connections have no rings here, which alone ask for it.
pub fn readable(_: &Socket) -> u64 {
    0
}

/// Connections have no rings here, which alone ask for it.
pub fn peek_end(_: &Socket) -> Option<IoOutcome> {
    None
}

/// Writes from a buffer that is not registered memory.
pub fn write_from(socket: &Socket, bytes: &[u8]) -> IoOutcome {
    let mut sources = Sources::new();
    sources.borrow_bytes(bytes);
    Carrier::write(&mut &*socket, &sources)
}
