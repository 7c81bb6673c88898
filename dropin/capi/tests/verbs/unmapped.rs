//! Registered memory that its program protects or truncates: the request that needs it fails, over TCP and over RoCEv2, and the process goes on.
//! Unmapping is not tried here: another test's thread could map something else at the same addresses.

use crate::common::*;
use crate::datagrams;
use core::ffi::c_void;
use core::ptr;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;
use verbena_testing::own_process;

const LEN: usize = 128 << 10;
/// Framed in one short copy, staged, and left in place for the system call.
const SIZES: [u32; 3] = [16, 8 << 10, 100_000];

/// How the memory becomes inaccessible.
#[derive(Debug, Clone, Copy)]
enum Way {
    Protect,
    Truncate,
}

/// Registered memory of one side.
struct Region {
    at: *mut c_void,
    file: i32,
    mr: *mut ibv_mr,
}

impl Region {
    fn of(side: &Side) -> Region {
        // SAFETY: the file and its mapping are new and have this length; `side` keeps its domain longer than the region exists.
        unsafe {
            let file = libc::memfd_create(c"region".as_ptr(), libc::MFD_CLOEXEC);
            assert_eq!(libc::ftruncate(file, LEN as i64), 0);
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(ptr::null_mut(), LEN, rights, libc::MAP_SHARED, file, 0);
            assert_ne!(at, libc::MAP_FAILED);
            let access = IBV_ACCESS_LOCAL_WRITE
                | IBV_ACCESS_REMOTE_WRITE
                | IBV_ACCESS_REMOTE_READ
                | IBV_ACCESS_REMOTE_ATOMIC;
            let mr = ibv_reg_mr(side.pd, at, LEN, access as i32);
            assert!(!mr.is_null());
            Region { at, file, mr }
        }
    }

    fn make_inaccessible(&self, way: Way) {
        // SAFETY: the mapping and the file belong to this struct, and there is no reference into the mapping.
        let done = unsafe {
            match way {
                Way::Protect => libc::mprotect(self.at, LEN, libc::PROT_NONE),
                Way::Truncate => libc::ftruncate(self.file, 0),
            }
        };
        assert_eq!(done, 0);
    }

    fn piece(&self, length: u32) -> ibv_sge {
        ibv_sge {
            addr: self.at as u64,
            length,
            // SAFETY: `self.mr` is registered until this struct is dropped, even if its memory is unmapped.
            lkey: unsafe { (*self.mr).lkey },
        }
    }

    fn rkey(&self) -> u32 {
        // SAFETY: `self.mr` is registered until this struct is dropped; its keys do not change.
        unsafe { (*self.mr).rkey }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `self` owns region, mapping and descriptor; each is freed here, after its last use, and the region before its memory.
        unsafe {
            assert_eq!(ibv_dereg_mr(self.mr), 0);
            libc::munmap(self.at, LEN);
            libc::close(self.file);
        }
    }
}

/// Two connected sides, each with a region.
struct World {
    // Regions are dropped before the domains that they are registered in.
    at_a: Region,
    at_b: Region,
    a: Side,
    b: Side,
}

/// Runs `case` with new objects for each operation, way and size.
fn for_each_case(opcodes: &[u32], sizes: &[u32], case: impl Fn(&World, u32, Way, u32)) {
    for &opcode in opcodes {
        for way in [Way::Protect, Way::Truncate] {
            for &size in sizes {
                println!("operation {opcode}, {way:?}, {size} bytes");
                let (a, b) = pair(SideParams::default());
                let (at_a, at_b) = (Region::of(&a), Region::of(&b));
                let world = World { at_a, at_b, a, b };
                case(&world, opcode, way, size);
            }
        }
    }
}

#[test]
fn inaccessible_source_fails_its_request() {
    let opcodes = [IBV_WR_SEND, IBV_WR_RDMA_WRITE];
    for_each_case(&opcodes, &SIZES, |world, opcode, way, size| {
        let World { a, b, at_a, at_b } = world;
        assert_eq!(b.receive_into(5, at_b.piece(size)), 0);
        let remote = |wr: &mut ibv_send_wr| rdma(wr, at_b.at as u64, at_b.rkey());
        assert_eq!(a.send(1, IBV_WR_RDMA_WRITE, at_a.piece(64), remote), 0);
        expect_completion(a.cq, 1, IBV_WC_SUCCESS);
        at_a.make_inaccessible(way);
        assert_eq!(a.send(2, opcode, at_a.piece(size), remote), 0);
        expect_completion(a.cq, 2, IBV_WC_LOC_PROT_ERR);
        assert_eq!(a.state(), IBV_QPS_ERR);
    });
}

#[test]
fn requests_before_inaccessible_source_succeed() {
    let (a, b) = pair(SideParams::default());
    let lost = Region::of(&a);
    assert_eq!(b.receive(5, 0, 64), 0);
    lost.make_inaccessible(Way::Protect);
    // One list, so that both are framed before anything is transmitted.
    let (mut good, mut bad) = (a.sge(0, 64), lost.piece(64));
    let mut second = request(2, IBV_WR_SEND);
    (second.sg_list, second.num_sge) = (&raw mut bad, 1);
    let mut first = request(1, IBV_WR_SEND);
    (first.sg_list, first.num_sge) = (&raw mut good, 1);
    first.next = &raw mut second;
    assert_eq!(post_send(a.qp, &raw mut first, &mut ptr::null_mut()), 0);
    expect_completion(b.cq, 5, IBV_WC_SUCCESS);
    expect_completion(a.cq, 1, IBV_WC_SUCCESS);
    expect_completion(a.cq, 2, IBV_WC_LOC_PROT_ERR);
}

