//! Writes reports as lines of JSON into a file of this process, which the command reads. The file is opened for each line, so that a program that closes
//! descriptors neither loses reports nor gets them into a file of its own. Equal reports, by kind and first stack, are written once and counted.

use core::fmt::Write as _;
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::kind::Kind;
use super::stack::Stack;

/// Different reports of a process at most; further ones are only counted.
const MOST: usize = 1000;
/// Mappings and frames of a stack make a line longer, but no path is.
const LONGEST_PATH: usize = 1024;

/// Something that the program did wrong.
pub(super) struct Report {
    pub(super) kind: Kind,
    pub(super) what: String,
    /// Stacks with what was done there; the first one is where the error shows.
    pub(super) stacks: Vec<(&'static str, Stack)>,
}

struct Known {
    number: usize,
    count: u64,
    written: u64,
}

/// The reports of this process.
pub(super) struct Reporter {
    file: PathBuf,
    process: libc::pid_t,
    known: HashMap<(Kind, Stack), Known>,
    /// Reports beyond [`MOST`].
    dropped: u64,
}

impl Reporter {
    pub(super) fn new(folder: &Path, process: libc::pid_t) -> Reporter {
        Reporter {
            file: folder.join(format!("{process}.jsonl")),
            process,
            known: HashMap::new(),
            dropped: 0,
        }
    }

    /// The process begins to use verbs.
    pub(super) fn begin(&self) {
        let name = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&name).file_name().unwrap_or_default();
        let mut line = Line::new("begin");
        line.number("pid", u64::try_from(self.process).unwrap_or(0));
        line.text("program", &name.to_string_lossy());
        if let Err(error) = self.write(line) {
            let file = self.file.display();
            crate::log::warn(|| format!("check: reports are lost: {file}: {error}"));
        }
    }

    pub(super) fn report(&mut self, report: &Report) {
        let first = report.stacks.first().map(|(_, stack)| stack.clone());
        let key = (report.kind, first.unwrap_or_default());
        let number = self.known.len();
        if let Some(known) = self.known.get_mut(&key) {
            known.count += 1;
            // So that little is lost of a process that is killed.
            if known.count >= 10 * known.written {
                known.written = known.count;
                let line = count_line(known);
                let _ = self.write(line);
            }
            return;
        }
        if number >= MOST {
            self.dropped += 1;
            return;
        }
        let _ = self.write(line_of(number, report));
        self.known.insert(
            key,
            Known {
                number,
                count: 1,
                written: 1,
            },
        );
    }

    /// The process ends: final counts.
    pub(super) fn end(&mut self) {
        let late: Vec<Line> = self
            .known
            .values()
            .filter(|known| known.count > known.written)
            .map(count_line)
            .collect();
        for line in late {
            let _ = self.write(line);
        }
        let mut line = Line::new("end");
        line.number("dropped", self.dropped);
        let _ = self.write(line);
    }

    /// One write, so that a reader sees whole lines.
    fn write(&self, line: Line) -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        options.custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW);
        options
            .open(&self.file)?
            .write_all((line.0 + "}\n").as_bytes())
    }
}

fn count_line(known: &Known) -> Line {
    let mut line = Line::new("count");
    line.number("number", known.number as u64);
    line.number("count", known.count);
    line
}

fn line_of(number: usize, report: &Report) -> Line {
    let mut line = Line::new("report");
    line.number("number", number as u64);
    line.text("kind", report.kind.name());
    line.flag("hint", report.kind.is_hint());
    line.text("what", &report.what);
    line.key("stacks");
    line.0.push('[');
    for (at, (label, stack)) in report.stacks.iter().enumerate() {
        line.0.push_str(if at == 0 { "{" } else { ",{" });
        line.text("label", label);
        line.key("frames");
        line.0.push('[');
        for (at, frame) in stack.frames().iter().enumerate() {
            line.0.push_str(if at == 0 { "{" } else { ",{" });
            let path: String = frame.file.chars().take(LONGEST_PATH).collect();
            line.text("file", &path);
            line.number("offset", frame.offset as u64);
            line.0.push('}');
        }
        line.0.push_str("]}");
    }
    line.0.push(']');
    line
}

/// A JSON object under construction, without its last brace.
struct Line(String);

impl Line {
    fn new(kind: &str) -> Line {
        let mut line = Line("{".to_owned());
        line.text("type", kind);
        line
    }

    fn key(&mut self, key: &str) {
        if !self.0.ends_with('{') {
            self.0.push(',');
        }
        let _ = write!(self.0, "\"{key}\":");
    }

    fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        let _ = write!(self.0, "{value}");
    }

    fn flag(&mut self, key: &str, value: bool) {
        self.key(key);
        let _ = write!(self.0, "{value}");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        self.0.push('"');
        for c in value.chars() {
            match c {
                '"' | '\\' => self.0.extend(['\\', c]),
                c if c.is_control() => {
                    let _ = write!(self.0, "\\u{:04x}", u32::from(c));
                }
                c => self.0.push(c),
            }
        }
        self.0.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reporter(name: &str) -> Reporter {
        let folder =
            std::env::temp_dir().join(format!("verbena-check-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Reporter::new(&folder, 1)
    }

    fn lines(reporter: &Reporter) -> Vec<String> {
        let text = std::fs::read_to_string(&reporter.file).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn equal_reports_are_counted() {
        let mut reporter = reporter("counted");
        for _ in 0..25 {
            let stacks = vec![("posted", Stack::default())];
            let what = "a \"quoted\"\nline".to_owned();
            let kind = Kind::WrongState;
            reporter.report(&Report { kind, what, stacks });
        }
        reporter.end();
        let expected = [
            r#"{"type":"report","number":0,"kind":"wrong-state","hint":false,"what":"a \"quoted\"\u000aline","stacks":[{"label":"posted","frames":[]}]}"#,
            r#"{"type":"count","number":0,"count":10}"#,
            r#"{"type":"count","number":0,"count":25}"#,
            r#"{"type":"end","dropped":0}"#,
        ];
        assert_eq!(lines(&reporter), expected);
        std::fs::remove_dir_all(reporter.file.parent().unwrap()).unwrap();
    }
}
