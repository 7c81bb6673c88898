//! The users that a case runs as: the one that started xtask, and, if that is root, an unprivileged one too.
//! The unprivileged user is Debian's account 65534, which owns no files. No account is created.

use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Debian's unprivileged account.
const OTHER_UID: u32 = 65534;

/// The user that a process is started as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// The user of this process.
    Own,
    /// With this number as user and as group.
    Other(u32),
}

impl User {
    /// All users that this process can start others as.
    pub(crate) fn all() -> Vec<User> {
        if is_root() {
            vec![User::Own, User::Other(OTHER_UID)]
        } else {
            vec![User::Own]
        }
    }
}

impl User {
    /// Creates a mount namespace by another program than ours, for users that are not root within a user namespace.
    pub(crate) fn try_mount_namespace(self) -> Result<()> {
        let mut command = Command::new("unshare");
        command.arg("--mount");
        match self {
            User::Other(id) => {
                command.arg("--user").uid(id).gid(id);
            }
            User::Own if !is_root() => {
                command.arg("--user");
            }
            User::Own => {}
        }
        let output = command
            .arg("true")
            .output()
            .context("cannot start unshare")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            User::Own if is_root() => f.write_str("root"),
            User::Own => f.write_str("user"),
            User::Other(_) => f.write_str("nobody"),
        }
    }
}
