//! Comments, names and messages use the words of the field (`docs/glossary.md`): subjects are things of the program, and what is cited
//! can be opened. The rules hold in all Rust files, tests included.

use super::rust::{line_of, words};
use super::{Finding, TextFile};

const RULE: &str = "language";

/// Subjects that name no part of the program.
const SUBJECTS: &[&str] = &["whoever", "nobody", "somebody", "everybody", "anybody"];

/// Documents of the specification that are not in the repository.
const ABSENT: &[&str] = &[
    "ABI",
    "DESIGN",
    "ERRATA",
    "EXTENSIONS",
    "ISCSI",
    "PORT",
    "PUSH",
    "RC",
    "REQUIREMENTS",
    "ROCE",
    "SAMEHOST",
    "STYLE",
    "VERBS",
    "WIRE",
];

pub(crate) fn check(file: &TextFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |at: usize, sentence: String| {
        findings.push(Finding::new(
            &file.path,
            line_of(&file.text, at),
            RULE,
            sentence,
        ));
    };
    if file.is_rust() {
        for name in ABSENT {
            let cited = words(&file.text, name).filter(|at| {
                let behind = &file.text[at + name.len()..];
                behind.starts_with(".md")
            });
            cited.for_each(|at| report(at, format!("{name}.md is not in the repository")));
        }
    }
    // This file names the words.
    if file.is_rust() && file.path != "tools/xtask/src/tidy/language.rs" {
        let lower = file.text.to_ascii_lowercase();
        for subject in SUBJECTS {
            for at in words(&lower, subject) {
                // A string that is exactly this word is the login name of the unprivileged user.
                let is_user = *subject == "nobody"
                    && lower[..at].ends_with('"')
                    && lower[at + subject.len()..].starts_with('"');
                if !is_user {
                    report(at, format!("`{subject}`: name the part of the program"));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&TextFile::new("crates/a/src/b.rs", text)).len()
    }

    #[test]
    fn absent_documents_are_found() {
        assert_eq!(count(concat!("// As R", "C.md says.\n")), 1);
        assert_eq!(count("// As docs/connections.md says (RC, UD).\n"), 0);
        let page = TextFile::new("docs/a.md", concat!("R", "C.md"));
        assert_eq!(check(&page).len(), 0);
    }

    #[test]
    fn subjects_that_name_nothing_are_found() {
        assert_eq!(count("// Whoever posts holds the lock.\n"), 1);
        assert_eq!(count("assert!(done, \"nobody reads\");\n"), 1);
        assert_eq!(count("let nobody = 1;\n"), 1);
        assert_eq!(count("let user = \"nobody\";\n"), 0);
    }
}
