//! The folder from which a container image is built: the Debian package, the recipe, and an example of two services for compose. No image is
//! pulled or built here. hadolint judges the recipe where it is installed.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{copy, deb, emptied};
use crate::command::{Tool, find};
use crate::workspace::Workspace;

pub(super) fn build(workspace: &Workspace, out: &Path) -> Result<PathBuf> {
    let folder = out.join("image");
    emptied(&folder)?;
    let recipes = workspace.root.join("packaging/image");
    for name in ["Dockerfile", "compose.yaml"] {
        copy(&recipes.join(name), &folder.join(name), 0o644)?;
    }
    copy(&out.join(deb::name()?), &folder.join("verbena.deb"), 0o644)?;
    if find("hadolint").is_some() {
        Tool::new("hadolint").arg(folder.join("Dockerfile")).run()?;
    }
    Ok(folder)
}
