//! Identification of a unit: INQUIRY, READ CAPACITY, VPD pages and MODE SENSE. Optional pages that a unit does not support are skipped, and
//! READ CAPACITY (10) replaces READ CAPACITY (16) on old units. A unit that is not a direct access block device has no geometry.

use verbena_iscsi::Direction;
use verbena_storage_wire::iscsi::{Lun, Residual};
use verbena_storage_wire::scsi::{
    BlockLimits, Capacity, Cdb, DeviceType, Inquiry, Luns, ModeHeader, UnitSerial,
};

use crate::blocks::{BufferRef, Geometry};
use crate::error::Error;
use crate::session::{Command, Outcome, Session};

/// Allocation length of VPD pages.
const VPD_LEN: u16 = 252;
/// Most bytes of one request, whatever the unit allows.
const MAX_REQUEST: u32 = 16 << 20;
/// Longest block supported: disks have 512 or 4096 bytes, some arrays 64 KiB.
const MAX_BLOCK: u32 = 1 << 20;
/// VPD pages: Unit Serial Number, Block Limits.
const SERIAL: u8 = 0x80;
const LIMITS: u8 = 0xb0;

/// INQUIRY data of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Peripheral device type.
    pub device: DeviceType,
    /// Vendor identification.
    pub vendor: String,
    /// Product identification.
    pub product: String,
    /// Product revision level.
    pub revision: String,
    /// Unit serial number, if it has one.
    pub serial: Option<String>,
}

/// Identification without opening a unit as a disk.
impl Session {
    /// The units of the target (REPORT LUNS).
    pub fn luns(&mut self) -> Result<Vec<Lun>, Error> {
        luns(self)
    }

    /// INQUIRY data of a unit of any type.
    pub fn identity(&mut self, lun: Lun) -> Result<Identity, Error> {
        identity(self, lun)
    }

    /// The capacity of a block device.
    pub fn capacity(&mut self, lun: Lun) -> Result<Capacity, Error> {
        capacity(self, lun)
    }
}

/// Identifies a unit. An error if it is not a disk.
pub(super) fn identify(session: &mut Session, lun: Lun) -> Result<(Identity, Geometry), Error> {
    let identity = identity(session, lun)?;
    if identity.device != DeviceType::Disk {
        return Err(Error::Target(format!(
            "unit {lun} is no disk: it calls itself {} ({} {})",
            identity.device, identity.vendor, identity.product
        )));
    }
    let capacity = capacity(session, lun)?;
    let limits = page(session, lun, LIMITS)?.and_then(|page| BlockLimits::parse(&page).ok());
    let mode = run_data_in(session, lun, Cdb::mode_sense6(0x3f, 192), 192)?;
    let mode = mode.ok().and_then(|mode| ModeHeader::parse(&mode).ok());
    let block_size = capacity.block_len;
    let bytes = |blocks: u32| blocks.saturating_mul(block_size);
    let longest = limits.as_ref().map_or(0, |limits| limits.max_transfer);
    let maximal = if longest == 0 {
        MAX_REQUEST
    } else {
        bytes(longest).min(MAX_REQUEST)
    };
    let blocks = capacity.blocks().unwrap_or(u64::MAX);
    let geometry = Geometry {
        blocks,
        block_size,
        read_only: mode.is_some_and(|mode| mode.write_protected),
        can_unmap: capacity.thin,
        can_zero: false,
        optimal: limits
            .as_ref()
            .map_or(0, |limits| bytes(limits.optimal_transfer)),
        maximal: maximal.max(block_size),
        max_bulk_blocks: u32::MAX,
    };
    Ok((identity, geometry))
}

