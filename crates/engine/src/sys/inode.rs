//! What names a file as long as it is open: its device and inode.
//! The file is neither read nor written.

use std::os::fd::AsFd;

use rustix::fs::fstat;

use super::{Error, Result};

/// The device and inode of an open file.
pub fn inode_of(file: impl AsFd) -> Result<(u64, u64)> {
    let stat = fstat(file).map_err(Error::of("fstat"))?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_of_a_file_have_its_inode() {
        let open = |path: &str| std::fs::File::open(path).unwrap();
        let one = inode_of(open("/dev/null")).unwrap();
        assert_eq!(inode_of(open("/dev/null")).unwrap(), one);
        assert_ne!(inode_of(open("/proc/self/status")).unwrap(), one);
    }
}
