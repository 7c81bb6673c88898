//! Tests of import cycles: which imports count, what a cycle is, and the list of known ones.

use super::*;

fn file(path: &str, text: &str) -> TextFile {
    TextFile::new(path, text)
}

fn found(files: &[(&str, &str)], known: &[KnownCycle]) -> Vec<String> {
    let files: Vec<TextFile> = files.iter().map(|(path, text)| file(path, text)).collect();
    let findings = compare(&files, known);
    findings.iter().map(ToString::to_string).collect()
}

const A: &str = "crates/x/src/a.rs";
const B: &str = "crates/x/src/b.rs";
const C: &str = "crates/x/src/c.rs";

#[test]
fn cycle_is_found_with_its_way() {
    let files = [
        (A, "use crate::b as other;"),
        (B, "use super::{\n    c::{C, D},\n    d,\n};"),
        (C, "fn f() -> crate::a::A {}"),
        ("crates/x/src/d.rs", "use crate::a::A;"),
    ];
    let expected = "crates/x/src/a.rs:1: cycles: 4 files import each other in a cycle \
                    (crates/x/src/a.rs → crates/x/src/b.rs → crates/x/src/c.rs → crates/x/src/a.rs): \
                    move what they share to a file that imports neither";
    assert_eq!(found(&files, &[]), [expected]);
}

#[test]
fn imports_in_one_direction_pass() {
    let files = [
        ("crates/x/src/lib.rs", "use crate::a::A; pub struct Root;"),
        (A, "use crate::b::B; use crate::Root; use std::b::a;"),
        (
            B,
            "use other::a::A; // use crate::a::A;\nlet a = \"crate::a::A\";",
        ),
        // Another crate's file of the same name.
        ("crates/y/src/b.rs", "use crate::a::A;"),
    ];
    assert_eq!(found(&files, &[]), [""; 0]);
}

#[test]
fn declaring_parent_does_not_import_its_child() {
    let child = "crates/x/src/a/child.rs";
    let files = [(A, "mod child; use child::C;"), (child, "use super::A;")];
    assert_eq!(found(&files, &[]), [""; 0]);
    let files = [
        (A, "mod child; use self::child::C;"),
        (child, "use super::A;"),
    ];
    assert_eq!(found(&files, &[]).len(), 1);
}

#[test]
fn tests_may_import_in_cycles() {
    let files = [
        (A, "use crate::b::B;"),
        (B, "#[cfg(test)]\nmod tests { use crate::a::A; }"),
        ("crates/x/src/b/tests.rs", "use crate::a::A;"),
        ("crates/x/src/testing.rs", "use crate::a::A;"),
    ];
    assert_eq!(found(&files, &[]), [""; 0]);
}

#[test]
fn module_in_a_file_belongs_to_it() {
    let below = "crates/x/src/a/b.rs";
    let text = "mod inner { use super::B; fn f() { super::g() } }\nuse super::A;";
    assert_eq!(
        found(&[(A, "use self::b::B;"), (below, text)], &[]).len(),
        1
    );
    let text = "mod inner { use super::B; fn f() { super::g() } }\npub(in crate::a) struct B(pub(super) u8);";
    assert_eq!(
        found(&[(A, "use self::b::B;"), (below, text)], &[]),
        [""; 0]
    );
}

#[test]
fn known_cycle_passes_until_it_grows() {
    let list = || [known(&["crates/x/src"], 2)];
    let two = [(A, "use crate::b::B;"), (B, "use crate::a::A;")];
    assert_eq!(found(&two, &list()), [""; 0]);
    let three = [two[0], (B, "use crate::c::C;"), (C, "use crate::a::A;")];
    let findings = found(&three, &list());
    assert!(findings.iter().any(|one| one.contains("3 files import")));
}

#[test]
fn broken_cycle_leaves_the_list() {
    let findings = found(&[(A, "")], &[known(&[A, B], 2)]);
    assert_eq!(findings.len(), 1);
    assert!(
        findings[0].contains("remove it from the list"),
        "{findings:?}"
    );
}

#[test]
fn known_cycle_needs_a_reason_in_the_docs() {
    let page = |text| {
        [
            (A, "use crate::b::B;"),
            (B, "use crate::a::A;"),
            (PAGE, text),
        ]
    };
    let list = || [known(&["crates/x/src"], 2)];
    assert_eq!(
        found(&page("`crates/x/src`: one mechanism"), &list()),
        [""; 0]
    );
    assert_eq!(found(&page("nothing"), &list()).len(), 1);
}
