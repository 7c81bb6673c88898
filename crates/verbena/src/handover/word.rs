//! What two processes say to each other at a handover.
//! It promises that a process of another form is recognised before anything is handed over. It refuses to be lenient.

use serde::{Deserialize, Serialize};
use verbena_engine::Parcel;
use verbena_mem::{Access, Estate};
use verbena_nic::Image;
use verbena_wire::{Stag, To};

use super::HandoverError;

/// What a greeting begins with.
const MAGIC: [u8; 4] = *b"vbnh";
/// The form of what is said here.
const FORM: u16 = 1;

/// The word that decides: nobody has it yet.
pub(super) const OFFERED: u64 = 0;
/// The running process has kept it, or taken it back.
pub(super) const KEPT: u64 = 1;
/// The successor has it.
pub(super) const TAKEN: u64 = 2;

/// The greeting, which never changes its own form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    form: u16,
    /// The form of connections.
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

    /// The other process speaks our form.
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

/// What the successor answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It has taken all.
    Taken,
    /// It does not want it.
    Refused(String),
}

/// Everything that is handed over. Descriptors go along in this order: the word that decides, one for each memory, those of each
/// connection, one for each listener.
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
