//! The reading side of a trace, in another process. What it reads is not trusted: an event that no adapter writes is counted and passed over.

use verbena_mem::{ReadWords, SharedMemoryError};

use super::record::Record;
use super::rings::{Layout, Reader};
use super::{NAME, Request, Status};
use crate::notify::attach::{self, AskError};
use crate::sys::{self, PacketChannel};

/// Malformed events that are passed over in one call.
const MAX_MALFORMED: u32 = 4096;

/// Why an adapter cannot be traced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// There is no socket of this name.
    #[error("it has no adapter that can be traced")]
    NoAdapter,
    /// The process at the other end is another one.
    #[error("its socket is bound by process {0}")]
    WrongProcess(u32),
    /// Another process traces.
    #[error("another process traces it already")]
    Busy,
    /// No answer came.
    #[error("it does not answer; it may be stopped")]
    Silent,
    /// It refused the request.
    #[error("it refused the trace: no memory for the rings, another version, or another user")]
    Refused,
    /// The shared memory cannot be used.
    #[error("its rings cannot be used: {0}")]
    Memory(#[from] SharedMemoryError),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] sys::Error),
}

impl From<AskError> for TraceError {
    fn from(error: AskError) -> TraceError {
        match error {
            AskError::NoAdapter => TraceError::NoAdapter,
            AskError::WrongProcess(by) => TraceError::WrongProcess(by),
            AskError::Silent => TraceError::Silent,
            AskError::Refused => TraceError::Refused,
            AskError::System(error) => error.into(),
        }
    }
}

/// A trace of one adapter; it ends when this is dropped.
#[derive(Debug)]
pub struct Trace {
    channel: PacketChannel,
    reader: Reader,
    /// The adapter has closed its end.
    ended: bool,
    malformed: u64,
}

impl Trace {
    /// Begins to trace an adapter of a process, with rings of so many events, all of them or those of one queue pair.
    pub fn attach(
        pid: u32,
        adapter: u32,
        events: u32,
        qp: Option<u32>,
    ) -> Result<Trace, TraceError> {
        let channel = attach::connect(NAME, pid, adapter)?;
        let layout = Layout::new(events).ok_or(TraceError::Refused)?;
        let qp = qp.unwrap_or(0);
        let mut byte = [u8::MAX];
        let fd = attach::ask(&channel, &Request { events, qp }.emit(), &mut byte)?;
        let fd = match (Status::parse(byte[0]), fd) {
            (Some(Status::Attached), Some(fd)) => fd,
            (Some(Status::Busy), _) => return Err(TraceError::Busy),
            _ => return Err(TraceError::Refused),
        };
        let words = ReadWords::adopt(fd, layout.len())?;
        Ok(Trace {
            channel,
            reader: Reader::new(words, layout),
            ended: false,
            malformed: 0,
        })
    }

    /// The next event; none if there is none now. Those of one thread come in order.
    pub fn next_record(&mut self) -> Option<Record> {
        for _ in 0..MAX_MALFORMED {
            let record = Record::parse(&self.reader.next()?);
            if record.is_some() {
                return record;
            }
            self.malformed = self.malformed.saturating_add(1);
        }
        None
    }

    /// Events that were overwritten before they were read, or whose thread had no ring.
    pub fn lost(&self) -> u64 {
        self.reader.lost()
    }

    /// Events that no adapter writes.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Whether the adapter or its process has ended; what is in the rings can still be read.
    pub fn has_ended(&mut self) -> bool {
        if !self.ended {
            // An adapter sends nothing more.
            self.ended = !matches!(self.channel.receive(&mut [0]), Ok(None));
        }
        self.ended
    }
}
