//! `cargo xtask install`: puts the `verbena` command, the drop-in libraries, manual pages, completions and headers below a prefix, and removes
//! them again. `packaging/install.sh` does it, as for the archive, and changes only its own files.
//! They are not put where the dynamic linker searches by default: that is the administrator's decision (docs/dropin.md).

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::command::Tool;
use crate::package::stage::Stage;
use crate::workspace::Workspace;

/// The script, relative to the repository.
const SCRIPT: &str = "packaging/install.sh";

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
    let mut script = workspace.root.join(SCRIPT);
    if !options.uninstall {
        let stage = Stage::build(workspace)?;
        // It installs the files beside itself.
        let beside = stage.folder.join("install.sh");
        std::fs::copy(&script, &beside)?;
        script = beside;
    }
    let mut tool = Tool::new("sh").arg(script);
    if let Some(prefix) = &options.prefix {
        tool = tool.arg("--prefix").arg(std::path::absolute(prefix)?);
    }
    if options.uninstall {
        tool = tool.arg("--uninstall");
    }
    tool.run_quietly()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::package::stage::tests::empty_stage;

    fn script(stage: &Path, args: &[&str]) -> Result<String> {
        Tool::new("sh")
            .arg(stage.join("install.sh"))
            .args(args)
            .output()
    }

    #[test]
    fn uninstall_removes_only_installed_files() {
        let root = empty_stage("install");
        let stage = root.join("stage");
        let source = Workspace::load().unwrap().root.join(SCRIPT);
        std::fs::copy(source, stage.join("install.sh")).unwrap();
        let prefix = root.join("prefix");
        let there = prefix.display().to_string();
        let install = || script(&stage, &["--prefix", &there]).unwrap();
        install();
        let old = prefix.join("lib/verbena/libibverbs.so.1");
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "libibverbs.so.1");
        let link = std::fs::read_link(prefix.join("lib/verbena/libibverbs.so")).unwrap();
        assert_eq!(link.to_str(), Some("libibverbs.so.1"));
        // A file that the next version does not have.
        std::fs::remove_file(stage.join("share/man/man1/verbena.1")).unwrap();
        let beside = prefix.join("bin/other");
        std::fs::write(&beside, "").unwrap();
        assert!(install().contains("ldconfig"));
        assert!(!prefix.join("share/man").exists());
        for _ in 0..2 {
            script(&stage, &["--uninstall", "--prefix", &there]).unwrap();
        }
        assert!(!prefix.join("lib").exists() && !prefix.join("bin/verbena").exists());
        assert!(beside.exists() && !prefix.join("share").exists());
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn names_outside_the_prefix_are_not_removed() {
        let root = std::env::temp_dir().join(format!("xtask-hostile-list-{}", std::process::id()));
        let prefix = root.join("prefix");
        std::fs::create_dir_all(prefix.join("lib/verbena")).unwrap();
        let victim = root.join("victim");
        let source = Workspace::load().unwrap().root.join(SCRIPT);
        std::fs::copy(source, root.join("install.sh")).unwrap();
        for name in [
            "../victim",
            "lib/../../victim",
            &victim.display().to_string(),
        ] {
            std::fs::write(&victim, "").unwrap();
            std::fs::write(prefix.join("lib/verbena/files"), format!("{name}\n")).unwrap();
            let there = prefix.display().to_string();
            assert!(
                script(&root, &["--uninstall", "--prefix", &there]).is_err(),
                "{name}"
            );
            assert!(victim.exists(), "{name}");
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
