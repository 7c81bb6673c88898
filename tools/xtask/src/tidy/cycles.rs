//! Files of a crate do not import each other in a cycle, except for the cycles in [`KNOWN`], which have a reason and do not grow.
//! A file that declares another as its child module does not import it by that, and a path leads to the file that it names, not to where
//! a re-export comes from. Tests are not checked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::rust::{blank_tests, is_word, item_end, words};
use super::{Finding, TextFile};

#[cfg(test)]
mod tests;

const RULE: &str = "cycles";
/// The page with the same cycles and their reasons.
const PAGE: &str = "docs/ARCHITECTURE.md";

/// A cycle that is accepted.
struct KnownCycle {
    /// The files, or folders with all of them.
    within: &'static [&'static str],
    /// Most files that it has.
    files: usize,
}

const fn known(within: &'static [&'static str], files: usize) -> KnownCycle {
    KnownCycle { within, files }
}

/// The accepted cycles; the reasons are in docs/ARCHITECTURE.md, "Import cycles". The list only gets shorter, the numbers only smaller.
const KNOWN: &[KnownCycle] = &[
    known(&["crates/engine/src/config"], 4),
    known(&["crates/engine/src"], 27),
    known(&["dropin/capi/src/abi"], 9),
    known(
        &["dropin/capi/src/cm/channel.rs", "dropin/capi/src/cm/id.rs"],
        2,
    ),
    known(
        &[
            "dropin/rsocket/src/closing.rs",
            "dropin/rsocket/src/link.rs",
            "dropin/rsocket/src/net.rs",
        ],
        3,
    ),
];

impl KnownCycle {
    fn covers(&self, cycle: &[&str]) -> bool {
        let inside = |file: &&str| self.within.iter().any(|place| is_below(file, place));
        cycle.len() <= self.files && cycle.iter().all(inside)
    }
}

fn is_below(file: &str, place: &str) -> bool {
    let rest = file.strip_prefix(place);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The imports of every file, by path.
type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    compare(files, KNOWN)
}

fn compare(files: &[TextFile], known: &[KnownCycle]) -> Vec<Finding> {
    let imports = imports(files);
    let mut findings = Vec::new();
    let mut unseen: Vec<&KnownCycle> = known.iter().collect();
    for cycle in cycles(&imports) {
        match unseen.iter().position(|known| known.covers(&cycle)) {
            Some(at) => drop(unseen.remove(at)),
            None => findings.push(report(&cycle, &imports)),
        }
    }
    for known in unseen {
        let place = known.within.join(", ");
        let sentence =
            format!("there is no import cycle in {place} any more: remove it from the list");
        findings.push(Finding::new(file!(), 0, RULE, sentence));
    }
    let page = files.iter().find(|file| file.path == PAGE);
    for place in known.iter().flat_map(|known| known.within) {
        let named = |page: &TextFile| page.text.contains(&format!("`{place}`"));
        if page.is_some_and(|page| !named(page)) {
            let sentence = format!("the reason for the import cycle in `{place}` is missing");
            findings.push(Finding::new(PAGE, 0, RULE, sentence));
        }
    }
    findings
}

fn report(cycle: &[&str], imports: &Imports<'_>) -> Finding {
    let way = shortest(cycle[0], imports);
    let count = cycle.len();
    let sentence = format!(
        "{count} files import each other in a cycle ({}): move what they share to a file that imports neither",
        way.join(" → ")
    );
    Finding::new(cycle[0], 0, RULE, sentence)
}

/// The groups of files that reach each other by imports, of two and more.
fn cycles<'a>(imports: &Imports<'a>) -> Vec<Vec<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = imports
        .keys()
        .map(|&file| (file, reach(file, imports)))
        .collect();
    let mut done = BTreeSet::new();
    let mut cycles = Vec::new();
    for (file, all) in &reached {
        let back = |other: &&&str| reached.get(**other).is_some_and(|all| all.contains(file));
        let cycle: Vec<&str> = all.iter().filter(back).copied().collect();
        if cycle.len() > 1 && !done.contains(file) {
            done.extend(cycle.iter().copied());
            cycles.push(cycle);
        }
    }
    cycles
}

/// The files that this one imports, directly or through others; itself if it is in a cycle.
fn reach<'a>(from: &str, imports: &Imports<'a>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&str> = imports.get(from).into_iter().flatten().copied().collect();
    while let Some(file) = next.pop() {
        if found.insert(file) {
            next.extend(imports.get(file).into_iter().flatten());
        }
    }
    found
}

