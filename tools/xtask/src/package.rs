//! `cargo xtask package`: what people install, built from this tree; nothing is uploaded. Every package is made from the same stage, a
//! folder laid out like an installation, and lies below cargo's target folder. The same tree and SOURCE_DATE_EPOCH give the same bytes.

mod archive;
mod check;
#[cfg(test)]
mod ci_tests;
mod deb;
mod image;
mod rpm;
mod site;
pub(crate) mod stage;
mod wheel;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::command::Tool;
use crate::step::Outcome;
use crate::workspace::Workspace;
use stage::Stage;

/// The version of all packages: that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A package for Debian and Ubuntu
    Deb,
    /// An archive with an install script that needs no root
    Tar,
    /// A Python wheel, with a pytest plugin
    Wheel,
    /// The folder from which a container image is built
    Image,
    /// A package for Fedora and others with rpm
    Rpm,
    /// The documentation as a web site; needs mdbook
    Site,
    /// All of these but the site
    All,
}

#[derive(Args)]
pub(crate) struct Options {
    /// What to build
    #[arg(default_value = "all")]
    kind: Kind,
    /// Then install what was built, run programs on it and remove it (root, and for the Debian package mmdebstrap)
    #[arg(long)]
    check: bool,
    /// Only check what was built before
    #[arg(long, requires = "check")]
    no_build: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let out = folder(workspace)?;
    if options.no_build {
        return check::all(workspace, &out);
    }
    if options.kind == Kind::Site {
        return site::build(workspace, &out);
    }
    let stage = Stage::build(workspace)?;
    let is_wanted = |kind| options.kind == kind || options.kind == Kind::All;
    let mut made = Vec::new();
    if is_wanted(Kind::Deb) || options.kind == Kind::Image {
        made.push(deb::build(workspace, &stage, &out)?);
    }
    if is_wanted(Kind::Tar) || options.kind == Kind::Rpm {
        made.push(archive::build(workspace, &stage, &out)?);
    }
    if is_wanted(Kind::Wheel) {
        made.push(wheel::build(workspace, &stage, &out)?);
    }
    if is_wanted(Kind::Image) {
        made.push(image::build(workspace, &out)?);
    }
    if is_wanted(Kind::Rpm) {
        made.extend(rpm::build(workspace, &out)?);
    }
    println!("\nBuilt from {}:", stage.folder.display());
    for path in &made {
        println!("  {:>9}  {}", size(path), path.display());
    }
    if options.check {
        check::all(workspace, &out)?;
    }
    Ok(())
}

/// All packages, installed and used: a step of a long test run.
pub(crate) fn test(workspace: &Workspace) -> Result<Outcome> {
    let options = Options {
        kind: Kind::All,
        check: true,
        no_build: false,
    };
    run(workspace, &options)?;
    Ok(Outcome::Passed)
}

/// Where packages are put.
fn folder(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target.join("packages");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// The size as a person reads it; empty for a folder.
fn size(path: &Path) -> String {
    match path.metadata() {
        Ok(found) if found.is_file() => format!("{:.1} MB", found.len() as f64 / 1e6),
        _ => String::new(),
    }
}

/// The time that all files of a package have: `SOURCE_DATE_EPOCH`, else that of the last commit, else 1980.
fn epoch(workspace: &Workspace) -> String {
    if let Ok(set) = std::env::var("SOURCE_DATE_EPOCH") {
        return set;
    }
    let commit = Tool::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(&workspace.root)
        .output();
    match commit {
        Ok(text) if !text.trim().is_empty() => text.trim().to_owned(),
        _ => "315532800".to_owned(),
    }
}

/// The text of a file in `packaging`, with each `@NAME@` replaced.
fn filled(workspace: &Workspace, name: &str, values: &[(&str, &str)]) -> Result<String> {
    let path = workspace.root.join("packaging").join(name);
    let mut text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    for (key, value) in values {
        text = text.replace(&format!("@{key}@"), value);
    }
    Ok(text)
}

/// Removes a folder and makes it anew.
fn emptied(path: &Path) -> Result<()> {
    if path.exists() {
        std::fs::remove_dir_all(path)
            .with_context(|| format!("cannot remove {}", path.display()))?;
    }
    std::fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))
}

/// Copies a file or link to a path whose folders are created, with this mode.
fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let context = || format!("cannot copy {} to {}", from.display(), to.display());
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).with_context(context)?;
    }
    if let Ok(target) = std::fs::read_link(from) {
        return std::os::unix::fs::symlink(target, to).with_context(context);
    }
    std::fs::copy(from, to).with_context(context)?;
    set_mode(to, mode)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    set_mode(path, mode)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", path.display()))
}

/// The files and links below a folder, relative to it, in order.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    fn walk(folder: &Path, root: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
        let entries = std::fs::read_dir(folder)
            .with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() && !path.is_symlink() {
                walk(&path, root, found)?;
            } else {
                found.push(path.strip_prefix(root)?.to_owned());
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    walk(folder, folder, &mut found)?;
    found.sort();
    Ok(found)
}
