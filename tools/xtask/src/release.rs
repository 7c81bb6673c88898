//! `cargo xtask release --dry-run`: whether every crate can be published, as far as that is known without publishing. It packages all of them
//! and runs cargo-deny and cargo-semver-checks where they are installed. Nothing is uploaded; the steps of a release are in docs/packages.md.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;

use crate::command::{Tool, find};
use crate::workspace::{Package, Workspace};

/// In addresses that have to be replaced before a release.
const PLACEHOLDER: &str = "example.org";
/// crates.io's limits.
const MOST_KEYWORDS: usize = 5;
const MOST_CATEGORIES: usize = 5;
/// The crate that other projects use.
const FACADE: &str = "verbena";
/// Each package has them, as links to those of the repository.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

#[derive(Args)]
pub(crate) struct Options {
    /// Only check: required, because nothing else is implemented
    #[arg(long, required = true)]
    dry_run: bool,
    /// Also with changes that are not committed
    #[arg(long)]
    allow_dirty: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    debug_assert!(options.dry_run, "clap requires it");
    let complaints = complaints(workspace);
    for complaint in &complaints {
        println!("{complaint}");
    }
    if !complaints.is_empty() {
        bail!("{} manifest(s) are not ready", complaints.len());
    }
    features(workspace)?;
    package(workspace, options.allow_dirty)?;
    if find("cargo-deny").is_some() {
        let parts = ["deny", "check", "licenses", "sources", "bans"];
        workspace.cargo().args(parts).run()?;
    } else {
        println!(
            "!!! cargo-deny is not installed: only the licences were checked, by `cargo xtask tidy`"
        );
    }
    semver(workspace)?;
    println!(
        "!!! advisories were not checked: `cargo deny check advisories` downloads its database"
    );
    let is_placeholder = |package: &&Package| {
        let repository = package.shown.repository.as_deref();
        repository.is_some_and(|address| address.contains(PLACEHOLDER))
    };
    if workspace
        .packages
        .iter()
        .any(|package| is_placeholder(&package))
    {
        println!("!!! the repository is a placeholder: see docs/packages.md, Releasing");
    }
    Ok(())
}

/// Compares the Rust interface with that of the last release, which is the highest tag `v…` before this commit.
fn semver(workspace: &Workspace) -> Result<()> {
    const NOT_COMPARED: &str = "!!! the Rust interface was not compared with an earlier release:";
    let list = [
        "tag",
        "--list",
        "v*",
        "--merged",
        "HEAD",
        "--sort=-version:refname",
    ];
    let tags = Tool::new("git")
        .args(list)
        .current_dir(&workspace.root)
        .output()?;
    let Some(tag) = tags.lines().next() else {
        println!("{NOT_COMPARED} no tag `v*` names one");
        return Ok(());
    };
    if find("cargo-semver-checks").is_none() {
        println!("{NOT_COMPARED} cargo-semver-checks is not installed");
        return Ok(());
    }
    let baseline = ["semver-checks", "-p", FACADE, "--baseline-rev", tag];
    workspace.cargo().args(baseline).run()
}

/// Compiles the Rust interface with none of its features, with each alone, and with all, without warnings. Other steps have those
/// that the workspace enables together.
fn features(workspace: &Workspace) -> Result<()> {
    let clippy = |features: &[&str]| {
        println!("crate verbena, features: {}", features.join(" "));
        let tool = workspace
            .cargo()
            .args(["clippy", "-p", FACADE, "--quiet"])
            .args(features);
        tool.args(["--", "-D", "warnings"]).run()
    };
    let alone = ["async", "handover", "fabric", "unstable"];
    clippy(&["--no-default-features"])?;
    for feature in alone {
        clippy(&["--no-default-features", "--features", feature])?;
    }
    clippy(&["--all-features"])
}

/// Makes the file that would be uploaded, for every published crate, in dependency order.
fn package(workspace: &Workspace, allow_dirty: bool) -> Result<()> {
    let private = workspace
        .packages
        .iter()
        .filter(|package| !package.is_published());
    let exclude = private.flat_map(|package| ["--exclude", &package.name]);
    let mut tool = workspace
        .cargo()
        .args(["package", "--workspace", "--no-verify", "--quiet"])
        .args(exclude);
    if allow_dirty {
        tool = tool.arg("--allow-dirty");
    }
    tool.run()?;
    let folder = workspace.target.join("package");
    let made = Tool::new("find")
        .arg(folder)
        .args(["-maxdepth", "1", "-name", "*.crate"])
        .output()?;
    println!("{} crates packaged", made.lines().count());
    Ok(())
}

/// What published packages lack.
fn complaints(workspace: &Workspace) -> Vec<String> {
    let published: Vec<&Package> = workspace
        .packages
        .iter()
        .filter(|p| p.is_published())
        .collect();
    let mut all = Vec::new();
    for package in &published {
        let mut complain = |what: &str| all.push(format!("{}: {what}", package.name));
        let shown = &package.shown;
        let fields = [
            ("description", shown.description.is_some()),
            ("license", shown.license.is_some()),
            ("repository", shown.repository.is_some()),
            ("readme", shown.readme.is_some()),
            ("rust-version", shown.rust_version.is_some()),
            (
                "keywords",
                (1..=MOST_KEYWORDS).contains(&shown.keywords.len()),
            ),
            (
                "categories",
                (1..=MOST_CATEGORIES).contains(&shown.categories.len()),
            ),
        ];
        for (field, _) in fields.iter().filter(|(_, good)| !good) {
            complain(&format!("`{field}` is missing, or there are too many"));
        }
        for name in LICENCES {
            let text = |path: &Path| std::fs::read(path).unwrap_or_default();
            let own = text(&package.manifest_path.with_file_name(name));
            if own.is_empty() || own != text(&workspace.root.join(name)) {
                complain(&format!(
                    "{name} in its folder is not that of the repository"
                ));
            }
        }
        for dependency in &package.dependencies {
            let name = &dependency.name;
            let Some(other) = workspace.package(name) else {
                continue;
            };
            // Development dependencies without a version are left out of what is uploaded.
            let is_dev = dependency.kind.as_deref() == Some("dev");
            if !is_dev && !other.is_published() {
                complain(&format!("it depends on `{name}`, which is not published"));
            } else if !is_dev && dependency.req == "*" {
                complain(&format!("its dependency `{name}` has no version"));
            } else if is_dev && !other.is_published() && dependency.req != "*" {
                complain(&format!(
                    "its development dependency `{name}` has a version, and is not published"
                ));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_manifests_are_complete() {
        let workspace = Workspace::load().unwrap();
        assert_eq!(complaints(&workspace), [""; 0]);
    }
}
