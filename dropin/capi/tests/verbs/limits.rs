//! The limits that the device reports are those that it enforces: so many objects can be created, one more fails with `ENOMEM`, and all can
//! be destroyed again. In a process of its own, since it uses up all objects.

use core::ptr;
use std::ffi::c_int;

use verbena_capi::abi::*;
use verbena_capi::verbs::*;
use verbena_testing::own_process;

use crate::common::*;

/// Creates `count` objects, fails to create one more, and destroys all; then one can be created again.
fn exhaust<T>(
    what: &str,
    count: usize,
    make: impl Fn() -> *mut T,
    destroy: impl Fn(*mut T) -> c_int,
) {
    let mut all = Vec::with_capacity(count);
    for at in 0..count {
        let object = make();
        assert!(!object.is_null(), "{what} {at} of {count}: {}", errno());
        all.push(object);
    }
    assert_refused(make(), libc::ENOMEM, what);
    for object in all {
        assert_eq!(destroy(object), 0, "{what}");
    }
    let object = make();
    assert!(!object.is_null(), "{what} again: {}", errno());
    assert_eq!(destroy(object), 0, "{what}");
}

#[test]
fn reported_object_limits_are_enforced() {
    own_process!();
    let side = Side::new(SideParams {
        shared: 4,
        ..SideParams::default()
    });
    let mut device = ibv_device_attr::zeroed();
    assert_eq!(call!(ibv_query_device(side.context, &raw mut device)), 0);
    let others = |limit: c_int| limit as usize - 1;
    exhaust(
        "domains",
        others(device.max_pd),
        || call!(ibv_alloc_pd(side.context)),
        |pd| call!(ibv_dealloc_pd(pd)),
    );
    exhaust(
        "shared queues",
        others(device.max_srq),
        || {
            let mut attr = ibv_srq_init_attr::zeroed();
            attr.attr.max_wr = 1;
            call!(ibv_create_srq(side.pd, &raw mut attr))
        },
        |srq| call!(ibv_destroy_srq(srq)),
    );
    let at = side.memory.as_ptr().cast_mut();
    exhaust(
        "regions",
        others(device.max_mr),
        || call!(ibv_reg_mr(side.pd, at.cast(), 64, 0)),
        |mr| call!(ibv_dereg_mr(mr)),
    );
    descriptors(&side);
}

/// Completion queues have a descriptor each: at the process's limit creation fails with that error, and nothing is lost.
fn descriptors(side: &Side) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let many = || {
        let make = || {
            call!(ibv_create_cq(
                side.context,
                1,
                ptr::null_mut(),
                ptr::null_mut(),
                0
            ))
        };
        let all: Vec<_> = core::iter::repeat_with(make)
            .take_while(|cq| !cq.is_null())
            .collect();
        let number = errno();
        for cq in &all {
            assert_eq!(call!(ibv_destroy_cq(*cq)), 0);
        }
        (all.len(), number)
    };
    // SAFETY: `limit` is a local; the limit is this process's, which runs no other test.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = 300;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    let (first, number) = many();
    assert_eq!(number, libc::EMFILE);
    assert!(first > 100, "{first}");
    assert_eq!(many(), (first, libc::EMFILE), "as many as before");
    let channel = call!(ibv_create_comp_channel(side.context));
    assert!(!channel.is_null());
    assert_eq!(call!(ibv_destroy_comp_channel(channel)), 0);
}
