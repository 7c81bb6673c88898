//! Compares what a library exports with its table, by `nm` and `readelf`.
//! It finds a name that is missing, extra, in a wrong node, or the default where it must not be. The implementations are not checked.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};

use super::exports::{Binding, Exports, Kind};
use super::sources::OWN_NODE;
use crate::command::Tool;

/// Names that are printed; the rest is only counted.
const SHOWN: usize = 20;

/// Fails unless the library exports the table, `own` in our own node, and nothing else.
pub(super) fn library(path: &Path, exports: &Exports, own: &[String]) -> Result<()> {
    let text = Tool::new("nm")
        .args(["--dynamic", "--defined-only", "--with-symbol-versions"])
        .arg(path)
        .output()?;
    let versions = Tool::new("readelf")
        .args(["--wide", "--version-info"])
        .arg(path)
        .output()?;
    let mut problems = compare(&text, exports, own);
    problems.extend(compare_nodes(&versions, exports));
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
            let at = match export.binding {
                Binding::Default => "@@",
                Binding::Compat => "@",
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

/// Compares the nodes and their parents, in the order of the table.
fn compare_nodes(readelf: &str, exports: &Exports) -> Vec<String> {
    let mut there: Vec<(&str, Option<&str>)> = Vec::new();
    // The versions that the library needs of others are listed in another format, behind those that it defines.
    for line in readelf.lines() {
        if let Some((_, parent)) = line.split_once("Parent 1: ") {
            if let Some(last) = there.last_mut() {
                last.1 = Some(parent.trim());
            }
        } else if line.contains("Rev: ")
            && let Some((_, name)) = line.split_once("Name: ")
        {
            there.push((name.trim(), None));
        }
    }
    let there = there
        .iter()
        .filter(|(name, _)| !name.starts_with("lib") && *name != OWN_NODE);
    let there: Vec<String> = there
        .map(|(node, parent)| format!("{node} {parent:?}"))
        .collect();
    let wanted = exports.nodes.iter();
    let wanted: Vec<String> = wanted
        .map(|node| format!("{} {:?}", node.name, node.parent.as_deref()))
        .collect();
    if there == wanted {
        Vec::new()
    } else {
        vec![format!(
            "nodes: {} instead of {}",
            there.join(", "),
            wanted.join(", ")
        )]
    }
}

/// A line such as `0000000000001000 T name@@NODE`; the nodes themselves (`A`) are skipped.
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

    const NODES: &str = "Version definition section '.gnu.version_d' contains 4 entries:\n\
        000000: Rev: 1  Flags: BASE  Index: 1  Cnt: 1  Name: liba.so.1\n\
        0x001c: Rev: 1  Flags: none  Index: 2  Cnt: 1  Name: A_1\n\
        0x0038: Rev: 1  Flags: none  Index: 3  Cnt: 2  Name: A_2\n\
        0x0054: Parent 1: A_1\n\
        0x005c: Rev: 1  Flags: none  Index: 4  Cnt: 1  Name: VERBENA_PRIVATE_1\n\
        Version needs section '.gnu.version_r' contains 1 entry:\n\
        000000: Version: 1  File: libc.so.6  Cnt: 1\n\
        0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 16\n";

    #[test]
    fn version_nodes_inherit_as_listed() {
        let exports = Exports::parse(TABLE).unwrap();
        assert_eq!(compare_nodes(NODES, &exports), [""; 0]);
        let orphan = NODES.replace("Parent 1: A_1", "");
        assert_eq!(compare_nodes(&orphan, &exports).len(), 1);
    }

    #[test]
    fn matching_exports_pass() {
        assert_eq!(problems(GOOD), [""; 0]);
    }

    #[test]
    fn every_export_difference_is_found() {
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
