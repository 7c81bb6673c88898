//! Registered memory of the adapter as a [`Memory`]. Access is one copy without allocation, and a range outside the memory is rejected.

use std::io;
use std::os::fd::BorrowedFd;

use verbena_wire::{Stag, To};

use crate::carrier::Memory;

/// Memory, its STag and its address.
#[derive(Debug)]
pub(super) struct IwarpMemory {
    memory: verbena::Memory,
    stag: Stag,
    address: To,
}

impl IwarpMemory {
    pub(super) fn new(memory: verbena::Memory) -> Result<IwarpMemory, verbena::Error> {
        let start = memory.remote_addr(0)?;
        Ok(IwarpMemory {
            memory,
            stag: start.stag,
            address: start.to,
        })
    }
}

impl Memory for IwarpMemory {
    fn stag(&self) -> Stag {
        self.stag
    }

    fn address(&self) -> To {
        self.address
    }

    fn len(&self) -> usize {
        self.memory.len()
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        self.memory.write_at(offset, bytes).is_ok()
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        self.memory.read_at(offset, into).is_ok()
    }

    fn read_from(
        &self,
        fd: BorrowedFd<'_>,
        head: &mut [u8],
        offset: usize,
        len: usize,
    ) -> io::Result<usize> {
        let read = self.memory.read_from(fd, head, offset, len);
        read.unwrap_or_else(|_| Err(io::ErrorKind::InvalidInput.into()))
    }

    fn write_to(
        &self,
        fd: BorrowedFd<'_>,
        head: &[u8],
        offset: usize,
        len: usize,
    ) -> io::Result<usize> {
        let written = self.memory.write_to(fd, head, offset, len);
        written.unwrap_or_else(|_| Err(io::ErrorKind::InvalidInput.into()))
    }
}
