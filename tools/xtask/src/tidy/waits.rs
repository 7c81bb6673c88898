//! Tests wait for events, not for time: a sleep in test code needs its reason beside it, and so does an upper bound on elapsed time, which a
//! busy machine exceeds. The reason is a comment `// real time: …` on the line or directly above the statement. Waits for a condition are
//! functions of `verbena-testing`, which end when the condition holds. Limits that only end a test that hangs need no reason: constants,
//! and [`HANGS`] or more.

use super::rust::{blank_tests, is_word, line_of, words};
use super::{Finding, TextFile};

const RULE: &str = "waits";
/// What begins the comment that allows a sleep.
const REASON: &str = "// real time: ";
/// Modules whose `sleep` waits for real time: of the standard library, and of tokio.
const MODULES: &[&str] = &["thread::", "time::"];

/// Seconds after which a test hangs.
const HANGS: u64 = 10;

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
    for at in upper_bounds(&file.code) {
        // Not in code outside tests, as above.
        let is_product = product.get(at..).is_some_and(|rest| !rest.starts_with(' '));
        let line = line_of(&file.code, at);
        let first = line_of(&file.code, statement(&file.code, at));
        if !is_product && !has_reason(&lines, line) && !has_reason(&lines, first) {
            let sentence =
                "a busy machine exceeds this time: count events, or say `// real time: <reason>`";
            findings.push(Finding::new(&file.path, line, RULE, sentence));
        }
    }
    findings
}

/// Where code compares elapsed time, or a variable that was set to it, with a short upper bound; not as the condition of a loop or a branch.
fn upper_bounds(code: &str) -> Vec<usize> {
    const CALL: &str = "elapsed()";
    let mut found = Vec::new();
    for at in words(code, "elapsed") {
        let begin = statement(code, at);
        let before = code[begin..at].trim_start();
        let is_condition = ["while ", "if "]
            .iter()
            .any(|word| before.starts_with(word));
        let Some(behind) = code[at..].strip_prefix(CALL) else {
            continue;
        };
        if is_short_bound(behind) && !is_condition {
            found.push(at);
        }
        let name = before
            .strip_prefix("let ")
            .and_then(|rest| rest.split_once(" = "));
        let Some((name, _)) = name.filter(|_| behind.starts_with(';')) else {
            continue;
        };
        // Until the end of the function.
        let end = code[at..].find("\n}").map_or(code.len(), |end| at + end);
        let uses = words(&code[at..end], name).map(|offset| at + offset);
        found.extend(uses.filter(|&at| {
            let is_asserted = code[statement(code, at)..at].contains("assert!(");
            is_asserted && is_short_bound(&code[at + name.len()..])
        }));
    }
    found
}

/// Where the statement that contains the position begins.
fn statement(code: &str, position: usize) -> usize {
    let before = &code[..position];
    let end = before.rfind([';', '{', '}']).map_or(0, |end| end + 1);
    end + before[end..].len() - before[end..].trim_start().len()
}

/// Whether a comparison follows, with less than [`HANGS`] that is not a constant.
fn is_short_bound(behind: &str) -> bool {
    let Some(bound) = behind.trim_start().strip_prefix('<') else {
        return false;
    };
    let bound = bound.trim_start_matches('=').trim_start();
    let path_end = bound
        .find(|c: char| !is_word(c) && c != ':')
        .unwrap_or(bound.len());
    let (path, rest) = bound.split_at(path_end);
    let name = path.rsplit("::").next().unwrap_or_default();
    let is_constant = !name.contains(|c: char| c.is_ascii_lowercase()) && !rest.starts_with('.');
    let seconds = bound
        .strip_prefix("Duration::from_secs(")
        .and_then(|rest| rest.split_once(')'))
        .and_then(|(number, _)| number.parse::<u64>().ok());
    !is_constant && seconds.is_none_or(|seconds| seconds < HANGS)
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

    /// The text as the body of a function.
    fn body(text: &str) -> String {
        format!("fn f() {{\n{text}\n}}\n")
    }

    #[test]
    fn short_upper_bounds_are_found() {
        for (before, text) in [
            ("", "assert!(start.elapsed() < Duration::from_secs(4));"),
            ("", "assert!(\nstart.elapsed() <= limit,\n\"late\"\n);"),
            ("", "let prompt = start.elapsed() < LIMIT.min(other);"),
            (
                "let took = start.elapsed();",
                "assert!(took < limit, \"{took:?}\");",
            ),
        ] {
            let test = body(&format!("{before}\n{text}"));
            assert_eq!(count(TEST, &test), 1, "{text}");
            assert_eq!(count("crates/a/src/b.rs", &test), 0, "not a test");
            let test = body(&format!("{before}\n// real time: a reason.\n{text}"));
            assert_eq!(count(TEST, &test), 0, "{text}");
        }
    }

    #[test]
    fn limits_of_hanging_tests_and_lower_bounds_are_allowed() {
        for text in [
            "assert!(start.elapsed() < PATIENCE);",
            "assert!(start.elapsed() < testing::LONG / 2, \"never\");",
            "assert!(start.elapsed() < Duration::from_secs(60));",
            "assert!(start.elapsed() >= Duration::from_secs(1));",
            "while start.elapsed() < Duration::from_millis(5) {}",
            "let took = start.elapsed();\nassert!(took > Duration::from_secs(1));",
            "let took = start.elapsed();\nif took < Duration::from_secs(1) {}",
        ] {
            assert_eq!(count(TEST, &body(text)), 0, "{text}");
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
