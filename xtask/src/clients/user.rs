//! As whom a case runs: as whoever started xtask, and, if that is root, as an ordinary user too.
//! It promises that the ordinary user has no privilege and owns nothing: the number that Debian calls nobody.
//! It creates no account.

use std::fmt;

/// Debian's `nobody`.
const NOBODY: u32 = 65534;

/// As whom a process is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// As we are.
    Own,
    /// With this number as user and as group.
    Other(u32),
}

impl User {
    /// All that we can be.
    pub(crate) fn all() -> Vec<User> {
        if is_root() {
            vec![User::Own, User::Other(NOBODY)]
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
