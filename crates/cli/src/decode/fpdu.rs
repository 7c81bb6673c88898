//! One whole FPDU as it lies in the stream (RFC 5044 §4): its extent, its ULPDU without markers, its checksum field.
//! It promises the same extent that the receive side of a stream works with.
//! It refuses to judge: a wrong checksum is a fact here, and a violation elsewhere.

use verbena_wire::crc::crc32c;
use verbena_wire::mpa::fpdu::{CRC_LEN, LENGTH_LEN};
use verbena_wire::mpa::{Layout, Marker, Phase};

/// An FPDU that has arrived in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fpdu<'a> {
    /// All its bytes.
    pub bytes: &'a [u8],
    /// Its ULPDU, markers taken out.
    pub ulpdu: Vec<u8>,
    /// Its padding. It should be zero and is not looked at (RFC 5044 §4.1); some senders leave old bytes there.
    pub pad: Vec<u8>,
    /// The checksum field.
    pub crc: u32,
    /// The checksum its bytes have.
    pub computed: u32,
    /// The phase of the FPDU behind it.
    pub next: Option<Phase>,
}

impl Fpdu<'_> {
    /// Cuts the FPDU at the front of `stage`; `None` while it is incomplete. No phase means no markers.
    pub fn cut(stage: &[u8], phase: Option<Phase>) -> Option<Fpdu<'_>> {
        let lead = if phase == Some(Phase::START) {
            Marker::LEN
        } else {
            0
        };
        let ulpdu_len = u16::from_be_bytes(*stage.get(lead..)?.first_chunk()?);
        let layout = Layout::new(ulpdu_len, phase);
        let bytes = stage.get(..layout.size())?;
        let end = LENGTH_LEN + usize::from(ulpdu_len);
        let (covered, field) = bytes.split_at_checked(layout.crc_at())?;
        Some(Fpdu {
            bytes,
            ulpdu: body(&layout, bytes, LENGTH_LEN, end),
            pad: body(&layout, bytes, end, layout.body_len()),
            crc: u32::from_le_bytes(*field.first_chunk::<CRC_LEN>()?),
            computed: crc32c(covered),
            next: layout.next_phase(),
        })
    }
}

/// Body bytes `from..to`, markers taken out.
fn body(layout: &Layout, bytes: &[u8], from: usize, to: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(to - from);
    let mut body = from;
    while body < to {
        let run = layout.run_at(body).min(to - body);
        let at = layout.locate(body);
        out.extend_from_slice(bytes.get(at..at + run).unwrap_or_default());
        body += run;
    }
    out
}

#[cfg(test)]
mod tests;
