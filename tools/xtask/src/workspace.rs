//! The workspace as `cargo metadata` reports it: folders, packages and their dependencies.
//! Paths are taken from here, not from where xtask was built, and the target folder is cargo's own choice.
//! The dependency graph is not resolved: only our manifests are read.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::command::Tool;
use crate::packages;

/// The output of `cargo metadata --no-deps`, reduced to what we use.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// One workspace member.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    #[serde(default)]
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) targets: Vec<Target>,
    /// The registries it may go to: `None` for all, empty for a package that is not published.
    #[serde(default)]
    pub(crate) publish: Option<Vec<String>>,
    /// What a registry shows of it.
    #[serde(flatten)]
    pub(crate) shown: Shown,
}

/// What a registry shows of a package.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Shown {
    pub(crate) description: Option<String>,
    pub(crate) license: Option<String>,
    pub(crate) repository: Option<String>,
    pub(crate) readme: Option<PathBuf>,
    pub(crate) rust_version: Option<String>,
    pub(crate) keywords: Vec<String>,
    pub(crate) categories: Vec<String>,
}

impl Package {
    pub(crate) fn is_published(&self) -> bool {
        self.publish
            .as_ref()
            .is_none_or(|registries| !registries.is_empty())
    }
}

/// One line of a `[dependencies]`, `[dev-dependencies]` or `[build-dependencies]` table.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None`, `"dev"` or `"build"`, as cargo reports it.
    pub(crate) kind: Option<String>,
    /// `*` if none is named.
    #[serde(default)]
    pub(crate) req: String,
}

/// A library, binary, test or benchmark of a package.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
    #[serde(default, rename = "required-features")]
    pub(crate) required_features: Vec<String>,
}

impl Workspace {
    /// Asks cargo about the workspace of the current directory.
    pub(crate) fn load() -> Result<Workspace> {
        let text = Tool::cargo()
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .output()?;
        Workspace::parse(&text)
    }

    fn parse(text: &str) -> Result<Workspace> {
        serde_json::from_str(text).context("cannot read what `cargo metadata` printed")
    }

    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// A cargo that runs in the workspace's root. In CI, where everything is built once, it is not incremental.
    pub(crate) fn cargo(&self) -> Tool {
        let cargo = Tool::cargo().current_dir(&self.root);
        match packages::in_ci() {
            true => cargo.env("CARGO_INCREMENTAL", "0"),
            false => cargo,
        }
    }

    /// A cargo that builds every crate with `--cfg NAME`, in a folder of that name below the target folder: the flag changes every crate. The
    /// release profile builds quickly instead of thoroughly, because what is built here takes longer to build than to run.
    pub(crate) fn cargo_with_cfg(&self, name: &str) -> Tool {
        self.cargo()
            .env("RUSTFLAGS", format!("--cfg {name}"))
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_TARGET_DIR", self.target.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
        "workspace_root": "/w", "target_directory": "/t", "version": 1,
        "packages": [{
            "name": "a", "manifest_path": "/w/a/Cargo.toml", "version": "0.1.0", "publish": [],
            "dependencies": [
                {"name": "b", "kind": null, "path": "/w/b"},
                {"name": "c", "kind": "dev"}
            ],
            "targets": [{"name": "x", "kind": ["bin"], "required-features": ["f"]}]
        }]
    }"#;

    #[test]
    fn cargo_metadata_is_parsed() {
        let workspace = Workspace::parse(TEXT).unwrap();
        assert_eq!(workspace.root, PathBuf::from("/w"));
        assert_eq!(workspace.target, PathBuf::from("/t"));
        let package = workspace.package("a").unwrap();
        assert!(!package.is_published());
        assert_eq!(package.dependencies[0].kind, None);
        assert_eq!(package.dependencies[1].kind.as_deref(), Some("dev"));
        assert_eq!(package.targets[0].required_features, ["f"]);
        assert!(workspace.package("b").is_none());
    }

    #[test]
    fn invalid_input_is_refused() {
        assert!(Workspace::parse("{}").is_err());
    }
}
