//! The file of kept instruction counts: compiler and architecture, and one line per scenario.
//! A record that is written reads as the same, and an unknown field is an error.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::command::Tool;

/// The text above the counts.
const HEAD: &str = "\
# Instructions of fixed scenarios of the adapter, both sides together (docs/performance.md, \"The adapter\").
# `cargo xtask test` counts them anew and fails if one takes 1 % more than its line here, or 5 % more with another compiler.
# Made by `cargo xtask instructions --write` (callgrind, `bench` profile, the C library held to SSE2); not edited by hand.
";

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) made: Toolchain,
    /// By the scenario's name.
    pub(super) instructions: BTreeMap<String, u64>,
}

/// The compiler and the architecture of the counts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Toolchain {
    pub(super) rustc: String,
    pub(super) architecture: String,
}

impl Toolchain {
    /// The compiler and the processor of this run.
    pub(super) fn current() -> Result<Toolchain> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let version = Tool::new(rustc).arg("--version").output()?;
        Ok(Toolchain {
            rustc: version.trim().to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
        })
    }
}

impl Record {
    pub(super) fn parse(text: &str) -> Result<Record> {
        let record: Record = toml::from_str(text)
            .context("not a file written by `cargo xtask instructions --write`")?;
        // Nothing can be compared with a count of zero.
        if let Some((name, _)) = record.instructions.iter().find(|(_, count)| **count == 0) {
            bail!("`{name}` has 0 instructions");
        }
        Ok(record)
    }

    pub(super) fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        let _ = writeln!(text, "\n[made]");
        let _ = writeln!(text, "rustc = {:?}", self.made.rustc);
        let _ = writeln!(text, "architecture = {:?}", self.made.architecture);
        let _ = writeln!(text, "\n[instructions]");
        for (name, count) in &self.instructions {
            let _ = writeln!(text, "{name:?} = {count}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: &str = "[made]\nrustc = \"r\"\narchitecture = \"a\"\n";

    fn parse(counts: &str) -> Result<Record> {
        Record::parse(&format!("{MADE}[instructions]\n{counts}"))
    }

    #[test]
    fn record_survives_write_and_parse() {
        let record = parse("\"send 64\" = 10445\n\"poll 0\" = 14\n").unwrap();
        let again = Record::parse(&record.text()).unwrap();
        assert_eq!(again.instructions, record.instructions);
        assert_eq!(again.instructions["send 64"], 10_445);
        assert_eq!(
            (again.made.rustc, again.made.architecture),
            ("r".into(), "a".into())
        );
    }

    #[test]
    fn invalid_input_is_refused() {
        assert!(Record::parse("").is_err());
        assert!(Record::parse(MADE).is_err());
        assert!(parse("\"send 64\" = -1\n").is_err());
        assert!(parse("\"send 64\" = \"few\"\n").is_err());
        assert!(parse("\"send 64\" = 1\n\"send 64\" = 2\n").is_err());
        assert!(parse("\"send 64\" = 0\n").is_err());
        assert!(parse("\"send 64\" = 1\n[other]\nx = 1\n").is_err());
    }

    #[test]
    fn record_names_this_compiler() {
        let maker = Toolchain::current().unwrap();
        assert!(maker.rustc.starts_with("rustc 1."), "{}", maker.rustc);
        assert!(!maker.rustc.contains('\n'));
    }
}
