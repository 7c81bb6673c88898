//! Registered memory for requests of a disk. It is owned by the program or by one request at a time. Bytes are copied in and out; there are
//! no slices, since a target writes registered memory itself over iSER.

use verbena::Memory;

use super::driver::RequestQueue;
use crate::blocks::BufferRef;
use crate::error::Error;

/// A buffer for requests of a disk.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    len: usize,
}

impl Buffer {
    pub(super) fn new(memory: Memory, len: usize) -> Buffer {
        Buffer { memory, len }
    }

    /// An empty buffer, for requests without data.
    pub(super) fn none(listener: &RequestQueue) -> Buffer {
        Buffer::new(listener.empty_memory().clone(), 0)
    }

    pub(super) fn buffer_ref(&self) -> BufferRef {
        BufferRef::new(&self.memory, 0)
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes in at an offset.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.memory.write_at(offset, bytes)?)
    }

    /// Copies bytes out from an offset.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.memory.read_at(offset, into)?)
    }

    /// A copy of a range.
    pub fn to_vec(&self, offset: usize, len: usize) -> Result<Vec<u8>, Error> {
        let mut copy = vec![0; len];
        self.read_at(offset, &mut copy)?;
        Ok(copy)
    }
}
