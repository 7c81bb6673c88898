//! `cargo xtask install`: copies the `verbena` command and the drop-in libraries below a prefix, and removes them again.
//! It changes only its own files, and prints how programs use them.
//! They are not put where the dynamic linker searches by default: that is the administrator's decision (docs/dropin.md).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::command::Tool;
use crate::dropin;
use crate::workspace::Workspace;

const COMMAND: &str = "verbena";

#[derive(Args)]
pub(crate) struct Options {
    /// Where to install (default: /usr/local as root, else ~/.local)
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Uninstall
    #[arg(long)]
    uninstall: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let prefix = match &options.prefix {
        Some(prefix) => std::path::absolute(prefix)?,
        None => default_prefix()?,
    };
    let place = InstallDirs::below(&prefix);
    if options.uninstall {
        return place.remove();
    }
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
    place.fill(&command, &dropin::folder(workspace))?;
    print!("{}", place.advice());
    Ok(())
}

fn default_prefix() -> Result<PathBuf> {
    let id = Tool::new("id").arg("-u").output()?;
    if id.trim() == "0" {
        return Ok("/usr/local".into());
    }
    let home = std::env::var_os("HOME").context("HOME is not set; use --prefix")?;
    Ok(Path::new(&home).join(".local"))
}

/// The destination folders.
struct InstallDirs {
    bin: PathBuf,
    lib: PathBuf,
}

impl InstallDirs {
    fn below(prefix: &Path) -> InstallDirs {
        InstallDirs {
            bin: prefix.join("bin"),
            lib: prefix.join("lib").join("verbena"),
        }
    }

    fn fill(&self, command: &Path, libraries: &Path) -> Result<()> {
        for folder in [&self.bin, &self.lib] {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        replace(command, &self.bin.join(COMMAND))?;
        for name in dropin::LIBRARIES {
            replace(&libraries.join(name), &self.lib.join(name))?;
        }
        dropin::make_links(&self.lib)
    }

    fn remove(&self) -> Result<()> {
        let links = dropin::LINKS.iter().map(|(name, _)| name);
        let libraries = dropin::LIBRARIES.iter().chain(links);
        let libraries = libraries.map(|name| self.lib.join(name));
        let mut found = false;
        for path in libraries.chain([self.bin.join(COMMAND)]) {
            match std::fs::remove_file(&path) {
                Ok(()) => {
                    found = true;
                    println!("removed {}", path.display());
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                }
            }
        }
        // Fails if other files are in it.
        let _ = std::fs::remove_dir(&self.lib);
        if !found {
            println!("nothing was installed there");
        }
        Ok(())
    }

    fn advice(&self) -> String {
        let (bin, lib) = (self.bin.display(), self.lib.display());
        format!(
            "\n\
             installed  {bin}/{COMMAND}\n\
             installed  {lib}: {}\n\n\
             Programs do not load these libraries by default. One program:   {bin}/{COMMAND} run PROGRAM\n\
             A whole shell:                                                    eval $({bin}/{COMMAND} env)\n\
             The whole machine, instead of its real libibverbs (as root):       echo {lib} > \
             /etc/ld.so.conf.d/00-verbena.conf && ldconfig\n\
             and back: remove that file and run ldconfig again. UCX then still needs LD_PRELOAD={lib}/{}.\n",
            dropin::LIBRARIES.join(" "),
            dropin::SHIM,
        )
    }
}

/// Copied under another name, then renamed atomically: running programs keep the old file.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let mut beside = to.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    std::fs::copy(from, &beside)
        .with_context(|| format!("cannot copy {} to {}", from.display(), beside.display()))?;
    std::fs::rename(&beside, to).with_context(|| format!("cannot replace {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uninstall_removes_only_installed_files() {
        let folder = std::env::temp_dir().join(format!("xtask-install-{}", std::process::id()));
        let from = folder.join("from");
        std::fs::create_dir_all(&from).unwrap();
        for name in dropin::LIBRARIES.iter().chain(&[COMMAND]) {
            std::fs::write(from.join(name), name).unwrap();
        }
        let place = InstallDirs::below(&folder.join("prefix"));
        for _ in 0..2 {
            place.fill(&from.join(COMMAND), &from).unwrap();
        }
        let library = place.lib.join(dropin::LIBIBVERBS);
        assert_eq!(
            std::fs::read_to_string(library).unwrap(),
            dropin::LIBIBVERBS
        );
        let link = std::fs::read_link(place.lib.join("libibverbs.so")).unwrap();
        assert_eq!(link.to_str(), Some(dropin::LIBIBVERBS));
        let beside = place.bin.join("other");
        std::fs::write(&beside, "").unwrap();
        assert!(place.advice().contains("ldconfig"));
        place.remove().unwrap();
        place.remove().unwrap();
        assert!(!place.lib.exists() && !place.bin.join(COMMAND).exists() && beside.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