/// INQUIRY data and serial number.
fn identity(session: &mut Session, lun: Lun) -> Result<Identity, Error> {
    let answer = run_data_in(session, lun, Cdb::inquiry(None, 96), 96)?;
    let answer = answer.map_err(|outcome| failed("INQUIRY", lun, &outcome))?;
    let inquiry = Inquiry::parse(&answer).map_err(|why| Error::Target(why.to_string()))?;
    if !inquiry.is_connected() {
        return Err(Error::Target(format!("there is no unit {lun}")));
    }
    let serial = page(session, lun, SERIAL)?;
    let serial = serial.and_then(|page| Some(text(UnitSerial::parse(&page).ok()?.bytes())));
    Ok(Identity {
        device: inquiry.device,
        vendor: text(&inquiry.vendor),
        product: text(&inquiry.product),
        revision: text(&inquiry.revision),
        serial: serial.filter(|serial| !serial.is_empty()),
    })
}

/// The units of a target.
fn luns(session: &mut Session) -> Result<Vec<Lun>, Error> {
    let (lun, len) = (Lun::default(), 16 << 10);
    let answer = run_data_in(session, lun, Cdb::report_luns(len), len)?;
    let answer = answer.map_err(|outcome| failed("REPORT LUNS", lun, &outcome))?;
    let luns = Luns::parse(&answer).map_err(|why| Error::Target(why.to_string()))?;
    Ok(luns.iter().collect())
}

fn capacity(session: &mut Session, lun: Lun) -> Result<Capacity, Error> {
    let long = run_data_in(session, lun, Cdb::read_capacity16(32), 32)?;
    let parsed = match long {
        Ok(answer) => Capacity::parse16(&answer),
        // An old unit without READ CAPACITY (16).
        Err(_) => {
            let short = run_data_in(session, lun, Cdb::read_capacity10(), 8)?;
            let answer = short.map_err(|outcome| failed("READ CAPACITY", lun, &outcome))?;
            Capacity::parse10(&answer)
        }
    };
    let capacity = parsed.map_err(|why| Error::Target(why.to_string()))?;
    let len = capacity.block_len;
    if !len.is_power_of_two() || len > MAX_BLOCK {
        return Err(Error::Target(format!(
            "unit {lun} has blocks of {len} bytes: powers of two up to {MAX_BLOCK} can be used"
        )));
    }
    Ok(capacity)
}

/// A VPD page, if the unit has it.
fn page(session: &mut Session, lun: Lun, page: u8) -> Result<Option<Vec<u8>>, Error> {
    let answer = run_data_in(
        session,
        lun,
        Cdb::inquiry(Some(page), VPD_LEN),
        VPD_LEN.into(),
    )?;
    Ok(answer.ok())
}

/// Runs a command that returns up to `len` bytes. The inner error is a status other than good.
fn run_data_in(
    session: &mut Session,
    lun: Lun,
    cdb: Cdb,
    len: u32,
) -> Result<Result<Vec<u8>, Outcome>, Error> {
    let memory = session.memory(len as usize)?;
    let command = Command {
        direction: Direction::Read,
        buffer: Some(BufferRef::new(&memory, 0)),
        len,
        // Commands that every device type has.
        ..Command::plain(lun, DeviceType::Disk, cdb)
    };
    let missing = match session.run(command)? {
        Outcome::Good(Residual::Underflow(missing)) => missing,
        Outcome::Good(_) => 0,
        Outcome::Lost(why) => return Err(Error::Lost(why)),
        outcome => return Ok(Err(outcome)),
    };
    let mut answer = vec![0; len.saturating_sub(missing) as usize];
    memory.read_at(0, &mut answer)?;
    Ok(Ok(answer))
}

fn failed(what: &str, lun: Lun, outcome: &Outcome) -> Error {
    Error::Target(format!("{what} of unit {lun}: {outcome}"))
}

/// Text padded with blanks. It is displayed, so control characters, which a terminal would interpret, are replaced.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let harmless = |c: char| if c.is_control() { '?' } else { c };
    text.trim_matches([' ', '\0'])
        .chars()
        .map(harmless)
        .collect()
}
