//! Device memory: allocated within the limit of the setting `dm_size`, copied from and to, registered zero-based and accessed by peers.
//! And memory of another device's driver: dmabufs.

use crate::common::*;
use core::ffi::{c_int, c_void};
use core::ptr;
use std::io::Write;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

const ZERO_BASED: u32 = IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

fn alloc(side: &Side, length: usize, log_align_req: u32, comp_mask: u32) -> *mut ibv_dm {
    let alloc_dm = verbs_of(side.context).alloc_dm.unwrap();
    let mut attr = ibv_alloc_dm_attr {
        length,
        log_align_req,
        comp_mask,
    };
    call!(alloc_dm(side.context, &raw mut attr))
}

fn free(side: &Side, dm: *mut ibv_dm) -> c_int {
    let free_dm = verbs_of(side.context).free_dm.unwrap();
    call!(free_dm(dm))
}

fn register(side: &Side, dm: *mut ibv_dm, offset: u64, length: usize, access: u32) -> *mut ibv_mr {
    let reg_dm_mr = verbs_of(side.context).reg_dm_mr.unwrap();
    call!(reg_dm_mr(side.pd, dm, offset, length, access))
}

fn copy_to(dm: *mut ibv_dm, offset: u64, bytes: &[u8]) -> c_int {
    // SAFETY: the test has not freed the memory, and `bytes` is valid for reads.
    unsafe {
        ((*dm).memcpy_to_dm.unwrap())(dm, offset, bytes.as_ptr().cast::<c_void>(), bytes.len())
    }
}

fn copy_from(dm: *mut ibv_dm, offset: u64, len: usize) -> Result<Vec<u8>, c_int> {
    let mut bytes = vec![0; len];
    // SAFETY: the test has not freed the memory, and `bytes` has room for `len` bytes.
    let code = unsafe {
        ((*dm).memcpy_from_dm.unwrap())(bytes.as_mut_ptr().cast::<c_void>(), dm, offset, len)
    };
    if code == 0 { Ok(bytes) } else { Err(code) }
}

#[test]
fn peers_access_device_memory_from_zero() {
    let (mut a, b) = pair(SideParams::default());
    let dm = alloc(&b, 8192, 0, 0);
    assert!(!dm.is_null(), "{}", errno());
    assert_eq!(copy_from(dm, 0, 8192), Ok(vec![0; 8192]));
    assert_eq!(copy_to(dm, 4096, b"device"), 0);
    let mr = register(&b, dm, 4096, 4096, ZERO_BASED);
    assert!(!mr.is_null(), "{}", errno());
    // SAFETY: the region is registered.
    let (rkey, at, length) = unsafe { ((*mr).rkey, (*mr).addr, (*mr).length) };
    assert_eq!((at, length), (ptr::null_mut(), 4096));
    let remote = |at| move |wr: &mut ibv_send_wr| rdma(wr, at, rkey);
    assert_eq!(a.send(1, IBV_WR_RDMA_READ, a.sge(0, 6), remote(0)), 0);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    assert_eq!(a.read(0, 6), b"device");
    a.fill(64, b"peer");
    assert_eq!(a.send(2, IBV_WR_RDMA_WRITE, a.sge(64, 4), remote(4092)), 0);
    expect_completion(a.cq, 2, IBV_WC_SUCCESS);
    assert_eq!(copy_from(dm, 8188, 4), Ok(b"peer".to_vec()));
    // Used as local memory of a request, too.
    let local = ibv_sge {
        addr: 0,
        length: 6,
        lkey: rkey,
    };
    let back = |wr: &mut ibv_send_wr| rdma(wr, a.at(128), a.rkey());
    assert_eq!(b.send(3, IBV_WR_RDMA_WRITE, local, back), 0);
    expect_completion(b.cq, 3, IBV_WC_SUCCESS);
    assert_eq!(a.read(128, 6), b"device");
    // Beyond its end.
    assert_eq!(a.send(4, IBV_WR_RDMA_WRITE, a.sge(64, 4), remote(4093)), 0);
    expect_completion(a.cq, 4, IBV_WC_REM_ACCESS_ERR);
    assert_eq!(free(&b, dm), libc::EBUSY);
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);
    assert_eq!(free(&b, dm), 0);
}

