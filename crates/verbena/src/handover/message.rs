//! The messages of a handover between two processes.
//! A process with another version of the format is detected by its first message, before anything is handed over.

use serde::{Deserialize, Serialize};
use verbena_engine::MigrationState;
use verbena_mem::{Access, RegionExport, WindowBinding, WindowExport, WindowType};
use verbena_nic::Image;
use verbena_wire::{Stag, To};

use super::HandoverError;
use crate::mr::WindowState;

/// The first bytes of the hello message.
const MAGIC: [u8; 4] = *b"vbnh";
/// Version of the messages in this file.
const VERSION: u16 = 2;

/// Value of the shared word: not decided yet.
pub(super) const OFFERED: u64 = 0;
/// The running process has kept everything, or taken it back.
pub(super) const WITHDRAWN: u64 = 1;
/// The successor has taken everything.
pub(super) const CLAIMED: u64 = 2;

/// The first message of both sides; its own layout never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    version: u16,
    /// Version of the connection images.
    image_version: u16,
}

impl Hello {
    pub(super) const LOCAL: Hello = Hello {
        version: VERSION,
        image_version: Image::FORMAT_VERSION,
    };

    pub(super) fn emit(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.version.to_le_bytes());
        bytes[6..].copy_from_slice(&self.image_version.to_le_bytes());
        bytes
    }

    fn describe(self) -> String {
        format!(
            "handover version {} with connection images of version {}",
            self.version, self.image_version
        )
    }

    /// Fails unless the other process has the same versions.
    pub(super) fn check(bytes: &[u8]) -> Result<(), HandoverError> {
        let ours = Hello::LOCAL;
        if bytes == ours.emit() {
            return Ok(());
        }
        let theirs = match *bytes {
            [m0, m1, m2, m3, f0, f1, i0, i1] if [m0, m1, m2, m3] == MAGIC => Hello {
                version: u16::from_le_bytes([f0, f1]),
                image_version: u16::from_le_bytes([i0, i1]),
            }
            .describe(),
            _ => "an unknown protocol".to_owned(),
        };
        let ours = ours.describe();
        Err(HandoverError::VersionMismatch { theirs, ours })
    }
}

/// The answer of the successor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// It has taken all.
    Accepted,
    /// It refused, for this reason.
    Refused(String),
}

/// Everything that is handed over. The descriptors sent with it are in this order: the shared word, one for each memory, those of
/// each connection, one for each listener.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Payload {
    pub(super) user_data: Vec<u8>,
    pub(super) memories: Vec<(u64, RegionRecord)>,
    pub(super) windows: Vec<(u64, WindowRecord)>,
    pub(super) qps: Vec<(u64, MigrationState)>,
    pub(super) listeners: Vec<u64>,
}

/// A region as plain data.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct RegionRecord {
    stag: Stag,
    start: To,
    len: u64,
    access: u8,
}

impl From<RegionExport> for RegionRecord {
    fn from(export: RegionExport) -> RegionRecord {
        RegionRecord {
            stag: export.stag,
            start: export.start,
            len: export.len,
            access: export.access.bits(),
        }
    }
}

impl RegionRecord {
    pub(super) fn to_region_export(self) -> Result<RegionExport, HandoverError> {
        Ok(RegionExport {
            stag: self.stag,
            start: self.start,
            len: self.len,
            access: parse_access(self.access)?,
        })
    }
}

fn parse_access(bits: u8) -> Result<Access, HandoverError> {
    Access::from_bits(bits).ok_or(HandoverError::InvalidMessage("unknown access rights"))
}

/// A window as plain data.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct WindowRecord {
    /// As in [`WINDOW_TYPES`].
    window_type: u8,
    /// Its STag and state once its requests were executed.
    stag: Stag,
    bound: bool,
    one_touch: bool,
    /// The key of its entry, which differs if a binding was invalidated.
    key: u8,
    spent: bool,
    binding: Option<BindingRecord>,
}

/// What a window is bound to, as plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BindingRecord {
    /// The tag of its memory.
    pub(super) memory: u64,
    /// The tag of the queue pair that it belongs to.
    pub(super) qp: Option<u64>,
    addr: u64,
    len: u64,
    access: u8,
    zero_based: bool,
    one_touch: bool,
}

/// The types of windows by their position.
const WINDOW_TYPES: [WindowType; 3] = [WindowType::One, WindowType::TwoA, WindowType::TwoB];

impl WindowRecord {
    /// The record of a window; `memory` and `qp` return the tags of what it is bound to.
    pub(super) fn new(
        state: &WindowState,
        memory: impl FnOnce(Stag) -> Result<u64, HandoverError>,
        qp: impl FnOnce(u32) -> Result<u64, HandoverError>,
    ) -> Result<WindowRecord, HandoverError> {
        let export = &state.export;
        let record = |binding: WindowBinding| {
            Ok::<_, HandoverError>(BindingRecord {
                memory: memory(binding.region)?,
                qp: binding.qp.map(qp).transpose()?,
                addr: binding.addr,
                len: binding.len,
                access: binding.access.bits(),
                zero_based: binding.zero_based,
                one_touch: binding.one_touch,
            })
        };
        let known = WINDOW_TYPES.iter().position(|ty| *ty == export.window_type);
        Ok(WindowRecord {
            window_type: known.unwrap_or(WINDOW_TYPES.len()) as u8,
            stag: state.stag,
            bound: state.bound,
            one_touch: state.one_touch,
            key: export.stag.key(),
            spent: export.spent,
            binding: export.binding.map(record).transpose()?,
        })
    }

    /// What it is bound to, if it is bound.
    pub(super) fn binding(&self) -> Option<BindingRecord> {
        self.binding
    }

    /// The window, bound to this region and belonging to this queue pair.
    pub(super) fn to_window_state(
        self,
        region: Option<Stag>,
        qp: Option<u32>,
    ) -> Result<WindowState, HandoverError> {
        let invalid = HandoverError::InvalidMessage;
        let window_type = WINDOW_TYPES.get(usize::from(self.window_type)).copied();
        let window_type = window_type.ok_or(invalid("unknown type of window"))?;
        let stag = Stag::from_parts(self.stag.index(), self.key);
        let stag = stag.ok_or(invalid("an STag of more than 24 bits"))?;
        let binding = match self.binding.zip(region) {
            None => None,
            Some((binding, region)) => Some(WindowBinding {
                region,
                addr: binding.addr,
                len: binding.len,
                access: parse_access(binding.access)?,
                qp,
                zero_based: binding.zero_based,
                one_touch: binding.one_touch,
            }),
        };
        Ok(WindowState {
            export: WindowExport {
                window_type,
                stag,
                spent: self.spent,
                binding,
            },
            stag: self.stag,
            bound: self.bound,
            one_touch: self.one_touch,
        })
    }
}

#[cfg(test)]
mod tests;
