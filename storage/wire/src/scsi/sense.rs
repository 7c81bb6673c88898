//! Sense data (SPC): why a command ended with a check condition, in fixed or descriptor format. Fields that a short input
//! leaves out are zero; the reaction to an error is decided elsewhere.

mod codes;

use core::fmt;

use verbena_wire::Malformed;

use crate::coded::coded;

const RESPONSE: u8 = 0x7f;
const VALID: u8 = 0x80;
const KEY: u8 = 0x0f;
/// Bytes up to and including the additional length, which it does not count, in both formats.
const HEADER_LEN: usize = 8;
/// The descriptor that carries the information field.
const INFORMATION: u8 = 0x00;

coded! {
    /// Sense key, four bits.
    SenseKey: u8 {
        /// No specific error.
        NoSense = 0x0 "no sense",
        /// The command succeeded after error recovery.
        RecoveredError = 0x1 "recovered error",
        /// The unit is not accessible now.
        NotReady = 0x2 "not ready",
        /// Defect of the medium.
        MediumError = 0x3 "medium error",
        /// Failure of the unit.
        HardwareError = 0x4 "hardware error",
        /// The command or its parameters are invalid.
        IllegalRequest = 0x5 "illegal request",
        /// A condition arose before this command; it may be repeated.
        UnitAttention = 0x6 "unit attention",
        /// The blocks are protected against the access.
        DataProtect = 0x7 "data protect",
        /// The medium is blank, or not blank where it should be.
        BlankCheck = 0x8 "blank check",
        /// Vendor-specific.
        Vendor = 0x9 "vendor specific",
        /// A copy failed.
        CopyAborted = 0xa "copy aborted",
        /// The unit aborted the command; it may be repeated.
        AbortedCommand = 0xb "aborted command",
        /// The end of the medium is reached and data is left.
        VolumeOverflow = 0xd "volume overflow",
        /// Source data and medium differ.
        Miscompare = 0xe "miscompare",
        /// The command completed, and the sense data has more information.
        Completed = 0xf "completed",
    }
}

/// Decoded sense data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    /// A deferred error: it concerns an earlier command that had completed.
    pub deferred: bool,
    /// Sense key.
    pub key: SenseKey,
    /// Additional sense code.
    pub asc: u8,
    /// Additional sense code qualifier.
    pub ascq: u8,
    /// The information field, if valid: for a disk the block that failed.
    pub information: Option<u64>,
}

impl Sense {
    /// Bytes of the fixed format as [`emit`](Sense::emit) writes it.
    pub const LEN: usize = 18;

    /// Reads either format.
    pub fn parse(bytes: &[u8]) -> Result<Sense, Malformed> {
        let short = |need| Malformed::Truncated {
            what: "sense data",
            need,
            got: bytes.len(),
        };
        let first = *bytes.first().ok_or(short(1))?;
        let additional = bytes.get(HEADER_LEN - 1).copied().unwrap_or_default();
        let end = bytes.len().min(HEADER_LEN + usize::from(additional));
        let valid = bytes.get(..end).unwrap_or(bytes);
        match first & RESPONSE {
            code @ (0x70 | 0x71) => {
                let [_, _, key] = *bytes.first_chunk().ok_or(short(3))?;
                let at = |at: usize| valid.get(at).copied().unwrap_or_default();
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
                    information: information(valid.get(HEADER_LEN..).unwrap_or_default()),
                })
            }
            got => Err(Malformed::SenseFormat { got }),
        }
    }

    /// The fixed format, which has no room for information beyond 32 bits.
    pub fn emit(&self) -> [u8; Sense::LEN] {
        let information = self.information.and_then(|word| u32::try_from(word).ok());
        let valid = if information.is_some() { VALID } else { 0 };
        let [a, b, c, d] = information.unwrap_or_default().to_be_bytes();
        let first = valid | if self.deferred { 0x71 } else { 0x70 };
        let (key, asc, ascq) = (self.key.code() & KEY, self.asc, self.ascq);
        let additional = (Sense::LEN - HEADER_LEN) as u8;
        [
            first, 0, key, a, b, c, d, additional, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0,
        ]
    }

    /// A text for the two codes, if the table has one.
    pub fn description(&self) -> Option<&'static str> {
        codes::description(self.asc, self.ascq)
    }
}

/// The information field among descriptors; each is a type, a length and as many bytes.
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
        match self.description() {
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
