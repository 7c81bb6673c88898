//! Functions as devices of the C face (V1): each is opened by itself, has limits of its own, and refuses objects of another.
//! Alone in its process, since the settings are read once.

mod common;

use common::*;
use std::ffi::{CStr, c_int};
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

fn new_cq(context: *mut ibv_context) -> *mut ibv_cq {
    // SAFETY: an open device.
    unsafe { ibv_create_cq(context, 8, core::ptr::null_mut(), core::ptr::null_mut(), 0) }
}

fn new_qp(pd: *mut ibv_pd, send: *mut ibv_cq, recv: *mut ibv_cq) -> *mut ibv_qp {
    let mut attr = ibv_qp_init_attr::zeroed();
    (attr.send_cq, attr.recv_cq) = (send, recv);
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_wr = 1;
    attr.cap.max_recv_wr = 1;
    attr.cap.max_send_sge = 1;
    attr.cap.max_recv_sge = 1;
    // SAFETY: objects that are there.
    unsafe { ibv_create_qp(pd, &raw mut attr) }
}

#[test]
fn functions_are_devices_that_share_nothing() {
    // SAFETY: nothing else runs in this process yet.
    unsafe {
        std::env::set_var("VERBENA_FUNCTIONS", "2");
        std::env::set_var("VERBENA_MAX_CQS", "3");
        std::env::set_var("VERBENA_DEVICE", "127.0.0.1");
    }
    // SAFETY: as the manual says; what is made is destroyed once.
    unsafe {
        let mut count: c_int = 0;
        let list = ibv_get_device_list(&raw mut count);
        assert_eq!(count, 3);
        let devices: Vec<*mut ibv_device> = (0..3).map(|at| *list.add(at)).collect();
        assert!((*list.add(3)).is_null());
        ibv_free_device_list(list);
        let name = |&device: &*mut ibv_device| {
            CStr::from_ptr(ibv_get_device_name(device))
                .to_str()
                .unwrap()
        };
        let names: Vec<&str> = devices.iter().map(name).collect();
        assert_eq!(names, ["verbena0", "verbena0v1", "verbena0v2"]);
        let guid = |&device: &*mut ibv_device| ibv_get_device_guid(device);
        assert_ne!(guid(&devices[0]), guid(&devices[1]));
        // The physical function is not opened by the program, and is there all the same.
        let (a, b) = (ibv_open_device(devices[1]), ibv_open_device(devices[2]));
        assert!(!a.is_null() && !b.is_null(), "{}", errno());
        assert_eq!(((*a).device, (*b).device), (devices[1], devices[2]));
        let (pd_a, pd_b) = (ibv_alloc_pd(a), ibv_alloc_pd(b));
        let (cq_a, cq_b) = (new_cq(a), new_cq(b));
        refused(new_qp(pd_a, cq_b, cq_a), libc::EINVAL, "a send queue");
        refused(new_qp(pd_a, cq_a, cq_b), libc::EINVAL, "a receive queue");
        refused(new_qp(pd_b, cq_a, cq_a), libc::EINVAL, "a domain");
        let qp = new_qp(pd_a, cq_a, cq_a);
        assert!(!qp.is_null(), "{}", errno());
        // Each has its own share.
        let more = [new_cq(a), new_cq(a)];
        refused(new_cq(a), libc::ENOMEM, "one too many");
        let other = new_cq(b);
        assert!(!other.is_null(), "{}", errno());
        assert_eq!(ibv_destroy_qp(qp), 0);
        for cq in [cq_a, cq_b, more[0], more[1], other] {
            assert_eq!(ibv_destroy_cq(cq), 0);
        }
        assert_eq!((ibv_dealloc_pd(pd_a), ibv_dealloc_pd(pd_b)), (0, 0));
        assert_eq!((ibv_close_device(a), ibv_close_device(b)), (0, 0));
        // It can be opened again, as another function.
        let again = ibv_open_device(devices[1]);
        assert!(!again.is_null(), "{}", errno());
        assert_eq!(ibv_close_device(again), 0);
    }
}
