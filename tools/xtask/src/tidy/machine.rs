//! Tracked files contain nothing of the machine they were written on: no home folders, no private package registry.
//! Dependencies come from crates.io only, as the lock file shows.
//! All text files are checked; folders are recognized by their first component.

use super::rust::{is_word, line_of};
use super::{Finding, TextFile};

const RULE: &str = "machine";

/// Folders of a particular machine; written in two parts so that this file has none.
const PLACES: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
];

/// The only source that `Cargo.lock` may name.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(crate) fn check(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for place in PLACES {
        for (at, _) in file.text.match_indices(place) {
            let before = file.text[..at].chars().next_back();
            if before.is_some_and(|c| is_word(c) || matches!(c, '.' | '-' | '~' | '}')) {
                continue;
            }
            let sentence = format!("`{place}` is a path on a particular machine");
            findings.push(Finding::new(
                &file.path,
                line_of(&file.text, at),
                RULE,
                sentence,
            ));
        }
    }
    for (index, line) in file.text.lines().enumerate() {
        if let Some(sentence) = foreign_source(&file.path, line) {
            findings.push(Finding::new(&file.path, index + 1, RULE, sentence));
        }
    }
    findings
}

/// A registry or mirror other than crates.io, in the files where one can be named.
fn foreign_source(path: &str, line: &str) -> Option<&'static str> {
    let line = line.trim();
    let lock = path.ends_with("Cargo.lock") && line.starts_with("source = ");
    if lock && line != format!("source = \"{REGISTRY}\"") {
        return Some("a dependency that does not come from crates.io");
    }
    let config = path.starts_with(".cargo/");
    let tables = ["[source", "[registries", "[registry", "[http", "[net"];
    let table = config && tables.iter().any(|table| line.starts_with(table));
    table.then_some("registry and network settings belong to the machine, not to the project")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&TextFile::new(path, text)).len()
    }

    #[test]
    fn machine_paths_are_found_in_any_text() {
        for place in PLACES {
            assert_eq!(count("README.md", &format!("see {place}x")), 1, "{place}");
            assert_eq!(
                count("a.rs", &format!("let a = \"{place}x\";")),
                1,
                "{place}"
            );
            assert_eq!(
                count("a.toml", &format!("a = \"file://{place}x\"")),
                1,
                "{place}"
            );
        }
    }

    #[test]
    fn parts_of_other_paths_are_not_found() {
        for place in PLACES {
            assert_eq!(
                count("a.md", &format!("a target{place}x and ..{place}")),
                0,
                "{place}"
            );
        }
    }

    #[test]
    fn lock_file_allows_only_the_public_registry() {
        let good = format!("source = \"{REGISTRY}\"\n");
        assert_eq!(count("Cargo.lock", &good), 0);
        assert_eq!(
            count(
                "Cargo.lock",
                "source = \"registry+https://mirror.example/index\"\n"
            ),
            1
        );
        assert_eq!(
            count("Cargo.lock", "source = \"git+https://example.org/x\"\n"),
            1
        );
    }

    #[test]
    fn cargo_settings_name_no_registry() {
        assert_eq!(count(".cargo/config.toml", "[alias]\nx = \"y\"\n"), 0);
        assert_eq!(count(".cargo/config.toml", "[source.crates-io]\n"), 1);
        assert_eq!(count("other.toml", "[source.crates-io]\n"), 0);
    }
}
