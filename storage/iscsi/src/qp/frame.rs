//! PDUs to be transmitted: header, data in the command's buffers, padding and digest. A PDU of which bytes were transmitted is completed
//! even when its command has ended: the data is copied then. Data under a data digest is copied before the digest is computed, since the
//! consumer may change its buffers at any time.

use std::collections::VecDeque;

use verbena_mem::{Refusal, Sources};
use verbena_nic::UlpInit;
use verbena_storage_wire::iscsi::{BHS_LEN, Bhs, DIGEST_LEN, Opcode, digest, pad};

use super::commands::Commands;
use super::segments;

/// Most frames in one write: each takes about three entries of an I/O vector of 64.
pub(super) const MAX_FRAMES: usize = 20;

const HEAD: usize = BHS_LEN + DIGEST_LEN;
const TAIL: usize = 3 + DIGEST_LEN;

/// One PDU.
#[derive(Debug)]
pub(super) struct Frame {
    head: [u8; HEAD],
    head_len: usize,
    data: Data,
    tail: [u8; TAIL],
    tail_len: usize,
}

/// Where the data of a frame is.
#[derive(Debug)]
enum Data {
    /// In the buffers of the command in this slot: slot, offset, length.
    Placed(u32, u32, u32),
    /// In the frame.
    Owned(Vec<u8>),
}

impl Frame {
    /// A PDU with data of its own, or without data.
    pub(super) fn owned(bhs: &Bhs, data: Vec<u8>, digests: (bool, bool)) -> Frame {
        let mut frame = Frame::head(bhs, digests.0);
        let len = data.len() as u32;
        frame.close(len, (digests.1 && len > 0).then(|| sum(&data)));
        frame.data = Data::Owned(data);
        frame
    }

    /// A PDU with data of the command in `slot`.
    pub(super) fn placed(bhs: &Bhs, (slot, offset, len): (u32, u32, u32), digest: bool) -> Frame {
        let mut frame = Frame::head(bhs, digest);
        frame.close(len, None);
        frame.data = Data::Placed(slot, offset, len);
        frame
    }

    fn head(bhs: &Bhs, summed: bool) -> Frame {
        let mut head = [0; HEAD];
        let (front, behind) = head.split_at_mut(BHS_LEN);
        front.copy_from_slice(bhs);
        let mut head_len = BHS_LEN;
        if summed {
            behind.copy_from_slice(&digest(bhs));
            head_len = HEAD;
        }
        Frame {
            head,
            head_len,
            data: Data::Owned(Vec::new()),
            tail: [0; TAIL],
            tail_len: 0,
        }
    }

    fn close(&mut self, len: u32, summed: Option<[u8; DIGEST_LEN]>) {
        let padding = pad(len) as usize;
        self.tail_len = padding;
        if let Some(digest) = summed
            && let Some(place) = self.tail.get_mut(padding..padding + DIGEST_LEN)
        {
            place.copy_from_slice(&digest);
            self.tail_len += DIGEST_LEN;
        }
    }

    fn data_len(&self) -> usize {
        match &self.data {
            Data::Placed(_, _, len) => *len as usize,
            Data::Owned(bytes) => bytes.len(),
        }
    }

    fn len(&self) -> usize {
        self.head_len + self.data_len() + self.tail_len
    }

    fn is_command(&self) -> bool {
        let bhs = self.head.first_chunk::<BHS_LEN>();
        bhs.and_then(Opcode::of) == Some(Opcode::ScsiCommand)
    }

    fn slot(&self) -> Option<u32> {
        match self.data {
            Data::Placed(slot, ..) => Some(slot),
            Data::Owned(_) => None,
        }
    }
}

/// RFC 7143 §13.1: the digest covers data and padding.
fn sum(data: &[u8]) -> [u8; DIGEST_LEN] {
    let mut crc = verbena_wire::crc::Crc32c::new();
    crc.update(data);
    let padding = pad(data.len() as u32) as usize;
    crc.update([0; 3].get(..padding).unwrap_or_default());
    verbena_wire::crc::crc32c_wire(crc.finish())
}

