//! Every Rust file opens with a few sentences: what it is, and its invariants.
//! Two is the minimum; a file of tests needs one.

use super::{Finding, TextFile};

const RULE: &str = "headers";
const LEAST: usize = 2;
const LEAST_IN_TESTS: usize = 1;

/// Folders whose Rust files are checked.
const FOLDERS: &[&str] = &["crates/", "dropin/", "split/", "storage/", "tools/"];

pub(crate) fn check(file: &TextFile) -> Option<Finding> {
    let ours = FOLDERS.iter().any(|folder| file.path.starts_with(folder));
    if !ours || !file.is_rust() {
        return None;
    }
    if !file.text.starts_with("//!") {
        let sentence = "the file must open with `//!`: what it is, and its invariants";
        return Some(Finding::new(&file.path, 1, RULE, sentence));
    }
    let least = if file.is_test() {
        LEAST_IN_TESTS
    } else {
        LEAST
    };
    let got = sentences(&header(&file.text));
    (got < least).then(|| {
        let sentence =
            format!("the opening `//!` block has {got} sentence(s), at least {least} are needed");
        Finding::new(&file.path, 1, RULE, sentence)
    })
}

/// The opening block as running text, code examples left out.
fn header(text: &str) -> String {
    let mut prose = String::new();
    let mut fenced = false;
    for line in text.lines().map_while(|line| line.strip_prefix("//!")) {
        let line = line.trim();
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            prose.push_str(line);
            prose.push(' ');
        }
    }
    prose
}

/// Full stops, question and exclamation marks that end a sentence.
fn sentences(prose: &str) -> usize {
    let words = prose.split_whitespace();
    words.filter(|word| ends_sentence(word)).count()
}

fn ends_sentence(word: &str) -> bool {
    let bare = word.trim_end_matches([')', '"', '*', '_', '`', ']']);
    let abbreviation = ["e.g.", "i.e.", "etc.", "vs.", "cf."];
    let start = bare.trim_start_matches(['(', '"']);
    bare.ends_with(['.', '?', '!'])
        && !abbreviation.contains(&start)
        && bare.chars().any(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(path: &str, text: &str) -> Option<String> {
        check(&TextFile::new(path, text)).map(|f| f.sentence)
    }

    #[test]
    fn headers_of_two_or_three_sentences_pass() {
        assert_eq!(finding("crates/a/src/b.rs", "//! One. Two. Three.\n"), None);
        assert_eq!(
            finding(
                "tools/fuzz/src/b.rs",
                "//! One goes\n//! on. Two `x`.\n#![no_main]\n"
            ),
            None
        );
    }

    #[test]
    fn one_sentence_suffices_only_in_tests() {
        assert!(
            finding("crates/a/src/b.rs", "//! One.\n")
                .unwrap()
                .contains("has 1")
        );
        assert_eq!(finding("crates/a/src/b/tests.rs", "//! One.\n"), None);
        assert_eq!(finding("crates/a/tests/b.rs", "//! One.\n"), None);
    }

    #[test]
    fn file_without_header_is_found() {
        for text in ["", "use x;\n", "// One. Two.\n", "\n//! One. Two.\n"] {
            assert!(finding("crates/a/src/b.rs", text).is_some(), "{text:?}");
        }
    }

    #[test]
    fn abbreviations_and_examples_are_not_sentences() {
        let text = "//! Reads e.g. version 1.2 of x\n//! ```\n//! a. b. c.\n//! ```\n";
        assert!(
            finding("crates/a/src/b.rs", text)
                .unwrap()
                .contains("has 0")
        );
    }

    #[test]
    fn other_files_need_no_header() {
        assert_eq!(finding("docs/a.rs", ""), None);
        assert_eq!(finding("crates/a/Cargo.toml", ""), None);
    }
}
