//! What a unit says of itself: its type, its names, its size and its limits.
//! It promises to ask only for what units of all ages answer, and to go on without what one does not know. It refuses what is no disk.

use verbena::low::Direction;
use verbena_wire::iscsi::{Lun, Residual};
use verbena_wire::scsi::{
    BlockLimits, Capacity, Cdb, DeviceType, Inquiry, Luns, ModeHeader, UnitSerial,
};

use crate::blocks::{Geometry, Place};
use crate::error::Error;
use crate::session::{Command, Outcome, Session};

/// Bytes that answers are asked for with.
const ROOM: u16 = 252;
/// Most bytes of one request that we ask for, whatever a unit allows.
const MOST: u32 = 16 << 20;
/// Longest block that we have memory for: disks have 512 and 4096 bytes, some arrays 64 KiB.
const LONGEST_BLOCK: u32 = 1 << 20;
/// Vital product data: the serial number, the limits of a disk.
const SERIAL: u8 = 0x80;
const LIMITS: u8 = 0xb0;

/// What a unit says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// What kind of device.
    pub device: DeviceType,
    /// Who made it.
    pub vendor: String,
    /// What they call it.
    pub product: String,
    /// Which edition.
    pub revision: String,
    /// Its serial number, if it has one.
    pub serial: Option<String>,
}

/// What a target has, without opening any of it as a disk.
impl Session {
    /// The units there are.
    pub fn luns(&mut self) -> Result<Vec<Lun>, Error> {
        luns(self)
    }

    /// The names of a unit, whatever it is.
    pub fn identity(&mut self, lun: Lun) -> Result<Identity, Error> {
        identity(self, lun)
    }

    /// The size of a unit that has blocks.
    pub fn capacity(&mut self, lun: Lun) -> Result<Capacity, Error> {
        capacity(self, lun)
    }
}

/// Asks a unit what it is. A disk has a geometry.
pub(super) fn look(session: &mut Session, lun: Lun) -> Result<(Identity, Geometry), Error> {
    let identity = identity(session, lun)?;
    if identity.device != DeviceType::Disk {
        return Err(Error::Target(format!(
            "unit {lun} is no disk: it calls itself {} ({} {})",
            identity.device, identity.vendor, identity.product
        )));
    }
    let capacity = capacity(session, lun)?;
    let limits = page(session, lun, LIMITS)?.and_then(|page| BlockLimits::parse(&page).ok());
    let mode = ask(session, lun, Cdb::mode_sense6(0x3f, 192), 192)?;
    let mode = mode.ok().and_then(|mode| ModeHeader::parse(&mode).ok());
    let block_size = capacity.block_len;
    let bytes = |blocks: u32| blocks.saturating_mul(block_size);
    let longest = limits.as_ref().map_or(0, |limits| limits.max_transfer);
    let maximal = if longest == 0 {
        MOST
    } else {
        bytes(longest).min(MOST)
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
        bulk: u32::MAX,
    };
    Ok((identity, geometry))
}

/// Its names.
fn identity(session: &mut Session, lun: Lun) -> Result<Identity, Error> {
    let answer = ask(session, lun, Cdb::inquiry(None, 96), 96)?;
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
    let answer = ask(session, lun, Cdb::report_luns(len), len)?;
    let answer = answer.map_err(|outcome| failed("REPORT LUNS", lun, &outcome))?;
    let luns = Luns::parse(&answer).map_err(|why| Error::Target(why.to_string()))?;
    Ok(luns.iter().collect())
}

fn capacity(session: &mut Session, lun: Lun) -> Result<Capacity, Error> {
    let long = ask(session, lun, Cdb::read_capacity16(32), 32)?;
    let parsed = match long {
        Ok(answer) => Capacity::parse16(&answer),
        // A unit of the old kind.
        Err(_) => {
            let short = ask(session, lun, Cdb::read_capacity10(), 8)?;
            let answer = short.map_err(|outcome| failed("READ CAPACITY", lun, &outcome))?;
            Capacity::parse10(&answer)
        }
    };
    let capacity = parsed.map_err(|why| Error::Target(why.to_string()))?;
    let len = capacity.block_len;
    if !len.is_power_of_two() || len > LONGEST_BLOCK {
        return Err(Error::Target(format!(
            "unit {lun} has blocks of {len} bytes: powers of two up to {LONGEST_BLOCK} can be used"
        )));
    }
    Ok(capacity)
}

/// A page of its vital product data, if it has it.
fn page(session: &mut Session, lun: Lun, page: u8) -> Result<Option<Vec<u8>>, Error> {
    let answer = ask(session, lun, Cdb::inquiry(Some(page), ROOM), ROOM.into())?;
    Ok(answer.ok())
}

/// A question with an answer of up to so many bytes; what the unit said instead if it has none.
fn ask(
    session: &mut Session,
    lun: Lun,
    cdb: Cdb,
    len: u32,
) -> Result<Result<Vec<u8>, Outcome>, Error> {
    let memory = session.memory(len as usize)?;
    let command = Command {
        direction: Direction::Read,
        place: Some(Place::new(&memory, 0)),
        len,
        // What every unit understands, whatever it is.
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

/// Text that is filled up with blanks. It is shown to people, and a terminal does what control characters say.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let harmless = |c: char| if c.is_control() { '?' } else { c };
    text.trim_matches([' ', '\0'])
        .chars()
        .map(harmless)
        .collect()
}
