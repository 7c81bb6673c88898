//! The users that a case runs as: the one that started xtask, and, if that is root, an unprivileged one too.
//! The unprivileged user is Debian's account 65534, which owns no files. No account is created.

use std::fmt;

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