/// The shortest way from a file that is in a cycle back to it.
fn shortest<'a>(start: &'a str, imports: &Imports<'a>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    let mut ways = VecDeque::from([vec![start]]);
    while let Some(way) = ways.pop_front() {
        let end = way.last().copied().unwrap_or(start);
        for &file in imports.get(end).into_iter().flatten() {
            let longer = [&way[..], &[file]].concat();
            if file == start {
                return longer;
            }
            if seen.insert(file) {
                ways.push_back(longer);
            }
        }
    }
    vec![start]
}

fn imports(files: &[TextFile]) -> Imports<'_> {
    let modules: BTreeMap<(&str, Vec<&str>), &str> = files
        .iter()
        .filter_map(|file| Some((module(file)?, file.path.as_str())))
        .collect();
    let mut imports = Imports::new();
    for file in files {
        let Some((package, own)) = module(file) else {
            continue;
        };
        let named = paths(&blank_tests(&file.code), &own);
        let targets = named.iter().filter_map(|path| {
            let whole: Vec<&str> = path.iter().map(String::as_str).collect();
            // The longest beginning that is a file; the crate's root is none.
            let mut parts = (1..=whole.len()).rev().map(|len| whole[..len].to_vec());
            parts.find_map(|part| modules.get(&(package, part)).copied())
        });
        let others = targets.filter(|target| *target != file.path);
        imports.insert(&file.path, others.collect());
    }
    imports
}

/// The package and the module path of a source file; none for a crate's root and for tests.
fn module(file: &TextFile) -> Option<(&str, Vec<&str>)> {
    if !file.is_rust() || file.is_test() {
        return None;
    }
    let (package, below) = file.path.split_once("/src/")?;
    let mut parts: Vec<&str> = below.strip_suffix(".rs")?.split('/').collect();
    if parts.last() == Some(&"mod") {
        parts.pop();
    }
    let root = matches!(parts[..], ["lib" | "main"]);
    (!root && !parts.contains(&"testing")).then_some((package, parts))
}

/// The module paths that blanked code names, from the crate's root: in `use` declarations, and elsewhere after `crate` or `super`.
fn paths(code: &str, own: &[&str]) -> Vec<Vec<String>> {
    let mut rest = code.to_owned();
    let mut found = Vec::new();
    for at in words(code, "use") {
        let end = item_end_of_use(code, at);
        let tree = code[at + "use".len()..end].trim_end_matches(';');
        let depth = inline_depth(code, at);
        expand(tree, &mut |path| found.extend(absolute(path, own, depth)));
        rest.replace_range(at..end, &" ".repeat(end - at));
    }
    for first in ["crate", "super"] {
        for at in words(&rest, first) {
            // Not `pub(super)` or `pub(in crate::…)`, and not the second word of `super::super`.
            let before = rest[..at].trim_end();
            let named = rest[at + first.len()..].starts_with("::");
            if !named || before.ends_with("(in") || before.ends_with("::") {
                continue;
            }
            let path: String = rest[at..]
                .chars()
                .take_while(|c| is_word(*c) || *c == ':')
                .collect();
            let depth = inline_depth(&rest, at);
            found.extend(absolute(path.trim_end_matches(':'), own, depth));
        }
    }
    found
}

/// Where a `use` declaration ends; where it begins if the word is the bound `use<…>`.
fn item_end_of_use(code: &str, at: usize) -> usize {
    let after = &code[at + "use".len()..];
    if after.starts_with(char::is_whitespace) {
        at + after.find(';').map_or(0, |end| "use".len() + end + 1)
    } else {
        at + "use".len()
    }
}

/// How many modules within the file the position is in.
fn inline_depth(code: &str, position: usize) -> usize {
    let around = |at: &usize| {
        let end = item_end(code, *at);
        *at < position && position < end && code[..end].ends_with('}')
    };
    words(code, "mod").filter(around).count()
}

/// Calls `each` with every path of a `use` tree.
fn expand(tree: &str, each: &mut impl FnMut(&str)) {
    let Some((before, inner)) = tree.split_once('{') else {
        // Without ` as …`.
        return each(tree.split_whitespace().next().unwrap_or_default());
    };
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let mut depth = 0;
    let parts = inner.split(|c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        expand(&format!("{}{part}", before.trim()), each);
    }
}

/// A path from the crate's root; none if it leads to another crate, into this file, or to a child that is named without `self`.
fn absolute(path: &str, own: &[&str], inline: usize) -> Option<Vec<String>> {
    let mut parts = path.split("::").peekable();
    let base = match *parts.peek()? {
        "crate" => {
            parts.next();
            &own[..0]
        }
        "self" => {
            parts.next();
            own
        }
        "super" => {
            let mut up = 0;
            while parts.next_if_eq(&"super").is_some() {
                up += 1;
            }
            own.get(..(own.len() + inline).checked_sub(up)?)?
        }
        _ => return None,
    };
    let base = base.iter().copied();
    Some(base.chain(parts).map(str::to_owned).collect())
}
