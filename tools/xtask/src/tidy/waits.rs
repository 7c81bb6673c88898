//! Tests wait for events, not for time: a sleep in test code needs its reason beside it.
//! The reason is a comment `// real time: …` on the line of the call or directly above. Waits for a condition are functions of
//! `verbena-testing`, which end when the condition holds.

use super::rust::{blank_tests, line_of, words};
use super::{Finding, TextFile};

const RULE: &str = "waits";
/// What begins the comment that allows a sleep.
const REASON: &str = "// real time: ";
/// Modules whose `sleep` waits for real time: of the standard library, and of tokio.
const MODULES: &[&str] = &["thread::", "time::"];

pub(crate) fn check(file: &TextFile) -> Vec<Finding> {
    let is_example = file.path.split('/').any(|part| part == "examples");
    if !file.is_rust() || is_example {
        return Vec::new();
    }
    let product = if file.is_test() {
        String::new()
    } else {
        blank_tests(&file.code)
    };
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for at in words(&file.code, "sleep") {
        // Code outside tests is left when tests are blanked.
        let is_product = product
            .get(at..)
            .is_some_and(|rest| rest.starts_with("sleep"));
        let before = &file.code[..at];
        let line = line_of(&file.code, at);
        let sentence = if is_product {
            continue;
        } else if is_import(before) {
            "a test names `std::thread::sleep` where it calls it, with its reason"
        } else if !MODULES.iter().any(|module| before.ends_with(module)) || has_reason(&lines, line)
        {
            continue;
        } else {
            "a test waits for an event (`verbena_testing`), or says `// real time: <reason>`"
        };
        findings.push(Finding::new(&file.path, line, RULE, sentence));
    }
    findings
}

/// Whether the code ends within a `use` of one of the modules.
fn is_import(before: &str) -> bool {
    let statement = before.rsplit(';').next().unwrap_or_default();
    let Some(tree) = statement.trim_start().strip_prefix("use ") else {
        return false;
    };
    MODULES.iter().any(|module| tree.contains(module))
}

/// Whether the line, counted from 1, or the comment directly above it has a reason.
fn has_reason(lines: &[&str], line: usize) -> bool {
    let reason = |text: &&str| {
        let behind = text.split_once(REASON);
        behind.is_some_and(|(_, reason)| !reason.trim().is_empty())
    };
    let above = lines[..line - 1].iter().rev();
    let mut comment = above.take_while(|text| text.trim_start().starts_with("//"));
    lines.get(line - 1).is_some_and(reason) || comment.any(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&TextFile::new(path, text)).len()
    }

    const TEST: &str = "crates/a/tests/b.rs";
    const CALL: &str = "fn f() {\n    std::thread::sleep(LONG);\n}\n";

    #[test]
    fn sleeps_of_tests_are_found() {
        for path in [TEST, "crates/a/src/b/tests.rs", "crates/a/benches/b.rs"] {
            assert_eq!(count(path, CALL), 1, "{path}");
        }
        let inline = format!("fn g() {{}}\n#[cfg(test)]\nmod tests {{\n{CALL}}}\n");
        assert_eq!(count("crates/a/src/b.rs", &inline), 1);
        assert_eq!(
            count(TEST, "async fn f() { tokio::time::sleep(LONG).await }"),
            1
        );
    }

    #[test]
    fn imported_sleep_is_found_despite_a_reason() {
        for import in ["use std::thread::sleep;", "use std::thread::{self, sleep};"] {
            let text = format!("use a::b;\n// real time: it waits.\n{import}\n");
            assert_eq!(count(TEST, &text), 1, "{import}");
        }
    }

    #[test]
    fn reason_beside_or_above_allows_a_sleep() {
        for text in [
            "// real time: its length is the subject.\nthread::sleep(LONG);",
            "// real time: its length is\n// the subject.\nthread::sleep(LONG);",
            "thread::sleep(LONG); // real time: its length is the subject.",
        ] {
            assert_eq!(count(TEST, text), 0, "{text}");
        }
        for text in [
            "// real time: \nthread::sleep(LONG);",
            "// real time: that of another line.\ng();\nthread::sleep(LONG);",
            "// Until it is done.\nthread::sleep(LONG);",
        ] {
            assert_eq!(count(TEST, text), 1, "{text}");
        }
    }

    #[test]
    fn other_sleeps_are_not_found() {
        assert_eq!(count("crates/a/src/b.rs", CALL), 0);
        assert_eq!(count("crates/a/examples/b.rs", CALL), 0);
        assert_eq!(
            count(TEST, "// thread::sleep\nfn sleep() { cq.sleep(LIMIT) }"),
            0
        );
    }
}
