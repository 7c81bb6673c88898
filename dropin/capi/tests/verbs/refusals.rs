//! Objects that cannot be created: null, too large, unknown bits and numbers. Every call fails with the original's error and has no effect.

use crate::common::*;
use core::ptr;
use std::ffi::{CStr, c_int};
use verbena_capi::abi::*;
use verbena_capi::identity;
use verbena_capi::verbs::*;

const EINVAL: c_int = libc::EINVAL;

#[test]
fn foreign_and_missing_devices_are_not_opened() {
    // SAFETY: null pointers, which the library must check before it dereferences them.
    unsafe {
        assert_refused(ibv_open_device(ptr::null_mut()), libc::ENODEV, "null");
        let mut foreign = ibv_device::zeroed();
        assert_refused(ibv_open_device(&raw mut foreign), libc::ENODEV, "foreign");
        assert!(ibv_get_device_name(ptr::null_mut()).is_null());
        ibv_free_device_list(ptr::null_mut());
        assert_refused(ibv_import_device(0), libc::EOPNOTSUPP, "import");
    }
}

/// A program duplicates its command descriptor and passes it to another, which asks whether it can import the device.
#[test]
fn importing_by_descriptor_is_not_supported() {
    let context = open();
    // SAFETY: `context` is open; `copy` is a descriptor of this test, which closes it.
    unsafe {
        let copy = libc::dup((*context).cmd_fd);
        assert!(copy >= 0, "{}", errno());
        assert_refused(ibv_import_device(copy), libc::EOPNOTSUPP, "device");
        assert_eq!(libc::close(copy), 0);
        assert_refused(ibv_import_dm(context, 0), libc::EOPNOTSUPP, "dm");
        assert_eq!(ibv_close_device(context), 0);
    }
}

#[test]
fn device_reports_vendor_part_and_versions() {
    let context = open();
    let mut device = ibv_device_attr::zeroed();
    // SAFETY: `context` is open until the end of the test; `device` is a local.
    unsafe {
        assert_eq!(ibv_query_device(context, &raw mut device), 0);
        assert_eq!(ibv_close_device(context), 0);
        let version = CStr::from_ptr(device.fw_ver.as_ptr());
        assert_eq!(version.to_str(), Ok(identity::FW_VERSION));
    }
    assert_eq!(device.vendor_id, 0x02_5642);
    assert_eq!(device.vendor_part_id, 1);
    assert_eq!(device.hw_ver, identity::HW_VERSION);
    // The bit that marks an OUI as locally administered.
    assert_ne!(device.vendor_id & 0x02_0000, 0);
}

