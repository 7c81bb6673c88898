//! The archive: the stage and the script that installs it below any prefix, without root. Owners, order and times of its files are fixed.
//! An rpm package is made from it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::stage::Stage;
use super::{VERSION, copy, emptied, epoch, files_below};
use crate::command::Tool;
use crate::workspace::Workspace;

pub(super) fn name() -> String {
    format!("verbena-{VERSION}-{}-linux", std::env::consts::ARCH)
}

pub(super) fn build(workspace: &Workspace, stage: &Stage, out: &Path) -> Result<PathBuf> {
    let name = name();
    let parent = out.join("tar");
    let root = parent.join(&name);
    emptied(&root)?;
    for file in files_below(&stage.folder)? {
        let mode = if file.starts_with("bin") {
            0o755
        } else {
            0o644
        };
        copy(&stage.folder.join(&file), &root.join(&file), mode)?;
    }
    let script = workspace.root.join("packaging/install.sh");
    copy(&script, &root.join("install.sh"), 0o755)?;
    Tool::new("chmod")
        .args(["-R", "u=rwX,go=rX"])
        .arg(&root)
        .run_quietly()?;
    let path = out.join(format!("{name}.tar.gz"));
    Tool::new("tar")
        .args([
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--format=gnu",
        ])
        .arg(format!("--mtime=@{}", epoch(workspace)))
        .args(["--use-compress-program=gzip -9 -n", "--create", "--file"])
        .arg(&path)
        .arg("--directory")
        .arg(&parent)
        .arg(&name)
        .run()?;
    Ok(path)
}
