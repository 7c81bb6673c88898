//! No unfinished code: no placeholder macros, no marks for later, no disabled test.
//! Unfinished work is an issue or a row of `docs/requirements.md`.
//! Every Rust file is checked, tests included.

use super::rust::{line_of, words};
use super::{Finding, TextFile};

const RULE: &str = "leftovers";
const MACROS: &[&str] = &["todo", "unimplemented", "dbg"];
/// Also found in comments; written in two parts so that this file has none.
const MARKS: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X")];

pub(crate) fn check(file: &TextFile) -> Vec<Finding> {
    if !file.is_rust() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut report = |text: &str, at: usize, sentence: String| {
        findings.push(Finding::new(&file.path, line_of(text, at), RULE, sentence));
    };
    for name in MACROS {
        for at in words(&file.code, name) {
            if file.code[at + name.len()..].starts_with('!') {
                report(&file.code, at, format!("`{name}!` must not land"));
            }
        }
    }
    for mark in MARKS {
        for at in words(&file.text, mark) {
            report(
                &file.text,
                at,
                format!("`{mark}` must not land: open an issue"),
            );
        }
    }
    for at in words(&file.code, "ignore") {
        if file.code[..at].trim_end().ends_with("#[") {
            let sentence = "an ignored test tests nothing: fix it or delete it";
            report(&file.code, at, sentence.into());
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
    fn leftovers_are_found() {
        for name in MACROS {
            assert_eq!(count(&format!("fn f() {{ {name}!() }}")), 1, "{name}");
        }
        for mark in MARKS {
            assert_eq!(count(&format!("// {mark}: later")), 1, "{mark}");
        }
        assert_eq!(count("#[ignore]\nfn f() {}"), 1);
        assert_eq!(count("#[ignore = \"slow\"]\nfn f() {}"), 1);
    }

    #[test]
    fn mentions_in_comments_are_not_leftovers() {
        assert_eq!(
            count("// todo! is not allowed, nor is #[ignore]\nfn todo() { \"dbg!\" }"),
            0
        );
        assert_eq!(count("#[must_use] fn ignore() {}"), 0);
    }
}
