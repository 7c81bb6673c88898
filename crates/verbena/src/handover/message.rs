//! The messages of a handover between two processes.
//! A process with another version of the format is detected by its first message, before anything is handed over.

use serde::{Deserialize, Serialize};
use verbena_engine::MigrationState;
use verbena_mem::{Access, RegionExport};
use verbena_nic::Image;
use verbena_wire::{Stag, To};

use super::HandoverError;

/// The first bytes of the hello message.
const MAGIC: [u8; 4] = *b"vbnh";
/// Version of the messages in this file.
const VERSION: u16 = 1;

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
        let access = Access::from_bits(self.access);
        Ok(RegionExport {
            stag: self.stag,
            start: self.start,
            len: self.len,
            access: access.ok_or(HandoverError::InvalidMessage("unknown access rights"))?,
        })
    }
}