#[test]
fn inaccessible_receive_buffer_fails_its_receive() {
    for_each_case(&[IBV_WR_SEND], &SIZES, |world, opcode, way, size| {
        let World { a, b, at_a, at_b } = world;
        assert_eq!(b.receive_into(7, at_b.piece(size)), 0);
        at_b.make_inaccessible(way);
        assert_eq!(a.send(1, opcode, at_a.piece(size), |_| {}), 0);
        expect_completion(b.cq, 7, IBV_WC_LOC_PROT_ERR);
        assert_ne!(next_completion(a.cq).status, IBV_WC_SUCCESS);
    });
}

#[test]
fn inaccessible_sink_fails_its_read() {
    for_each_case(&[IBV_WR_RDMA_READ], &SIZES, |world, opcode, way, size| {
        let World { a, at_a, at_b, .. } = world;
        at_a.make_inaccessible(way);
        let remote = |wr: &mut ibv_send_wr| rdma(wr, at_b.at as u64, at_b.rkey());
        assert_eq!(a.send(1, opcode, at_a.piece(size), remote), 0);
        expect_completion(a.cq, 1, IBV_WC_LOC_PROT_ERR);
    });
}

#[test]
fn inaccessible_remote_memory_fails_the_request() {
    // A Write without an answer succeeds when its bytes are acknowledged: they are not.
    let opcodes = [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ];
    for_each_case(&opcodes, &SIZES, |world, opcode, way, size| {
        let World { a, at_a, at_b, .. } = world;
        at_b.make_inaccessible(way);
        let remote = |wr: &mut ibv_send_wr| rdma(wr, at_b.at as u64, at_b.rkey());
        assert_eq!(a.send(1, opcode, at_a.piece(size), remote), 0);
        let wc = next_completion(a.cq);
        assert_eq!(wc.wr_id, 1);
        assert_ne!(wc.status, IBV_WC_SUCCESS);
    });
}

#[test]
fn inaccessible_target_fails_its_atomic() {
    let opcodes = [IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP];
    for_each_case(&opcodes, &[8], |world, opcode, way, size| {
        let World { a, at_a, at_b, .. } = world;
        at_b.make_inaccessible(way);
        let remote = |wr: &mut ibv_send_wr| {
            wr.wr.atomic.remote_addr = at_b.at as u64;
            wr.wr.atomic.rkey = at_b.rkey();
            wr.wr.atomic.compare_add = 0;
            wr.wr.atomic.swap = 1;
        };
        assert_eq!(a.send(1, opcode, at_a.piece(size), remote), 0);
        assert_ne!(next_completion(a.cq).status, IBV_WC_SUCCESS);
    });
}

#[test]
fn inaccessible_memory_fails_its_datagram() {
    for way in [Way::Protect, Way::Truncate] {
        let (a, b) = (datagrams::side(), datagrams::side());
        let (at_a, at_b) = (Region::of(&a), Region::of(&b));
        let mut attr = a.rtr_attr(0).0.ah_attr;
        let ah = call!(ibv_create_ah(a.pd, &raw mut attr));
        assert!(!ah.is_null());
        let to = ibv_send_wr__wr__ud {
            ah,
            remote_qpn: b.number(),
            remote_qkey: datagrams::QKEY,
        };
        let send = |id| a.send(id, IBV_WR_SEND, at_a.piece(500), |wr| wr.wr.ud = to);
        assert_eq!(b.receive_into(7, at_b.piece(1000)), 0);
        at_b.make_inaccessible(way);
        assert_eq!(send(1), 0);
        expect_completion(a.cq, 1, IBV_WC_SUCCESS);
        expect_completion(b.cq, 7, IBV_WC_LOC_PROT_ERR);
        at_a.make_inaccessible(way);
        assert_eq!(send(2), 0);
        expect_completion(a.cq, 2, IBV_WC_LOC_PROT_ERR);
        assert_eq!(call!(ibv_destroy_ah(ah)), 0);
    }
}

/// Each case again, in a process that uses RoCEv2.
#[test]
fn inaccessible_memory_fails_its_request_over_roce() {
    own_process!();
    // SAFETY: this process was started for this test, and nothing has read the environment yet.
    unsafe {
        std::env::set_var("VERBENA_WIRE", "roce");
        std::env::set_var("VERBENA_DEVICE", "127.0.0.1");
    }
    inaccessible_source_fails_its_request();
    requests_before_inaccessible_source_succeed();
    inaccessible_receive_buffer_fails_its_receive();
    inaccessible_sink_fails_its_read();
    inaccessible_remote_memory_fails_the_request();
    inaccessible_target_fails_its_atomic();
    inaccessible_memory_fails_its_datagram();
}
