//! What the pure crates may not mention outside their tests: sockets, files, threads, clocks, randomness, `unsafe`, printing.
//! `use` trees are expanded before they are checked, so that grouping hides nothing.
//! Types that are mere values, such as durations and the addresses of `core::net`, are allowed.

use super::rust::{blank_tests, is_word, line_of, words};
use super::{Finding, TextFile};

const RULE: &str = "names";

/// The crates of the innermost layer.
pub(crate) const PURE: &[&str] = &[
    "crates/wire/",
    "crates/stream/",
    "crates/roce/",
    "crates/tcpip/",
    "split/push/",
    "tools/fabric/",
];

/// Paths, with the reason or the replacement.
const PATHS: &[(&str, &str)] = &[
    ("std::net", "no sockets (address types are in `core::net`)"),
    ("std::fs", "no files"),
    ("std::io", "no input or output"),
    ("std::os", "no operating system"),
    ("std::thread", "no threads"),
    ("std::process", "no processes"),
    ("std::env", "no environment"),
    ("std::time::Instant", "no clock: take `now` as an argument"),
    (
        "std::time::SystemTime",
        "no clock: take `now` as an argument",
    ),
    ("rand", "no randomness: take it as an argument"),
];

/// Imports of the whole of `std::time`, clocks included.
const WHOLE_CLOCK: &[&str] = &["std::time", "std::time::", "std::time::self"];

/// Macros, named without their exclamation mark.
const MACROS: &[&str] = &["print", "println", "eprint", "eprintln", "thread_local"];

pub(crate) fn check(file: &TextFile) -> Vec<Finding> {
    let pure = PURE.iter().any(|folder| file.path.starts_with(folder));
    if !pure || !file.is_rust() || file.is_test() {
        return Vec::new();
    }
    let code = blank_tests(&file.code);
    let mut found: Vec<(usize, String)> = Vec::new();
    for (at, path) in paths(&code) {
        let hit = PATHS.iter().find(|(name, _)| is_below(&path, name));
        if let Some((name, instead)) = hit {
            found.push((at, format!("`{name}` in a pure crate: {instead}")));
        }
    }
    for &name in MACROS {
        for at in words(&code, name) {
            if code[at + name.len()..].starts_with('!') {
                found.push((
                    at,
                    format!("`{name}!` in a pure crate: return values instead"),
                ));
            }
        }
    }
    for at in words(&code, "unsafe") {
        found.push((
            at,
            "`unsafe` in a pure crate: move it to a file that ISLANDS lists".into(),
        ));
    }
    let finding = |(at, sentence)| Finding::new(&file.path, line_of(&code, at), RULE, sentence);
    let mut findings: Vec<Finding> = found.into_iter().map(finding).collect();
    findings.dedup();
    findings
}

fn is_below(path: &str, name: &str) -> bool {
    if name.starts_with("std::time") && WHOLE_CLOCK.contains(&path) {
        return true;
    }
    // `rand` alone may be a variable.
    let rest = path.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() && name != "rand" || rest.starts_with("::"))
}

/// Every path in the code, `use` trees expanded, with its byte offset.
fn paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let bytes = code.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if is_path_start(code, at) {
            let mut tree = Tree { code, at };
            tree.read(String::new(), &mut found);
            at = tree.at.max(at + 1);
        } else {
            at += 1;
        }
    }
    found
}

fn is_path_start(code: &str, at: usize) -> bool {
    if !code.is_char_boundary(at) || !code[at..].starts_with(is_word) {
        return false;
    }
    let before = code[..at].trim_end();
    let continues = match before.strip_suffix("::").map(str::trim_end) {
        // `::std` begins a path, while `a::std` and `A<B>::std` continue one.
        Some(owner) => owner.ends_with(is_word) || owner.ends_with('>') && !owner.ends_with("->"),
        None => before.ends_with('.') && !before.ends_with(".."),
    };
    !code[..at].ends_with(is_word) && !continues
}

/// Reads `a::b::{c, d::e}` from a place in the code.
struct Tree<'a> {
    code: &'a str,
    at: usize,
}

