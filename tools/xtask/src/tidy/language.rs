//! Comments, names and messages use the words of the field (`docs/glossary.md`): subjects are things of the program, and what is cited
//! can be opened. The rules hold in all Rust files, tests included; retired names are not used in pages either.

use super::rust::{line_of, words};
use super::{Finding, TextFile};

const RULE: &str = "language";

/// Subjects that name no part of the program.
const SUBJECTS: &[&str] = &["whoever", "nobody", "somebody", "everybody", "anybody"];

/// Names that were replaced by a word of the field, with that word. They are found as words of a text and as parts of an identifier.
const RETIRED: &[(&str, &str)] = &[
    ("bell", "doorbell"),
    ("berth", "bound listener"),
    ("clerk", "listener"),
    ("courier", "descriptor channel"),
    ("desk", "listener"),
    ("door", "listener"),
    ("doze", "sleep poll"),
    ("estate", "region export"),
    ("gathering", "coalescing"),
    ("hatch", "handover listener"),
    ("ledger", "accounting"),
    ("manners", "attributes"),
    ("mourn", "grace period"),
    ("parcel", "migration state"),
    ("seat", "function handle"),
    ("whereabouts", "endpoint"),
];

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
    let is_text = file.is_rust() || file.path.ends_with(".md");
    if is_text && file.path != "tools/xtask/src/tidy/language.rs" {
        for (at, name, word) in retired(&file.text) {
            report(at, format!("`{name}` is retired: {word}"));
        }
    }
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

/// Where a retired name is, and the word for it.
fn retired(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let mut found = Vec::new();
    let mut begin = 0;
    // Words end where letters end, and where small letters are followed by a capital.
    let mut before = ' ';
    for (at, letter) in text.char_indices().chain([(text.len(), ' ')]) {
        let ends = !letter.is_ascii_alphabetic()
            || (letter.is_ascii_uppercase() && before.is_ascii_lowercase());
        if ends {
            found.extend(retired_word(&text[begin..at]).map(|(name, word)| (begin, name, word)));
            begin = if letter.is_ascii_alphabetic() {
                at
            } else {
                at + letter.len_utf8()
            };
        }
        before = letter;
    }
    found
}

/// The entry of a word, also of its plural.
fn retired_word(word: &str) -> Option<(&'static str, &'static str)> {
    let singular = word.strip_suffix('s').unwrap_or(word);
    let is_same =
        |name: &str| name.eq_ignore_ascii_case(word) || name.eq_ignore_ascii_case(singular);
    RETIRED.iter().copied().find(|(name, _)| is_same(name))
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
    fn retired_names_are_found_in_any_spelling() {
        for text in [
            "// Rings the bell.",
            "let bell_in = 1;",
            "struct HalfDoor;",
            "let path = \"verbena-desk-1\";",
            "// The doors",
        ] {
            assert_eq!(count(text), 1, "{text}");
        }
        let page = TextFile::new("docs/a.md", "Opens a Hatch.");
        assert_eq!(check(&page).len(), 1);
    }

    #[test]
    fn words_that_contain_a_retired_name_are_allowed() {
        for text in [
            "// Rings the doorbell of an indoor desktop.",
            "struct ReceiveState; // reinstated",
            "// Gather, gathered, label",
        ] {
            assert_eq!(count(text), 0, "{text}");
        }
        assert_eq!(check(&TextFile::new("a.toml", "desk = 1")).len(), 0);
    }

    #[test]
    fn subjects_that_name_nothing_are_found() {
        assert_eq!(count("// Whoever posts holds the lock.\n"), 1);
        assert_eq!(count("assert!(done, \"nobody reads\");\n"), 1);
        assert_eq!(count("let nobody = 1;\n"), 1);
        assert_eq!(count("let user = \"nobody\";\n"), 0);
    }
}
