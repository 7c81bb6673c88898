//! The package for Fedora and others: a source package of the archive and the spec file, and a binary one built from them where rpmbuild is
//! installed. The binaries are those of the archive; nothing is compiled by rpmbuild.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{VERSION, archive, copy, emptied, epoch, filled, write};
use crate::command::{Tool, find};
use crate::workspace::Workspace;

pub(super) fn build(workspace: &Workspace, out: &Path) -> Result<Vec<PathBuf>> {
    let root = out.join("rpm");
    emptied(&root)?;
    let archive = format!("{}.tar.gz", archive::name());
    let spec = root.join("SPECS/verbena.spec");
    let values = [("VERSION", VERSION), ("ARCHIVE", &archive::name())];
    write(
        &spec,
        &filled(workspace, "rpm/verbena.spec", &values)?,
        0o644,
    )?;
    copy(
        &out.join(&archive),
        &root.join("SOURCES").join(&archive),
        0o644,
    )?;
    if find("rpmbuild").is_none() {
        println!(
            "rpmbuild is not installed: {} was not built",
            spec.display()
        );
        return Ok(vec![spec]);
    }
    Tool::new("rpmbuild")
        .args(["-bb", "--quiet", "--define"])
        .arg(format!("_topdir {}", root.display()))
        .arg("--define")
        .arg("use_source_date_epoch_as_buildtime 1")
        .arg(&spec)
        .env("SOURCE_DATE_EPOCH", epoch(workspace))
        .run()?;
    let folder = root.join("RPMS").join(std::env::consts::ARCH);
    let name = format!("verbena-{VERSION}-1.{}.rpm", std::env::consts::ARCH);
    let path = out.join(&name);
    std::fs::rename(folder.join(&name), &path)
        .with_context(|| format!("rpmbuild did not make {name}"))?;
    Ok(vec![path])
}
