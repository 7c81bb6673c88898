//! The transport of a session's PDUs: an iSCSI queue pair on TCP, or iSER on RDMA. A link moves a command's data between the network and
//! the command's memory without a copy, and reports the end of every command as news, once: its response, or a failure.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use smallvec::SmallVec;
use verbena::Status;
use verbena_iscsi::Direction;
use verbena_iscsi::login::LoginOutcome;
use verbena_storage_wire::iscsi::{Bhs, Lun};
use verbena_storage_wire::scsi::{Cdb, DeviceType};

use crate::blocks::BufferRef;
use crate::error::Error;

/// Data segment of a PDU: mostly sense data, which is short.
pub(crate) type DataSegment = SmallVec<[u8; 64]>;

/// A command to be sent.
#[derive(Debug)]
pub(crate) struct LinkCommand<'a> {
    /// The session's task number.
    pub(crate) task: u32,
    pub(crate) lun: Lun,
    pub(crate) device: DeviceType,
    pub(crate) cdb: Cdb,
    pub(crate) direction: Direction,
    pub(crate) buffer: Option<&'a BufferRef>,
    pub(crate) len: u32,
}

/// An event of a link.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// The response to a command: a SCSI Response, or a Data-In with status. With the bytes moved, where known.
    Response {
        task: u32,
        bhs: Bhs,
        data: DataSegment,
        transferred: Option<CommandTransfer>,
    },
    /// Any other PDU, or one that failed a check.
    Pdu { bhs: Bhs, data: DataSegment },
    /// A command was not sent, or will have no response.
    Failed { task: u32, status: Status },
    /// The link has ended, for this reason; its commands are reported as failed before.
    Ended(String),
}

/// Bytes of a command that were moved, contiguous from its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CommandTransfer {
    /// Received, of a read.
    pub(crate) received: u32,
    /// Sent or requested by R2T, of a write. At least what was unsolicited.
    pub(crate) sent: u32,
}

/// State of a command that a link has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandProgress {
    /// Not sent.
    Unsent,
    /// Sent, with this tag and CmdSN.
    Sent { itt: u32, cmd_sn: u32 },
    /// Ended: its news was reported or is about to be.
    Ended,
}

/// A connection being established.
pub(crate) trait Dialling: Send {
    /// The link once it is established, without waiting. Not called again after that.
    fn poll(&mut self) -> Result<Option<Box<dyn Link>>, Error>;

    /// Sleeps until it may be established, one of `beside` is readable, or the timeout expires.
    fn sleep(&mut self, beside: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error>;
}

/// A link to a target.
pub(crate) trait Link: Send {
    /// The login is complete.
    fn begin(&mut self, settled: &LoginOutcome);

    /// Accepts a command, which is sent by the next [`flush`](Link::flush) at the latest.
    fn send_command(&mut self, order: &LinkCommand<'_>) -> Result<(), Error>;

    /// Sends the commands accepted.
    fn flush(&mut self) {}

    /// Sends any other PDU; the link fills in the sequence numbers.
    fn send_pdu(&mut self, bhs: &Bhs, data: &[u8]) -> Result<(), Error>;

    /// Appends events, without waiting; true if anything was received from the target.
    fn poll(&mut self, news: &mut Vec<LinkEvent>) -> bool;

    /// Sleeps until there may be an event, one of `beside` is readable, or the timeout expires.
    fn sleep(&mut self, beside: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error>;

    /// A descriptor that is readable when there may be an event since the last poll.
    fn arm(&mut self) -> BorrowedFd<'_>;

    /// State of a command.
    fn command_state(&self, task: u32) -> CommandProgress;

    /// The CmdSN of the last task management request, if it has this tag and the link knows it.
    fn task_cmd_sn(&self, _tag: u32) -> Option<u32> {
        None
    }

    /// Cancels a command: it is reported as failed (flushed), and from then on its memory is not accessed any more. False if it has ended.
    /// The target is not informed.
    fn cancel(&mut self, task: u32) -> bool;

    /// A protocol violation that was not reported as an event, if any.
    fn violation(&self) -> Option<String> {
        None
    }

    /// Closes the link; its commands are reported as failed.
    fn close(&mut self, why: &str);

    /// Bytes of data moved, by method.
    fn transferred(&self) -> TransferCounters;
}

/// Bytes of data that a link moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransferCounters {
    /// Received directly into the destination.
    pub placed: u64,
    /// Copied to the destination.
    pub copied: u64,
    /// Sent directly from memory.
    pub gathered: u64,
}

impl TransferCounters {
    /// The sum.
    pub(super) fn plus(self, other: TransferCounters) -> TransferCounters {
        TransferCounters {
            placed: self.placed + other.placed,
            copied: self.copied + other.copied,
            gathered: self.gathered + other.gathered,
        }
    }
}
