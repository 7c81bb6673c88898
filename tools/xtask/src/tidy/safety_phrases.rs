//! A SAFETY comment states the contract of its own call: which pointer, valid for what, until when, guaranteed by which code.
//! Two things are findings: a phrase that refers to another text instead, and a text that occurs too often in the repository to be about
//! one call. A contract that many calls share is stated once, by a macro or a function (`dropin/capi/src/caller.rs` is the example).

use std::collections::BTreeMap;

use super::rust::words;
use super::{Finding, TextFile};

const RULE: &str = "safety";

const MARK: &str = "// SAFETY:";

/// Phrases that name no pointer and no guarantee of their own, in small letters.
const STOCK: &[&str] = &[
    "as above",
    "see above",
    "as the manual says",
    "as the headers do",
    "the caller's contract",
    "the object exists during the call",
    "the objects exist during the call",
    "the objects exist during the calls",
];

/// So often may a text occur that names what it is about, in backquotes.
const MAX_REPEATS: usize = 8;

/// So often may one occur that names nothing.
const MAX_REPEATS_WITHOUT_NAME: usize = 3;

/// The SAFETY comments of all files, each with the lines that continue it.
pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut places: BTreeMap<String, Vec<(&str, usize)>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for (line, text) in comments(&file.text) {
            let lower = text.to_lowercase();
            for phrase in STOCK {
                if words(&lower, phrase).next().is_some() {
                    let sentence =
                        format!("`{phrase}`: name the pointer, and the code that keeps it valid");
                    findings.push(Finding::new(&file.path, line, RULE, sentence));
                }
            }
            places.entry(text).or_default().push((&file.path, line));
        }
    }
    for (text, places) in places {
        let most = if text.contains('`') {
            MAX_REPEATS
        } else {
            MAX_REPEATS_WITHOUT_NAME
        };
        if places.len() > most {
            let (path, line) = places[0];
            let sentence = format!(
                "`{text}` occurs {} times: state the contract of each call, or of all in one macro",
                places.len()
            );
            findings.push(Finding::new(path, line, RULE, sentence));
        }
    }
    findings
}

/// Line and text of each SAFETY comment that begins its line, also in examples of documentation.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut prefix = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let start = line.find(MARK).filter(|&at| is_comment(&line[..at]));
        if let Some(start) = start {
            prefix = Some(format!("{}//", &line[..start]));
            let text = line[start + MARK.len()..].trim().to_owned();
            found.push((at + 1, text));
            continue;
        }
        let more = prefix
            .as_ref()
            .and_then(|prefix| line.strip_prefix(prefix.as_str()));
        match (more, found.last_mut()) {
            (Some(more), Some((_, text))) => {
                text.push(' ');
                text.push_str(more.trim());
            }
            _ => prefix = None,
        }
    }
    found
}

/// Nothing, or the start of a documentation comment.
fn is_comment(before: &str) -> bool {
    matches!(before.trim(), "" | "///" | "//!")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> TextFile {
        TextFile::new("crates/a/src/b.rs", text)
    }

    fn count(text: &str) -> usize {
        check(&[file(text)]).len()
    }

    #[test]
    fn stock_phrases_are_found() {
        for phrase in [
            "As above.",
            "see above; it is aligned.",
            "as the manual says.",
        ] {
            assert_eq!(count(&format!("{MARK} {phrase}\nunsafe {{ x() }}\n")), 1);
        }
        let continued = format!("{MARK} `at` is valid,\n// as\n// above.\n");
        assert_eq!(count(&continued), 1, "over several lines");
        let example = format!("/// {MARK} as above.\n/// unsafe {{ x() }}\n");
        assert_eq!(count(&example), 1, "in an example");
    }

    #[test]
    fn specific_comments_are_not_found() {
        for text in [
            "`at` was above the limit.",
            "the caller guarantees that `at` is valid for reads.",
        ] {
            assert_eq!(count(&format!("{MARK} {text}\n")), 0, "{text}");
        }
        assert_eq!(count("// It is as above.\n"), 0, "another comment");
        assert_eq!(count(&format!("let a = \"{MARK} as above.\";\n")), 0);
    }

    #[test]
    fn text_that_occurs_too_often_is_found_once() {
        let unnamed = format!("{MARK} the call\n// is fine.\nx();\n");
        assert_eq!(count(&unnamed.repeat(MAX_REPEATS_WITHOUT_NAME)), 0);
        assert_eq!(count(&unnamed.repeat(MAX_REPEATS_WITHOUT_NAME + 1)), 1);
        let named = format!("{MARK} `at` is valid.\nx();\n");
        assert_eq!(count(&named.repeat(MAX_REPEATS)), 0);
        assert_eq!(count(&named.repeat(MAX_REPEATS + 1)), 1);
    }

    #[test]
    fn repeats_are_counted_over_all_files() {
        let text = format!("{MARK} it is fine.\nx();\n");
        let files: Vec<TextFile> = (0..=MAX_REPEATS_WITHOUT_NAME)
            .map(|_| file(&text))
            .collect();
        assert_eq!(check(&files).len(), 1);
    }
}
