//! Moves this process into the namespaces of a host (`verbena lab run`). The working directory stays the same path.

use super::control::{Client, Reply, Request, unexpected};
use super::error::{LabError, failed};
use super::namespaces;
use std::os::fd::AsFd;

use rustix::fs::fstat;

/// Enters a host of a lab. The process has one thread.
pub fn enter(client: &Client, host: &str) -> Result<(), LabError> {
    let (kinds, fds) = match client.ask(&Request::Enter(host.to_owned()))? {
        (Reply::Entered(kinds), fds) => (kinds, fds),
        (other, _) => return Err(unexpected(&other)),
    };
    let folder = std::env::current_dir();
    for (name, fd) in kinds.iter().zip(&fds) {
        let what = format!("cannot enter the {name} namespace of host {host}");
        let kind = namespaces::kind(name).ok_or_else(|| LabError(what.clone()))?;
        // Entering the user namespace that a process is in is an error.
        let own = std::fs::metadata(format!("/proc/self/ns/{name}"));
        let target = fstat(fd.as_fd()).map_err(failed(&what))?;
        let same = own.is_ok_and(|own| {
            use std::os::unix::fs::MetadataExt;
            (own.dev(), own.ino()) == (target.st_dev, target.st_ino)
        });
        if !same {
            rustix::thread::move_into_link_name_space(fd.as_fd(), Some(kind))
                .map_err(failed(&what))?;
        }
    }
    if let Ok(folder) = folder {
        // Entering a mount namespace has changed it to the root.
        let _ = std::env::set_current_dir(folder);
    }
    Ok(())
}
