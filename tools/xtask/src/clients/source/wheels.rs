//! Packages from PyPI in a virtual environment of their own, created below the folder of the run.
//! An environment that could not be completed is removed.

use std::path::Path;

use anyhow::{Context, Result};

use crate::command::Tool;

/// The interpreter: Debian's.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// Packages that share a virtual environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wheels {
    /// The name of its folder.
    pub(crate) name: &'static str,
    pub(crate) packages: &'static [&'static str],
    /// Leaves out the packages' dependencies: NIXL requires PyTorch and never loads it.
    pub(crate) alone: bool,
}

impl Wheels {
    /// Creates the environment. The interpreter is Debian's: one below a home directory is not accessible to other users.
    pub(super) fn install(&self, tree: &Path) -> Result<()> {
        let made = self.try_install(tree);
        if made.is_err() && tree.exists() {
            std::fs::remove_dir_all(tree)
                .with_context(|| format!("cannot remove {}", tree.display()))?;
        }
        made
    }

    fn try_install(&self, tree: &Path) -> Result<()> {
        Tool::new("virtualenv")
            .args(["--quiet", "--python", PYTHON])
            .arg(tree)
            .run_quietly()?;
        let pip = Tool::new(tree.join("bin/pip"))
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .args(["--only-binary", ":all:"]);
        let pip = if self.alone {
            pip.arg("--no-deps")
        } else {
            pip
        };
        pip.args(self.packages).run_quietly()
    }
}
