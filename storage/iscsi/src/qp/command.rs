//! An outstanding command: what was posted, its registration, and its state towards the target. Fields that are known later than the
//! request say when they are set.

use smallvec::SmallVec;
use verbena_nic::{Flags, Sge};
use verbena_storage_wire::iscsi::{Attribute, Lun};
use verbena_storage_wire::scsi::DeviceType;
use verbena_wire::Stag;

use crate::wr::{CommandId, CommandWr, Direction};

/// Data segments that are stored inline.
const INLINE_SGES: usize = 4;

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) id: u64,
    pub(super) command: CommandId,
    pub(super) flags: Flags,
    pub(super) lun: Lun,
    pub(super) device: DeviceType,
    pub(super) cdb: [u8; 16],
    pub(super) attribute: Attribute,
    pub(super) direction: Direction,
    pub(super) data: SmallVec<[Sge; INLINE_SGES]>,
    /// Bytes of data; set when the command is executed.
    pub(super) len: u32,
    /// Initiator task tag; set when the command is registered.
    pub(super) stag: Option<Stag>,
    /// CmdSN; set when its PDU is built.
    pub(super) cmd_sn: u32,
    /// R2Ts of which data is not sent yet.
    pub(super) bursts: u16,
}

impl Command {
    pub(super) fn new(wr: &CommandWr<'_>, command: CommandId) -> Command {
        Command {
            id: wr.id,
            command,
            flags: wr.flags,
            lun: wr.lun,
            device: wr.device,
            cdb: wr.cdb,
            attribute: wr.attribute,
            direction: wr.direction,
            data: SmallVec::from_slice(wr.data),
            len: 0,
            stag: None,
            cmd_sn: 0,
            bursts: 0,
        }
    }
}
