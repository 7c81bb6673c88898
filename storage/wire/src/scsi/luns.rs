//! The answer to REPORT LUNS (SPC): the logical units of a target. A number that the buffer cuts off is left out, and
//! [`Luns::is_complete`] tells whether there is one.

use core::fmt;

use verbena_wire::Malformed;

use crate::iscsi::Lun;

/// Bytes before the list: its length and four of zero.
const HEADER_LEN: usize = 8;
const LUN_LEN: usize = 8;

/// A list of logical units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Luns<'a> {
    list: &'a [[u8; LUN_LEN]],
    total: u32,
}

impl<'a> Luns<'a> {
    /// Reads the list; numbers that the buffer cuts off are left out.
    pub fn parse(bytes: &'a [u8]) -> Result<Luns<'a>, Malformed> {
        let ([a, b, c, d, ..], rest) =
            bytes
                .split_first_chunk::<HEADER_LEN>()
                .ok_or(Malformed::Truncated {
                    what: "REPORT LUNS data",
                    need: HEADER_LEN,
                    got: bytes.len(),
                })?;
        let total = u32::from_be_bytes([*a, *b, *c, *d]);
        if !(total as usize).is_multiple_of(LUN_LEN) {
            return Err(Malformed::LunList { got: total });
        }
        let listed = rest.get(..total as usize).unwrap_or(rest);
        let (list, _) = listed.as_chunks();
        Ok(Luns { list, total })
    }

    /// Appends the answer for these units; those that a length of 32 bits cannot count are left out.
    pub fn emit(luns: &[Lun], out: &mut Vec<u8>) {
        let most = u32::MAX as usize / LUN_LEN;
        let luns = luns.get(..most).unwrap_or(luns);
        out.extend_from_slice(&((luns.len() * LUN_LEN) as u32).to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        luns.iter()
            .for_each(|lun| out.extend_from_slice(&lun.to_bytes()));
    }

    /// The units, in order.
    pub fn iter(&self) -> impl Iterator<Item = Lun> + use<'a> {
        self.list.iter().map(|bytes| Lun::from_bytes(*bytes))
    }

    /// Bytes of a buffer that holds the whole answer.
    pub const fn required_len(&self) -> usize {
        HEADER_LEN.saturating_add(self.total as usize)
    }

    /// Whether the buffer held all units.
    pub const fn is_complete(&self) -> bool {
        self.list.len() == self.total as usize / LUN_LEN
    }
}

impl fmt::Display for Luns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("units")?;
        self.iter().try_for_each(|lun| write!(f, " {lun}"))?;
        f.write_str(if self.is_complete() { "" } else { " ..." })
    }
}
