//! Sending and receiving, and memory that the peer writes by offset. Bytes moved before an error or a signal are returned as moved. The
//! error is returned by the next call.

use core::ops::BitOr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbena::low::Pd;

use super::Stream;
use crate::error::Error;
use crate::link::{Link, Mapped};

/// Flags of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u8);

impl Flags {
    /// Does not block.
    pub const DONT_WAIT: Flags = Flags(1);
    /// Does not consume what is read.
    pub const PEEK: Flags = Flags(2);
    /// Waits until all of it has arrived.
    pub const WAIT_ALL: Flags = Flags(4);

    /// All flags of `other` are set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// When a timeout is over; never without one, or beyond the clock's range.
fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|time| Instant::now().checked_add(time))
}

impl Stream {
    /// Sends everything, or as much as possible if non-blocking; an interrupted send returns how much was sent.
    pub fn send(&self, bytes: &[u8], flags: Flags) -> Result<usize, Error> {
        let link = self.link()?;
        self.push(&link, bytes, flags, |rest, _| link.send(rest))
    }

    fn push(
        &self,
        link: &Arc<Link>,
        bytes: &[u8],
        flags: Flags,
        push: impl Fn(&[u8], usize) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        let waits = !self.is_nonblocking() && !flags.contains(Flags::DONT_WAIT);
        if bytes.is_empty() {
            return link.send(bytes);
        }
        let mut done = 0;
        let mut until = None;
        while done < bytes.len() {
            let pushed = match push(&bytes[done..], done) {
                Err(Error::WouldBlock) if waits => {
                    let timeout = self.options().send_timeout;
                    until = until.or_else(|| deadline(timeout));
                    self.wait(until, || {
                        self.check_open(link)?;
                        push(&bytes[done..], done)
                    })
                }
                pushed => pushed,
            };
            match pushed {
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            if !waits {
                break;
            }
        }
        Ok(done)
    }

    /// Stops a wait when the socket is closed.
    fn check_open(&self, link: &Arc<Link>) -> Result<(), Error> {
        let now = self.link()?;
        Arc::ptr_eq(&now, link).then_some(()).ok_or(Error::Closed)
    }

    /// Receives available bytes, waiting for the first one if blocking; no bytes are the end of the stream.
    pub fn recv(&self, into: &mut [u8], flags: Flags) -> Result<usize, Error> {
        let link = self.link()?;
        let waits = !self.is_nonblocking() && !flags.contains(Flags::DONT_WAIT);
        let peek = flags.contains(Flags::PEEK);
        if into.is_empty() {
            return Ok(0);
        }
        let timeout = self.options().recv_timeout;
        let until = deadline(timeout);
        let all = flags.contains(Flags::WAIT_ALL) && waits;
        if all && peek {
            return self.peek_all(&link, into, until);
        }
        let mut done = 0;
        loop {
            let rest = &mut into[done..];
            let got = match link.recv(rest, peek) {
                Err(Error::WouldBlock) if waits => self.wait(until, || {
                    self.check_open(&link)?;
                    link.recv(rest, peek)
                }),
                got => got,
            };
            match got {
                Ok(0) => return Ok(done),
                Ok(n) => done += n,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
            if !all || done == into.len() {
                return Ok(done);
            }
        }
    }

    /// Waits for as much as requested, or as can ever arrive, without consuming it.
    fn peek_all(
        &self,
        link: &Arc<Link>,
        into: &mut [u8],
        until: Option<Instant>,
    ) -> Result<usize, Error> {
        let wanted = into.len();
        let waited = self.wait(until, || {
            self.check_open(link)?;
            let state = link.state();
            let enough = link.unread() >= wanted as u64;
            (enough || state.failed || link.is_finished())
                .then_some(())
                .ok_or(Error::WouldBlock)
        });
        match (waited, link.recv(into, true)) {
            (_, Ok(n)) if n > 0 => Ok(n),
            (Err(error), _) => Err(error),
            (Ok(()), got) => got,
        }
    }

    /// The number of unread bytes.
    pub fn unread(&self) -> Result<u64, Error> {
        Ok(self.link()?.unread())
    }

    /// The protection domain of memory for [`map`](Stream::map).
    pub fn pd(&self) -> Result<Pd, Error> {
        Ok(self.link()?.pd().clone())
    }

    /// Lets the peer write this memory, by this offset; `key` is its address for the program. The peer can rely on it once it has received
    /// something that was sent afterwards.
    pub fn map(&self, key: usize, mr: impl Into<Mapped>, offset: u64) -> Result<(), Error> {
        let link = self.link()?;
        let mut mr = Some(mr.into());
        self.wait(None, || link.map(key, &mut mr, offset))
    }

    /// Ends the mapping.
    pub fn unmap(&self, key: usize, len: usize) -> Result<(), Error> {
        let link = self.link()?;
        self.wait(None, || link.unmap(key, len))
    }

    /// Writes into memory that the peer has mapped.
    pub fn write_mapped(&self, bytes: &[u8], offset: u64, flags: Flags) -> Result<usize, Error> {
        let link = self.link()?;
        if bytes.is_empty() {
            return Ok(0);
        }
        self.push(&link, bytes, flags, |rest, done| {
            link.write_mapped(rest, offset.saturating_add(done as u64))
        })
    }
}
