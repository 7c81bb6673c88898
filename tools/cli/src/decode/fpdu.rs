//! One complete FPDU in the stream (RFC 5044 §4): its extent, its ULPDU without markers, its checksum field. The extent is computed by the
//! same code as on the receive side of a stream. A wrong checksum is reported here, and judged elsewhere.

use verbena_wire::crc::crc32c;
use verbena_wire::mpa::fpdu::{CRC_LEN, LENGTH_LEN};
use verbena_wire::mpa::{Layout, Marker, Phase};

/// A complete FPDU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fpdu<'a> {
    /// All its bytes.
    pub bytes: &'a [u8],
    /// Its ULPDU, without markers.
    pub ulpdu: Vec<u8>,
    /// Its padding. It should be zero and is not checked (RFC 5044 §4.1); some senders leave old bytes there.
    pub pad: Vec<u8>,
    /// The checksum field.
    pub crc: u32,
    /// The checksum of its bytes.
    pub computed: u32,
    /// The marker phase of the next FPDU.
    pub next: Option<Phase>,
}

impl Fpdu<'_> {
    /// Parses the FPDU at the front of `stage`; `None` while it is incomplete. No phase means no markers.
    pub fn parse(stage: &[u8], phase: Option<Phase>) -> Option<Fpdu<'_>> {
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

/// Body bytes `from..to`, without markers.
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
