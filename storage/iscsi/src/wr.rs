//! Work requests of an iSCSI queue pair (M12). They borrow the consumer's buffer list; posting copies the request into the queue, so
//! it may be reused at once. Posting checks queue and state only; whether the command can be executed is decided when it is transmitted.

use verbena_nic::{Flags, Sge};
use verbena_storage_wire::iscsi::{Attribute, Bhs, Lun};
use verbena_storage_wire::scsi::DeviceType;

/// Identifies a command between consumer and adapter: returned by posting, and again with the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u32);

/// State of a command that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandState {
    /// In the send queue; not transmitted.
    Queued,
    /// Transmitted, or being transmitted. These fields are what a task management request refers to (RFC 7143 §11.5).
    Sent {
        /// Initiator task tag.
        itt: u32,
        /// CmdSN.
        cmd_sn: u32,
    },
}

/// Direction of a command's data. Bidirectional commands are not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// No data.
    #[default]
    None,
    /// From the target into the data segments.
    Read,
    /// From the data segments to the target.
    Write,
}

/// A SCSI command and its buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandWr<'a> {
    /// The consumer's number (`wr_id`), returned with the completion in the send queue.
    pub id: u64,
    /// Flags of the work request.
    pub flags: Flags,
    /// The logical unit.
    pub lun: Lun,
    /// Device type from the unit's INQUIRY data; commands that this type does not have are not sent.
    pub device: DeviceType,
    /// The command descriptor block.
    pub cdb: [u8; 16],
    /// Task attribute.
    pub attribute: Attribute,
    /// Direction of the data.
    pub direction: Direction,
    /// Buffers of the data.
    pub data: &'a [Sge],
}

/// Any other PDU. The adapter fills in the sequence numbers and the data segment length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PduWr<'a> {
    /// The consumer's number (`wr_id`), returned with the completion.
    pub id: u64,
    /// Flags of the work request.
    pub flags: Flags,
    /// The header.
    pub bhs: Bhs,
    /// The data segment, copied when posted.
    pub data: &'a [u8],
}

/// Why a request was not posted. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue pair accepts no such request in this state.
    #[error("a queue pair in state {0:?} takes no such request")]
    State(verbena_nic::QpState),
    /// The queue is full.
    #[error("the queue is full with {0} requests")]
    Full(usize),
    /// More data segments than the queue pair was created for.
    #[error("{got} data segments, at most {limit}")]
    Pieces {
        /// Segments given.
        got: usize,
        /// Segments allowed.
        limit: usize,
    },
    /// M12: the receive for a command's response must be posted first.
    #[error(
        "{receives} receives wait for the responses to {commands} commands: post one more first"
    )]
    NoReceive {
        /// Receives posted.
        receives: usize,
        /// Commands without a response.
        commands: usize,
    },
    /// The data is longer than a PDU can carry.
    #[error("{got} bytes of data, at most {limit}")]
    TooLong {
        /// Bytes given.
        got: usize,
        /// Bytes allowed.
        limit: usize,
    },
}

impl From<verbena_nic::receive::PostError> for PostError {
    fn from(error: verbena_nic::receive::PostError) -> PostError {
        use verbena_nic::receive::PostError as Of;
        match error {
            Of::Full(depth) => PostError::Full(depth),
            Of::TooManySges { got, limit } => PostError::Pieces { got, limit },
        }
    }
}
