//! Receiving messages, from a peer that may send anything.
//! No byte of the next message is read, memory grows with what was received and not with what was announced, and every received descriptor
//! is returned or closed. Descriptors that were not announced are an error.

use core::mem::MaybeUninit;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use verbena_stream::Time;

use super::super::{Error, now};
use super::{FdChannel, FdChannelError, HEADER, Header, PER_FRAME, check_count};

/// The buffer grows by this much at a time.
const GROWTH: usize = 1 << 20;

/// A frame that is being received.
struct Frame {
    /// Bytes received, of how many, including the header.
    done: usize,
    total: usize,
    announced: usize,
    descriptors: Vec<OwnedFd>,
}

impl FdChannel {
    /// Waits for the next message: its bytes and its descriptors, which are close-on-exec.
    ///
    /// If the time limit is reached before its first byte, the next call may receive it; after any other error none does.
    pub fn receive(&mut self) -> Result<(Vec<u8>, Vec<OwnedFd>), FdChannelError> {
        self.check()?;
        let deadline = now() + self.recv_timeout;
        let (mut bytes, mut descriptors) = (Vec::new(), Vec::new());
        loop {
            let first = descriptors.is_empty();
            let (header, mut frame) = self.receive_header(deadline, first)?;
            // All bytes belong to the first frame.
            if !first && header.len > 0 {
                let word = u64::from_le_bytes(header.emit());
                return Err(FdChannelError::Malformed { word });
            }
            check_count(descriptors.len() + header.descriptors)?;
            while bytes.len() < header.len {
                let start = bytes.len();
                bytes.resize(header.len.min(start + GROWTH), 0);
                self.fill(&mut bytes[start..], &mut frame, deadline)?;
            }
            let (announced, got) = (header.descriptors, frame.descriptors.len());
            if got != announced {
                return Err(FdChannelError::DescriptorCount { announced, got });
            }
            descriptors.append(&mut frame.descriptors);
            if !header.more {
                break;
            }
        }
        self.broken = false;
        Ok((bytes, descriptors))
    }

    fn receive_header(
        &mut self,
        deadline: Time,
        first: bool,
    ) -> Result<(Header, Frame), FdChannelError> {
        let mut frame = Frame {
            done: 0,
            total: HEADER,
            announced: PER_FRAME,
            descriptors: Vec::new(),
        };
        let mut head = [0; HEADER];
        match self.fill(&mut head, &mut frame, deadline) {
            Err(FdChannelError::Truncated { done: 0, .. }) if first => {
                return Err(FdChannelError::Disconnected);
            }
            answer => answer?,
        }
        let header = Header::parse(head)?;
        frame.total = HEADER + header.len;
        frame.announced = header.descriptors;
        Ok((header, frame))
    }

    /// Fills `into` with bytes of the frame.
    fn fill(
        &mut self,
        mut into: &mut [u8],
        frame: &mut Frame,
        deadline: Time,
    ) -> Result<(), FdChannelError> {
        while !into.is_empty() {
            match self.receive_some(into, frame)? {
                Ok(0) => {
                    self.broken = true;
                    let (done, of) = (frame.done, frame.total);
                    return Err(FdChannelError::Truncated { done, of });
                }
                Ok(n) => {
                    self.broken = true;
                    frame.done += n;
                    into = &mut into[n..];
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.wait(PollFlags::IN, deadline)? => {}
                Err(Errno::AGAIN) => {
                    let (done, of, patience) = (frame.done, frame.total, self.recv_timeout);
                    return Err(FdChannelError::TimedOut { done, of, patience });
                }
                // The peer closed the connection without reading what was sent to it.
                Err(Errno::CONNRESET) => {
                    self.broken = true;
                    let (done, of) = (frame.done, frame.total);
                    return Err(FdChannelError::Truncated { done, of });
                }
                Err(errno) => return Err(Error::new("recvmsg", errno).into()),
            }
        }
        Ok(())
    }

    /// One recvmsg(2), and the descriptors that came with it.
    fn receive_some(
        &mut self,
        into: &mut [u8],
        frame: &mut Frame,
    ) -> Result<Result<usize, Errno>, FdChannelError> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PER_FRAME))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let (mut pieces, flags) = ([IoSliceMut::new(into)], RecvFlags::CMSG_CLOEXEC);
        let came = match recvmsg(&self.fd, &mut pieces, &mut control, flags) {
            Ok(came) => came,
            Err(errno) => return Ok(Err(errno)),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                frame.descriptors.extend(some);
            }
        }
        let (announced, got) = (frame.announced, frame.descriptors.len());
        if came.flags.contains(ReturnFlags::CTRUNC) {
            self.broken = true;
            return Err(FdChannelError::DescriptorsLost);
        }
        if got > announced {
            self.broken = true;
            return Err(FdChannelError::DescriptorCount { announced, got });
        }
        Ok(Ok(came.bytes))
    }
}