#[test]
fn null_arguments_are_refused() {
    let side = Side::new(SideParams::default());
    let null = ptr::null_mut();
    // SAFETY: null pointers, which the library must check before it dereferences them.
    unsafe {
        assert_refused(ibv_alloc_pd(ptr::null_mut()), EINVAL, "pd");
        assert_refused(ibv_create_comp_channel(ptr::null_mut()), EINVAL, "channel");
        let cq = ibv_create_cq(ptr::null_mut(), 1, null, ptr::null_mut(), 0);
        assert_refused(cq, EINVAL, "cq");
        assert_refused(ibv_reg_mr(ptr::null_mut(), null, 1, 0), EINVAL, "mr");
        assert_refused(ibv_create_srq(side.pd, ptr::null_mut()), EINVAL, "srq");
        let mut attr = ibv_srq_init_attr::zeroed();
        attr.attr.max_wr = 1;
        assert_refused(
            ibv_create_srq(ptr::null_mut(), &raw mut attr),
            EINVAL,
            "srq",
        );
        assert_refused(ibv_create_qp(side.pd, ptr::null_mut()), EINVAL, "qp");
        assert_refused(
            ibv_create_qp(ptr::null_mut(), &mut side.init()),
            EINVAL,
            "qp",
        );
        assert_refused(ibv_create_ah(side.pd, ptr::null_mut()), EINVAL, "ah");
        assert_refused(alloc_mw(side.pd, 7), EINVAL, "mw");
        let verbs = verbs_of(side.context);
        assert_refused(
            verbs.create_cq_ex.unwrap()(side.context, ptr::null_mut()),
            EINVAL,
            "cq",
        );
        assert_refused(
            verbs.create_qp_ex.unwrap()(side.context, ptr::null_mut()),
            EINVAL,
            "qp",
        );
        assert_refused(
            verbs.create_srq_ex.unwrap()(side.context, ptr::null_mut()),
            EINVAL,
            "srq",
        );
        assert_eq!(ibv_close_device(ptr::null_mut()), EINVAL);
        assert_eq!(ibv_dealloc_pd(ptr::null_mut()), EINVAL);
        assert_eq!(ibv_dereg_mr(ptr::null_mut()), EINVAL);
        assert_eq!(ibv_destroy_cq(ptr::null_mut()), EINVAL);
        assert_eq!(ibv_destroy_qp(ptr::null_mut()), EINVAL);
        assert_eq!(ibv_destroy_srq(ptr::null_mut()), EINVAL);
        assert_eq!(ibv_destroy_ah(ptr::null_mut()), EINVAL);
        assert_eq!(ibv_destroy_comp_channel(ptr::null_mut()), EINVAL);
        assert_eq!(ibv_query_device(side.context, ptr::null_mut()), EINVAL);
        assert_eq!(ibv_query_port(side.context, 1, ptr::null_mut()), EINVAL);
        assert_eq!(ibv_query_srq(ptr::null_mut(), ptr::null_mut()), EINVAL);
        assert_eq!(ibv_modify_srq(ptr::null_mut(), ptr::null_mut(), 0), EINVAL);
        assert_eq!(ibv_modify_qp(side.qp, ptr::null_mut(), 1), EINVAL);
        assert_eq!(
            ibv_query_qp(side.qp, ptr::null_mut(), 1, ptr::null_mut()),
            EINVAL
        );
        assert_eq!(ibv_resize_cq(ptr::null_mut(), 4), EINVAL);
        let code = ibv_get_cq_event(ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        assert_eq!((code, errno()), (-1, EINVAL));
        let code = ibv_get_async_event(ptr::null_mut(), ptr::null_mut());
        assert_eq!((code, errno()), (-1, EINVAL));
        // They cannot return an error.
        ibv_ack_cq_events(ptr::null_mut(), 1);
        ibv_ack_async_event(ptr::null_mut());
        assert!(ibv_qp_to_qp_ex(ptr::null_mut()).is_null());
        assert!(ibv_qp_to_qp_ex(side.qp).is_null(), "not made for it");
    }
}

#[test]
fn invalid_cq_sizes_and_vectors_are_refused() {
    let side = Side::new(SideParams::default());
    let context = side.context;
    let mut device = ibv_device_attr::zeroed();
    // SAFETY: `side` keeps its context and its queue until it is dropped; attributes are locals.
    unsafe {
        assert_eq!(ibv_query_device(context, &raw mut device), 0);
        let make = |entries, vector| {
            ibv_create_cq(context, entries, ptr::null_mut(), ptr::null_mut(), vector)
        };
        for entries in [0, -1, c_int::MIN, device.max_cqe + 1, c_int::MAX] {
            assert_refused(make(entries, 0), EINVAL, &format!("{entries} entries"));
        }
        for vector in [-1, (*context).num_comp_vectors, c_int::MAX] {
            assert_refused(make(4, vector), EINVAL, &format!("vector {vector}"));
        }
        for entries in [0, -1, device.max_cqe + 1, c_int::MAX] {
            assert_eq!(ibv_resize_cq(side.cq, entries), EINVAL, "{entries} entries");
        }
        assert_eq!((*side.cq).cqe, side.params.entries);

        let create = verbs_of(context).create_cq_ex.unwrap();
        let good = ibv_cq_init_attr_ex {
            cqe: 4,
            ..ibv_cq_init_attr_ex::zeroed()
        };
        type Change = fn(&mut ibv_cq_init_attr_ex);
        let wrong: [(Change, c_int); 10] = [
            (|a| a.cqe = 0, EINVAL),
            (|a| a.cqe = u32::MAX, EINVAL),
            (|a| a.comp_vector = u32::MAX, EINVAL),
            (|a| a.comp_mask = 1 << 30, libc::EOPNOTSUPP),
            (|a| a.wc_flags = 1 << 40, libc::EOPNOTSUPP),
            (
                |a| a.wc_flags = IBV_WC_EX_WITH_FLOW_TAG.into(),
                libc::EOPNOTSUPP,
            ),
            (
                |a| a.wc_flags = IBV_WC_EX_WITH_CVLAN.into(),
                libc::EOPNOTSUPP,
            ),
            // Without a domain.
            (|a| a.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, EINVAL),
            (|a| a.wc_flags = u64::MAX, libc::EOPNOTSUPP),
            (
                |a| {
                    a.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
                    a.flags = 1 << 20;
                },
                libc::EOPNOTSUPP,
            ),
        ];
        for (at, (change, number)) in wrong.into_iter().enumerate() {
            let mut attr = good;
            change(&mut attr);
            assert_refused(
                create(context, &raw mut attr),
                number,
                &format!("case {at}"),
            );
        }
    }
}

#[test]
fn unmapped_memory_and_invalid_access_are_refused() {
    let side = Side::new(SideParams::default());
    let mut memory = [0_u8; 64];
    let at = memory.as_mut_ptr().cast();
    // SAFETY: the library must detect memory that is not mapped.
    unsafe {
        let write = IBV_ACCESS_LOCAL_WRITE as c_int;
        assert_refused(ibv_reg_mr(side.pd, at, 0, write), EINVAL, "no length");
        assert_refused(ibv_reg_mr(side.pd, at, usize::MAX, write), EINVAL, "wraps");
        assert_refused(
            ibv_reg_mr(side.pd, ptr::without_provenance_mut(4096), 64, write),
            libc::EFAULT,
            "unmapped",
        );
        assert_refused(
            ibv_reg_mr(side.pd, b"read only".as_ptr().cast_mut().cast(), 9, write),
            libc::EFAULT,
            "read-only",
        );
        for access in [
            IBV_ACCESS_REMOTE_WRITE as c_int,
            IBV_ACCESS_REMOTE_ATOMIC as c_int,
            1 << 19,
            c_int::MIN,
        ] {
            let mr = ibv_reg_mr(side.pd, at, 64, access);
            assert_refused(mr, EINVAL, &format!("access {access:#x}"));
        }
        // Bits that may be ignored are.
        let mr = ibv_reg_mr_iova2(
            side.pd,
            at,
            64,
            at as u64,
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_OPTIONAL_RANGE,
        );
        assert!(!mr.is_null());
        assert_eq!(((*mr).addr, (*mr).length), (at, 64));
        let (all, keep) = ((*mr).lkey, ptr::null_mut());
        for (flags, addr, length, access, number) in [
            (8, at, 64, 0, IBV_REREG_MR_ERR_INPUT),
            (-1, at, 64, 0, IBV_REREG_MR_ERR_INPUT),
            // A new translation needs an address, and rights without their flag are an error.
            (1, at, 0, 0, IBV_REREG_MR_ERR_INPUT),
            (1, keep, 64, 0, IBV_REREG_MR_ERR_INPUT),
            (1, at, 64, write, IBV_REREG_MR_ERR_INPUT),
            (
                4,
                keep,
                0,
                IBV_ACCESS_REMOTE_WRITE as c_int,
                IBV_REREG_MR_ERR_CMD,
            ),
            (
                1,
                ptr::without_provenance_mut(4096),
                64,
                0,
                IBV_REREG_MR_ERR_CMD,
            ),
        ] {
            let code = ibv_rereg_mr(mr, flags, ptr::null_mut(), addr, length, access);
            assert_eq!(code, number, "{flags} {length} {access}");
            assert_ne!(errno(), 0);
        }
        let null = ptr::null_mut();
        let code = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD as c_int, null, keep, 0, 0);
        assert_eq!((code, errno()), (IBV_REREG_MR_ERR_INPUT, EINVAL));
        assert_eq!((*mr).lkey, all, "as it was");
        assert_eq!(ibv_dereg_mr(mr), 0);
        assert_refused(ibv_import_mr(side.pd, 0), libc::EOPNOTSUPP, "import");
        assert_refused(ibv_import_pd(side.context, 0), libc::EOPNOTSUPP, "import");
    }
}

