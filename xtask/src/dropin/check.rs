//! Compares what a library exports with its table, by `nm`.
//! It promises to find a name that is missing, extra, in a wrong node, or the default where it must not be.
//! It refuses to judge what stands behind the names.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};

use super::exports::{Exports, Kind, Standing};
use super::sources::OWN_NODE;
use crate::command::Tool;

/// Names shown before the rest is only counted.
const SHOWN: usize = 20;

/// Fail unless the library exports the table, `own` in our own node, and nothing else.
pub(super) fn library(path: &Path, exports: &Exports, own: &[String]) -> Result<()> {
    let text = Tool::new("nm")
        .args(["--dynamic", "--defined-only", "--with-symbol-versions"])
        .arg(path)
        .output()?;
    let problems = compare(&text, exports, own);
    if !problems.is_empty() {
        let shown: Vec<&str> = problems.iter().take(SHOWN).map(String::as_str).collect();
        bail!(
            "{} does not export what its table says ({} differences): {}",
            path.display(),
            problems.len(),
            shown.join("; ")
        );
    }
    let count = exports.iter().count() + own.len();
    println!("{}: {count} symbols, each in its node.", path.display());
    Ok(())
}

fn compare(nm: &str, exports: &Exports, own: &[String]) -> Vec<String> {
    let wanted: BTreeSet<String> = exports
        .iter()
        .map(|(node, export)| {
            let at = match export.standing {
                Standing::Default => "@@",
                Standing::Compat => "@",
            };
            let kind = match export.kind {
                Kind::Func => "function",
                Kind::Object => "object",
            };
            format!("{kind} {}{at}{}", export.name, node.name)
        })
        .chain(
            own.iter()
                .map(|name| format!("function {name}@@{OWN_NODE}")),
        )
        .collect();
    let there: BTreeSet<String> = nm.lines().filter_map(symbol).collect();
    let missing = wanted.difference(&there).map(|s| format!("missing: {s}"));
    let extra = there.difference(&wanted).map(|s| format!("extra: {s}"));
    missing.chain(extra).collect()
}

/// A line such as `0000000000001000 T name@@NODE`; the nodes themselves (`A`) are passed over.
fn symbol(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, letter, name] = words.as_slice() else {
        return None;
    };
    let kind = match *letter {
        "T" | "t" | "W" | "i" => "function",
        "A" => return None,
        _ => "object",
    };
    Some(format!("{kind} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "[A_1]\nf default func\ng compat func\n[A_2 : A_1]\ng default func\nd default object\n";
    const GOOD: &str = "0000000000000000 A A_1\n0000000000000000 A A_2\n\
                        0000000000001000 T f@@A_1\n0000000000001010 T g@A_1\n\
                        0000000000001020 T g@@A_2\n0000000000004000 B d@@A_2\n\
                        0000000000001030 T verbena_x@@VERBENA_PRIVATE_1\n";

    fn problems(nm: &str) -> Vec<String> {
        let exports = Exports::parse(TABLE).unwrap();
        compare(nm, &exports, &["verbena_x".to_owned()])
    }

    #[test]
    fn what_the_table_says_passes() {
        assert_eq!(problems(GOOD), [""; 0]);
    }

    #[test]
    fn every_difference_is_found() {
        for (from, to, found) in [
            ("f@@A_1", "f@A_1", "missing: function f@@A_1"),
            ("g@A_1", "g@A_2", "missing: function g@A_1"),
            ("T g@@A_2", "U g@@A_2", "missing: function g@@A_2"),
            ("B d", "T d", "missing: object d@@A_2"),
            (
                "f@@A_1",
                "f@@A_1\n0000000000002000 T e@@A_1",
                "extra: function e@@A_1",
            ),
            (
                "verbena_x",
                "verbena_y",
                "extra: function verbena_y@@VERBENA_PRIVATE_1",
            ),
        ] {
            let problems = problems(&GOOD.replace(from, to));
            assert!(problems.iter().any(|p| p == found), "{found}: {problems:?}");
        }
    }
}
