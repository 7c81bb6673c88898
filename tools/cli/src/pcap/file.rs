//! The pcapng output of a capture: one file, a sequence of files of limited size of which the latest are kept, or standard output. Every file is
//! complete in itself: it describes the interfaces, and ends with their counts.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::{DataLink, PcapError};
use verbena::unstable::capture::Totals;

/// Nanoseconds, as a power of ten.
const RESOLUTION: u8 = 9;
/// Interfaces of one output: adapters that were captured at any time.
pub const MAX_INTERFACES: usize = 1024;

/// Where the output goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A file, or several named after it.
    File(PathBuf),
}

/// The output.
pub struct Output {
    target: Target,
    snap_len: usize,
    /// The bytes of a file, and how many files are kept; 0 for a single one, at whose end the capture ends.
    limit: Option<(u64, usize)>,
    interfaces: Vec<(String, Totals)>,
    writer: PcapNgWriter<Counted>,
    /// The numbers of files that exist.
    kept: VecDeque<u64>,
    last: u64,
    is_full: bool,
}

/// Counts what is written.
struct Counted {
    to: BufWriter<Box<dyn Write>>,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Output {
    /// Opens it; `limit` has the bytes of a file, and how many files are kept.
    pub fn open(
        target: Target,
        snap_len: usize,
        limit: Option<(u64, usize)>,
    ) -> io::Result<Output> {
        let numbered = limit.is_some_and(|(_, files)| files > 0);
        let first = numbered.then_some(1);
        Ok(Output {
            writer: open(&target, first)?,
            target,
            snap_len,
            limit,
            interfaces: Vec::new(),
            kept: first.into_iter().collect(),
            last: 0,
            is_full: false,
        })
    }

    /// Adds an interface with this name; its number.
    pub fn add_interface(&mut self, name: String) -> io::Result<usize> {
        let number = self.interfaces.len();
        describe(&mut self.writer, &name, self.snap_len)?;
        self.interfaces.push((name, Totals::default()));
        Ok(number)
    }

    /// Adds a frame of `len` bytes, which begins so.
    pub fn frame(
        &mut self,
        interface: usize,
        nanos: u64,
        bytes: &[u8],
        len: usize,
    ) -> io::Result<()> {
        if self.is_full {
            return Ok(());
        }
        let bytes = bytes.get(..self.snap_len).unwrap_or(bytes);
        let block = EnhancedPacketBlock {
            interface_id: number(interface),
            timestamp: std::time::Duration::from_nanos(nanos),
            original_len: number(len),
            data: Cow::Borrowed(bytes),
            options: Vec::new(),
        };
        self.last = self.last.max(nanos);
        self.writer.write_pcapng_block(block).map_err(as_io)?;
        match self.limit {
            Some((most, 0)) => self.is_full = self.writer.get_ref().bytes >= most,
            Some((most, files)) if self.writer.get_ref().bytes >= most => self.rotate(files)?,
            _ => {}
        }
        Ok(())
    }

    /// The only file has reached its size.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Records what an interface has captured so far.
    pub fn set_totals(&mut self, interface: usize, totals: Totals) {
        if let Some((_, counted)) = self.interfaces.get_mut(interface) {
            *counted = totals;
        }
    }

    /// Frames that are buffered are written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.get_mut().flush()
    }

    /// Ends the file.
    pub fn finish(&mut self) -> io::Result<()> {
        for (number_of, (_, totals)) in self.interfaces.iter().enumerate() {
            let block = InterfaceStatisticsBlock {
                interface_id: number(number_of),
                // Written as two words, the upper one first.
                timestamp: self.last.rotate_left(32),
                options: vec![
                    InterfaceStatisticsOption::IsbIfRecv(totals.captured + totals.dropped),
                    InterfaceStatisticsOption::IsbIfDrop(totals.dropped),
                ],
            };
            self.writer.write_pcapng_block(block).map_err(as_io)?;
        }
        self.flush()
    }

    /// Ends this file, begins the next one, and removes the oldest if there are too many.
    fn rotate(&mut self, files: usize) -> io::Result<()> {
        self.finish()?;
        let next = self.kept.back().map_or(1, |last| last + 1);
        self.writer = open(&self.target, Some(next))?;
        self.kept.push_back(next);
        while self.kept.len() > files {
            let oldest = self.kept.pop_front();
            if let (Target::File(path), Some(oldest)) = (&self.target, oldest) {
                // Another process may have removed it.
                let _ = std::fs::remove_file(numbered(path, oldest));
            }
        }
        for (name, _) in &self.interfaces {
            describe(&mut self.writer, name, self.snap_len)?;
        }
        Ok(())
    }
}

fn open(target: &Target, number: Option<u64>) -> io::Result<PcapNgWriter<Counted>> {
    let to: Box<dyn Write> = match target {
        Target::Stdout => Box::new(io::stdout()),
        Target::File(path) => {
            let path = number.map_or_else(|| path.clone(), |number| numbered(path, number));
            let shown = path.display().to_string();
            let named =
                |error: io::Error| io::Error::new(error.kind(), format!("{shown}: {error}"));
            // It has what programs of this user say to each other.
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            Box::new(options.open(&path).map_err(named)?)
        }
    };
    let counted = Counted {
        to: BufWriter::new(to),
        bytes: 0,
    };
    PcapNgWriter::new(counted).map_err(as_io)
}

fn describe(writer: &mut PcapNgWriter<Counted>, name: &str, snap_len: usize) -> io::Result<()> {
    let mut block = InterfaceDescriptionBlock::new(DataLink::ETHERNET, number(snap_len));
    let name = Cow::Owned(name.to_owned());
    block.options = vec![
        InterfaceDescriptionOption::IfName(name),
        InterfaceDescriptionOption::IfTsResol(RESOLUTION),
    ];
    writer.write_pcapng_block(block).map_err(as_io)?;
    Ok(())
}

/// `capture.pcapng` with the number 3 is `capture_00003.pcapng`.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("_{number:05}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn as_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_files_are_kept() {
        let folder = std::env::temp_dir().join(format!("verbena-pcap-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let target = Target::File(folder.join("a.pcapng"));
        let mut output = Output::open(target, 1000, Some((2000, 2))).unwrap();
        let interface = output.add_interface("one".to_owned()).unwrap();
        for at in 0..20 {
            output.frame(interface, at, &[1; 500], 500).unwrap();
        }
        output.finish().unwrap();
        let mut names: Vec<_> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["a_00005.pcapng", "a_00006.pcapng"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