#[test]
fn invalid_queue_pair_attributes_are_refused() {
    let side = Side::new(SideParams::default());
    let mut device = ibv_device_attr::zeroed();
    assert_eq!(call!(ibv_query_device(side.context, &raw mut device)), 0);
    type Change = Box<dyn Fn(&mut ibv_qp_init_attr)>;
    let (wrs, sges) = (device.max_qp_wr as u32, device.max_sge as u32);
    let wrong: Vec<(Change, c_int)> = vec![
        (Box::new(move |a| a.cap.max_send_wr = wrs + 1), EINVAL),
        (Box::new(move |a| a.cap.max_recv_wr = wrs + 1), EINVAL),
        (Box::new(move |a| a.cap.max_send_sge = sges + 1), EINVAL),
        (Box::new(move |a| a.cap.max_recv_sge = sges + 1), EINVAL),
        (Box::new(|a| a.cap.max_send_wr = u32::MAX), EINVAL),
        (Box::new(|a| a.cap.max_inline_data = 1 << 20), EINVAL),
        (Box::new(|a| a.cap.max_inline_data = u32::MAX), EINVAL),
        (Box::new(|a| a.send_cq = ptr::null_mut()), EINVAL),
        (Box::new(|a| a.recv_cq = ptr::null_mut()), EINVAL),
        (Box::new(|a| a.qp_type = 0), libc::EOPNOTSUPP),
        (Box::new(|a| a.qp_type = 99), libc::EOPNOTSUPP),
        (
            Box::new(|a| a.qp_type = IBV_QPT_RAW_PACKET),
            libc::EOPNOTSUPP,
        ),
        // A target needs an XRC domain, which this call does not have.
        (Box::new(|a| a.qp_type = IBV_QPT_XRC_RECV), EINVAL),
        (Box::new(|a| a.qp_type = IBV_QPT_DRIVER), libc::EOPNOTSUPP),
    ];
    for (at, (change, number)) in wrong.iter().enumerate() {
        let mut attr = side.init();
        change(&mut attr);
        assert_refused(
            call!(ibv_create_qp(side.pd, &raw mut attr)),
            *number,
            &format!("case {at}"),
        );
    }
    let create = verbs_of(side.context).create_qp_ex.unwrap();
    type Extended = fn(&mut ibv_qp_init_attr_ex);
    let wrong: [(Extended, c_int); 8] = [
        (|a| a.comp_mask &= !IBV_QP_INIT_ATTR_PD, EINVAL),
        (|a| a.pd = ptr::null_mut(), EINVAL),
        (|a| a.comp_mask |= 1 << 30, libc::EOPNOTSUPP),
        (|a| a.comp_mask |= IBV_QP_INIT_ATTR_XRCD, EINVAL),
        (|a| a.send_ops_flags = 1 << 40, libc::EOPNOTSUPP),
        (|a| a.send_ops_flags = 1 << 30, libc::EOPNOTSUPP),
        (
            |a| a.send_ops_flags = IBV_QP_EX_WITH_TSO.into(),
            libc::EOPNOTSUPP,
        ),
        (
            |a| {
                a.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
                a.create_flags = 1;
            },
            libc::EOPNOTSUPP,
        ),
    ];
    for (at, (change, number)) in wrong.into_iter().enumerate() {
        let mut attr = side.init_ex();
        change(&mut attr);
        assert_refused(
            call!(create(side.context, &raw mut attr)),
            number,
            &format!("extended case {at}"),
        );
    }
}