impl Tree<'_> {
    fn read(&mut self, mut path: String, found: &mut Vec<(usize, String)>) {
        let start = self.at;
        loop {
            self.skip_space();
            let word: String = self.rest().chars().take_while(|&c| is_word(c)).collect();
            self.at += word.len();
            path.push_str(&word);
            self.skip_space();
            if word.is_empty() || !self.rest().starts_with("::") {
                break;
            }
            self.at += 2;
            path.push_str("::");
            self.skip_space();
            if self.rest().starts_with('{') {
                self.group(&path, found);
                return;
            }
        }
        found.push((start, path));
    }

    fn group(&mut self, path: &str, found: &mut Vec<(usize, String)>) {
        loop {
            self.at += 1;
            self.skip_space();
            self.read(path.to_owned(), found);
            let stop = self.rest().find([',', '}']);
            self.at += stop.unwrap_or(self.rest().len());
            if !self.rest().starts_with(',') {
                self.at = (self.at + 1).min(self.code.len());
                return;
            }
        }
    }

    fn rest(&self) -> &str {
        &self.code[self.at..]
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(path: &str, text: &str) -> Vec<String> {
        let findings = check(&TextFile::new(path, text));
        findings.iter().map(ToString::to_string).collect()
    }

    fn count(text: &str) -> usize {
        sentences("crates/stream/src/a.rs", text).len()
    }

    #[test]
    fn clean_code_passes() {
        assert_eq!(
            count("use core::time::Duration;\nuse core::net::IpAddr;\n"),
            0
        );
        assert_eq!(
            count("use std::time::Duration; fn f() { operand::x(); rand }"),
            0
        );
        assert_eq!(count("use crate::net::fs; fn f(now: Instant) {}"), 0);
    }

    #[test]
    fn every_forbidden_path_is_found() {
        for (name, _) in PATHS {
            assert_eq!(count(&format!("use {name}::x;")), 1, "{name}");
            assert_eq!(count(&format!("fn f() {{ ::{name}::x() }}")), 1, "{name}");
        }
        assert_eq!(count("let a = std::time::Instant::now();"), 1);
    }

    #[test]
    fn grouped_imports_are_expanded() {
        assert_eq!(
            count("use std::{fmt, net::TcpStream, time::{Duration, Instant}};"),
            2
        );
        assert_eq!(
            count("use std::{\n    collections::BTreeMap,\n    fs,\n};"),
            1
        );
        assert_eq!(count("use std :: net :: TcpStream;"), 1);
        assert_eq!(count("fn f() -> ::std::net::TcpStream {}"), 1);
        for whole in ["std::time", "std::time::*", "std::time::{self, Duration}"] {
            assert_eq!(count(&format!("use {whole};")), 1, "{whole}");
        }
    }

    #[test]
    fn macros_and_unsafe_are_found() {
        for name in MACROS {
            assert_eq!(count(&format!("fn f() {{ {name}!(); }}")), 1, "{name}");
        }
        assert_eq!(count("fn f() { unsafe { x() } }"), 1);
        assert_eq!(count("#![forbid(unsafe_code)]"), 0);
    }

    #[test]
    fn comments_strings_and_tests_are_ignored() {
        assert_eq!(count("// std::net\nfn f() { \"std::fs\" }"), 0);
        assert_eq!(count("#[cfg(test)]\nmod tests { use std::fs; }"), 0);
        assert_eq!(sentences("crates/wire/tests/a.rs", "use std::fs;"), [""; 0]);
        assert_eq!(
            sentences("crates/wire/src/a/tests.rs", "use std::fs;"),
            [""; 0]
        );
    }

    #[test]
    fn outer_crates_are_not_checked() {
        assert_eq!(
            sentences("crates/engine/src/a.rs", "use std::net::TcpStream;"),
            [""; 0]
        );
    }

    #[test]
    fn forbidden_path_finding_names_its_line() {
        let text = "fn a() {}\n\nuse std::fs;\n";
        let expected = "crates/wire/src/a.rs:3: names: `std::fs` in a pure crate: no files";
        assert_eq!(sentences("crates/wire/src/a.rs", text), [expected]);
    }
}
