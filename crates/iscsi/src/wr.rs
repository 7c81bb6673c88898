//! Work requests of an iSCSI queue pair: what a consumer may ask of it (M12).
//! They are borrowed as the consumer holds them; posting copies them into the queue, so they may be reused at once.
//! They refuse to judge: whether a request can be carried out is decided when its turn has come.

use verbena_nic::{Flags, Sge};
use verbena_wire::iscsi::{Attribute, Bhs, Lun};
use verbena_wire::scsi::DeviceType;

/// Names a command between consumer and adapter: given at posting, returned with the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u32);

/// Where a command is that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// In the send queue: the target has not heard of it.
    Waits,
    /// With the target, or on its way there: what a request to abort it names (RFC 7143 §11.5).
    Sent {
        /// Its initiator task tag.
        itt: u32,
        /// Its number.
        cmd_sn: u32,
    },
}

/// Which way the data of a command goes. Commands that go both ways are not offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// It has none.
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
    /// The consumer's own number, returned with a completion of the send queue.
    pub id: u64,
    /// How.
    pub flags: Flags,
    /// The logical unit.
    pub lun: Lun,
    /// What kind of device the unit is, as its INQUIRY data says: commands that such devices do not have are not sent.
    pub device: DeviceType,
    /// The command descriptor block.
    pub cdb: [u8; 16],
    /// Its order among the tasks of the unit.
    pub attribute: Attribute,
    /// Which way the data goes.
    pub direction: Direction,
    /// Where the data is, or goes.
    pub data: &'a [Sge],
}

/// Any other PDU. The adapter fills in its sequence numbers and its data length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PduWr<'a> {
    /// The consumer's own number, returned with the completion.
    pub id: u64,
    /// How.
    pub flags: Flags,
    /// The header.
    pub bhs: Bhs,
    /// The data, copied when posted.
    pub data: &'a [u8],
}

/// Why a request cannot be posted. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue pair takes none in this state.
    #[error("a queue pair in state {0:?} takes no such request")]
    State(verbena_nic::QpState),
    /// As many requests wait as the queue holds.
    #[error("the queue is full with {0} requests")]
    Full(usize),
    /// More pieces than the queue pair was made for.
    #[error("{got} pieces, at most {limit}")]
    Pieces {
        /// Pieces given.
        got: usize,
        /// Pieces allowed.
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
    /// Data of a PDU is longer than any PDU takes.
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
            Of::Pieces { got, limit } => PostError::Pieces { got, limit },
        }
    }
}
