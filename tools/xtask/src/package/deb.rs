//! The package for Debian and Ubuntu: the stage below `/usr`, with what Debian's policy asks for, made by dpkg-deb. The libraries stay in a
//! private folder. lintian judges it where it is installed; what it may report is named in `packaging/debian/lintian-overrides`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::stage::Stage;
use super::{VERSION, copy, emptied, epoch, files_below, filled, write};
use crate::command::{Tool, find};
use crate::workspace::Workspace;

const FILE: u32 = 0o644;

/// Debian's name of this kind of machine.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("there are no packages for {other}"),
    }
}

pub(super) fn name() -> Result<String> {
    Ok(format!("verbena_{VERSION}_{}.deb", architecture()?))
}

pub(super) fn build(workspace: &Workspace, stage: &Stage, out: &Path) -> Result<PathBuf> {
    let root = out.join("deb");
    emptied(&root)?;
    for file in files_below(&stage.folder)? {
        if let Some(place) = place(&file) {
            let mode = if file.starts_with("bin") { 0o755 } else { FILE };
            copy(
                &stage.folder.join(&file),
                &root.join("usr").join(place),
                mode,
            )?;
        }
    }
    let epoch = epoch(workspace);
    let date = Tool::new("date")
        .args(["-R", "-u", "-d"])
        .arg(format!("@{epoch}"))
        .output()?;
    let documents = root.join("usr/share/doc/verbena");
    let licence = std::fs::read_to_string(workspace.root.join("LICENSE-MIT"))?;
    let copyright = filled(
        workspace,
        "debian/copyright",
        &[("MIT", &indented(&licence))],
    )?;
    write(&documents.join("copyright"), &copyright, FILE)?;
    let values = [("VERSION", VERSION), ("DATE", date.trim())];
    let changelog = filled(workspace, "debian/changelog", &values)?;
    write(&documents.join("changelog.Debian"), &changelog, FILE)?;
    let overrides = filled(workspace, "debian/lintian-overrides", &[])?;
    write(
        &root.join("usr/share/lintian/overrides/verbena"),
        &overrides,
        FILE,
    )?;
    compress(&root)?;
    let control = filled(
        workspace,
        "debian/control",
        &[
            ("VERSION", VERSION),
            ("ARCHITECTURE", architecture()?),
            ("GLIBC", &stage.glibc),
            ("SIZE", &kibibytes(&root)?.to_string()),
        ],
    )?;
    let sums = checksums(&root)?;
    write(&root.join("DEBIAN/control"), &control, FILE)?;
    write(&root.join("DEBIAN/md5sums"), &sums, FILE)?;
    Tool::new("chmod")
        .args(["-R", "u=rwX,go=rX"])
        .arg(&root)
        .run_quietly()?;
    let path = out.join(name()?);
    Tool::new("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "--build"])
        .arg(&root)
        .arg(&path)
        .env("SOURCE_DATE_EPOCH", epoch)
        .run()?;
    if find("lintian").is_some() {
        let lintian = [
            "--allow-root",
            "--fail-on",
            "error,warning",
            "--tag-display-limit",
            "0",
        ];
        Tool::new("lintian").args(lintian).arg(&path).run()?;
    }
    Ok(path)
}

/// Where Debian has a file of the stage, below `/usr`; `None` for one that the package has in another form.
fn place(file: &Path) -> Option<PathBuf> {
    let text = file.to_str()?;
    if text.ends_with("/LICENSE-MIT") || text.ends_with("/LICENSE-APACHE") {
        return None;
    }
    Some(match text {
        "share/zsh/site-functions/_verbena" => "share/zsh/vendor-completions/_verbena".into(),
        "share/doc/verbena/CHANGELOG.md" => "share/doc/verbena/changelog".into(),
        _ => file.to_owned(),
    })
}

/// Manual pages and changelogs are compressed, by Debian's policy.
fn compress(root: &Path) -> Result<()> {
    let documents = root.join("usr/share/doc/verbena");
    let pages = root.join("usr/share/man/man1");
    let pages = files_below(&pages)?
        .into_iter()
        .map(|name| pages.join(name));
    let changelogs = ["changelog", "changelog.Debian"].map(|name| documents.join(name));
    Tool::new("gzip")
        .args(["-9", "-n"])
        .args(pages.chain(changelogs))
        .run_quietly()
}

/// As the field of a control file: each line after a blank, and a dot in empty ones.
fn indented(text: &str) -> String {
    let lines = text.trim_end().lines();
    let lines = lines.map(|line| {
        if line.is_empty() {
            " .".to_owned()
        } else {
            format!(" {line}")
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn kibibytes(root: &Path) -> Result<u64> {
    let mut sum = 0;
    for file in files_below(root)? {
        sum += root.join(file).symlink_metadata()?.len().div_ceil(1024);
    }
    Ok(sum)
}

fn checksums(root: &Path) -> Result<String> {
    let files = files_below(root)?;
    let files = files.iter().filter(|file| !root.join(file).is_symlink());
    Tool::new("md5sum").args(files).current_dir(root).output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_has_places_of_its_own() {
        let place = |name: &str| place(Path::new(name)).map(|path| path.display().to_string());
        assert_eq!(place("share/doc/verbena/LICENSE-MIT"), None);
        assert_eq!(place("bin/verbena").as_deref(), Some("bin/verbena"));
        assert_eq!(
            place("share/zsh/site-functions/_verbena").as_deref(),
            Some("share/zsh/vendor-completions/_verbena")
        );
    }

    #[test]
    fn empty_lines_of_a_field_have_a_dot() {
        assert_eq!(indented("a\n\nb\n"), " a\n .\n b");
    }
}
