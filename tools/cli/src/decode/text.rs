//! The text form: one line per record, with aligned columns first. A record never has line breaks, and everything shown is in the record.

use core::fmt::{self, Display, Formatter};

use super::record::{Body, Destination, Fpdu, Message, Pdu, Record, RoceFields, Startup};

/// Bytes of private data that are shown.
const PRIVATE_SHOWN: usize = 32;

/// A record as a line of text.
pub struct Line<'a>(pub &'a Record);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let r = self.0;
        write!(
            f,
            "{:12.6} {:3} {} {:14}",
            r.time.as_secs_f64(),
            r.stream,
            r.dir.arrow(),
            r.kind
        )?;
        match &r.body {
            Body::Startup(startup) => write_startup(f, startup),
            Body::Message(message) => write_message(f, r, message),
            Body::Fpdu(fpdu) => write_fpdu(f, r, fpdu),
            Body::Pdu(pdu) => write_pdu(f, r, pdu),
            Body::Roce(fields) => write_roce(f, r, fields),
            Body::Trouble { message } => write!(f, " at byte {}: {message}", r.offset),
        }
    }
}

fn write_startup(f: &mut Formatter<'_>, s: &Startup) -> fmt::Result {
    write!(f, " {} > {} revision {}", s.from, s.to, s.revision)?;
    for (set, word) in [
        (s.reject, " REJECTED"),
        (s.crc, " crc"),
        (s.markers, " markers"),
    ] {
        f.write_str(if set { word } else { "" })?;
    }
    if s.reserved != 0 {
        write!(f, " reserved {:#x}", s.reserved)?;
    }
    if let (Some(ird), Some(ord)) = (s.ird, s.ord) {
        write!(f, " ird {} ord {}", Depth(ird), Depth(ord))?;
    }
    if let Some(rtr) = &s.rtr {
        write!(f, " peer-to-peer rtr {rtr}")?;
    }
    let bytes = s.private_data.len() / 2;
    if bytes > 0 {
        write!(f, " private data {bytes}: ")?;
        match readable(&s.private_data) {
            Some(text) => write!(f, "{text:?}")?,
            None => write_hex(f, &s.private_data)?,
        }
    }
    Ok(())
}

/// Private data that is printable ASCII, as text.
fn readable(hex: &str) -> Option<String> {
    let bytes = (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(hex.get(i..i + 2)?, 16).ok());
    let text: String = bytes.map(|b| b.map(char::from)).collect::<Option<_>>()?;
    text.chars()
        .all(|c| (' '..='~').contains(&c))
        .then_some(text)
}

fn write_hex(f: &mut Formatter<'_>, hex: &str) -> fmt::Result {
    match hex.get(..2 * PRIVATE_SHOWN) {
        Some(shown) if shown.len() < hex.len() => write!(f, "{shown}…"),
        _ => f.write_str(hex),
    }
}

/// A read depth; the largest value means that none was negotiated (RFC 6581 §9.1).
struct Depth(u16);

impl Display for Depth {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0x3fff => f.write_str("any"),
            depth => write!(f, "{depth}"),
        }
    }
}

fn write_message(f: &mut Formatter<'_>, r: &Record, m: &Message) -> fmt::Result {
    write!(f, " {:>8} B", r.len)?;
    write_destination(f, &m.place)?;
    if r.segments != 1 {
        write!(f, " segments {}", r.segments)?;
    }
    write!(f, "{}", m.detail)?;
    f.write_str(if m.rtr { " (ready to receive)" } else { "" })?;
    f.write_str(if m.discarded { " (discarded)" } else { "" })?;
    if let Some(payload) = &m.payload {
        write!(f, " offset {}", r.offset)?;
        if !payload.is_empty() {
            write!(f, " payload {payload}")?;
        }
    }
    Ok(())
}

fn write_pdu(f: &mut Formatter<'_>, r: &Record, pdu: &Pdu) -> fmt::Result {
    write!(f, " {:>8} B", r.len)?;
    if let Some(cdb) = &pdu.cdb {
        write!(f, " {cdb}")?;
    }
    write!(f, " {}", pdu.words)?;
    for (verdict, what) in [(pdu.header_digest, "header"), (pdu.data_digest, "data")] {
        if let Some(verdict) = verdict {
            write!(f, " {what} digest {}", verdict.as_str())?;
        }
    }
    if let Some(payload) = &pdu.payload {
        write!(f, " offset {}", r.offset)?;
        if !payload.is_empty() {
            write!(f, " payload {payload}")?;
        }
    }
    Ok(())
}

fn write_roce(f: &mut Formatter<'_>, r: &Record, fields: &RoceFields) -> fmt::Result {
    write!(
        f,
        " {:>8} B qp {} psn {:#08x}",
        r.len, fields.qpn, fields.psn
    )?;
    if r.segments != 1 {
        write!(f, " packets {}", r.segments)?;
    }
    f.write_str(&fields.words)?;
    if let Some(note) = &fields.note {
        write!(f, " ({note})")?;
    }
    f.write_str(if fields.icrc_ok { "" } else { " WRONG ICRC" })?;
    match &fields.payload {
        Some(payload) if !payload.is_empty() => write!(f, " payload {payload}"),
        _ => Ok(()),
    }
}

fn write_fpdu(f: &mut Formatter<'_>, r: &Record, fpdu: &Fpdu) -> fmt::Result {
    write!(f, " {:>8} B at byte {}", r.len, r.offset)?;
    write!(f, " ulpdu {}", fpdu.ulpdu)?;
    write!(f, " {}", fpdu.opcode.unwrap_or("unreadable"))?;
    if let Some(place) = &fpdu.place {
        write_destination(f, place)?;
    }
    f.write_str(if fpdu.last == Some(true) { " last" } else { "" })?;
    let verdict = if fpdu.crc_ok { "good" } else { "other" };
    write!(f, " pad {} crc {} {verdict}", fpdu.pad, fpdu.crc)
}

fn write_destination(f: &mut Formatter<'_>, place: &Destination) -> fmt::Result {
    match place {
        Destination::Tagged { stag, to } => write!(f, " stag {stag} to {to}"),
        Destination::Untagged { qn, msn, mo: 0 } => write!(f, " qn {qn} msn {msn}"),
        Destination::Untagged { qn, msn, mo } => write!(f, " qn {qn} msn {msn} mo {mo}"),
    }
}
