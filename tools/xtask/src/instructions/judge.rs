//! Compares counts with the kept ones: the same, more, or fewer.
//! More than the tolerance is a failure with both numbers and the remedy; fewer is a note, so that the file is updated.
//! A scenario on one side only is a failure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, bail};

use super::FILE;
use super::record::{Record, Toolchain};
use crate::step::Outcome;

/// Per cent that a count may differ from the kept one.
const TOLERANCE: u64 = 1;
/// The same where another compiler made the record: it generates other code from the same source.
const TOLERANCE_OTHER_COMPILER: u64 = 5;

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    More,
    Fewer,
}

fn verdict(kept: u64, counted: u64, tolerance: u64) -> Verdict {
    let counted = u128::from(counted) * 100;
    if counted > u128::from(kept) * u128::from(100 + tolerance) {
        Verdict::More
    } else if counted < u128::from(kept) * u128::from(100 - tolerance) {
        Verdict::Fewer
    } else {
        Verdict::Same
    }
}

/// Compares every scenario before failing, so that one run shows all of them.
pub(super) fn outcome(
    kept: &Record,
    here: &Toolchain,
    counted: &BTreeMap<String, u64>,
) -> Result<Outcome> {
    let tolerance = match kept.made.rustc == here.rustc {
        true => TOLERANCE,
        false => TOLERANCE_OTHER_COMPILER,
    };
    let mut faults = Vec::new();
    let mut notes = Vec::new();
    for (name, count) in counted {
        let Some(before) = kept.instructions.get(name) else {
            faults.push(format!("`{name}` takes {count} and has no line"));
            continue;
        };
        let numbers = format!(
            "`{name}` takes {count} instructions where {before} are kept, {:.3} times as many",
            *count as f64 / *before as f64
        );
        match verdict(*before, *count, tolerance) {
            Verdict::Same => {}
            Verdict::More => faults.push(numbers),
            Verdict::Fewer => notes.push(numbers),
        }
    }
    for name in kept.instructions.keys() {
        if !counted.contains_key(name) {
            faults.push(format!("`{name}` has a line and is not counted"));
        }
    }
    if !faults.is_empty() {
        bail!("{}", failure(&faults, tolerance, kept, here));
    }
    if notes.is_empty() {
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::Noted(format!(
        "{}: fewer than recorded, so update {FILE} with `cargo xtask instructions --write`",
        notes.join("; ")
    )))
}

fn failure(faults: &[String], tolerance: u64, kept: &Record, here: &Toolchain) -> String {
    let mut text = format!(
        "{} ({FILE}, tolerance {tolerance} %): find the cause, or, if it is intended, update the file with \
         `cargo xtask instructions --write` and state the reason in the commit message",
        faults.join("; ")
    );
    if kept.made.rustc != here.rustc {
        let _ = write!(
            text,
            "; note that the file was made with {} and this is {}",
            kept.made.rustc, here.rustc
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maker(rustc: &str) -> Toolchain {
        Toolchain {
            rustc: rustc.into(),
            architecture: "a".into(),
        }
    }

    fn counts(lines: &[(&str, u64)]) -> BTreeMap<String, u64> {
        lines.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect()
    }

    fn judged(kept: &[(&str, u64)], counted: &[(&str, u64)], rustc: &str) -> Result<Outcome> {
        let record = Record {
            made: maker("rustc 1"),
            instructions: counts(kept),
        };
        outcome(&record, &maker(rustc), &counts(counted))
    }

    fn fault(kept: &[(&str, u64)], counted: &[(&str, u64)], rustc: &str) -> String {
        match judged(kept, counted, rustc) {
            Ok(_) => panic!("it passed"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn tolerance_limits_are_exact() {
        assert_eq!(verdict(1000, 1050, 5), Verdict::Same);
        assert_eq!(verdict(1000, 1051, 5), Verdict::More);
        assert_eq!(verdict(1000, 950, 5), Verdict::Same);
        assert_eq!(verdict(1000, 949, 5), Verdict::Fewer);
        assert_eq!(verdict(14, 15, 5), Verdict::More);
        assert_eq!(verdict(u64::MAX, u64::MAX, 5), Verdict::Same);
    }

    #[test]
    fn other_compiler_is_granted_more() {
        let (kept, counted) = ([("a", 100)], [("a", 105)]);
        assert!(fault(&kept, &counted, "rustc 1").contains("tolerance 1 %"));
        assert!(matches!(
            judged(&kept, &counted, "rustc 2"),
            Ok(Outcome::Passed)
        ));
    }

    #[test]
    fn increase_fails_with_numbers_and_remedy() {
        let kept = [("read 8", 100), ("send 64", 1000)];
        let text = fault(&kept, &[("read 8", 100), ("send 64", 1100)], "rustc 1");
        let numbers = "`send 64` takes 1100 instructions where 1000 are kept, 1.100 times as many";
        assert!(text.starts_with(numbers), "{text}");
        assert!(
            text.contains("`cargo xtask instructions --write`"),
            "{text}"
        );
        assert!(
            !text.contains("read 8") && !text.contains("rustc"),
            "{text}"
        );
    }

    #[test]
    fn all_increases_are_reported_at_once() {
        let kept = [("a", 100), ("b", 100)];
        let text = fault(&kept, &[("a", 200), ("b", 300)], "rustc 1");
        assert!(
            text.contains("`a` takes 200") && text.contains("`b` takes 300"),
            "{text}"
        );
    }

    #[test]
    fn failure_names_a_different_compiler() {
        let text = fault(&[("a", 100)], &[("a", 200)], "rustc 2");
        assert!(
            text.ends_with("made with rustc 1 and this is rustc 2"),
            "{text}"
        );
        assert!(matches!(
            judged(&[("a", 100)], &[("a", 100)], "rustc 2"),
            Ok(Outcome::Passed)
        ));
    }

    #[test]
    fn decrease_is_a_note_with_the_remedy() {
        let Ok(Outcome::Noted(text)) = judged(&[("a", 1000)], &[("a", 900)], "rustc 1") else {
            panic!("no note");
        };
        assert!(
            text.contains("`a` takes 900 instructions where 1000 are kept, 0.900"),
            "{text}"
        );
        assert!(text.contains("--write"), "{text}");
        // A decrease does not hide an increase.
        let text = fault(
            &[("a", 1000), ("b", 10)],
            &[("a", 900), ("b", 20)],
            "rustc 1",
        );
        assert!(text.starts_with("`b`"), "{text}");
    }

    #[test]
    fn scenario_without_a_counterpart_fails() {
        let text = fault(&[("a", 100)], &[("a", 100), ("b", 7)], "rustc 1");
        assert!(text.starts_with("`b` takes 7 and has no line"), "{text}");
        let text = fault(&[("a", 100), ("b", 7)], &[("a", 100)], "rustc 1");
        assert!(
            text.starts_with("`b` has a line and is not counted"),
            "{text}"
        );
    }
}