/// Access to the memory of a command was refused.
#[derive(Debug)]
pub(super) struct Refused {
    /// The command's slot.
    pub(super) slot: u32,
    pub(super) refusal: Refusal,
}

/// Frames to transmit, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Frames {
    queue: VecDeque<Frame>,
    /// Bytes of the first frame that were transmitted.
    done: usize,
    bytes: usize,
}

impl Frames {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Frames not completely transmitted.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Bytes to transmit.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, frame: Frame) {
        self.bytes += frame.len();
        self.queue.push_back(frame);
    }

    pub(super) fn clear(&mut self) {
        *self = Frames::default();
    }

    /// Appends the bytes to transmit to `sources`, as far as one write takes them.
    pub(super) fn sources<'a>(
        &'a self,
        init: &'a UlpInit,
        commands: &'a Commands,
        sources: &mut Sources<'a>,
    ) -> Result<(), Refused> {
        let mut skip = self.done;
        for frame in &self.queue {
            let head = frame.head.get(skip.min(frame.head_len)..frame.head_len);
            if !sources.borrow_bytes(head.unwrap_or_default()) {
                return Ok(());
            }
            skip = skip.saturating_sub(frame.head_len);
            let data_len = frame.data_len();
            let from = skip.min(data_len);
            match &frame.data {
                Data::Owned(bytes) => {
                    if !sources.borrow_bytes(bytes.get(from..).unwrap_or_default()) {
                        return Ok(());
                    }
                }
                Data::Placed(slot, offset, len) => {
                    let range = (offset + from as u32, len - from as u32);
                    let Some(command) = commands.get(*slot) else {
                        return Ok(());
                    };
                    let named = segments::sources(init, &command.data, range, sources);
                    let slot = *slot;
                    if named.map_err(|refusal| Refused { slot, refusal })? < range.1 {
                        return Ok(());
                    }
                }
            }
            skip = skip.saturating_sub(data_len);
            let tail = frame.tail.get(skip.min(frame.tail_len)..frame.tail_len);
            if !sources.borrow_bytes(tail.unwrap_or_default()) {
                return Ok(());
            }
            skip = 0;
        }
        Ok(())
    }

    /// Removes `sent` bytes. Returns how many of them were data in buffers of commands, and how many PDUs were completed.
    pub(super) fn advance(&mut self, sent: usize) -> (usize, usize) {
        self.bytes -= sent;
        let (mut gathered, mut complete) = (0, 0);
        let mut end = self.done + sent;
        while let Some(frame) = self.queue.front() {
            let (len, data) = (frame.len(), frame.data_len());
            if frame.slot().is_some() {
                let within = |at: usize| at.saturating_sub(frame.head_len).min(data);
                gathered += within(end.min(len)) - within(self.done);
            }
            if end < len {
                break;
            }
            end -= len;
            self.done = 0;
            complete += 1;
            self.queue.pop_front();
        }
        self.done = end;
        (gathered, complete)
    }

    /// A command ends: its Data-Out PDUs that were not started are removed. The data of a PDU that was started, and of the command PDU itself,
    /// whose CmdSN the target expects (RFC 7143 §4.2.2.1), is copied.
    pub(super) fn detach_command(
        &mut self,
        init: &UlpInit,
        commands: &Commands,
        slot: u32,
    ) -> Result<(), Refusal> {
        let begun = self.done > 0;
        for (at, frame) in self.queue.iter_mut().enumerate() {
            if let Data::Placed(of, offset, len) = frame.data
                && of == slot
                && ((at == 0 && begun) || frame.is_command())
                && let Some(command) = commands.get(slot)
            {
                let mut rest = Vec::with_capacity(len as usize);
                segments::append(init, &command.data, (offset, len), &mut rest)?;
                rest.resize(len as usize, 0);
                frame.data = Data::Owned(rest);
            }
        }
        let keep = |frame: &Frame| frame.slot() != Some(slot);
        self.queue.retain(keep);
        self.bytes = self.queue.iter().map(Frame::len).sum::<usize>() - self.done;
        Ok(())
    }
}
