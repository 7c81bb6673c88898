//! What carries a session's PDUs: iSCSI queue pairs on TCP, or iSER on RDMA.
//! A link promises that a command's data moves between the target and the place it names without a copy, and that every command
//! ends in news, once: with its response, or with the link. It refuses to know what a session is.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use smallvec::SmallVec;
use verbena::Status;
use verbena::low::Direction;
use verbena_iscsi::login::Settled;
use verbena_wire::iscsi::{Bhs, Lun};
use verbena_wire::scsi::{Cdb, DeviceType};

use crate::blocks::Place;
use crate::error::Error;

/// Data of a PDU: sense data mostly, which is short.
pub(crate) type Text = SmallVec<[u8; 64]>;

/// A command as a link sends it.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    /// The session's number for it.
    pub(crate) task: u32,
    pub(crate) lun: Lun,
    pub(crate) device: DeviceType,
    pub(crate) cdb: Cdb,
    pub(crate) direction: Direction,
    pub(crate) place: Option<&'a Place>,
    pub(crate) len: u32,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum News {
    /// The response to a command: a SCSI Response, or a Data-In with status. With what moved for it, where that can be known.
    Response {
        task: u32,
        bhs: Bhs,
        data: Text,
        carried: Option<Carried>,
    },
    /// Any other PDU, or one that was not as it should be.
    Pdu { bhs: Bhs, data: Text },
    /// A command was not sent, or will have no response.
    Failed { task: u32, status: Status },
    /// The link has ended, for this reason; commands that it had fail before.
    Ended(String),
}

/// Bytes of a command that moved, from its beginning and without a hole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// That came for a read.
    pub(crate) came: u32,
    /// That left for the target, or that it asked for, of a write; no less than that.
    pub(crate) left: u32,
}

/// Where a command is that a link has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// Here: the target has not heard of it.
    Here,
    /// With the target, which knows it by this tag and this number.
    There { itt: u32, cmd_sn: u32 },
    /// With the target, which reaches its memory by itself: only the end of the link takes that back.
    Bound,
    /// Nowhere: its end is news, taken or not.
    Ended,
}

/// A target that is being reached.
pub(crate) trait Dialling: Send {
    /// The link if it is there, without waiting. Not asked again after that.
    fn poll(&mut self) -> Result<Option<Box<dyn Link>>, Error>;

    /// Sleeps until there may be one, one of `beside` is readable, or the time is over.
    fn sleep(&mut self, beside: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error>;
}

/// A link to a target.
pub(crate) trait Link: Send {
    /// Login is over.
    fn begin(&mut self, settled: &Settled);

    /// Takes a command, which leaves with the next [`flush`](Link::flush) or before.
    fn order(&mut self, order: &Order<'_>) -> Result<(), Error>;

    /// Sends the commands that were taken.
    fn flush(&mut self) {}

    /// Sends any other PDU; its sequence numbers are the link's business.
    fn say(&mut self, bhs: &Bhs, data: &[u8]) -> Result<(), Error>;

    /// Adds what happened, without waiting; true if anything came from the target, news or not.
    fn poll(&mut self, news: &mut Vec<News>) -> bool;

    /// Sleeps until something may have happened, one of `beside` is readable, or the time is over.
    fn sleep(&mut self, beside: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error>;

    /// A descriptor that is readable when something may have happened since the last poll.
    fn arm(&mut self) -> BorrowedFd<'_>;

    /// Where a command is.
    fn held(&self, task: u32) -> Held;

    /// The number that the last request about tasks left with, if it has this tag and that can be known.
    fn task_number(&self, _tag: u32) -> Option<u32> {
        None
    }

    /// Takes a command back: none of its memory is read or written any more, and it fails as flushed in the news that follow. False if it
    /// has ended, or cannot be taken back. The target is not told.
    fn cancel(&mut self, task: u32) -> bool;

    /// A rule that the target has broken and that is no news, if there is one.
    fn breach(&self) -> Option<String> {
        None
    }

    /// Ends it; what it had fails in the news that follow.
    fn end(&mut self, why: &str);

    /// Bytes of data that were read straight to their place, copied there, and sent straight from theirs.
    fn moved(&self) -> Moved;
}

/// Bytes of data that a link moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Read straight into the memory they were meant for.
    pub placed: u64,
    /// Copied there by us.
    pub copied: u64,
    /// Sent straight from memory.
    pub gathered: u64,
}

impl Moved {
    /// Both together.
    pub(super) fn and(self, other: Moved) -> Moved {
        Moved {
            placed: self.placed + other.placed,
            copied: self.copied + other.copied,
            gathered: self.gathered + other.gathered,
        }
    }
}
