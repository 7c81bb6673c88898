//! The SCSI that an iSCSI initiator needs: descriptor blocks of commands, the status and sense data they end with, and
//! the data that describes a unit. Each file promises one of them, within the bytes it is given. Transports, queues and
//! retries are not known here.

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
