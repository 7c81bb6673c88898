//! Sense data (SPC): why a command ended with a check condition, in fixed or descriptor form. It promises the key and the
//! codes within the bytes it is given; what a short form leaves out is zero. What to do about it is not known here.

mod codes;

use core::fmt;

use crate::Malformed;
use crate::coded::coded;

const RESPONSE: u8 = 0x7f;
const VALID: u8 = 0x80;
const KEY: u8 = 0x0f;
/// Bytes before those that the additional length counts, in both forms.
const FRONT: usize = 8;
/// The descriptor that carries the information field.
const INFORMATION: u8 = 0x00;

coded! {
    /// What kind of trouble, four bits.
    SenseKey: u8 {
        /// None.
        NoSense = 0x0 "no sense",
        /// It went well in the end.
        RecoveredError = 0x1 "recovered error",
        /// The unit cannot be used now.
        NotReady = 0x2 "not ready",
        /// The medium is flawed.
        MediumError = 0x3 "medium error",
        /// The unit is broken.
        HardwareError = 0x4 "hardware error",
        /// The command is wrong.
        IllegalRequest = 0x5 "illegal request",
        /// Something happened before this command: try again.
        UnitAttention = 0x6 "unit attention",
        /// The blocks are protected.
        DataProtect = 0x7 "data protect",
        /// The medium is blank.
        BlankCheck = 0x8 "blank check",
        /// The vendor's own.
        Vendor = 0x9 "vendor specific",
        /// A copy failed.
        CopyAborted = 0xa "copy aborted",
        /// The unit gave up: perhaps try again.
        AbortedCommand = 0xb "aborted command",
        /// Data is left for which there is no room.
        VolumeOverflow = 0xd "volume overflow",
        /// Data and medium differ.
        Miscompare = 0xe "miscompare",
        /// Done, and there is something to say.
        Completed = 0xf "completed",
    }
}

/// Why a command ended so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    /// It is about an earlier command, which had ended well.
    pub deferred: bool,
    /// What kind of trouble.
    pub key: SenseKey,
    /// Additional sense code.
    pub asc: u8,
    /// Its qualifier.
    pub ascq: u8,
    /// The information field, if valid: for a disk the block that failed.
    pub information: Option<u64>,
}

impl Sense {
    /// Bytes of the fixed form as it is written here.
    pub const LEN: usize = 18;

    /// Reads either form.
    pub fn parse(bytes: &[u8]) -> Result<Sense, Malformed> {
        let short = |need| Malformed::Truncated {
            what: "sense data",
            need,
            got: bytes.len(),
        };
        let first = *bytes.first().ok_or(short(1))?;
        let additional = bytes.get(FRONT - 1).copied().unwrap_or_default();
        let end = bytes.len().min(FRONT + usize::from(additional));
        let told = bytes.get(..end).unwrap_or(bytes);
        match first & RESPONSE {
            code @ (0x70 | 0x71) => {
                let [_, _, key] = *bytes.first_chunk().ok_or(short(3))?;
                let at = |at: usize| told.get(at).copied().unwrap_or_default();
                let information = match *bytes {
                    [first, _, _, a, b, c, d, ..] if first & VALID != 0 => Some([a, b, c, d]),
                    _ => None,
                };
                Ok(Sense {
                    deferred: code == 0x71,
                    key: SenseKey::from_code(key & KEY),
                    asc: at(12),
                    ascq: at(13),
                    information: information.map(|word| u32::from_be_bytes(word).into()),
                })
            }
            code @ (0x72 | 0x73) => {
                let [_, key, asc, ascq] = *bytes.first_chunk().ok_or(short(4))?;
                Ok(Sense {
                    deferred: code == 0x73,
                    key: SenseKey::from_code(key & KEY),
                    asc,
                    ascq,
                    information: information(told.get(FRONT..).unwrap_or_default()),
                })
            }
            got => Err(Malformed::SenseFormat { got }),
        }
    }

    /// The bytes in fixed form, which has no room for information beyond 32 bits.
    pub fn emit(&self) -> [u8; Sense::LEN] {
        let information = self.information.and_then(|word| u32::try_from(word).ok());
        let valid = if information.is_some() { VALID } else { 0 };
        let [a, b, c, d] = information.unwrap_or_default().to_be_bytes();
        let first = valid | if self.deferred { 0x71 } else { 0x70 };
        let (key, asc, ascq) = (self.key.code() & KEY, self.asc, self.ascq);
        let additional = (Sense::LEN - FRONT) as u8;
        [
            first, 0, key, a, b, c, d, additional, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0,
        ]
    }

    /// What the two codes mean, if it is known here.
    pub fn words(&self) -> Option<&'static str> {
        codes::words(self.asc, self.ascq)
    }
}

/// The information field among descriptors, each a type, a length and so many bytes.
fn information(mut descriptors: &[u8]) -> Option<u64> {
    while let [kind, len, rest @ ..] = descriptors {
        let (body, behind) = rest.split_at_checked(usize::from(*len))?;
        if let (INFORMATION, [flags, _, a, b, c, d, e, f, g, h, ..]) = (*kind, body) {
            let word = u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]);
            return (flags & VALID != 0).then_some(word);
        }
        descriptors = behind;
    }
    None
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.key)?;
        match self.words() {
            Some(words) => f.write_str(words)?,
            None => write!(f, "code {:02x}/{:02x}", self.asc, self.ascq)?,
        }
        if let Some(information) = self.information {
            write!(f, " (information {information})")?;
        }
        f.write_str(if self.deferred {
            ", about an earlier command"
        } else {
            ""
        })
    }
}
