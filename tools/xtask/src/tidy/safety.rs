//! `unsafe` is allowed in listed files and folders only (the islands), and every use of it has a SAFETY comment.
//! Elsewhere the word itself is a finding, and the pure crates must have `#![forbid(unsafe_code)]`.
//! Whether a comment is correct is for the reviewer.

use super::names::PURE;
use super::rust::{line_of, words};
use super::{Finding, TextFile};

const RULE: &str = "safety";

/// The islands: whole crates, or one module of a crate (as a file and as a folder).
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/mem/",
    "dropin/capi/",
    "dropin/shim/",
    "dropin/audit/",
    "dropin/preload/",
    "dropin/unmap/",
    "crates/ring/src/memory.rs",
    "crates/ring/src/memory/",
    "crates/sync/src/ring.rs",
    "crates/sync/src/ring/",
    "crates/engine/src/sys.rs",
    "crates/engine/src/sys/",
    "split/lan/src/sys.rs",
    "split/lan/src/sys/",
    "crates/verbena/src/mr.rs",
    "crates/verbena/src/mr/",
];

pub(crate) fn check(file: &TextFile) -> Vec<Finding> {
    if !file.is_rust() {
        return Vec::new();
    }
    let mut findings: Vec<Finding> = forbidden(file).into_iter().collect();
    let island = UNSAFE_ALLOWED
        .iter()
        .any(|island| file.path.starts_with(island));
    for at in words(&file.code, "unsafe") {
        let line = line_of(&file.code, at);
        if !island {
            let sentence = "`unsafe` in a file that UNSAFE_ALLOWED in tools/xtask/src/tidy/safety.rs does not list";
            findings.push(Finding::new(&file.path, line, RULE, sentence));
        } else if needs_argument(&file.code[at..]) && !has_argument(file, line) {
            let sentence =
                "no `SAFETY:` comment above: state what is guaranteed, by which code, until when";
            findings.push(Finding::new(&file.path, line, RULE, sentence));
        }
    }
    findings
}

/// The root of a pure crate must carry `#![forbid(unsafe_code)]`.
fn forbidden(file: &TextFile) -> Option<Finding> {
    let root = PURE
        .iter()
        .any(|folder| file.path == format!("{folder}src/lib.rs"));
    let missing = root && !file.code.contains("#![forbid(unsafe_code)]");
    missing.then(|| {
        Finding::new(
            &file.path,
            0,
            RULE,
            "a pure crate needs `#![forbid(unsafe_code)]`",
        )
    })
}

/// Blocks and implementations need one; functions and foreign blocks state their contract in their documentation.
fn needs_argument(from_unsafe: &str) -> bool {
    let next = from_unsafe.trim_start_matches("unsafe").trim_start();
    next.starts_with('{') || next.starts_with("impl")
}

/// Searches the line itself and upwards, over attributes and the start of the same statement.
fn has_argument(file: &TextFile, line: usize) -> bool {
    let text: Vec<&str> = file.text.lines().collect();
    let code: Vec<&str> = file.code.lines().collect();
    if text[line - 1].contains("SAFETY:") {
        return true;
    }
    for above in (0..line - 1).rev() {
        let bare = code[above].trim();
        let comment = bare.is_empty() && !text[above].trim().is_empty();
        if comment && text[above].contains("SAFETY:") {
            return true;
        }
        let attribute = bare.starts_with("#[");
        let ends = bare.is_empty() || bare.ends_with([';', '{', '}', ',']);
        if !comment && !attribute && ends {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&TextFile::new(path, text)).len()
    }

    #[test]
    fn safety_comment_may_be_above_or_beside() {
        for text in [
            "// SAFETY: the caller holds the grant.\nunsafe { x() }",
            "// SAFETY: the caller\n// holds the grant.\n#[inline]\nunsafe impl Send for X {}",
            "// SAFETY: it fits.\nlet a =\n    unsafe { x() };",
            "unsafe { x() } // SAFETY: it fits.",
            "/// # Safety\n/// Holds.\nunsafe fn f() {}",
        ] {
            assert_eq!(count("crates/mem/src/span.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn missing_safety_comment_is_found() {
        for text in [
            "fn f() {\n    unsafe { x() }\n}",
            "// SAFETY: of another.\na();\nunsafe { x() }",
            "// It is fine.\nunsafe impl Send for X {}",
            "// SAFETY: too far away.\n\nunsafe { x() }",
        ] {
            assert_eq!(count("crates/mem/src/span.rs", text), 1, "{text}");
        }
    }

    #[test]
    fn unsafe_outside_listed_files_is_found() {
        let text = "// SAFETY: it fits.\nunsafe { x() }";
        assert_eq!(count("crates/sync/src/ring/slot.rs", text), 0);
        assert_eq!(count("crates/engine/src/sys.rs", text), 0);
        assert_eq!(count("crates/nic/src/qp.rs", text), 1);
        assert_eq!(count("tools/xtask/src/main.rs", text), 1);
    }

    #[test]
    fn words_containing_unsafe_are_not_found() {
        assert_eq!(
            count(
                "crates/nic/src/qp.rs",
                "#![deny(unsafe_op_in_unsafe_fn)] // unsafe"
            ),
            0
        );
    }

    #[test]
    fn pure_crate_must_forbid_unsafe_code() {
        assert_eq!(
            count("crates/wire/src/lib.rs", "#![forbid(unsafe_code)]"),
            0
        );
        assert_eq!(
            count("crates/wire/src/lib.rs", "// #![forbid(unsafe_code)]"),
            1
        );
        assert_eq!(count("crates/nic/src/lib.rs", ""), 0);
    }
}
