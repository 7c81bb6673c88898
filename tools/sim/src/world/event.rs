//! The events that are recorded of a run.
//! Two runs of one seed have equal events. Payload is not recorded.

use core::fmt;

use verbena_stream::Time;

use crate::work::Report;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The time.
    pub at: Time,
    /// The side: 0 is the initiator.
    pub side: usize,
    /// The event.
    pub kind: EventKind,
}

/// Kinds of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The program posted work.
    Posted(u64),
    /// The program posted a receive.
    Supplied(u64),
    /// Bytes were passed to the link.
    Sent(usize),
    /// Bytes arrived from the link.
    Arrived(usize),
    /// A deadline passed.
    Timeout,
    /// This side sends no more.
    Closed,
    /// The other side sends no more.
    Eof,
    /// The connection was reset.
    Reset,
    /// The actor reported something to its program.
    Report(Report),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = ["initiator", "responder"][self.side & 1];
        write!(f, "{:>16} {who} ", self.at.to_string())?;
        match &self.kind {
            EventKind::Posted(id) => write!(f, "posts work {id}"),
            EventKind::Supplied(id) => write!(f, "supplies receive {id}"),
            EventKind::Sent(n) => write!(f, "sends {n} bytes"),
            EventKind::Arrived(n) => write!(f, "gets {n} bytes"),
            EventKind::Timeout => f.write_str("times out"),
            EventKind::Closed => f.write_str("closes"),
            EventKind::Eof => f.write_str("sees the end"),
            EventKind::Reset => f.write_str("sees a reset"),
            EventKind::Report(report) => write!(f, "reports {report:?}"),
        }
    }
}
