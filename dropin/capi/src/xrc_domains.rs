//! The XRC domains of a function, found by the device and inode of the file that names them.
//! A domain exists as long as a handle of it; its file is kept open meanwhile, so that the inode names no other file.

use core::ffi::c_int;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use verbena::Device;
use verbena::low::{XrcOpen, Xrcd};

use crate::errno::Errno;

/// A domain, of which a program may have several handles.
pub(crate) struct SharedDomain {
    xrcd: Xrcd,
    _file: Option<File>,
}

impl SharedDomain {
    fn new(xrcd: Xrcd, file: Option<File>) -> Arc<SharedDomain> {
        Arc::new(SharedDomain { xrcd, _file: file })
    }

    pub(crate) fn xrcd(&self) -> &Xrcd {
        &self.xrcd
    }
}

/// The domains that files name.
#[derive(Default)]
pub(crate) struct XrcDomains(Mutex<HashMap<(u64, u64), Weak<SharedDomain>>>);

impl XrcDomains {
    /// The domain of a file, or a new one without a file (-1). As the kernel does: `EAGAIN` for a file without a domain if none shall be
    /// created, `EINVAL` for one with a domain, in this process or another one, if there shall be none (`O_EXCL`). `share` is called with one
    /// that this process did not have before.
    pub(crate) fn open(
        &self,
        device: &Device,
        fd: c_int,
        oflags: c_int,
        share: impl FnOnce(&Arc<SharedDomain>),
    ) -> Result<Arc<SharedDomain>, Errno> {
        let creates = oflags & libc::O_CREAT != 0;
        let open = match (creates, oflags & libc::O_EXCL != 0) {
            (false, _) => XrcOpen::Existing,
            (true, false) => XrcOpen::Create,
            (true, true) => XrcOpen::CreateNew,
        };
        if fd == -1 {
            return match creates {
                true => Ok(SharedDomain::new(device.xrcd()?, None)),
                false => Err(Errno::INVAL),
            };
        }
        let file = duplicate(fd)?;
        let inode = file.metadata().map_err(|error| system(&error))?;
        let key = (inode.dev(), inode.ino());
        let mut domains = self.0.lock();
        domains.retain(|_, domain| domain.strong_count() > 0);
        match domains.get(&key).and_then(Weak::upgrade) {
            Some(_) if open == XrcOpen::CreateNew => Err(Errno::INVAL),
            Some(domain) => Ok(domain),
            None => {
                let xrcd = device.xrcd_of_file(&file, open)?;
                let domain = SharedDomain::new(xrcd, Some(file));
                share(&domain);
                domains.insert(key, Arc::downgrade(&domain));
                Ok(domain)
            }
        }
    }
}

fn duplicate(fd: c_int) -> Result<File, Errno> {
    if fd < 0 {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: the descriptor is not negative, and is borrowed for this call only, which duplicates it; a closed one is an error of the system.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let owned = fd.try_clone_to_owned().map_err(|error| system(&error))?;
    Ok(File::from(owned))
}

fn system(error: &io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}
