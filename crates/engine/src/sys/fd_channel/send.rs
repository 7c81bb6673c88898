//! Sending messages.
//! The descriptors leave with the first byte of their frame, and the caller's stay open. A message that is too long is not sent at all.

use core::mem::MaybeUninit;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use verbena_stream::Time;

use super::super::{Error, now};
use super::{
    FdChannel, FdChannelError, HEADER, Header, PER_FRAME, RETRY_INTERVAL, check_count, check_len,
};

impl FdChannel {
    /// Sends a message; when this returns all of it is in the socket.
    pub fn send(
        &mut self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), FdChannelError> {
        self.check()?;
        check_len(bytes.len())?;
        check_count(descriptors.len())?;
        let deadline = now() + self.send_timeout;
        let (mut bytes, mut rest) = (bytes, descriptors);
        loop {
            let (some, more) = rest.split_at(rest.len().min(PER_FRAME));
            let header = Header {
                len: bytes.len(),
                descriptors: some.len(),
                more: !more.is_empty(),
            };
            self.send_frame(header, bytes, some, deadline)?;
            if more.is_empty() {
                break;
            }
            // All bytes went with the first frame.
            (bytes, rest) = (&[], more);
        }
        self.broken = false;
        Ok(())
    }

    fn send_frame(
        &mut self,
        header: Header,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        deadline: Time,
    ) -> Result<(), FdChannelError> {
        let (head, of) = (header.emit(), HEADER + bytes.len());
        let mut done = 0;
        while done < of {
            let pieces = [
                IoSlice::new(&head[done.min(HEADER)..]),
                IoSlice::new(&bytes[done.saturating_sub(HEADER)..]),
            ];
            let ride = if done == 0 { descriptors } else { &[] };
            match self.send_some(&pieces, ride) {
                Ok(n) => {
                    self.broken = true;
                    done += n;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.wait(PollFlags::OUT, deadline)? => {}
                // More descriptors are in flight than this user may have: there is room as the peer receives them.
                Err(Errno::TOOMANYREFS) if now() < deadline => std::thread::sleep(RETRY_INTERVAL),
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => {
                    let patience = self.send_timeout;
                    return Err(FdChannelError::TimedOut { done, of, patience });
                }
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    self.broken = true;
                    return Err(FdChannelError::Truncated { done, of });
                }
                Err(errno) => return Err(Error::new("sendmsg", errno).into()),
            }
        }
        Ok(())
    }

    fn send_some(
        &self,
        pieces: &[IoSlice<'_>],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<usize, Errno> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PER_FRAME))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            // The buffer has room for a full frame; fewer descriptors must not go unnoticed.
            return Err(Errno::MSGSIZE);
        }
        sendmsg(&self.fd, pieces, &mut control, SendFlags::NOSIGNAL)
    }
}
