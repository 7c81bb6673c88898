//! The reading side of a capture, in another process. What it reads is not trusted: a record that no adapter writes ends the capture with an error.

use verbena_mem::{Mapping, SharedMemoryError, Targets};
use verbena_ring::{Consumer, Layout, Read, RingError, RingMemory};

use super::record::{HEADER_LEN, Record};
use super::{Answer, NAME, Request, STOP, Status, Totals};
use crate::notify::attach::{self, ANSWER_CHECK, ANSWER_TIMEOUT, AskError};
use crate::sys::{self, PacketChannel};

/// What is captured, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Bytes of the ring, a power of two within [`RING_SIZES`](super::RING_SIZES).
    pub ring: u32,
    /// Bytes of a frame that are kept, within [`SNAP_LENS`](super::SNAP_LENS).
    pub snap_len: u32,
    /// The number in the adapter of the queue pair whose stream is captured; 0 for all. Packets of RoCEv2 are not selected.
    pub qp: u32,
}

/// Why an adapter cannot be captured, or no longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// There is no socket of this name.
    #[error("it has no adapter that can be captured")]
    NoAdapter,
    /// The process at the other end is another one.
    #[error("its socket is bound by process {0}")]
    WrongProcess(u32),
    /// Another process captures.
    #[error("another process captures it already")]
    Busy,
    /// No answer came.
    #[error("it does not answer; it may be stopped")]
    Silent,
    /// It refused the request.
    #[error("it refused the capture: no memory for the ring, another version, or another user")]
    Refused,
    /// It wrote something that is no record.
    #[error("it wrote something that is no record of a capture")]
    Malformed,
    /// The shared memory cannot be used.
    #[error("its ring cannot be used: {0}")]
    Memory(#[from] SharedMemoryError),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] sys::Error),
}

impl From<AskError> for CaptureError {
    fn from(error: AskError) -> CaptureError {
        match error {
            AskError::NoAdapter => CaptureError::NoAdapter,
            AskError::WrongProcess(by) => CaptureError::WrongProcess(by),
            AskError::Silent => CaptureError::Silent,
            AskError::Refused => CaptureError::Refused,
            AskError::System(error) => error.into(),
        }
    }
}

/// A capture of one adapter.
#[derive(Debug)]
pub struct Capture {
    channel: PacketChannel,
    consumer: Consumer,
    /// The adapter has closed its end.
    ended: bool,
    totals: Option<Totals>,
    data: Vec<u8>,
    header: [u8; HEADER_LEN],
    /// Bytes of the header and of the data that were read.
    read: usize,
}

impl Capture {
    /// Begins to capture an adapter of a process.
    pub fn attach(pid: u32, adapter: u32, options: Options) -> Result<Capture, CaptureError> {
        let channel = attach::connect(NAME, pid, adapter)?;
        let layout = Layout::new(options.ring as usize).ok_or(CaptureError::Refused)?;
        let request = Request {
            ring: options.ring,
            snap_len: options.snap_len,
            qp: options.qp,
        };
        let mut bytes = [0; Answer::LEN];
        let fd = attach::ask(&channel, &request.emit(), &mut bytes)?;
        let answer = Answer::parse(&bytes).ok_or(CaptureError::Malformed)?;
        let fd = match (answer.status, fd) {
            (Status::Attached, Some(fd)) => fd,
            (Status::Busy, _) => return Err(CaptureError::Busy),
            _ => return Err(CaptureError::Refused),
        };
        let pages = Mapping::adopt(fd, layout.pair_len())?.into_pages();
        let Ok((ring, _)) = RingMemory::pair(pages, layout) else {
            return Err(CaptureError::Malformed);
        };
        Ok(Capture {
            channel,
            consumer: ring.into_consumer(),
            ended: false,
            totals: None,
            data: Vec::new(),
            header: [0; HEADER_LEN],
            read: 0,
        })
    }

    /// The next record and its bytes; none if there is none now.
    pub fn next_record(&mut self) -> Result<Option<(Record, &[u8])>, CaptureError> {
        let record = loop {
            if self.read < HEADER_LEN {
                let n = read(&mut self.consumer, &mut self.header[self.read..])?;
                if n == 0 {
                    return Ok(None);
                }
                self.read += n;
                continue;
            }
            let record = Record::parse(&self.header).ok_or(CaptureError::Malformed)?;
            self.data.resize(record.kept as usize, 0);
            let done = self.read - HEADER_LEN;
            if done == self.data.len() {
                break record;
            }
            let n = read(&mut self.consumer, &mut self.data[done..])?;
            if n == 0 {
                return Ok(None);
            }
            self.read += n;
        };
        self.read = 0;
        Ok(Some((record, &self.data)))
    }

    /// Whether the adapter or its process has ended; what is in the ring can still be read.
    pub fn has_ended(&mut self) -> bool {
        let mut bytes = [0; Answer::LEN];
        if !self.ended {
            match self.channel.receive(&mut bytes) {
                Ok(None) => {}
                Ok(Some(bytes)) => {
                    let answer = bytes.first_chunk().and_then(Answer::parse);
                    self.totals = answer.map(|answer| answer.totals);
                    self.ended = true;
                }
                Err(_) => self.ended = true,
            }
        }
        self.ended
    }

    /// Ends the capture; what is in the ring can still be read. Totals if the adapter has answered.
    pub fn stop(&mut self) -> Option<Totals> {
        if !self.has_ended() && self.channel.send(&STOP, &[]) == Ok(true) {
            let deadline = sys::now() + ANSWER_TIMEOUT;
            while !self.has_ended() && sys::now() < deadline {
                sys::sleep(ANSWER_CHECK);
            }
        }
        self.ended = true;
        self.totals
    }
}

/// Reads what there is; 0 if there is nothing.
fn read(consumer: &mut Consumer, to: &mut [u8]) -> Result<usize, CaptureError> {
    let mut targets = Targets::new();
    targets.stage(to);
    match consumer.read(&mut targets) {
        Ok(Read::Bytes(n)) => Ok(n),
        Ok(Read::Empty | Read::End) => Ok(0),
        Ok(Read::External { .. }) | Err(RingError::Violation(_)) => Err(CaptureError::Malformed),
        Err(_) => Err(CaptureError::Malformed),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// All records in a ring, and how many bytes they had.
    pub(in crate::capture) fn records(consumer: &mut Consumer) -> (Vec<Record>, usize) {
        let (mut found, mut bytes) = (Vec::new(), 0);
        loop {
            let mut header = [0; HEADER_LEN];
            if read(consumer, &mut header).unwrap() == 0 {
                return (found, bytes);
            }
            let record = Record::parse(&header).unwrap();
            let mut data = vec![0; record.kept as usize];
            if !data.is_empty() {
                assert_eq!(read(consumer, &mut data).unwrap(), data.len());
            }
            bytes += data.len();
            found.push(record);
        }
    }
}
