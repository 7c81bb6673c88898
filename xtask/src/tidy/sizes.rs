//! Files are short: 400 lines, 600 for tests; longer ones are listed with a reason.
//! An entry for a file that is short again is a finding too.
//! Long functions are listed on request and are no error.

use super::rust::{item_end, line_of, words};
use super::{Finding, TextFile};

const RULE: &str = "sizes";
/// The exceptions, one `path: reason` per line.
const LIST: &str = "xtask/oversize.txt";
const MOST_LINES: usize = 400;
const MOST_TEST_LINES: usize = 600;
const MOST_FUNCTION_LINES: usize = 70;

pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let list = files.iter().find(|file| file.path == LIST);
    let mut findings = Vec::new();
    let exceptions = exceptions(list.map_or("", |file| &file.text), &mut findings);
    for file in files.iter().filter(|file| file.is_rust()) {
        let listed = exceptions
            .iter()
            .any(|exception| exception.path == file.path);
        if let Some(lines) = oversize(file)
            && !listed
        {
            let sentence = format!(
                "{lines} lines, more than {}: split it, or give a reason in {LIST}",
                most(file)
            );
            findings.push(Finding::new(&file.path, 0, RULE, sentence));
        }
    }
    for exception in exceptions {
        let file = files.iter().find(|file| file.path == exception.path);
        let sentence = match file {
            None => format!("`{}` does not exist: remove the line", exception.path),
            Some(file) if oversize(file).is_none() => format!(
                "`{}` is short enough again: remove the line",
                exception.path
            ),
            Some(_) => continue,
        };
        findings.push(Finding::new(LIST, exception.line, RULE, sentence));
    }
    findings
}

fn most(file: &TextFile) -> usize {
    if file.is_test() {
        MOST_TEST_LINES
    } else {
        MOST_LINES
    }
}

fn oversize(file: &TextFile) -> Option<usize> {
    let lines = file.text.lines().count();
    (lines > most(file)).then_some(lines)
}

struct Exception<'a> {
    path: &'a str,
    line: usize,
}

fn exceptions<'a>(list: &'a str, findings: &mut Vec<Finding>) -> Vec<Exception<'a>> {
    let mut exceptions = Vec::new();
    for (index, text) in list.lines().enumerate() {
        let (line, text) = (index + 1, text.trim());
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (path, reason) = text.split_once(':').unwrap_or((text, ""));
        if reason.trim().is_empty() {
            findings.push(Finding::new(
                LIST,
                line,
                RULE,
                "an exception needs a reason: `path: reason`",
            ));
        }
        exceptions.push(Exception {
            path: path.trim(),
            line,
        });
    }
    exceptions
}

/// Functions outside tests that are longer than they should be: listed, not an error.
pub(crate) fn long_functions(file: &TextFile) -> Vec<Finding> {
    if !file.is_rust() || file.is_test() {
        return Vec::new();
    }
    let mut notes = Vec::new();
    for at in words(&file.code, "fn") {
        let first = line_of(&file.code, at);
        let lines = line_of(&file.code, item_end(&file.code, at)) - first + 1;
        if lines > MOST_FUNCTION_LINES {
            let sentence = format!("a function of {lines} lines, more than {MOST_FUNCTION_LINES}");
            notes.push(Finding::new(&file.path, first, "note", sentence));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(path: &str, lines: usize) -> TextFile {
        TextFile::new(path, &"//\n".repeat(lines))
    }

    fn list(text: &str) -> TextFile {
        TextFile::new(LIST, text)
    }

    fn sentences(files: &[TextFile]) -> Vec<String> {
        check(files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn line_limits_are_exact() {
        assert_eq!(
            sentences(&[long("a.rs", 400), long("tests.rs", 600), long("a.md", 999)]),
            [""; 0]
        );
        assert_eq!(
            sentences(&[long("a.rs", 401), long("tests.rs", 601)]).len(),
            2
        );
    }

    #[test]
    fn an_exception_with_a_reason_is_accepted() {
        let files = [long("a.rs", 500), list("# why\n\na.rs: one table\n")];
        assert_eq!(sentences(&files), [""; 0]);
    }

    #[test]
    fn useless_size_exceptions_are_found() {
        let files = [
            long("a.rs", 500),
            long("b.rs", 5),
            list("a.rs:\nb.rs: once\nc.rs: gone\n"),
        ];
        let expected = [
            "xtask/oversize.txt:1: sizes: an exception needs a reason: `path: reason`",
            "xtask/oversize.txt:2: sizes: `b.rs` is short enough again: remove the line",
            "xtask/oversize.txt:3: sizes: `c.rs` does not exist: remove the line",
        ];
        assert_eq!(sentences(&files), expected);
    }

    #[test]
    fn long_function_is_listed() {
        let body = "x();\n".repeat(70);
        let text = format!("fn short() {{}}\nfn long() {{\n{body}}}\n");
        let notes = long_functions(&TextFile::new("a.rs", &text));
        assert_eq!(notes.len(), 1);
        assert_eq!(notes[0].line, 2);
        assert!(notes[0].sentence.contains("72 lines"));
    }
}
