//! Where the programs of a case come from if they are not installed: another Debian release, or packages from PyPI.
//! They are put below the folder of the run, once for all its cases. A source that failed is not tried again: every
//! further case of it is skipped with the same reason.

pub(crate) mod release;
pub(crate) mod wheels;

use std::path::Path;

use anyhow::{Result, bail};

use release::Release;
use wheels::Wheels;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Release(Release),
    Wheels(Wheels),
}

impl Source {
    /// The name of its folder.
    fn name(&self) -> &'static str {
        match self {
            Source::Release(release) => release.name,
            Source::Wheels(wheels) => wheels.name,
        }
    }

    /// Provides its programs below the folder, if they are not there yet; returns why this is not possible.
    pub(crate) fn obstacle(&self, folder: &Path) -> Option<String> {
        let error = self.fetch(folder).err()?;
        Some(format!(
            "the packages of {} are not available: {error:#}",
            self.name()
        ))
    }

    fn fetch(&self, folder: &Path) -> Result<()> {
        let name = self.name();
        let tree = folder.join(name);
        let lacking = folder.join(format!("{name}-lacking"));
        if let Ok(why) = std::fs::read_to_string(&lacking) {
            bail!(why);
        }
        if tree.is_dir() {
            return Ok(());
        }
        let fetched = match self {
            Source::Release(release) => release.unpack(&folder.join(format!("{name}-apt")), &tree),
            Source::Wheels(wheels) => wheels.install(&tree),
        };
        if let Err(error) = &fetched {
            std::fs::write(&lacking, format!("{error:#}"))?;
        }
        fetched
    }
}
