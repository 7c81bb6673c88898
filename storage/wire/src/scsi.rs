//! The part of SCSI that an iSCSI initiator needs: command descriptor blocks, the status and sense data that a command
//! ends with, and the data that describes a logical unit. Each file is one of them and reads no byte beyond its input;
//! transport, queues and retries are elsewhere.

mod block;
mod capacity;
mod cdb;
mod inquiry;
mod luns;
mod mode;
mod operation;
mod page;
mod sense;
mod status;
mod unmap;

pub use block::BlockLimits;
pub use capacity::Capacity;
pub use cdb::Cdb;
pub use inquiry::{DeviceType, Inquiry};
pub use luns::Luns;
pub use mode::ModeHeader;
pub use operation::{is_valid_for, name};
pub use page::{Designator, DeviceId, SupportedPages, UnitSerial};
pub use sense::{Sense, SenseKey};
pub use status::Status;
pub use unmap::{UnmapList, UnmapRange};

#[cfg(test)]
mod tests;
