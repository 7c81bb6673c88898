//! The file of a trace: Chrome trace-event JSON, an event per line. The end of the object is written with every flush and overwritten by what follows, so
//! that the file can be opened at any time, also if this process is killed. Its size has a limit; text of traced processes is escaped.

use core::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::Value;

use crate::events::printable;

/// The beginning of the object.
const BEGIN: &str = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
/// The longest name that is written.
const MAX_NAME: usize = 64;
/// Room that is kept for the end of the object.
const RESERVE: u64 = 64 << 10;

/// A point in a thread: where a flow can begin or end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The time in nanoseconds.
    pub nanos: u64,
}

/// The file.
#[derive(Debug)]
pub struct Output {
    file: BufWriter<File>,
    written: u64,
    limit: u64,
    /// No event was written.
    is_first: bool,
    events: u64,
    flows: u64,
    /// The event that is being written.
    line: String,
}

/// Microseconds with three digits behind the point.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A name that another process has given, as a JSON string.
fn name_json(name: &str) -> String {
    let name: String = printable(name).chars().take(MAX_NAME).collect();
    Value::from(name).to_string()
}

impl Output {
    /// Creates the file, for its owner only; at most `limit` bytes are written.
    pub fn create(path: &Path, limit: u64) -> io::Result<Output> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        let mut output = Output {
            file: BufWriter::with_capacity(1 << 20, file),
            written: 0,
            limit,
            is_first: true,
            events: 0,
            flows: 0,
            line: String::new(),
        };
        output.put(BEGIN)?;
        output.flush()?;
        Ok(output)
    }

    /// Nothing more is written.
    pub fn is_full(&self) -> bool {
        self.written + RESERVE >= self.limit
    }

    /// Events that were written, flows not counted.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Flows that were written.
    pub fn flows(&self) -> u64 {
        self.flows
    }

    /// Bytes that were written.
    pub fn bytes(&self) -> u64 {
        self.written
    }

    fn put(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.written += text.len() as u64;
        Ok(())
    }

    fn event(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        if self.is_full() {
            return Ok(());
        }
        let mut line = core::mem::take(&mut self.line);
        line.clear();
        if !core::mem::take(&mut self.is_first) {
            line.push_str(",\n");
        }
        // Writing to a string does not fail.
        let _ = fmt::Write::write_fmt(&mut line, text);
        let put = self.put(&line);
        self.line = line;
        put
    }

    /// A name of a process or thread.
    pub fn metadata(&mut self, what: &str, pid: u32, tid: u32, name: &str) -> io::Result<()> {
        let name = name_json(name);
        self.event(format_args!(
            "{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid},\"tid\":{tid},\"args\":{{\"name\":{name}}}}}"
        ))
    }

    /// A slice. Name, category and arguments are JSON without characters to escape.
    pub fn slice(
        &mut self,
        at: Point,
        nanos: u64,
        name: &str,
        kind: &str,
        args: &str,
    ) -> io::Result<()> {
        self.events += 1;
        let Point { pid, tid, .. } = at;
        let (ts, dur) = (Micros(at.nanos), Micros(nanos));
        self.event(format_args!(
            "{{\"ph\":\"X\",\"ts\":{ts},\"dur\":{dur},\"pid\":{pid},\"tid\":{tid},\"cat\":\"{kind}\",\"name\":\"{name}\",\"args\":{{{args}}}}}"
        ))
    }

    /// An instant of a thread.
    pub fn instant(&mut self, at: Point, name: &str, kind: &str, args: &str) -> io::Result<()> {
        self.events += 1;
        let Point { pid, tid, .. } = at;
        let ts = Micros(at.nanos);
        self.event(format_args!(
            "{{\"ph\":\"i\",\"s\":\"t\",\"ts\":{ts},\"pid\":{pid},\"tid\":{tid},\"cat\":\"{kind}\",\"name\":\"{name}\",\"args\":{{{args}}}}}"
        ))
    }

    /// A flow over these points, from the first to the last. All or none of it is written, and only if there are two and time does not run backwards.
    pub fn flow(&mut self, name: &str, points: &[Point]) -> io::Result<()> {
        let in_order = points.is_sorted_by_key(|point| point.nanos);
        if points.len() < 2 || !in_order || self.is_full() {
            return Ok(());
        }
        self.flows += 1;
        let id = self.flows;
        let last = points.len() - 1;
        for (number, point) in points.iter().enumerate() {
            let phase = match number {
                0 => "\"ph\":\"s\"",
                _ if number == last => "\"ph\":\"f\",\"bp\":\"e\"",
                _ => "\"ph\":\"t\"",
            };
            let Point { pid, tid, nanos } = *point;
            let ts = Micros(nanos);
            self.event(format_args!(
                "{{{phase},\"id\":{id},\"ts\":{ts},\"pid\":{pid},\"tid\":{tid},\"cat\":\"{name}\",\"name\":\"{name}\"}}"
            ))?;
        }
        Ok(())
    }

    /// Makes what was written a whole file; what follows overwrites its end.
    pub fn flush(&mut self) -> io::Result<()> {
        self.end("")
    }

    /// The last flush; `counters` are members of an object in JSON.
    pub fn finish(&mut self, counters: &str) -> io::Result<()> {
        self.end(counters)
    }

    fn end(&mut self, counters: &str) -> io::Result<()> {
        let end = format!("\n],\"otherData\":{{\"clock\":\"CLOCK_MONOTONIC\"{counters}}}}}\n");
        self.file.write_all(end.as_bytes())?;
        self.file.flush()?;
        let file = self.file.get_mut();
        // Not of a pipe or a device, which has one end only.
        if file.metadata()?.is_file() {
            let here = file.stream_position()?;
            file.set_len(here)?;
            file.seek(SeekFrom::Start(self.written))?;
        }
        Ok(())
    }
}
