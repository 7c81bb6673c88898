//! The stage: the files of an installation, laid out as below a prefix such as `/usr`. Binaries are the release build without symbols, and
//! manual pages and completions are written by the command itself. Nothing of the system is changed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{VERSION, copy, emptied, files_below, filled, folder, write};
use crate::command::Tool;
use crate::dropin;
use crate::workspace::Workspace;

const COMMAND: &str = "verbena";
/// Where each shell looks for completions, and the name that `verbena generate` gives them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("share/bash-completion/completions/verbena", "verbena.bash"),
    ("share/zsh/site-functions/_verbena", "_verbena"),
    (
        "share/fish/vendor_completions.d/verbena.fish",
        "verbena.fish",
    ),
];
/// Documents that every package has.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];
const FILE: u32 = 0o644;
const PROGRAM: u32 = 0o755;

/// A filled stage.
pub(crate) struct Stage {
    pub(crate) folder: PathBuf,
    /// The oldest release of the C library that the binaries run on, such as `2.34`.
    pub(super) glibc: String,
}

impl Stage {
    /// Builds the command and the libraries, and fills the stage.
    pub(crate) fn build(workspace: &Workspace) -> Result<Stage> {
        let missing = dropin::build(workspace, dropin::Build::Release)?;
        if !missing.is_empty() {
            bail!("{} functions are not written yet", missing.len());
        }
        workspace
            .cargo()
            .args(["build", "--release", "--package", "verbena-cli"])
            .args(["--bin", COMMAND])
            .run()?;
        let command = workspace.target.join("release").join(COMMAND);
        let stage = folder(workspace)?.join("stage");
        fill(workspace, &command, &dropin::folder(workspace), &stage)?;
        strip(&stage)?;
        let glibc = needed_glibc(&stage)?;
        Ok(Stage {
            folder: stage,
            glibc,
        })
    }
}

/// Copies everything into the stage, which is emptied before.
fn fill(workspace: &Workspace, command: &Path, libraries: &Path, stage: &Path) -> Result<()> {
    emptied(stage)?;
    copy(command, &stage.join("bin").join(COMMAND), PROGRAM)?;
    let private = stage.join("lib/verbena");
    for name in dropin::LIBRARIES {
        copy(&libraries.join(name), &private.join(name), FILE)?;
    }
    dropin::make_links(&private)?;
    for name in ["verbena-ibverbs.pc", "verbena-rdmacm.pc"] {
        let text = filled(
            workspace,
            &format!("pkgconfig/{name}"),
            &[("VERSION", VERSION)],
        )?;
        write(&stage.join("share/pkgconfig").join(name), &text, FILE)?;
    }
    let headers = workspace.root.join("dropin/capi/include");
    for name in files_below(&headers)? {
        copy(
            &headers.join(&name),
            &stage.join("include/verbena").join(&name),
            FILE,
        )?;
    }
    generate(command, stage)?;
    let documents = stage.join("share/doc/verbena");
    for name in DOCUMENTS {
        copy(&workspace.root.join(name), &documents.join(name), FILE)?;
    }
    let examples = workspace.root.join("packaging/examples");
    for name in files_below(&examples)? {
        copy(
            &examples.join(&name),
            &documents.join("examples").join(&name),
            FILE,
        )?;
    }
    Ok(())
}

/// Manual pages and completions.
fn generate(command: &Path, stage: &Path) -> Result<()> {
    let generated = stage.join("generated");
    Tool::new(command)
        .arg("generate")
        .arg(&generated)
        .run_quietly()?;
    for name in files_below(&generated.join("man"))? {
        copy(
            &generated.join("man").join(&name),
            &stage.join("share/man/man1").join(&name),
            FILE,
        )?;
    }
    for (path, name) in COMPLETIONS {
        copy(
            &generated.join("completions").join(name),
            &stage.join(path),
            FILE,
        )?;
    }
    std::fs::remove_dir_all(&generated)
        .with_context(|| format!("cannot remove {}", generated.display()))
}

/// The binaries of a stage.
fn binaries(stage: &Path) -> impl Iterator<Item = PathBuf> {
    let command = stage.join("bin").join(COMMAND);
    let private = stage.join("lib/verbena");
    let libraries = dropin::LIBRARIES.iter().map(move |name| private.join(name));
    libraries.chain([command])
}

fn strip(stage: &Path) -> Result<()> {
    binaries(stage).try_for_each(|path| {
        Tool::new("strip")
            .args(["--strip-unneeded", "--remove-section=.comment"])
            .arg(path)
            .run_quietly()
    })
}

/// The newest version of the C library that any binary asks for.
fn needed_glibc(stage: &Path) -> Result<String> {
    let mut newest = (0, 0);
    for path in binaries(stage) {
        let text = Tool::new("readelf")
            .args(["--wide", "--version-info"])
            .arg(path)
            .output()?;
        newest = newest.max(glibc_in(&text));
    }
    if newest == (0, 0) {
        bail!(
            "no binary names a version of the C library; they are built with another one than glibc"
        );
    }
    Ok(format!("{}.{}", newest.0, newest.1))
}

/// The newest of names such as `GLIBC_2.34` in a text.
fn glibc_in(text: &str) -> (u32, u32) {
    let versions = text.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let mut parts = rest[..end.unwrap_or(rest.len())].split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?))
    });
    versions.max().unwrap_or((0, 0))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Instead of the command: what packages and CI ask of it.
    const FAKE: &str = "#!/bin/sh
case $1 in
generate)
    mkdir -p \"$2/man\" \"$2/completions\"
    touch \"$2/man/verbena.1\"
    cd \"$2/completions\" && touch _verbena verbena.bash verbena.fish
    ;;
env)
    echo \"export LD_LIBRARY_PATH='$(dirname \"$0\")/../lib/verbena with blanks';\"
    echo 'export UCX_FENCE_MODE=weak;'
    ;;
--version)
    echo verbena 0
    ;;
esac
";

    /// A stage of files without contents, in a folder of its own.
    pub(crate) fn empty_stage(test: &str) -> PathBuf {
        let name = format!("xtask-stage-{}-{test}", std::process::id());
        let root = std::env::temp_dir().join(name);
        emptied(&root).unwrap();
        let libraries = root.join("libraries");
        for name in dropin::LIBRARIES {
            write(&libraries.join(name), name, FILE).unwrap();
        }
        let command = root.join(COMMAND);
        write(&command, FAKE, PROGRAM).unwrap();
        fill(
            &Workspace::load().unwrap(),
            &command,
            &libraries,
            &root.join("stage"),
        )
        .unwrap();
        root
    }

    #[test]
    fn stage_has_files_of_every_kind() {
        let root = empty_stage("kinds");
        let files = files_below(&root.join("stage")).unwrap();
        for name in [
            "bin/verbena",
            "include/verbena/infiniband/verbs.h",
            "share/pkgconfig/verbena-rdmacm.pc",
            "lib/verbena/libibverbs.so",
            "lib/verbena/libibverbs.so.1",
            "share/doc/verbena/LICENSE-MIT",
            "share/man/man1/verbena.1",
            "share/zsh/site-functions/_verbena",
        ] {
            assert!(files.iter().any(|file| file == Path::new(name)), "{name}");
        }
        assert!(!root.join("stage/generated").exists());
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn newest_glibc_is_compared_by_number() {
        let text =
            "Name: GLIBC_2.9  Flags: none\nName: GLIBC_2.34\nName: GLIBC_2.3.4 GLIBC_PRIVATE";
        assert_eq!(glibc_in(text), (2, 34));
        assert_eq!(glibc_in("GCC_3.0"), (0, 0));
    }
}
