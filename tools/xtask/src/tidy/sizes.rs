//! Long files and long functions: listed on request, not errors. A file has one subject, whatever its length.

use super::rust::{item_end, line_of, words};
use super::{Finding, TextFile};

const LONG_FILE: usize = 500;
const LONG_FUNCTION: usize = 70;

/// The file if it is long, and its long functions, both outside tests only.
pub(crate) fn notes(file: &TextFile) -> Vec<Finding> {
    if !file.is_rust() || file.is_test() {
        return Vec::new();
    }
    let mut notes = long_functions(file);
    let lines = file.text.lines().count();
    if lines > LONG_FILE {
        let sentence = format!("a file of {lines} lines, more than {LONG_FILE}");
        notes.insert(0, Finding::new(&file.path, 0, "note", sentence));
    }
    notes
}

fn long_functions(file: &TextFile) -> Vec<Finding> {
    let mut notes = Vec::new();
    for at in words(&file.code, "fn") {
        let first = line_of(&file.code, at);
        let lines = line_of(&file.code, item_end(&file.code, at)) - first + 1;
        if lines > LONG_FUNCTION {
            let sentence = format!("a function of {lines} lines, more than {LONG_FUNCTION}");
            notes.push(Finding::new(&file.path, first, "note", sentence));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_function_is_listed() {
        let body = "x();\n".repeat(70);
        let text = format!("fn short() {{}}\nfn long() {{\n{body}}}\n");
        let notes = notes(&TextFile::new("a.rs", &text));
        assert_eq!(notes.len(), 1);
        assert_eq!(notes[0].line, 2);
        assert!(notes[0].sentence.contains("72 lines"));
    }

    #[test]
    fn long_file_is_listed_unless_it_is_a_test() {
        let text = "//\n".repeat(501);
        assert_eq!(notes(&TextFile::new("a.rs", &text)).len(), 1);
        assert_eq!(notes(&TextFile::new("a/tests.rs", &text)), []);
    }
}
