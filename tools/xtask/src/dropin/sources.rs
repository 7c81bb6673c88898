//! Inputs of the linker besides the Rust library: version scripts, and assembly for names that are in several nodes.
//! The texts depend on the tables alone, so that the same tables give the same library. The caller writes the files.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::exports::{Binding, Exports, Kind};

/// The node of what our librdmacm takes from our libibverbs: with another libibverbs it fails to load instead of misbehaving.
pub(crate) const OWN_NODE: &str = "VERBENA_PRIVATE_1";

/// The function that implements a name of librdmacm.
pub(crate) fn implementation_name(name: &str) -> String {
    format!("verbena_{name}")
}

/// The version script: which name is exported in which node; `own` are names for our own node.
pub(crate) fn script(exports: &Exports, own: &[String]) -> String {
    let mut text = String::new();
    // Everything else is hidden by the last node: in the first it would hide that node's compatibility names too.
    let hide = "  local: *;\n";
    let last_node = exports.nodes.len().saturating_sub(1);
    for (at, node) in exports.nodes.iter().enumerate() {
        let names = node.exports.iter();
        let names = names.filter(|e| e.binding == Binding::Default && e.kind == Kind::Func);
        let names: Vec<&str> = names.map(|e| e.name.as_str()).collect();
        let last = match &node.parent {
            Some(parent) => format!(" {parent}"),
            None => String::new(),
        };
        let rest = if at == last_node && own.is_empty() {
            hide
        } else {
            ""
        };
        push_node(&mut text, &node.name, &names, rest, &last);
    }
    if !own.is_empty() {
        let names: Vec<&str> = own.iter().map(String::as_str).collect();
        push_node(&mut text, OWN_NODE, &names, hide, "");
    }
    text
}

fn push_node(text: &mut String, node: &str, names: &[&str], rest: &str, last: &str) {
    let _ = writeln!(text, "{node} {{");
    if !names.is_empty() {
        let _ = writeln!(text, "  global:");
    }
    for name in names {
        let _ = writeln!(text, "    {name};");
    }
    let _ = writeln!(text, "{rest}}}{last};");
}

/// A jump to a function of the same or another library, in the assembly of `arch`.
fn jump(arch: &str) -> Result<&'static str> {
    let jumps = [("x86_64", "jmp TARGET@PLT"), ("aarch64", "b TARGET")];
    let found = jumps.iter().find(|(name, _)| *name == arch);
    found
        .map(|(_, jump)| *jump)
        .with_context(|| format!("the drop-in libraries are not written for {arch} yet"))
}

/// Assembly for what a version script cannot express: a name in a second node, and data that all nodes share.
pub(crate) fn aliases(exports: &Exports, arch: &str) -> Result<String> {
    let jump = jump(arch)?;
    let mut text = String::from("    .text\n");
    for (node, export) in exports.iter() {
        if export.binding == Binding::Compat && export.kind == Kind::Func {
            let alias = alias(&node.name, &export.name);
            function(&mut text, &alias, &node.target(export), jump);
            let (name, node) = (&export.name, &node.name);
            let _ = writeln!(text, "    .symver {alias}, {name}@{node}, remove");
        }
    }
    let objects = exports.iter().filter(|(_, e)| e.kind == Kind::Object);
    let names: BTreeSet<&str> = objects.map(|(_, e)| e.name.as_str()).collect();
    for name in names {
        object(&mut text, name, exports);
    }
    text.push_str("    .section .note.GNU-stack,\"\",%progbits\n");
    Ok(text)
}