#[test]
fn device_memory_is_limited() {
    let side = Side::new(SideParams::default());
    // No other test of this process allocates that much.
    let most = 15 << 20;
    let dm = alloc(&side, most, 12, 0);
    assert!(!dm.is_null(), "{}", errno());
    assert_refused(alloc(&side, most, 0, 0), libc::ENOMEM, "twice");
    assert_eq!(free(&side, dm), 0);
    let again = alloc(&side, most, 0, 0);
    assert!(!again.is_null(), "what was freed can be allocated");
    assert_eq!(free(&side, again), 0);
    for (what, length, align, mask) in [
        ("empty", 0, 0, 0),
        ("more than the device has", (16 << 20) + 1, 0, 0),
        ("alignment", 64, 31, 0),
        ("unknown attribute", 64, 0, 1),
    ] {
        assert_refused(alloc(&side, length, align, mask), libc::EINVAL, what);
    }
    let alloc_dm = verbs_of(side.context).alloc_dm.unwrap();
    let none = call!(alloc_dm(side.context, ptr::null_mut()));
    assert_refused(none, libc::EINVAL, "no attributes");
    assert_eq!(free(&side, ptr::null_mut()), libc::EINVAL);
}

#[test]
fn wrong_ranges_of_device_memory_are_refused() {
    let side = Side::new(SideParams::default());
    let dm = alloc(&side, 4096, 0, 0);
    for (offset, len) in [(4096, 1), (4000, 97), (u64::MAX, 2)] {
        assert_eq!(copy_to(dm, offset, &vec![1; len]), libc::EFAULT);
        assert_eq!(copy_from(dm, offset, len), Err(libc::EFAULT));
    }
    assert_eq!(
        copy_from(dm, 0, 4096),
        Ok(vec![0; 4096]),
        "nothing was written"
    );
    let none = register(&side, ptr::null_mut(), 0, 64, ZERO_BASED);
    assert_refused(none, libc::EINVAL, "no memory");
    for (what, offset, len, access) in [
        ("too long", 1, 4096, ZERO_BASED),
        ("beyond", 4097, 0, ZERO_BASED),
        ("wraps", u64::MAX, 2, ZERO_BASED),
        ("empty", 0, 0, ZERO_BASED),
        ("not zero-based", 0, 64, IBV_ACCESS_LOCAL_WRITE),
        ("on demand", 0, 64, ZERO_BASED | IBV_ACCESS_ON_DEMAND),
    ] {
        assert_refused(register(&side, dm, offset, len, access), libc::EINVAL, what);
    }
    assert_eq!(free(&side, dm), 0, "no registration is left");
}

#[test]
fn only_rights_of_device_memory_can_change() {
    let side = Side::new(SideParams::default());
    let dm = alloc(&side, 4096, 0, 0);
    let mr = register(&side, dm, 0, 4096, ZERO_BASED);
    let rereg = |flags: u32, access: u32| {
        call!(ibv_rereg_mr(
            mr,
            flags as c_int,
            side.pd,
            side.at(0) as *mut c_void,
            64,
            access as c_int
        ))
    };
    assert_eq!(rereg(IBV_REREG_MR_CHANGE_ACCESS, IBV_ACCESS_REMOTE_READ), 0);
    let refused = (IBV_REREG_MR_ERR_INPUT, libc::EOPNOTSUPP);
    for flags in [IBV_REREG_MR_CHANGE_TRANSLATION, IBV_REREG_MR_CHANGE_PD] {
        assert_eq!((rereg(flags, 0), errno()), refused);
    }
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);
    assert_eq!(free(&side, dm), 0);
}

fn dmabuf(side: &Side, length: usize, iova: u64, fd: c_int, access: c_int) -> *mut ibv_mr {
    call!(ibv_reg_dmabuf_mr(side.pd, 0, length, iova, fd, access))
}

