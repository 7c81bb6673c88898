//! What the world writes down about a run.
//! It promises that two runs of one seed have equal events.
//! It refuses to hold payload.

use core::fmt;

use verbena_stream::Time;

use crate::work::Report;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Time,
    /// To whom: 0 is the initiator.
    pub side: usize,
    /// What.
    pub what: What,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The program posted work.
    Posted(u64),
    /// The program supplied a receive.
    Supplied(u64),
    /// Bytes were handed to the link.
    Sent(usize),
    /// Bytes came from the link.
    Arrived(usize),
    /// A deadline passed.
    Timeout,
    /// This side sends no more.
    Closed,
    /// The other side sends no more.
    Eof,
    /// The connection broke.
    Reset,
    /// The actor told its program something.
    Report(Report),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = ["initiator", "responder"][self.side & 1];
        write!(f, "{:>16} {who} ", self.at.to_string())?;
        match &self.what {
            What::Posted(id) => write!(f, "posts work {id}"),
            What::Supplied(id) => write!(f, "supplies receive {id}"),
            What::Sent(n) => write!(f, "sends {n} bytes"),
            What::Arrived(n) => write!(f, "gets {n} bytes"),
            What::Timeout => f.write_str("times out"),
            What::Closed => f.write_str("closes"),
            What::Eof => f.write_str("sees the end"),
            What::Reset => f.write_str("sees a reset"),
            What::Report(report) => write!(f, "reports {report:?}"),
        }
    }
}