/// One byte, zero, under as many names as there are nodes.
fn object(text: &mut String, name: &str, exports: &Exports) {
    text.push_str("    .bss\n");
    let nodes: Vec<_> = exports.iter().filter(|(_, e)| e.name == name).collect();
    for (node, export) in &nodes {
        let alias = alias(&node.name, &export.name);
        let _ = writeln!(text, "    .globl {alias}\n    .type {alias}, %object");
        let _ = writeln!(text, "    .size {alias}, 1\n{alias}:");
    }
    text.push_str("    .zero 1\n");
    for (node, export) in nodes {
        let alias = alias(&node.name, &export.name);
        let at = match export.binding {
            Binding::Default => "@@",
            Binding::Compat => "@",
        };
        let _ = writeln!(text, "    .symver {alias}, {name}{at}{}, remove", node.name);
    }
}

fn alias(node: &str, name: &str) -> String {
    format!("verbena_at_{}_{name}", node.replace('.', "_"))
}

fn function(text: &mut String, name: &str, target: &str, jump: &str) {
    let jump = jump.replace("TARGET", target);
    let _ = writeln!(text, "    .globl {name}\n    .type {name}, %function");
    let _ = writeln!(text, "{name}:\n    {jump}\n    .size {name}, . - {name}");
}

/// librdmacm: every name is a jump to its implementation in libibverbs.
pub(crate) fn forwarder(exports: &Exports, arch: &str) -> Result<String> {
    let jump = jump(arch)?;
    let mut text = String::from("    .text\n");
    for (_, export) in exports.iter() {
        function(
            &mut text,
            &export.name,
            &implementation_name(&export.name),
            jump,
        );
    }
    text.push_str("    .section .note.GNU-stack,\"\",%progbits\n");
    Ok(text)
}

/// Definitions for names without an implementation: each prints a message when it is called, and fails.
pub(crate) fn fallbacks(missing: &[String]) -> String {
    let mut text = String::from("#include <errno.h>\n#include <stdio.h>\n");
    for name in missing {
        let said = format!("verbena: {name} is missing in this build\\n");
        let _ = writeln!(
            text,
            "void *{name}(void) {{ fputs(\"{said}\", stderr); errno = ENOSYS; return 0; }}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exports() -> Exports {
        let text = "[A_1]\nf default func\ng compat func\n[A_2 : A_1]\ng default func\n\
                    [A_PRIVATE_3]\nf compat func\nd default object\n[A_PRIVATE_4]\nd compat object\n";
        Exports::parse(text).unwrap()
    }

    #[test]
    fn version_script_names_only_default_symbols() {
        let expected = "A_1 {\n  global:\n    f;\n};\nA_2 {\n  global:\n    g;\n} A_1;\n\
                        A_PRIVATE_3 {\n};\nA_PRIVATE_4 {\n};\nVERBENA_PRIVATE_1 {\n  global:\n    verbena_x;\n  local: *;\n};\n";
        assert_eq!(script(&exports(), &[implementation_name("x")]), expected);
        assert!(script(&exports(), &[]).ends_with("A_PRIVATE_4 {\n  local: *;\n};\n"));
    }

    #[test]
    fn further_nodes_become_versioned_jumps() {
        let text = aliases(&exports(), "x86_64").unwrap();
        assert!(
            text.contains("verbena_at_A_1_g:\n    jmp verbena_old_g@PLT\n"),
            "{text}"
        );
        assert!(
            text.contains(".symver verbena_at_A_1_g, g@A_1, remove"),
            "{text}"
        );
        assert!(
            text.contains("verbena_at_A_PRIVATE_3_f:\n    jmp f@PLT\n"),
            "{text}"
        );
    }

    #[test]
    fn data_symbol_is_shared_by_its_nodes() {
        let text = aliases(&exports(), "aarch64").unwrap();
        let shared = "verbena_at_A_PRIVATE_4_d:\n    .zero 1\n";
        assert!(text.contains(shared), "{text}");
        assert!(text.contains("d@@A_PRIVATE_3, remove"), "{text}");
        assert!(text.contains("d@A_PRIVATE_4, remove"), "{text}");
    }

    #[test]
    fn unknown_architecture_is_named() {
        let error = forwarder(&exports(), "riscv64").unwrap_err();
        assert!(error.to_string().contains("riscv64"));
    }
}