/// NCCL and UCX ask with descriptor -1 whether the adapter can access a GPU's memory; any other number than this one means yes.
#[test]
fn descriptors_that_cannot_be_mapped_are_eopnotsupp() {
    let side = Side::new(SideParams::default());
    assert_refused(dmabuf(&side, 0, 0, -1, 0), libc::EOPNOTSUPP, "as NCCL");
    assert_refused(dmabuf(&side, 4096, 0, -1, ALL), libc::EOPNOTSUPP, "as UCX");
    // SAFETY: a new descriptor, closed below.
    let fd = unsafe { libc::memfd_create(c"no dmabuf".as_ptr(), libc::MFD_CLOEXEC) };
    assert_refused(dmabuf(&side, 4096, 0, fd, ALL), libc::EINVAL, "no dmabuf");
    // SAFETY: opened above, and used by nothing else.
    unsafe { libc::close(fd) };
}

/// `struct udmabuf_create` of `linux/udmabuf.h`.
#[repr(C)]
struct UdmabufCreate {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

/// `_IOW('u', 0x42, struct udmabuf_create)`.
const UDMABUF_CREATE: libc::c_ulong = 0x4018_7542;

/// A dmabuf of a memfd, if the kernel has the driver for it.
fn udmabuf(memfd: c_int, size: usize) -> Option<c_int> {
    // SAFETY: the path is a C string, and `create` is valid during the call; the descriptor of the driver is closed.
    unsafe {
        let driver = libc::open(c"/dev/udmabuf".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if driver < 0 {
            return None;
        }
        let create = UdmabufCreate {
            memfd: memfd as u32,
            flags: 1,
            offset: 0,
            size: size as u64,
        };
        let fd = libc::ioctl(driver, UDMABUF_CREATE, &raw const create);
        libc::close(driver);
        assert!(fd >= 0, "UDMABUF_CREATE: {}", errno());
        Some(fd)
    }
}

#[test]
fn mappable_dmabuf_is_registered() {
    const LEN: usize = 64 << 10;
    const IOVA: u64 = 0x7000_0000;
    // SAFETY: a new file of this size, sealed as the driver needs it.
    let memfd = unsafe {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let fd = libc::memfd_create(c"dmabuf".as_ptr(), flags);
        assert_eq!(libc::ftruncate(fd, LEN as i64), 0);
        assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK), 0);
        fd
    };
    let Some(fd) = udmabuf(memfd, LEN) else {
        // Not by `eprintln`, whose text the test harness shows for failed tests only.
        let said = b"NOT TESTED: registration of a dmabuf, because there is no /dev/udmabuf\n";
        std::io::stderr().write_all(said).unwrap();
        // SAFETY: opened above, and used by nothing else.
        unsafe { libc::close(memfd) };
        return;
    };
    let (mut a, b) = pair(SideParams::default());
    assert_refused(dmabuf(&b, LEN + 1, IOVA, fd, ALL), libc::EINVAL, "too long");
    let mr = dmabuf(&b, LEN, IOVA, fd, ALL & !(IBV_ACCESS_MW_BIND as c_int));
    assert!(!mr.is_null(), "{}", errno());
    a.fill(0, b"to another device");
    // SAFETY: the region is registered.
    let rkey = unsafe { (*mr).rkey };
    let remote = |wr: &mut ibv_send_wr| rdma(wr, IOVA + 100, rkey);
    assert_eq!(a.send(1, IBV_WR_RDMA_WRITE, a.sge(0, 17), remote), 0);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    let mut got = [0; 17];
    // SAFETY: `got` has room for the bytes; the descriptor is open.
    let n = unsafe { libc::pread(memfd, got.as_mut_ptr().cast(), 17, 100) };
    assert_eq!((n, &got), (17, b"to another device"));
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);
    // SAFETY: both were opened here, and are used by nothing else.
    unsafe {
        libc::close(fd);
        libc::close(memfd);
    }
}
