//! Writes a tree into a directory of the user's own, named by a hash of its content: processes with the same devices share it.
//! The directory appears complete or not at all, can be written by its owner only, and old ones are removed when new ones come.
//! A base directory that belongs to another user, can be written or replaced by others, or is a link is not used.

use core::hash::{Hash, Hasher};
use std::fs::{self, DirBuilder, Permissions};
use std::hash::DefaultHasher;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use super::tree::{Node, Tree};

const PREFIX: &str = "sysfs-";
/// Trees kept beside the newest.
const MAX_OLD_TREES: usize = 8;
/// A tree is not removed before this age: its process may be about to read it.
const MIN_AGE: Duration = Duration::from_secs(3600);

/// The directory with this tree, written if it is not there.
pub(super) fn directory(tree: &Tree) -> io::Result<PathBuf> {
    let mut last = io::Error::from_raw_os_error(libc::EACCES);
    // SAFETY: `geteuid` takes nothing and always succeeds.
    let user = unsafe { libc::geteuid() };
    for base in bases(user) {
        match store_below(&base, user, tree) {
            Ok(path) => return Ok(path),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Where a user's directory can be, the best first.
fn bases(user: u32) -> Vec<PathBuf> {
    let mut bases = verbena::unstable::runtime::candidates();
    // Before the one in the temporary directory, which may be on a disk.
    let memory = Path::new("/dev/shm").join(format!("verbena-{user}"));
    bases.insert(bases.len().saturating_sub(1), memory);
    bases
}

/// Whether entries of this directory can be replaced by their owner and root only.
fn is_safe(directory: &Path, user: u32) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    fs::metadata(directory).is_ok_and(|found| {
        let kept = found.mode() & OTHERS_WRITE == 0 || found.mode() & STICKY != 0;
        kept && (found.uid() == user || found.uid() == 0)
    })
}

fn store_below(base: &Path, user: u32, tree: &Tree) -> io::Result<PathBuf> {
    let refused = || io::Error::from_raw_os_error(libc::EACCES);
    if !base.parent().is_some_and(|above| is_safe(above, user)) {
        return Err(refused());
    }
    match DirBuilder::new().mode(0o755).create(base) {
        // Independent of the umask: programs that give up root's rights must be able to read it.
        Ok(()) => fs::set_permissions(base, Permissions::from_mode(0o755))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let found = fs::symlink_metadata(base)?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        return Err(refused());
    }
    let path = base.join(name(tree));
    if path.is_dir() {
        return Ok(path);
    }
    prune(base);
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let beside = base.join(format!(".{}-{count}", std::process::id()));
    let _ = fs::remove_dir_all(&beside);
    let written = write(&beside, tree).and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        let _ = fs::remove_dir_all(&beside);
    }
    // Another process may have written it first: its tree is the same.
    match written {
        Err(_) if path.is_dir() => Ok(path),
        other => other.map(|()| path),
    }
}

fn name(tree: &Tree) -> String {
    let mut hasher = DefaultHasher::new();
    tree.nodes.hash(&mut hasher);
    format!("{PREFIX}{:016x}", hasher.finish())
}

fn write(root: &Path, tree: &Tree) -> io::Result<()> {
    create_directory(root)?;
    for (path, node) in &tree.nodes {
        let path = root.join(path);
        let above = path.parent().unwrap_or(root);
        if !above.is_dir() {
            let missing: Vec<&Path> = above.ancestors().take_while(|a| !a.is_dir()).collect();
            for path in missing.into_iter().rev() {
                create_directory(path)?;
            }
        }
        match node {
            Node::File(content) => {
                fs::write(&path, content)?;
                fs::set_permissions(&path, Permissions::from_mode(0o444))?;
            }
            Node::Link(target) => symlink(target, &path)?,
        }
    }
    Ok(())
}

fn create_directory(path: &Path) -> io::Result<()> {
    fs::create_dir(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

/// Removes the oldest trees, and incomplete ones of processes that were killed.
fn prune(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    let now = SystemTime::now();
    let mut old: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    old.sort_by(|a, b| b.cmp(a));
    for (at, (time, path)) in old.into_iter().enumerate() {
        let half = path.file_name().is_some_and(|name| {
            let name = name.as_encoded_bytes();
            name.starts_with(b".")
        });
        let age = now.duration_since(time).unwrap_or_default();
        if age > MIN_AGE && (at >= MAX_OLD_TREES || half) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Node, Tree};
    use super::*;

    fn tree(content: &str) -> Tree {
        let mut tree = Tree::default();
        let file = Node::File(content.to_owned());
        tree.nodes.insert("a/b/c".to_owned(), file);
        let link = Node::Link("../a/b".to_owned());
        tree.nodes.insert("d/e".to_owned(), link);
        tree
    }

    fn base(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("verbena-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn user() -> u32 {
        // SAFETY: `geteuid` takes nothing and always succeeds.
        unsafe { libc::geteuid() }
    }

    #[test]
    fn equal_trees_share_a_directory() {
        let base = base("store");
        let one = store_below(&base, user(), &tree("1")).unwrap();
        assert_eq!(store_below(&base, user(), &tree("1")).unwrap(), one);
        let two = store_below(&base, user(), &tree("2")).unwrap();
        assert_ne!(one, two);
        assert_eq!(fs::read_to_string(one.join("d/e/c")).unwrap(), "1");
        assert_eq!(fs::read_dir(&base).unwrap().count(), 2);
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn directories_open_to_others_are_refused() {
        let base = base("open");
        fs::create_dir(&base).unwrap();
        fs::set_permissions(&base, Permissions::from_mode(0o777)).unwrap();
        assert!(store_below(&base, user(), &tree("1")).is_err());
        fs::set_permissions(&base, Permissions::from_mode(0o755)).unwrap();
        assert!(store_below(&base, user() + 1, &tree("1")).is_err());
        assert!(store_below(&base, user(), &tree("1")).is_ok());
        let above = base.join("above");
        fs::create_dir(&above).unwrap();
        fs::set_permissions(&above, Permissions::from_mode(0o777)).unwrap();
        assert!(store_below(&above.join("below"), user(), &tree("1")).is_err());
        let link = base.with_extension("link");
        symlink(&base, &link).unwrap();
        assert!(store_below(&link, user(), &tree("1")).is_err());
        fs::remove_file(&link).unwrap();
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn threads_can_write_one_tree_at_once() {
        let base = base("race");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| store_below(&base, user(), &tree("1")).unwrap());
            }
        });
        assert_eq!(fs::read_dir(&base).unwrap().count(), 1);
        fs::remove_dir_all(&base).unwrap();
    }
}
