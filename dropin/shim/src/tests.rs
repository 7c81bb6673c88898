//! The shim in the test's own process, where its functions come before the C library's.

use std::fs;
use std::os::unix::fs::FileTypeExt;

use super::*;

#[test]
fn device_file_appears_as_character_device() {
    for path in ["/dev/infiniband/uverbs0", "/dev/infiniband/uverbs17"] {
        let seen = fs::metadata(path).unwrap();
        assert!(seen.file_type().is_char_device(), "{path}");
        let seen = fs::symlink_metadata(path).unwrap();
        assert!(seen.file_type().is_char_device(), "{path}");
    }
    let path = c"/dev/infiniband/uverbs0".as_ptr();
    // SAFETY: `path` is a C string literal.
    unsafe {
        assert_eq!(access(path, libc::R_OK | libc::W_OK), 0);
        assert_eq!(faccessat(libc::AT_FDCWD, path, libc::R_OK, 0), 0);
        assert_eq!(euidaccess(path, libc::W_OK), 0);
    }
}

#[test]
fn every_other_path_is_left_alone() {
    for path in ["/dev/infiniband", "/dev/infiniband/uverb", "/no/such/file"] {
        let error = fs::metadata(path);
        // A machine with an adapter has the folder.
        if let Err(error) = error {
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{path}");
        }
    }
    assert!(fs::metadata("/").unwrap().is_dir());
    for path in [
        c"",
        c"/",
        c"/dev/infiniband/uverb",
        c"dev/infiniband/uverbs0",
    ] {
        // SAFETY: `path` is a C string.
        let same = unsafe { redirect(path.as_ptr(), &mut Buffer::uninit()) };
        assert_eq!(same, path.as_ptr());
    }
    // SAFETY: null is allowed.
    assert!(unsafe { redirect(core::ptr::null(), &mut Buffer::uninit()) }.is_null());
}

#[test]
fn errno_is_unchanged_on_success() {
    // SAFETY: `__errno_location` returns this thread's own variable; the paths are C strings, and `place` has room for the result.
    unsafe {
        *libc::__errno_location() = 77;
        let mut place = core::mem::zeroed::<libc::stat>();
        let to = (&raw mut place).cast();
        assert_eq!(stat(c"/dev/infiniband/uverbs0".as_ptr(), to), 0);
        assert_eq!(*libc::__errno_location(), 77);
        assert_eq!(lstat(c"/no/such/file".as_ptr(), to), -1);
        assert_eq!(*libc::__errno_location(), libc::ENOENT);
    }
}

#[test]
fn missing_libc_function_returns_enosys() {
    let slot = AtomicPtr::new(core::ptr::null_mut());
    assert!(next_symbol(&slot, c"no_such_function_anywhere").is_null());
    assert_eq!(fail_enosys::<c_int>(), -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::ENOSYS)
    );
}
