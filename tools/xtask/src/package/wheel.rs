//! The Python wheel: the command and its libraries as data of a package, with `python -m verbena` and a pytest plugin. It is made by
//! `packaging/python/build_wheel.py`, which needs no module beyond Python's own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::stage::Stage;
use super::{VERSION, epoch};
use crate::command::Tool;
use crate::workspace::Workspace;

pub(super) fn build(workspace: &Workspace, stage: &Stage, out: &Path) -> Result<PathBuf> {
    make(workspace, &stage.folder, &tag(&stage.glibc), out)
}

/// For any Python 3, on systems with this C library or a later one.
fn tag(glibc: &str) -> String {
    let glibc = glibc.replace('.', "_");
    format!("py3-none-manylinux_{glibc}_{}", std::env::consts::ARCH)
}

fn make(workspace: &Workspace, stage: &Path, tag: &str, out: &Path) -> Result<PathBuf> {
    let script = workspace.root.join("packaging/python/build_wheel.py");
    let said = Tool::new("python3")
        .arg(script)
        .args([VERSION, tag])
        .args([stage, out])
        .env("SOURCE_DATE_EPOCH", epoch(workspace))
        .output()?;
    let path = said
        .lines()
        .next_back()
        .context("build_wheel.py printed no path")?;
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::find;

    #[test]
    fn tag_names_the_oldest_c_library() {
        assert!(tag("2.34").starts_with("py3-none-manylinux_2_34_"));
    }

    #[test]
    fn wheel_is_complete_and_the_same_twice() {
        if find("python3").is_none() {
            return;
        }
        let root = super::super::stage::tests::empty_stage("wheel");
        let workspace = Workspace::load().unwrap();
        let made = make(&workspace, &root.join("stage"), "py3-none-any", &root).unwrap();
        let first = std::fs::read(&made).unwrap();
        make(&workspace, &root.join("stage"), "py3-none-any", &root).unwrap();
        assert!(first == std::fs::read(&made).unwrap());
        let listed = Tool::new("python3")
            .args(["-m", "zipfile", "-l"])
            .arg(&made)
            .output()
            .unwrap();
        for name in [
            "files/bin/verbena",
            "files/lib/verbena/libibverbs.so ",
            "pytest_plugin.py",
            "RECORD",
            "LICENSE-MIT",
        ] {
            assert!(listed.contains(name), "{name}: {listed}");
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
