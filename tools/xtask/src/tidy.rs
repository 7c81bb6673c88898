//! `cargo xtask tidy`: the rules of the project, each a pure function from text to findings.
//! A finding is one line, `path:line: rule: sentence`, and any finding fails the check.
//! This file reads the input and prints the result; every rule has a file of its own.

mod cycles;
mod docs;
mod facade;
mod headers;
mod language;
mod layering;
mod leftovers;
mod licences;
mod links;
mod machine;
mod names;
mod rust;
mod safety;
mod safety_phrases;
mod sizes;
mod summary;
mod targets;
mod waits;

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::command::Tool;
use crate::workspace::Workspace;

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Also list files over 500 lines and functions over 70 (not an error)
    #[arg(long)]
    long: bool,
}

/// A text file of the repository.
#[derive(Debug)]
pub(crate) struct TextFile {
    /// Relative to the repository's root, with `/`.
    path: String,
    text: String,
    /// For Rust files: the text with comments and literals blanked, line for line.
    code: String,
}

impl TextFile {
    fn new(path: &str, text: &str) -> TextFile {
        let code = if path.ends_with(".rs") {
            rust::blank_comments_and_literals(text)
        } else {
            String::new()
        };
        TextFile {
            path: path.to_owned(),
            text: text.to_owned(),
            code,
        }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the whole file is test code, by its name or folder.
    fn is_test(&self) -> bool {
        let mut parts = self.path.split('/').rev();
        let name = parts.next().unwrap_or_default();
        let folders = ["tests", "benches", "examples"];
        name == "tests.rs"
            || name.ends_with("_tests.rs")
            || parts.any(|part| folders.contains(&part))
    }
}

/// One breach of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// Counted from 1; 0 for the file as a whole.
    line: usize,
    rule: &'static str,
    sentence: String,
}

impl Finding {
    fn new(path: &str, line: usize, rule: &'static str, sentence: impl Into<String>) -> Finding {
        Finding {
            path: path.to_owned(),
            line,
            rule,
            sentence: sentence.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.max(1);
        write!(f, "{}:{line}: {}: {}", self.path, self.rule, self.sentence)
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let paths = paths(&workspace.root)?;
    let files = read(&workspace.root, &paths)?;
    if options.long {
        files
            .iter()
            .flat_map(sizes::notes)
            .for_each(|note| println!("{note}"));
    }
    let mut findings = layering::check(&workspace.packages, &workspace.root);
    findings.extend(check(&files, &paths));
    findings.extend(licences(workspace)?);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} finding(s)", findings.len());
    }
    println!("tidy: {} files, nothing found", files.len());
    Ok(())
}

/// Of the crates that are compiled for this kind of machine.
fn licences(workspace: &Workspace) -> Result<Vec<Finding>> {
    let metadata = workspace
        .cargo()
        .args(["metadata", "--format-version", "1", "--all-features"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()?;
    let list = std::fs::read_to_string(workspace.root.join(licences::LIST))
        .with_context(|| format!("cannot read {}", licences::LIST))?;
    licences::check(&list, &metadata)
}

/// Every rule that looks at files. `paths` also holds files that are not text.
fn check(files: &[TextFile], paths: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        findings.extend(names::check(file));
        findings.extend(headers::check(file));
        findings.extend(safety::check(file));
        findings.extend(leftovers::check(file));
        findings.extend(machine::check(file));
        findings.extend(language::check(file));
        findings.extend(waits::check(file));
    }
    findings.extend(safety_phrases::check(files));
    findings.extend(cycles::check(files));
    findings.extend(targets::check(files));
    findings.extend(docs::check(files, paths));
    findings.extend(facade::check(files));
    findings.extend(links::check(files, paths));
    findings.extend(summary::check(files));
    findings
}

/// The files that git tracks or would track; outside a git checkout, everything but build output.
fn paths(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    if root.join(".git").exists() {
        let listed = Tool::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root)
            .output()?;
        let present = |path: &&str| !path.is_empty() && root.join(path).is_file();
        found.extend(listed.split('\0').filter(present).map(str::to_owned));
    } else {
        walk(root, root, &mut found)?;
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let relative = path.strip_prefix(root)?.to_string_lossy().into_owned();
        if path.is_file() {
            found.push(relative);
        } else if path.is_dir() && !matches!(&*relative, "target" | ".git" | "tools/fuzz/artifacts")
        {
            walk(root, &path, found)?;
        }
    }
    Ok(())
}

/// The files that are text. Fuzz corpora are not, whatever their bytes.
fn read(root: &Path, paths: &[String]) -> Result<Vec<TextFile>> {
    let mut files = Vec::new();
    for path in paths
        .iter()
        .filter(|path| !path.starts_with("tools/fuzz/corpus/"))
    {
        let bytes = std::fs::read(root.join(path)).with_context(|| path.clone())?;
        if let Ok(text) = std::str::from_utf8(&bytes) {
            files.push(TextFile::new(path, text));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_is_one_line_with_position() {
        let finding = Finding::new("a/b.rs", 3, "rule", "This is wrong.");
        assert_eq!(finding.to_string(), "a/b.rs:3: rule: This is wrong.");
    }

    #[test]
    fn test_files_are_recognised_by_path() {
        let test = |path: &str| TextFile::new(path, "").is_test();
        assert!(test("crates/wire/src/ddp/tests.rs"));
        assert!(test("crates/wire/tests/vectors.rs"));
        assert!(test("crates/wire/benches/crc.rs"));
        assert!(test("crates/wire/src/rx_tests.rs"));
        assert!(!test("crates/wire/src/ddp.rs"));
        assert!(!test("tools/xtask/src/test.rs"));
    }

    #[test]
    fn a_clean_tree_has_no_findings() {
        let text = "//! One thing. It promises. It refuses.\n\nfn f() {}\n";
        let findings = names::check(&TextFile::new("crates/wire/src/a.rs", text));
        assert_eq!(findings, []);
    }
}
