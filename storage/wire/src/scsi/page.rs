//! Pages of vital product data (SPC): the list of pages, the serial number, and the designators of a unit. `parse` checks
//! the page code and reads neither beyond the page's length nor beyond the input. The limits of a disk are in
//! [`BlockLimits`](super::BlockLimits).

use core::fmt;

use verbena_wire::Malformed;

/// Bytes of a page's header: device, page, length of 16 bits.
const HEADER_LEN: usize = 4;
/// Bytes of a designator's header.
const DESIGNATOR_HEADER_LEN: usize = 4;

/// The body of the page with this code, as far as it is in the buffer.
pub(super) fn body(page: u8, bytes: &[u8]) -> Result<&[u8], Malformed> {
    let ([_, got, high, low], rest) = bytes.split_first_chunk().ok_or(Malformed::Truncated {
        what: "page of vital product data",
        need: HEADER_LEN,
        got: bytes.len(),
    })?;
    if *got != page {
        return Err(Malformed::ScsiPage {
            expected: page,
            got: *got,
        });
    }
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    Ok(rest.get(..len).unwrap_or(rest))
}

/// Page 00: the supported pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupportedPages<'a>(&'a [u8]);

impl<'a> SupportedPages<'a> {
    /// The page code.
    pub const PAGE: u8 = 0x00;

    /// Reads the page.
    pub fn parse(bytes: &'a [u8]) -> Result<SupportedPages<'a>, Malformed> {
        body(SupportedPages::PAGE, bytes).map(SupportedPages)
    }

    /// Whether the unit supports this page.
    pub fn has(&self, page: u8) -> bool {
        self.0.contains(&page)
    }
}

impl fmt::Display for SupportedPages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pages")?;
        self.0.iter().try_for_each(|page| write!(f, " {page:02x}"))
    }
}

/// Page 80: the serial number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitSerial<'a>(&'a [u8]);

impl<'a> UnitSerial<'a> {
    /// The page code.
    pub const PAGE: u8 = 0x80;

    /// Reads the page.
    pub fn parse(bytes: &'a [u8]) -> Result<UnitSerial<'a>, Malformed> {
        body(UnitSerial::PAGE, bytes).map(UnitSerial)
    }

    /// The number without the spaces around it.
    pub fn bytes(&self) -> &'a [u8] {
        self.0.trim_ascii()
    }
}

impl fmt::Display for UnitSerial<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "serial {}", self.bytes().escape_ascii())
    }
}

/// Page 83: the designators of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceId<'a>(&'a [u8]);

/// A designator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Designator<'a> {
    /// 1 binary, 2 ASCII, 3 UTF-8.
    pub code_set: u8,
    /// 0 for the logical unit, 1 for the port, 2 for the target.
    pub association: u8,
    /// 1 vendor-specific, 2 EUI-64, 3 NAA, 8 a SCSI name string, and others.
    pub kind: u8,
    /// The identifier.
    pub name: &'a [u8],
}

impl<'a> DeviceId<'a> {
    /// The page code.
    pub const PAGE: u8 = 0x83;

    /// Reads the page; a truncated designator is an error here, so that iteration cannot fail.
    pub fn parse(bytes: &'a [u8]) -> Result<DeviceId<'a>, Malformed> {
        let all = body(DeviceId::PAGE, bytes)?;
        let mut rest = all;
        while !rest.is_empty() {
            (_, rest) = first(rest)?;
        }
        Ok(DeviceId(all))
    }

    /// The designators, in order.
    pub fn designators(&self) -> impl Iterator<Item = Designator<'a>> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (designator, behind) = first(rest).ok()?;
            rest = behind;
            Some(designator)
        })
    }
}

fn first(bytes: &[u8]) -> Result<(Designator<'_>, &[u8]), Malformed> {
    let short = |need| Malformed::Truncated {
        what: "designator",
        need,
        got: bytes.len(),
    };
    let ([codes, kinds, _, len], rest) = bytes
        .split_first_chunk::<DESIGNATOR_HEADER_LEN>()
        .ok_or(short(DESIGNATOR_HEADER_LEN))?;
    let len = usize::from(*len);
    let (name, behind) = rest
        .split_at_checked(len)
        .ok_or(short(DESIGNATOR_HEADER_LEN + len))?;
    let designator = Designator {
        code_set: codes & 0x0f,
        association: kinds >> 4 & 0x03,
        kind: kinds & 0x0f,
        name,
    };
    Ok((designator, behind))
}

impl fmt::Display for Designator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kind={} of={} ", self.kind, self.association)?;
        match self.code_set {
            2 | 3 => write!(f, "{}", self.name.trim_ascii().escape_ascii()),
            _ => self.name.iter().try_for_each(|b| write!(f, "{b:02x}")),
        }
    }
}

impl fmt::Display for DeviceId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("names")?;
        self.designators().try_for_each(|d| write!(f, " [{d}]"))
    }
}
