//! `verbena decode`: reads a capture, finds MPA streams and iSCSI connections by their first bytes and RoCEv2 by its UDP port, and shows their messages. There is one
//! record per message or iSCSI PDU, in the order of the capture, and a count of violations. Input and output are a reader and a
//! writer.
//!
//! Reading order: `capture` → `link` → `segment` → `flow` (`reassembly`) → `conversation` → `stream` (`agree`, `fpdu`), `iscsi`, `roce` → `record` → `text`, `plot`.

pub mod agree;
pub mod capture;
pub mod conversation;
pub mod flow;
pub mod fpdu;
pub mod iscsi;
pub mod link;
pub mod plot;
pub mod reassembly;
pub mod record;
pub mod roce;
pub mod segment;
pub mod stream;
pub mod summary;
pub mod table;
pub mod text;

use std::io::{self, Read, Write};

use capture::{Capture, Damage};
use iscsi::Digests;
use plot::Plot;
use record::Record;
use segment::IpContents;
use summary::Summary;
use table::{CaptureCounters, Table};
use text::Line;
use verbena_storage_wire::iscsi::PORT;

/// Options of the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// JSON, one object per line.
    pub json: bool,
    /// Only this stream.
    pub stream: Option<usize>,
    /// Only connections with this TCP port at either end.
    pub port: Option<u16>,
    /// Every FPDU as well.
    pub segments: bool,
    /// Offsets and the first payload bytes of every message.
    pub verbose: bool,
    /// A TCP port of iSCSI targets besides the standard one.
    pub iscsi: Option<u16>,
    /// Digests of iSCSI connections until a login negotiates others; with it, connections without a login in the capture are followed, too.
    pub digests: Option<Digests>,
    /// Draw the records as well.
    pub plot: bool,
}

impl Options {
    /// Whether connections to this port may be iSCSI.
    fn is_target(&self, port: u16) -> bool {
        port == PORT || Some(port) == self.iscsi
    }
}

/// The result of decoding.
#[derive(Debug)]
pub struct Report {
    /// MPA streams and iSCSI connections found.
    pub streams: usize,
    /// Protocol violations among the records shown.
    pub violations: u64,
    /// Why the capture was not read to its end, if it was not.
    pub damage: Option<Damage>,
    /// The records shown as a picture (SVG), if one was asked for.
    pub plot: Option<String>,
}

/// Decodes a whole capture. Fails only if writing the output does.
///
/// In JSON every line is one [`Record`]; summaries appear only as text.
pub fn decode<R: Read, W: Write>(input: R, output: &mut W, options: Options) -> io::Result<Report> {
    let mut table = Table::new(options);
    let (mut tally, mut records) = (CaptureCounters::default(), Vec::new());
    let mut shown = RecordFilter {
        options,
        violations: 0,
        plot: options.plot.then(Plot::default),
    };
    let damage = match Capture::open(input) {
        Err(damage) => Some(damage),
        Ok(mut capture) => loop {
            let packet = match capture.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => break None,
                Err(damage) => break Some(damage),
            };
            tally.packets += 1;
            let time = table.since_first(packet.time);
            match link::ip_packet(packet.link, packet.data).map(segment::parse) {
                Some(IpContents::Tcp(segment)) => table.handle(&segment, time, &mut records),
                Some(IpContents::Roce(datagram)) => {
                    table.handle_roce(&datagram, time, &mut records);
                }
                Some(IpContents::Fragment) => tally.fragments += 1,
                None if !link::is_known(packet.link) => tally.unknown_link = Some(packet.link),
                Some(IpContents::Other) | None => {}
            }
            shown.write(output, &mut records)?;
        },
    };
    let opened = tally.packets > 0 || damage.is_none();
    let summaries = table.finish(&mut tally, &mut records);
    shown.write(output, &mut records)?;
    if !options.json && opened {
        shown.write_summaries(output, &summaries, &tally)?;
    }
    output.flush()?;
    Ok(Report {
        streams: summaries.len(),
        violations: shown.violations,
        damage,
        plot: shown.plot.as_ref().map(Plot::svg),
    })
}

/// Selects the records that are written.
struct RecordFilter {
    options: Options,
    violations: u64,
    plot: Option<Plot>,
}

impl RecordFilter {
    fn includes(&self, stream: usize) -> bool {
        self.options.stream.is_none_or(|only| only == stream)
    }

    fn write<W: Write>(&mut self, output: &mut W, records: &mut Vec<Record>) -> io::Result<()> {
        for record in records.drain(..) {
            if !self.includes(record.stream) {
                continue;
            }
            self.violations += u64::from(record.kind == "Violation");
            if let Some(plot) = &mut self.plot {
                plot.add(&record);
            }
            if self.options.json {
                serde_json::to_writer(&mut *output, &record)?;
                writeln!(output)?;
            } else {
                writeln!(output, "{}", Line(&record))?;
            }
        }
        Ok(())
    }

    fn write_summaries<W: Write>(
        &self,
        output: &mut W,
        summaries: &[Summary],
        tally: &CaptureCounters,
    ) -> io::Result<()> {
        let wanted = || summaries.iter().filter(|s| self.includes(s.stream));
        for summary in wanted() {
            writeln!(output, "\n{summary}")?;
        }
        if let (Some(only), None) = (self.options.stream, wanted().next()) {
            writeln!(
                output,
                "there is no stream {only} among {}",
                summaries.len()
            )?;
        }
        if summaries.is_empty() && tally.roce.packets == 0 {
            writeln!(
                output,
                "no MPA stream found: no TCP connection begins with an MPA Request, or at a target's port with an iSCSI login; and no RoCEv2 packet"
            )?;
        }
        writeln!(output, "\n{tally}")
    }
}
