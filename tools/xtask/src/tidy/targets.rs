//! Libraries that a manifest leaves out of `cargo test`, because each one costs a compilation: where `doctest = false`, documentation has no
//! examples, and where `test = false`, there are no unit tests. Otherwise they would not be run, and nothing would tell.

use super::{Finding, TextFile};

const RULE: &str = "targets";

pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in files {
        let Some(package) = manifest.path.strip_suffix("Cargo.toml") else {
            continue;
        };
        let sources = format!("{package}src/");
        let own = files
            .iter()
            .filter(|file| file.is_rust() && file.path.starts_with(&sources));
        let (has_doctests, has_tests) = (
            !library_sets(&manifest.text, "doctest = false"),
            !library_sets(&manifest.text, "test = false"),
        );
        for file in own {
            if !has_doctests && let Some(line) = example(&file.text) {
                let sentence = "an example that is not run: remove `doctest = false` from the package's Cargo.toml";
                findings.push(Finding::new(&file.path, line, RULE, sentence));
            }
            if !has_tests && let Some(at) = file.code.lines().position(|l| l.contains("#[test]")) {
                let sentence = "a test that is not run: remove `test = false` from `[lib]` in the package's Cargo.toml";
                findings.push(Finding::new(&file.path, at + 1, RULE, sentence));
            }
        }
    }
    findings
}

/// Whether the section of the library has this line.
fn library_sets(manifest: &str, setting: &str) -> bool {
    let mut section = "";
    manifest.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            section = line;
        }
        section == "[lib]" && line == setting
    })
}

/// The line of the first code block of documentation that rustdoc would compile.
fn example(text: &str) -> Option<usize> {
    let mut is_inside = false;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.contains("doc = include_str!") {
            return Some(at + 1);
        }
        let doc = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        let Some(tag) = doc.and_then(|doc| doc.trim_start().strip_prefix("```")) else {
            continue;
        };
        if !is_inside && !matches!(tag.trim(), "text" | "sh" | "toml" | "console") {
            return Some(at + 1);
        }
        is_inside = !is_inside;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(manifest: &str, source: &str) -> Vec<usize> {
        let files = [
            TextFile::new("crates/a/Cargo.toml", manifest),
            TextFile::new("crates/a/src/lib.rs", source),
            TextFile::new("crates/ab/src/lib.rs", "/// ```\n/// ```\n#[test]\n"),
        ];
        check(&files).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn example_needs_doctests() {
        let source = "/// ```text\n/// a\n/// ```\n/// ```\n/// f();\n/// ```\nfn f() {}\n";
        assert_eq!(lines("[lib]\ndoctest = false\n", source), [4]);
        assert!(lines("[lib]\n\n[[bin]]\ndoctest = false\n", source).is_empty());
        assert!(lines("[lib]\ndoctest = false\n", "//! Plain.\n").is_empty());
    }

    #[test]
    fn unit_test_needs_tests_of_the_library() {
        let source = "fn f() {}\n#[test]\nfn g() {}\n";
        assert_eq!(lines("[lib]\ntest = false\n", source), [2]);
        assert!(lines("[lib]\n[[bin]]\ntest = false\n", source).is_empty());
    }
}
