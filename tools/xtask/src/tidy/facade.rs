//! The interface of the crate `verbena` does not grow unnoticed: a limit on the names at its root, one on the names that its modules
//! re-export from inner crates, and no glob re-export. `unstable`, which semantic versioning does not cover, is not counted.

use super::{Finding, TextFile};

const RULE: &str = "facade";
const FOLDER: &str = "crates/verbena/src/";
const ROOT: &str = "crates/verbena/src/lib.rs";
const UNSTABLE: &str = "crates/verbena/src/unstable.rs";

/// Types and modules at the root, with all features.
const ROOT_NAMES: usize = 36;
/// Names of inner crates that the other modules show as their own.
const INNER_NAMES: usize = 147;

pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    check_with(files, ROOT_NAMES, INNER_NAMES)
}

fn check_with(files: &[TextFile], root_limit: usize, inner_limit: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut root, mut inner) = (0, 0);
    let is_facade = |file: &&TextFile| {
        file.path.starts_with(FOLDER) && file.is_rust() && !file.is_test() && file.path != UNSTABLE
    };
    for file in files.iter().filter(is_facade) {
        for (line, path) in reexports(&file.code) {
            let names = count(&path);
            if path.contains('*') {
                let sentence = format!("`pub use {path}` shows names that are not listed");
                findings.push(Finding::new(&file.path, line, RULE, sentence));
            }
            inner += if path.starts_with("verbena_") {
                names
            } else {
                0
            };
            root += if file.path == ROOT { names } else { 0 };
        }
        if file.path == ROOT {
            let modules = file.code.lines().map(str::trim_start);
            root += modules.filter(|line| line.starts_with("pub mod ")).count();
        }
    }
    let mut limit = |what: &str, found: usize, limit: usize| {
        if found > limit {
            let sentence = format!("{found} {what}, at most {limit} (the limit is in the rule)");
            findings.push(Finding::new(ROOT, 0, RULE, sentence));
        }
    };
    limit("names at the root", root, root_limit);
    limit("names re-exported from inner crates", inner, inner_limit);
    findings
}

/// The line and the path of each `pub use`, without white space.
fn reexports(code: &str) -> impl Iterator<Item = (usize, String)> + '_ {
    let starts = code.match_indices("pub use ");
    starts.filter_map(move |(at, start)| {
        let line = code[..at].matches('\n').count() + 1;
        let (path, _) = code[at + start.len()..].split_once(';')?;
        let aliased = path.replace(" as ", "@");
        let path = aliased.split_whitespace().collect();
        Some((line, path))
    })
}

/// Names in a path: the leaves of its tree.
fn count(path: &str) -> usize {
    let leaves = path.split([',', '{', '}']);
    leaves
        .filter(|leaf| !leaf.is_empty() && !leaf.ends_with("::"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(files: &[TextFile], root: usize, inner: usize) -> Vec<String> {
        let findings = check_with(files, root, inner);
        findings.into_iter().map(|f| f.sentence).collect()
    }

    #[test]
    fn names_beyond_the_limits_are_findings() {
        let root =
            "pub mod low;\nmod qp;\npub use qp::{\n    A,\n    B,\n};\npub use verbena_nic::C;\n";
        let low = "pub use verbena_nic::{qp::{D, E as F}, G};\npub use crate::qp::H;\n";
        let files = [
            TextFile::new(ROOT, root),
            TextFile::new("crates/verbena/src/low.rs", low),
            TextFile::new(UNSTABLE, "pub use verbena_engine::*;\n"),
            TextFile::new("crates/nic/src/lib.rs", "pub use verbena_mem::*;\n"),
        ];
        assert_eq!(sentences(&files, 4, 4), [""; 0]);
        let all = sentences(&files, 3, 3);
        assert_eq!(
            all,
            [
                "4 names at the root, at most 3 (the limit is in the rule)",
                "4 names re-exported from inner crates, at most 3 (the limit is in the rule)"
            ]
        );
    }

    #[test]
    fn a_glob_is_a_finding() {
        let files = [TextFile::new(ROOT, "pub use verbena_nic::qp::*;\n")];
        let sentence = "`pub use verbena_nic::qp::*` shows names that are not listed";
        assert_eq!(sentences(&files, 9, 9), [sentence]);
    }
}
