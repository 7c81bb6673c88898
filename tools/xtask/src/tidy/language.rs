//! Comments use the words of the field (`docs/glossary.md`): subjects are things of the program, and what is cited can be opened.
//! The rule on subjects holds in the crates of `PLAIN`, which grows until it is all of them; the rule on citations holds everywhere.

use super::rust::{line_of, words};
use super::{Finding, TextFile};

const RULE: &str = "language";

/// Folders whose comments were rewritten.
const PLAIN: &[&str] = &["crates/", "dropin/", "split/", "storage/", "tools/"];

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
    if file.is_rust() && PLAIN.iter().any(|folder| file.path.starts_with(folder)) {
        let lower = file.text.to_ascii_lowercase();
        for subject in SUBJECTS {
            for at in words(&lower, subject) {
                let is_comment = lower[..at]
                    .rsplit('\n')
                    .next()
                    .is_some_and(|before| before.contains("//"));
                if is_comment {
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
}
