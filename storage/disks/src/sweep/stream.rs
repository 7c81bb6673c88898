//! Sources and sinks of a pass, in order: descriptors, and anything that implements `Read` or `Write`. Bytes of descriptors move to and
//! from registered memory without a copy. Descriptors have to be in blocking mode.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;

use verbena::Memory;

use crate::error::Error;

/// Bytes per copy, where one is needed.
const COPY: usize = 64 << 10;

/// Takes the bytes of a disk, in order.
pub trait Sink {
    /// Takes `len` bytes at `offset` of the memory, which are those at `at` of the disk.
    fn put(&mut self, at: u64, memory: &Memory, offset: usize, len: usize) -> Result<(), Error>;
}

/// Supplies bytes for a disk, in order.
pub trait Source {
    /// Writes `len` bytes to `offset` of the memory; fewer only at the end.
    fn fill(&mut self, memory: &Memory, offset: usize, len: usize) -> Result<usize, Error>;
}

/// A descriptor to write to: a file, a pipe. No copy is made.
#[derive(Debug)]
pub struct FdSink<'fd>(pub BorrowedFd<'fd>);

/// A descriptor to read from: a file, a pipe. No copy is made.
#[derive(Debug)]
pub struct FdSource<'fd>(pub BorrowedFd<'fd>);

impl Sink for FdSink<'_> {
    fn put(&mut self, _: u64, memory: &Memory, offset: usize, len: usize) -> Result<(), Error> {
        let mut sent = 0;
        while sent < len {
            match memory.write_to(self.0, &[], offset + sent, len - sent)? {
                Ok(0) => return Err(output(io::ErrorKind::WriteZero.into())),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(output(error)),
            }
        }
        Ok(())
    }
}

impl Source for FdSource<'_> {
    fn fill(&mut self, memory: &Memory, offset: usize, len: usize) -> Result<usize, Error> {
        let mut got = 0;
        while got < len {
            match memory.read_from(self.0, &mut [], offset + got, len - got)? {
                Ok(0) => break,
                Ok(count) => got += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(input(error)),
            }
        }
        Ok(got)
    }
}

fn output(error: io::Error) -> Error {
    Error::io("the output")(error)
}

fn input(error: io::Error) -> Error {
    Error::io("the input")(error)
}

/// Any writer, with a copy.
pub struct Writer<W>(pub W);

/// Any reader, with a copy.
pub struct Reader<R>(pub R);

impl<W: Write> Sink for Writer<W> {
    fn put(&mut self, _: u64, memory: &Memory, offset: usize, len: usize) -> Result<(), Error> {
        let mut copy = vec![0; len.min(COPY)];
        for start in (0..len).step_by(COPY) {
            let part = &mut copy[..COPY.min(len - start)];
            memory.read_at(offset + start, part)?;
            self.0.write_all(part).map_err(output)?;
        }
        Ok(())
    }
}

impl<R: Read> Source for Reader<R> {
    fn fill(&mut self, memory: &Memory, offset: usize, len: usize) -> Result<usize, Error> {
        let mut copy = vec![0; len.min(COPY)];
        for start in (0..len).step_by(COPY) {
            let part = &mut copy[..COPY.min(len - start)];
            let got = read_full(&mut self.0, part)?;
            memory.write_at(offset + start, &part[..got])?;
            if got < part.len() {
                return Ok(start + got);
            }
        }
        Ok(len)
    }
}

/// Reads until the buffer is full, or to the end.
fn read_full(reader: &mut impl Read, into: &mut [u8]) -> Result<usize, Error> {
    let mut got = 0;
    while got < into.len() {
        match reader.read(&mut into[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(input(error)),
        }
    }
    Ok(got)
}

/// A sink that compares the disk with a reader, and fails at the first difference.
pub struct CompareSink<R> {
    reader: R,
    matched: u64,
}

impl<R: Read> CompareSink<R> {
    /// Compares with this reader.
    pub fn new(reader: R) -> CompareSink<R> {
        CompareSink { reader, matched: 0 }
    }
}

impl<R: Read> Sink for CompareSink<R> {
    fn put(&mut self, at: u64, memory: &Memory, offset: usize, len: usize) -> Result<(), Error> {
        let (mut disk, mut input) = (vec![0; len.min(COPY)], vec![0; len.min(COPY)]);
        for start in (0..len).step_by(COPY) {
            let part = COPY.min(len - start);
            let (disk, input) = (&mut disk[..part], &mut input[..part]);
            memory.read_at(offset + start, disk)?;
            let got = read_full(&mut self.reader, input)?;
            compare_bytes(at + start as u64, &input[..got], &disk[..got])?;
            self.matched += got as u64;
            if got < part {
                return Err(Error::Short {
                    got: self.matched,
                    wanted: self.matched - got as u64 + (len - start) as u64,
                });
            }
        }
        Ok(())
    }
}

/// An error with the first difference, if there is one.
pub(super) fn compare_bytes(at: u64, expected: &[u8], found: &[u8]) -> Result<(), Error> {
    if expected == found {
        return Ok(());
    }
    let mut pairs = expected.iter().zip(found).enumerate();
    match pairs.find(|(_, (expected, found))| expected != found) {
        None => Ok(()),
        Some((first, (&expected, &found))) => Err(Error::Differs {
            at: at + first as u64,
            expected,
            found,
        }),
    }
}
