//! Mounts our libraries over the system's, in a mount namespace of the program (`verbena run --namespace`), for programs that find the
//! libraries in ways that the environment does not affect. Root needs only the mount namespace; other users get a user namespace, in which
//! they keep their user and group, if the kernel allows it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use super::error::Error;
use super::files::{LIBIBVERBS, LIBRDMACM};

/// Moves this process, which must have one thread, into new namespaces and mounts the libraries of `folder` over the system's.
pub fn enter(folder: &Path) -> Result<(), Error> {
    let places = system_libraries()?;
    if places.is_empty() {
        let none = io::Error::from(io::ErrorKind::NotFound);
        let what = "the system has no libibverbs and librdmacm that could be replaced";
        return Err(Error::Namespace(what.to_owned(), none));
    }
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| Error::Namespace(what, error)
    };
    let (user, group) = (geteuid(), getegid());
    let mut flags = UnshareFlags::NEWNS;
    if !user.is_root() {
        flags |= UnshareFlags::NEWUSER;
    }
    unshare(flags).map_err(failed("the kernel does not allow a new namespace"))?;
    if !user.is_root() {
        let (user, group) = (user.as_raw(), group.as_raw());
        for (file, line) in [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("{user} {user} 1")),
            ("gid_map", format!("{group} {group} 1")),
        ] {
            std::fs::write(format!("/proc/self/{file}"), line).map_err(failed(
                "the kernel rejects the user and group maps of the namespace",
            ))?;
        }
    }
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private)
        .map_err(io::Error::from)
        .map_err(failed("cannot make the mounts private to the program"))?;
    for (place, library) in places {
        mount_bind(folder.join(library), &place)
            .map_err(io::Error::from)
            .map_err(failed(&format!("cannot mount over {}", place.display())))?;
    }
    Ok(())
}

#[allow(
    deprecated,
    reason = "its successor is unsafe for a flag that shares descriptors among threads, which is not used"
)]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

/// The files that the dynamic linker's cache contains, and our library for each.
fn system_libraries() -> Result<BTreeSet<(PathBuf, &'static str)>, Error> {
    let listed = ["/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"]
        .iter()
        .find_map(|name| Command::new(name).arg("-p").output().ok());
    let Some(listed) = listed else {
        let error = io::Error::from(io::ErrorKind::NotFound);
        let what = "cannot start ldconfig, which lists the system's libraries";
        return Err(Error::Namespace(what.to_owned(), error));
    };
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let real = |(path, library): (&str, &'static str)| {
        let path = Path::new(path).canonicalize().ok()?;
        Some((path, library))
    };
    Ok(parse_cache(&text).filter_map(real).collect())
}

/// Parses lines such as `libibverbs.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libibverbs.so.1`.
fn parse_cache(text: &str) -> impl Iterator<Item = (&str, &'static str)> {
    text.lines().filter_map(|line| {
        let (what, path) = line.split_once(" => ")?;
        let name = what.split_whitespace().next()?;
        let library = [LIBIBVERBS, LIBRDMACM].into_iter().find(|library| {
            let plain = library.trim_end_matches(".1");
            name == *library || name == plain
        })?;
        Some((path.trim(), library))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_lines_name_file_and_library() {
        let text = "101 libs found in cache\n\
            \tlibrdmacm.so.1 (libc6,x86-64) => /lib/librdmacm.so.1\n\
            \tlibibverbs.so (libc6,x86-64) => /lib/libibverbs.so\n\
            \tlibibverbs.so.1 (libc6,x86-64) => /lib/libibverbs.so.1\n\
            \tlibmlx5.so.1 (libc6,x86-64) => /lib/libmlx5.so.1\n";
        let all: Vec<_> = parse_cache(text).collect();
        assert_eq!(
            all,
            [
                ("/lib/librdmacm.so.1", LIBRDMACM),
                ("/lib/libibverbs.so", LIBIBVERBS),
                ("/lib/libibverbs.so.1", LIBIBVERBS),
            ]
        );
    }
}
