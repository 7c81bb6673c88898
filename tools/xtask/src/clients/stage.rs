//! The folder of a run of the clients: libraries, the `verbena` command, our scripts, and the programs' output.
//! An ordinary user can read it and run the programs in it, and it is removed when the run ends.
//! The target folder is not used directly, because it may not be accessible to other users.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::probes;
use crate::dropin;
use crate::workspace::Workspace;

const COMMAND: &str = "verbena";
/// The folder of our scripts in the source tree.
const SCRIPTS: &str = "tools/xtask/clients";

/// The folder, filled.
pub(crate) struct Stage {
    folder: PathBuf,
}

impl Stage {
    /// Copies everything into a new folder; the libraries must have been built.
    pub(crate) fn fill(workspace: &Workspace) -> Result<Stage> {
        let name = format!("verbena-clients-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let stage = Stage { folder };
        for library in dropin::LIBRARIES {
            stage.copy(&dropin::folder(workspace).join(library))?;
        }
        dropin::make_links(&stage.folder)?;
        // Built with the features of the whole workspace, as for the tests: built alone it would be compiled again.
        let beside = ["test", "--workspace", "--no-run", "--test", "commands"];
        workspace.cargo().args(beside).run()?;
        stage.copy(&workspace.target.join("debug").join(COMMAND))?;
        let scripts = workspace.root.join(SCRIPTS);
        for file in files(&scripts).with_context(|| format!("cannot read {}", scripts.display()))? {
            stage.copy(&file)?;
        }
        probes::build(&stage.folder)?;
        // The output files are created by this process, but strace creates its own as the user that runs it.
        open_to(&stage.folder, 0o1777)?;
        Ok(stage)
    }

    fn copy(&self, from: &Path) -> Result<()> {
        let name = from.file_name().context("a path without a name")?;
        let to = self.folder.join(name);
        std::fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        open_to(&to, 0o755)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The `verbena` command, beside its libraries.
    pub(crate) fn command(&self) -> String {
        self.folder.join(COMMAND).to_string_lossy().into_owned()
    }
}

/// The files of a folder, without its subfolders: Python writes `__pycache__` beside a script that another one imports.
fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

fn open_to(path: &Path, mode: u32) -> Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", path.display()))
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            println!("cannot remove {}: {error}", self.folder.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subfolders_are_not_among_the_files() {
        let folder = std::env::temp_dir().join(format!("xtask-stage-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("__pycache__")).unwrap();
        std::fs::write(folder.join("script.py"), "").unwrap();
        let found = files(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [folder.join("script.py")]);
    }
}
