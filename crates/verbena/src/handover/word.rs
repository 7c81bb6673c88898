//! The messages of a handover between two processes.
//! A process with another version of the format is detected by its first message, before anything is handed over.

use serde::{Deserialize, Serialize};
use verbena_engine::Parcel;
use verbena_mem::{Access, Estate};
use verbena_nic::Image;
use verbena_wire::{Stag, To};

use super::HandoverError;

/// The first bytes of the hello message.
const MAGIC: [u8; 4] = *b"vbnh";
/// Version of the messages in this file.
const FORM: u16 = 1;

/// Value of the shared word: not decided yet.
pub(super) const OFFERED: u64 = 0;
/// The running process has kept everything, or taken it back.
pub(super) const KEPT: u64 = 1;
/// The successor has taken everything.
pub(super) const TAKEN: u64 = 2;

/// The first message of both sides; its own layout never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    form: u16,
    /// Version of the connection images.
    image: u16,
}

impl Hello {
    pub(super) const OURS: Hello = Hello {
        form: FORM,
        image: Image::FORM,
    };

    pub(super) fn emit(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.form.to_le_bytes());
        bytes[6..].copy_from_slice(&self.image.to_le_bytes());
        bytes
    }

    fn words(self) -> String {
        format!(
            "handover form {} with connections of form {}",
            self.form, self.image
        )
    }

    /// Fails unless the other process has the same versions.
    pub(super) fn check(bytes: &[u8]) -> Result<(), HandoverError> {
        let ours = Hello::OURS;
        if bytes == ours.emit() {
            return Ok(());
        }
        let theirs = match *bytes {
            [m0, m1, m2, m3, f0, f1, i0, i1] if [m0, m1, m2, m3] == MAGIC => Hello {
                form: u16::from_le_bytes([f0, f1]),
                image: u16::from_le_bytes([i0, i1]),
            }
            .words(),
            _ => "something else".to_owned(),
        };
        let ours = ours.words();
        Err(HandoverError::Form { theirs, ours })
    }
}

/// The answer of the successor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It has taken all.
    Taken,
    /// It refused, for this reason.
    Refused(String),
}

/// Everything that is handed over. The descriptors sent with it are in this order: the shared word, one for each memory, those of
/// each connection, one for each listener.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Goods {
    pub(super) note: Vec<u8>,
    pub(super) memories: Vec<(u64, Land)>,
    pub(super) qps: Vec<(u64, Parcel)>,
    pub(super) listeners: Vec<u64>,
}

/// A region as plain data.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Land {
    stag: Stag,
    start: To,
    len: u64,
    access: u8,
}

impl From<Estate> for Land {
    fn from(estate: Estate) -> Land {
        Land {
            stag: estate.stag,
            start: estate.start,
            len: estate.len,
            access: estate.access.bits(),
        }
    }
}

impl Land {
    pub(super) fn estate(self) -> Result<Estate, HandoverError> {
        let access = Access::from_bits(self.access);
        Ok(Estate {
            stag: self.stag,
            start: self.start,
            len: self.len,
            access: access.ok_or(HandoverError::Nonsense("rights that there are not"))?,
        })
    }
}