#[test]
fn refused_modify_leaves_queue_pair_connectable() {
    let (mut a, b) = (
        Side::new(SideParams::default()),
        Side::new(SideParams::default()),
    );
    a.to_init();
    // Such a number is that of a managed connection's peer.
    let (mut attr, mask) = a.rtr_attr(1);
    attr.path_mtu = 99;
    assert_eq!(a.modify(&mut attr, mask), EINVAL);
    assert_eq!(a.state(), IBV_QPS_INIT);

    b.connect(a.number());
    let (mut attr, mask) = a.rtr_attr(b.number());
    assert_eq!(a.modify(&mut attr, mask), 0);
    let (mut attr, mask) = a.rts_attr();
    assert_eq!(a.modify(&mut attr, mask), 0);
    a.fill(0, b"verbena");
    assert_eq!(b.receive(1, 0, 64), 0);
    assert_eq!(a.send(2, IBV_WR_SEND, a.sge(0, 7), |_| {}), 0);
    expect_completion(b.cq, 1, IBV_WC_SUCCESS);
}

#[test]
fn created_queue_pair_reports_its_capabilities() {
    let side = Side::new(SideParams::default());
    let mut attr = side.init();
    attr.cap.max_send_sge = 0;
    attr.cap.max_recv_sge = 0;
    // SAFETY: `qp` exists until the last call, which destroys it before `side` drops its domain and queue; attributes are locals.
    unsafe {
        let qp = ibv_create_qp(side.pd, &raw mut attr);
        assert!(!qp.is_null());
        assert_eq!((*qp).state, IBV_QPS_RESET);
        assert_eq!(((*qp).pd, (*qp).send_cq), (side.pd, side.cq));
        assert!(attr.cap.max_send_sge >= 1 && attr.cap.max_inline_data >= 64);
        let (mut now, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        assert_eq!(ibv_query_qp(qp, &raw mut now, 0, &raw mut init), 0);
        assert_eq!(init.cap.max_inline_data, attr.cap.max_inline_data);
        assert_eq!(now.cap.max_send_wr, attr.cap.max_send_wr);
        assert_eq!((init.send_cq, init.qp_type), (side.cq, IBV_QPT_RC));
        assert_eq!(ibv_destroy_qp(qp), 0);
    }
}

#[test]
fn invalid_srq_sizes_are_refused() {
    let side = Side::new(SideParams {
        shared: 4,
        ..SideParams::default()
    });
    let mut device = ibv_device_attr::zeroed();
    // SAFETY: `side` keeps its context, domain and shared receive queue until it is dropped; attributes are locals.
    unsafe {
        assert_eq!(ibv_query_device(side.context, &raw mut device), 0);
        for (max_wr, max_sge) in [
            (0, 1),
            (device.max_srq_wr as u32 + 1, 1),
            (u32::MAX, 1),
            (4, device.max_srq_sge as u32 + 1),
            (4, u32::MAX),
        ] {
            let mut attr = ibv_srq_init_attr::zeroed();
            attr.attr = ibv_srq_attr {
                max_wr,
                max_sge,
                srq_limit: 0,
            };
            let srq = ibv_create_srq(side.pd, &raw mut attr);
            assert_refused(srq, EINVAL, &format!("{max_wr} of {max_sge}"));
        }
        let create = verbs_of(side.context).create_srq_ex.unwrap();
        let mut attr = ibv_srq_init_attr_ex::zeroed();
        attr.attr.max_wr = 4;
        attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        attr.pd = side.pd;
        attr.srq_type = IBV_SRQT_XRC;
        assert_refused(create(side.context, &raw mut attr), EINVAL, "no XRC domain");
        for kind in [IBV_SRQT_TM, 77] {
            attr.srq_type = kind;
            assert_refused(
                create(side.context, &raw mut attr),
                libc::EOPNOTSUPP,
                "type",
            );
        }
        attr.comp_mask = 1 << 30;
        assert_refused(
            create(side.context, &raw mut attr),
            libc::EOPNOTSUPP,
            "mask",
        );
        attr.comp_mask = 0;
        assert_refused(create(side.context, &raw mut attr), EINVAL, "no domain");

        let mut attr = ibv_srq_attr {
            max_wr: 8,
            max_sge: 1,
            srq_limit: 5,
        };
        let at = &raw mut attr;
        assert_eq!(ibv_modify_srq(side.srq, at, IBV_SRQ_LIMIT as i32), EINVAL);
        assert_eq!(
            ibv_modify_srq(side.srq, at, IBV_SRQ_MAX_WR as i32),
            libc::EOPNOTSUPP
        );
        assert_eq!(ibv_modify_srq(side.srq, at, 1 << 20), EINVAL);
        let mut number = 0;
        let asked = verbs_of(side.context).get_srq_num.unwrap();
        assert_eq!(asked(side.srq, &raw mut number), libc::EOPNOTSUPP);
    }
}

#[test]
fn unknown_ports_and_table_indices_are_refused() {
    let side = Side::new(SideParams::default());
    let context = side.context;
    let mut port = ibv_port_attr::zeroed();
    let mut gid = ibv_gid { raw: [0; 16] };
    let mut pkey = 0;
    // SAFETY: `side` keeps its context open until it is dropped; everything else that is passed is a local.
    unsafe {
        let query = verbs_of(context).query_port.unwrap();
        for number in [0, 2, 255] {
            let size = size_of::<ibv_port_attr>();
            assert_eq!(query(context, number, &raw mut port, size), EINVAL);
            assert_eq!(ibv_query_port(context, number, &raw mut port), EINVAL);
            assert_eq!(ibv_query_gid(context, number, 0, &raw mut gid), -1);
            assert_eq!(ibv_query_pkey(context, number, 0, &raw mut pkey), -1);
            assert_eq!(ibv_get_pkey_index(context, number, 0xffff), -1);
        }
        assert_eq!(ibv_query_port(context, 1, &raw mut port), 0);
        for index in [-1, port.gid_tbl_len, c_int::MAX, c_int::MIN] {
            assert_eq!(
                ibv_query_gid(context, 1, index, &raw mut gid),
                -1,
                "{index}"
            );
            assert_eq!(errno(), EINVAL);
        }
        for index in 0..port.gid_tbl_len {
            assert_eq!(ibv_query_gid(context, 1, index, &raw mut gid), 0);
        }
        assert_eq!(gid.raw, [0; 16], "the last entry is empty");
        for index in [-1, 1, c_int::MAX] {
            assert_eq!(ibv_query_pkey(context, 1, index, &raw mut pkey), -1);
        }
        let mut entry = ibv_gid_entry::zeroed();
        let size = size_of::<ibv_gid_entry>();
        let at = &raw mut entry;
        assert_eq!(_ibv_query_gid_ex(context, 1, u32::MAX, at, 0, size), EINVAL);
        assert_eq!(_ibv_query_gid_ex(context, 2, 0, at, 0, size), EINVAL);
        assert_eq!(
            _ibv_query_gid_ex(context, 1, 0, at, 1, size),
            libc::EOPNOTSUPP
        );
        let last = port.gid_tbl_len as u32 - 1;
        let empty = _ibv_query_gid_ex(context, 1, last, at, 0, size);
        assert_eq!(empty, libc::ENODATA);
        let mut kind = 9;
        assert_eq!(ibv_query_gid_type(context, 1, last, &raw mut kind), 0);
        assert_eq!(kind, IBV_GID_TYPE_SYSFS_IB_ROCE_V1);
        assert_eq!(ibv_query_gid_type(context, 1, last + 1, &raw mut kind), -1);
        let none = _ibv_query_gid_table(context, at, 0, 0, size);
        assert_eq!(none, -(EINVAL as isize));
        let mut attr = ibv_device_attr_ex::zeroed();
        let query = verbs_of(context).query_device_ex.unwrap();
        let (at, size) = (&raw mut attr, size_of::<ibv_device_attr_ex>());
        assert_eq!(query(context, ptr::null(), at, 8), EINVAL, "too short");
        let input = ibv_query_device_ex_input { comp_mask: 1 };
        assert_eq!(query(context, &raw const input, at, size), EINVAL);
        // The struct of a later release is longer: unknown fields are zeroed.
        let mut longer = vec![0xff_u8; size + 64];
        let at = longer.as_mut_ptr().cast();
        assert_eq!(query(context, ptr::null(), at, size + 64), 0);
        assert!(longer[size..].iter().all(|byte| *byte == 0));
    }
}
