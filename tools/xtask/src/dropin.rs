//! `cargo xtask dropin`: builds the libraries that replace libibverbs and librdmacm, and checks what they export.
//! Every name of `dropin/capi/exports` must be there in its node, and names without an implementation are printed.
//! The system is not changed: everything stays below cargo's target folder (docs/dropin.md).

mod check;
mod exports;
mod link;
mod sources;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::Workspace;
use exports::Exports;
pub(crate) use link::Build;

pub(crate) const LIBIBVERBS: &str = "libibverbs.so.1";
pub(crate) const LIBRDMACM: &str = "librdmacm.so.1";
pub(crate) const SHIM: &str = "libverbena-uverbs.so";
pub(crate) const PRELOAD: &str = "libverbena-rsocket.so";
pub(crate) const AUDIT: &str = "libverbena-audit.so";
pub(crate) const UNMAP: &str = "libverbena-unmap.so";
/// Replace copies of the two libraries under other names, one for each name in a process; as many as `dropin/audit` knows.
const ALIASES: &[&str] = &[
    "libverbena-alias-0.so",
    "libverbena-alias-1.so",
    "libverbena-alias-2.so",
    "libverbena-alias-3.so",
    "libverbena-alias-4.so",
    "libverbena-alias-5.so",
    "libverbena-alias-6.so",
    "libverbena-alias-7.so",
];
/// Every file that is built.
pub(crate) const LIBRARIES: &[&str] = &[
    LIBIBVERBS, LIBRDMACM, SHIM, PRELOAD, AUDIT, UNMAP, ALIASES[0], ALIASES[1], ALIASES[2],
    ALIASES[3], ALIASES[4], ALIASES[5], ALIASES[6], ALIASES[7],
];

/// Names without a version, which some programs open first; links, since a copy would be a second adapter in a process.
pub(crate) const LINKS: &[(&str, &str)] =
    &[("libibverbs.so", LIBIBVERBS), ("librdmacm.so", LIBRDMACM)];

/// Names of libibverbs that the shim calls, exported in our own node beside those that librdmacm calls.
const FOR_SHIM: &[&str] = &["verbena_sysfs_counter", "verbena_sysfs_root"];

/// Prefix of the functions that implement exported names.
const PREFIX: &str = "verbena_";

#[derive(Args)]
pub(crate) struct Options {
    /// Build with all checks and little optimisation: faster to build, slower to run
    #[arg(long)]
    debug: bool,
    /// Fail if a function is not written yet
    #[arg(long)]
    complete: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let from = if options.debug {
        Build::Debug
    } else {
        Build::Release
    };
    build_from(workspace, from, options.complete)
}

/// Builds them, and fails if a name has no implementation.
pub(crate) fn build_complete(workspace: &Workspace, from: Build) -> Result<()> {
    build_from(workspace, from, true)
}

fn build_from(workspace: &Workspace, from: Build, complete: bool) -> Result<()> {
    let missing = build(workspace, from)?;
    println!("The libraries are in {}.", folder(workspace).display());
    if complete && !missing.is_empty() {
        bail!("{} functions are not written yet", missing.len());
    }
    Ok(())
}

/// Where the libraries are.
pub(crate) fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("dropin")
}

/// Creates the links in a folder that has the libraries.
pub(crate) fn make_links(folder: &Path) -> Result<()> {
    for (name, target) in LINKS {
        let path = folder.join(name);
        if std::fs::read_link(&path).is_ok_and(|old| old == Path::new(target)) {
            continue;
        }
        // Created under another name, then renamed atomically.
        let beside = folder.join(format!("{name}.new"));
        let _ = std::fs::remove_file(&beside);
        std::os::unix::fs::symlink(target, &beside)
            .and_then(|()| std::fs::rename(&beside, &path))
            .with_context(|| format!("cannot make the link {}", path.display()))?;
    }
    Ok(())
}

/// Builds, links and checks; returns the functions that should be implemented and have only a fallback.
pub(crate) fn build(workspace: &Workspace, from: Build) -> Result<Vec<String>> {
    let verbs = table(workspace, "libibverbs.txt")?;
    let cm = table(workspace, "librdmacm.txt")?;
    let own: Vec<String> = cm
        .iter()
        .map(|(_, export)| sources::implementation_name(&export.name))
        .chain(FOR_SHIM.iter().map(|name| (*name).to_owned()))
        .collect();
    let mut linker = link::Linker::new(workspace, from)?;
    linker.compile()?;
    let defined = linker.defined()?;
    let mut wanted: Vec<String> = verbs
        .iter()
        .filter(|(_, export)| export.kind == exports::Kind::Func)
        .map(|(node, export)| node.target(export))
        .chain(own.iter().cloned())
        .collect();
    wanted.sort();
    wanted.dedup();
    let missing: Vec<String> = wanted
        .into_iter()
        .filter(|name| !defined.contains(name))
        .collect();
    print_missing(&missing);
    linker.link(&verbs, &cm, &own, &missing)?;
    let folder = folder(workspace);
    make_links(&folder)?;
    check::library(&folder.join(LIBIBVERBS), &verbs, &own)?;
    check::library(&folder.join(LIBRDMACM), &cm, &[])?;
    Ok(missing)
}

fn table(workspace: &Workspace, name: &str) -> Result<Exports> {
    let path = workspace.root.join("dropin/capi/exports").join(name);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Exports::parse(&text).with_context(|| path.display().to_string())
}

fn print_missing(missing: &[String]) {
    if missing.is_empty() {
        println!("Every exported name has a definition: 0 generated fallbacks.");
        return;
    }
    let stub = missing.iter().filter(|name| name.starts_with(PREFIX));
    println!(
        "!!! {} exported functions are not written yet ({} of them behind another name) and fail when called:",
        missing.len(),
        stub.count()
    );
    for name in missing {
        println!("!!!   {name}");
    }
}
