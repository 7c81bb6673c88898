//! The layout that all headers share: four bytes of opcode and opcode-specific fields, two lengths, a LUN, a tag and seven
//! words. Reading checks the opcode, and that the lengths are zero where the PDU has no additional headers or data; the
//! files of the PDUs interpret the words.

use core::fmt;

use verbena_wire::Malformed;
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Bhs, Lengths, Lun, Opcode, Window};

/// F: the last of a sequence; also set where there is nothing to continue.
pub(super) const FINAL: u8 = 0x80;
/// C: the text continues in the next PDU.
pub(super) const CONTINUE: u8 = 0x40;
/// I: immediate delivery (byte 0).
pub(super) const IMMEDIATE: u8 = 0x40;

/// A basic header segment; `wN` is the word at byte N.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct Raw {
    pub(super) opcode: u8,
    pub(super) flags: u8,
    pub(super) b2: u8,
    pub(super) b3: u8,
    pub(super) ahs: u8,
    pub(super) data_len: [u8; 3],
    pub(super) lun: [u8; 8],
    pub(super) itt: U32,
    pub(super) w20: U32,
    pub(super) w24: U32,
    pub(super) w28: U32,
    pub(super) w32: U32,
    pub(super) w36: U32,
    pub(super) w40: U32,
    pub(super) w44: U32,
}

impl Raw {
    /// Reads a header of this opcode. Additional headers belong to commands only (RFC 7143 §11.2.1.5).
    pub(super) fn read(bhs: &Bhs, opcode: Opcode) -> Result<Raw, Malformed> {
        let got = Opcode::of(bhs);
        let raw: Raw = zerocopy::transmute!(*bhs);
        if got != Some(opcode) {
            return Err(Malformed::IscsiOpcode {
                expected: opcode as u8,
                got: raw.opcode & Opcode::MASK,
            });
        }
        if raw.ahs != 0 && opcode != Opcode::ScsiCommand {
            return Err(Malformed::IscsiAhs {
                opcode: opcode as u8,
                got: Lengths::of(bhs).ahs,
            });
        }
        Ok(raw)
    }

    /// Reads a header of this opcode, which has no data segment.
    pub(super) fn read_bare(bhs: &Bhs, opcode: Opcode) -> Result<Raw, Malformed> {
        let raw = Raw::read(bhs, opcode)?;
        match raw.data_len() {
            0 => Ok(raw),
            got => Err(Malformed::IscsiData {
                opcode: opcode as u8,
                got,
            }),
        }
    }

    /// A header of zeros with this opcode, and F set.
    pub(super) fn new(opcode: Opcode) -> Raw {
        Raw {
            opcode: opcode as u8,
            flags: FINAL,
            ..Raw::new_zeroed()
        }
    }

    /// The 48 bytes.
    pub(super) fn emit(self) -> Bhs {
        zerocopy::transmute!(self)
    }

    /// Returns an error for these flags if `wrong`.
    pub(super) fn refuse(&self, wrong: bool) -> Result<(), Malformed> {
        if !wrong {
            return Ok(());
        }
        Err(Malformed::IscsiFlags {
            opcode: self.opcode & Opcode::MASK,
            flags: self.flags,
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn is_immediate(&self) -> bool {
        self.opcode & IMMEDIATE != 0
    }

    /// Sets the I bit if `immediate`.
    pub(super) fn immediate(mut self, immediate: bool) -> Raw {
        self.opcode |= bit(immediate, IMMEDIATE);
        self
    }

    pub(super) fn data_len(&self) -> u32 {
        let [high, middle, low] = self.data_len;
        u32::from_be_bytes([0, high, middle, low])
    }

    pub(super) fn lun(&self) -> Lun {
        Lun::from_bytes(self.lun)
    }

    /// ExpCmdSN and MaxCmdSN, at the same position in every PDU of a target.
    pub(super) fn window(&self) -> Window {
        Window {
            exp_cmd_sn: self.w28.get(),
            max_cmd_sn: self.w32.get(),
        }
    }

    /// Sets ExpCmdSN and MaxCmdSN.
    pub(super) fn with_window(mut self, window: Window) -> Raw {
        self.w28 = U32::new(window.exp_cmd_sn);
        self.w32 = U32::new(window.max_cmd_sn);
        self
    }
}

/// The three bytes of a DataSegmentLength; surplus bits are not sent.
pub(super) fn len24(len: u32) -> [u8; 3] {
    let [_, high, middle, low] = len.to_be_bytes();
    [high, middle, low]
}

/// The upper and lower half of a word.
pub(super) fn halves(word: U32) -> (u16, u16) {
    let word = word.get();
    ((word >> 16) as u16, word as u16)
}

/// The word with these halves.
pub(super) fn word(high: u16, low: u16) -> U32 {
    U32::new(u32::from(high) << 16 | u32::from(low))
}

pub(super) const fn bit(set: bool, mask: u8) -> u8 {
    if set { mask } else { 0 }
}

/// Prints a task tag; `-` is [`NO_TAG`](super::NO_TAG).
pub(super) struct Tag(pub(super) u32);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            super::NO_TAG => f.write_str("-"),
            tag => write!(f, "{tag:#x}"),
        }
    }
}

/// Writes the names of the flags that are set, each after a space.
pub(super) fn flags(f: &mut fmt::Formatter<'_>, words: &[(bool, &str)]) -> fmt::Result {
    let set = words.iter().filter(|(set, _)| *set);
    set.into_iter()
        .try_for_each(|(_, word)| write!(f, " {word}"))
}
