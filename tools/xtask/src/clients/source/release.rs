//! A Debian release other than the installed one: its packages are downloaded and unpacked below the folder of the run, with apt.
//! Only archives that apt is configured with are used, and the system is not changed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::command::Tool;

/// The keys that sign Debian's archives.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A release other than the one that is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) name: &'static str,
    /// Its name in the archive.
    pub(crate) suite: &'static str,
    /// The programs and everything they load.
    pub(crate) packages: &'static [&'static str],
}

impl Release {
    /// Downloads the packages into `apt` and unpacks them as `tree`.
    pub(super) fn unpack(&self, apt: &Path, tree: &Path) -> Result<()> {
        ensure!(cfg!(target_arch = "x86_64"), "only x86-64 is supported");
        for part in [
            "lists/partial",
            "cache/archives/partial",
            "parts",
            "packages",
        ] {
            std::fs::create_dir_all(apt.join(part))?;
        }
        let archive = archive()?;
        let line = format!("deb [signed-by={KEYS}] {archive} {} main\n", self.suite);
        std::fs::write(apt.join("sources.list"), line)?;
        let suite = self.suite;
        run_reported(apt_get(apt, 180).arg("update"), || {
            format!("the configured archive does not have the suite {suite}")
        })?;
        let packages = apt.join("packages");
        let download = apt_get(apt, 300).arg("download").args(self.packages);
        run_reported(download.current_dir(&packages), || {
            format!("the suite {suite} lacks a package, or its download failed")
        })?;
        // Unpacked elsewhere first: a partly unpacked tree must not be used.
        let half = apt.join("tree");
        for entry in std::fs::read_dir(&packages)? {
            let unpack = Tool::new("dpkg-deb").arg("--extract");
            unpack.arg(entry?.path()).arg(&half).run_quietly()?;
        }
        std::fs::rename(&half, tree)
            .with_context(|| format!("cannot name the folder {}", tree.display()))
    }
}

/// An error without apt's message, which names archives; the message is printed to the terminal.
fn run_reported(tool: Tool, what: impl FnOnce() -> String) -> Result<()> {
    tool.run_quietly().map_err(|error| {
        println!("{error:#}");
        anyhow::anyhow!(what())
    })
}

/// apt-get with every folder that it writes to below `folder`.
fn apt_get(folder: &Path, seconds: u32) -> Tool {
    let mut tool = Tool::new("timeout").args([&seconds.to_string(), "apt-get", "-q"]);
    let at = |part: &str| -> PathBuf { folder.join(part) };
    for (name, value) in [
        ("Dir::State", at("")),
        ("Dir::State::lists", at("lists")),
        ("Dir::State::status", PathBuf::from("/dev/null")),
        ("Dir::Cache", at("cache")),
        ("Dir::Etc::sourcelist", at("sources.list")),
        ("Dir::Etc::sourceparts", at("parts")),
    ] {
        tool = tool.args(["-o", &format!("{name}={}", value.display())]);
    }
    tool
}

/// The archive from which apt gets this system's own release.
fn archive() -> Result<String> {
    let system =
        std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let own = system
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("/etc/os-release has no release name")?;
    let format = "$(CODENAME) $(REPO_URI)";
    let targets = Tool::new("apt-get").args(["indextargets", "--format", format]);
    let targets = targets.output()?;
    let archive = targets
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find_map(|(codename, address)| (codename == own).then(|| address.to_owned()));
    archive.with_context(|| format!("apt is configured with no archive of {own}"))
}
