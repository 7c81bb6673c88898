//! Registered memory of a carrier of cells. It is deregistered when dropped.
//! Access is by copies only.

use std::io;
use std::os::fd::BorrowedFd;

use verbena_mem::{Access, Buffer};
use verbena_wire::{Stag, To};

use crate::carrier::{Memory, MemoryAccess};

/// A registered buffer.
#[derive(Debug)]
pub(super) struct CellMemory(pub(super) Buffer);

impl Memory for CellMemory {
    fn stag(&self) -> Stag {
        self.0.stag()
    }

    fn address(&self) -> To {
        To::new(self.0.at())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        self.0.write(offset, bytes)
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        self.0.read_into(offset, into)
    }

    fn read_from(
        &self,
        fd: BorrowedFd<'_>,
        head: &mut [u8],
        offset: usize,
        len: usize,
    ) -> io::Result<usize> {
        self.0.read_from(fd, head, offset, len)
    }

    fn write_to(
        &self,
        fd: BorrowedFd<'_>,
        head: &[u8],
        offset: usize,
        len: usize,
    ) -> io::Result<usize> {
        self.0.write_to(fd, head, offset, len)
    }
}

/// The access rights of a reach.
pub(super) fn access(reach: MemoryAccess) -> Access {
    match reach {
        MemoryAccess::Local => Access::LOCAL_WRITE,
        MemoryAccess::RemoteWrite => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
    }
}
