//! The licence of every crate that we depend on is one of the list in `deny.toml`, which cargo-deny reads as well.
//! Expressions of SPDX are evaluated: of alternatives one must be allowed, of parts that hold together all. A crate without an expression
//! is a finding.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Finding;

const RULE: &str = "licences";
/// The file with the list, in cargo-deny's form.
pub(super) const LIST: &str = "deny.toml";
/// How deep parentheses may be nested.
const DEPTH: usize = 16;

#[derive(Deserialize)]
struct Config {
    licenses: Licences,
}

#[derive(Deserialize)]
struct Licences {
    allow: Vec<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    license: Option<String>,
}

/// `list` is the text of [`LIST`], `metadata` what `cargo metadata` prints with dependencies.
pub(super) fn check(list: &str, metadata: &str) -> Result<Vec<Finding>> {
    let Config { licenses } =
        toml::from_str(list).with_context(|| format!("cannot read {LIST}"))?;
    let metadata: Metadata =
        serde_json::from_str(metadata).context("cannot read what `cargo metadata` printed")?;
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let Package { name, license } = package;
        let Some(expression) = license else {
            let sentence = format!("the crate `{name}` names no licence");
            findings.push(Finding::new(LIST, 0, RULE, sentence));
            continue;
        };
        let exceptions = licenses.exceptions.iter().filter(|e| e.name == *name);
        let further: Vec<&String> = exceptions.flat_map(|e| &e.allow).collect();
        let is_allowed = |id: &str| {
            let mut all = licenses.allow.iter().chain(further.iter().copied());
            all.any(|allowed| allowed == id)
        };
        let sentence = match evaluate(expression, is_allowed) {
            Some(true) => continue,
            Some(false) => {
                format!("the crate `{name}` is under `{expression}`, which is not in the list")
            }
            None => format!("the licence `{expression}` of the crate `{name}` cannot be read"),
        };
        findings.push(Finding::new(LIST, 0, RULE, sentence));
    }
    Ok(findings)
}

/// Whether the expression is satisfied by what is allowed; `None` if it is not one.
fn evaluate(expression: &str, is_allowed: impl Fn(&str) -> bool) -> Option<bool> {
    // Cargo's old form of `OR`, and parentheses as words of their own.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (result, rest) = alternatives(&words, &is_allowed, DEPTH)?;
    rest.is_empty().then_some(result)
}

type Parsed<'a> = Option<(bool, &'a [&'a str])>;

fn alternatives<'a>(
    words: &'a [&'a str],
    is_allowed: &dyn Fn(&str) -> bool,
    depth: usize,
) -> Parsed<'a> {
    let (mut result, mut words) = together(words, is_allowed, depth)?;
    while let ["OR", rest @ ..] = words {
        let (next, rest) = together(rest, is_allowed, depth)?;
        (result, words) = (result || next, rest);
    }
    Some((result, words))
}

fn together<'a>(
    words: &'a [&'a str],
    is_allowed: &dyn Fn(&str) -> bool,
    depth: usize,
) -> Parsed<'a> {
    let (mut result, mut words) = one(words, is_allowed, depth)?;
    while let ["AND", rest @ ..] = words {
        let (next, rest) = one(rest, is_allowed, depth)?;
        (result, words) = (result && next, rest);
    }
    Some((result, words))
}

fn one<'a>(words: &'a [&'a str], is_allowed: &dyn Fn(&str) -> bool, depth: usize) -> Parsed<'a> {
    match words {
        ["(", rest @ ..] => match alternatives(rest, is_allowed, depth.checked_sub(1)?)? {
            (result, [")", rest @ ..]) => Some((result, rest)),
            _ => None,
        },
        // An exception only permits more.
        [id, "WITH", _, rest @ ..] => Some((is_allowed(id), rest)),
        [")" | "OR" | "AND" | "WITH", ..] | [] => None,
        [id, rest @ ..] => Some((is_allowed(id), rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluated(expression: &str) -> Option<bool> {
        evaluate(expression, |id| matches!(id, "MIT" | "ISC"))
    }

    #[test]
    fn one_alternative_must_be_allowed() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-2.0 OR MIT",
            "(X OR MIT) AND ISC",
            "MIT WITH Y",
            "X AND Y OR ISC",
        ] {
            assert_eq!(evaluated(good), Some(true), "{good}");
        }
        for bad in ["GPL-2.0", "MIT AND X", "(X OR MIT) AND Y", "X WITH MIT"] {
            assert_eq!(evaluated(bad), Some(false), "{bad}");
        }
    }

    #[test]
    fn malformed_expressions_are_refused() {
        for text in [
            "",
            "OR",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MIT ISC",
            "AND MIT",
            &"(".repeat(50),
        ] {
            assert_eq!(evaluated(text), None, "{text}");
        }
    }

    #[test]
    fn exceptions_hold_for_their_crate_only() {
        let list =
            "[licenses]\nallow = [\"MIT\"]\nexceptions = [{ crate = \"a\", allow = [\"X\"] }]\n";
        let metadata = r#"{"packages": [{"name": "a", "license": "X"}, {"name": "b", "license": "X"}, {"name": "c", "license": null}]}"#;
        let findings = check(list, metadata).unwrap();
        let sentences: Vec<&str> = findings.iter().map(|f| f.sentence.as_str()).collect();
        assert_eq!(
            sentences,
            [
                "the crate `b` is under `X`, which is not in the list",
                "the crate `c` names no licence"
            ]
        );
        assert!(check("", metadata).is_err());
    }
}
