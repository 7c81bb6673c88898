//! XRC through the C API: domains and the files that name them, shared receive queues by number, initiators, targets and their handles.

use crate::common::*;
use core::ffi::c_int;
use core::ptr;
use std::fs::File;
use std::os::fd::AsRawFd;

use libc::{EBUSY, EINVAL, EOPNOTSUPP, O_CREAT, O_EXCL};
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

/// An XRC domain without a file, or with this one.
fn open_domain(context: *mut ibv_context, fd: c_int, oflags: c_int) -> *mut ibv_xrcd {
    let open_xrcd = verbs_of(context).open_xrcd.unwrap();
    let mut attr = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd,
        oflags,
    };
    call!(open_xrcd(context, &raw mut attr))
}

fn close_domain(context: *mut ibv_context, xrcd: *mut ibv_xrcd) -> c_int {
    let close_xrcd = verbs_of(context).close_xrcd.unwrap();
    call!(close_xrcd(xrcd))
}

fn srq_attr(side: &Side, xrcd: *mut ibv_xrcd, cq: *mut ibv_cq) -> ibv_srq_init_attr_ex {
    let mut attr = ibv_srq_init_attr_ex::zeroed();
    attr.attr.max_wr = 8;
    attr.attr.max_sge = 1;
    attr.srq_type = IBV_SRQT_XRC;
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE
        | IBV_SRQ_INIT_ATTR_PD
        | IBV_SRQ_INIT_ATTR_XRCD
        | IBV_SRQ_INIT_ATTR_CQ;
    attr.pd = side.pd;
    attr.xrcd = xrcd;
    attr.cq = cq;
    attr
}

fn create_srq(side: &Side, mut attr: ibv_srq_init_attr_ex) -> *mut ibv_srq {
    let create = verbs_of(side.context).create_srq_ex.unwrap();
    call!(create(side.context, &raw mut attr))
}

fn srq_number(side: &Side, srq: *mut ibv_srq) -> Result<u32, c_int> {
    let get_srq_num = verbs_of(side.context).get_srq_num.unwrap();
    let mut number = 0;
    match call!(get_srq_num(srq, &raw mut number)) {
        0 => Ok(number),
        code => Err(code),
    }
}

fn create_target(context: *mut ibv_context, xrcd: *mut ibv_xrcd) -> *mut ibv_qp {
    let create = verbs_of(context).create_qp_ex.unwrap();
    let mut attr = ibv_qp_init_attr_ex::zeroed();
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd;
    call!(create(context, &raw mut attr))
}

fn number_of(qp: *mut ibv_qp) -> u32 {
    // SAFETY: the test has not destroyed the queue pair; its number does not change.
    unsafe { (*qp).qp_num }
}

/// A side with an XRC domain, two shared receive queues with completion queues of their own, and a target.
struct Receiver {
    side: Side,
    xrcd: *mut ibv_xrcd,
    cqs: [*mut ibv_cq; 2],
    srqs: [*mut ibv_srq; 2],
    target: *mut ibv_qp,
}

impl Receiver {
    fn new() -> Receiver {
        let side = Side::new(SideParams::default());
        let xrcd = open_domain(side.context, -1, O_CREAT);
        assert!(!xrcd.is_null(), "{}", errno());
        let none = ptr::null_mut();
        let new_cq = |()| call!(ibv_create_cq(side.context, 16, none, ptr::null_mut(), 0));
        let cqs = [(), ()].map(new_cq);
        let srqs = cqs.map(|cq| create_srq(&side, srq_attr(&side, xrcd, cq)));
        assert!(srqs.iter().all(|srq| !srq.is_null()), "{}", errno());
        let target = create_target(side.context, xrcd);
        assert!(!target.is_null(), "{}", errno());
        Receiver {
            side,
            xrcd,
            cqs,
            srqs,
            target,
        }
    }

    fn numbers(&self) -> [u32; 2] {
        self.srqs.map(|srq| srq_number(&self.side, srq).unwrap())
    }

    /// Moves the target to RTS, with the attributes that a target has.
    fn connect(&self, initiator: u32) {
        let side = &self.side;
        let modify = |mut attr: ibv_qp_attr, mask: u32| {
            let code = call!(ibv_modify_qp(self.target, &raw mut attr, mask as c_int));
            assert_eq!(code, 0);
        };
        let (attr, mask) = side.init_attr();
        modify(attr, mask);
        let (attr, mask) = side.rtr_attr(initiator);
        modify(attr, mask);
        let (attr, _) = side.rts_attr();
        modify(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN);
    }

    fn receive(&self, queue: usize, wr_id: u64, offset: usize, length: u32) {
        let mut piece = self.side.sge(offset, length);
        let mut wr = ibv_recv_wr {
            wr_id,
            next: ptr::null_mut(),
            sg_list: &raw mut piece,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        let code = post_srq_recv(self.srqs[queue], &raw mut wr, &raw mut bad);
        assert_eq!(code, 0);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        assert_eq!(close_domain(self.side.context, self.xrcd), EBUSY);
        assert_eq!(call!(ibv_destroy_qp(self.target)), 0);
        for (srq, cq) in self.srqs.into_iter().zip(self.cqs) {
            assert_eq!(
                call!(ibv_destroy_cq(cq)),
                EBUSY,
                "the queue completes there"
            );
            assert_eq!(call!(ibv_destroy_srq(srq)), 0);
            assert_eq!(call!(ibv_destroy_cq(cq)), 0);
        }
        assert_eq!(close_domain(self.side.context, self.xrcd), 0);
    }
}

/// An initiator and a receiver that are connected.
fn connected(operations: u64) -> (Side, Receiver) {
    let initiator = Side::new(SideParams {
        kind: IBV_QPT_XRC_SEND,
        operations,
        ..SideParams::default()
    });
    let receiver = Receiver::new();
    receiver.connect(initiator.number());
    initiator.connect(number_of(receiver.target));
    (initiator, receiver)
}

fn to_srq(number: u32) -> impl Fn(&mut ibv_send_wr) {
    move |wr| wr.qp_type.xrc.remote_srqn = number
}

#[test]
fn requests_name_the_queue_they_are_for() {
    let (mut a, b) = connected(0);
    let numbers = b.numbers();
    assert_ne!(numbers[0], numbers[1]);
    b.receive(0, 10, 0, 64);
    b.receive(1, 11, 1024, 64);
    b.receive(0, 20, 2048, 64);
    a.fill(0, b"to the second queue");
    let piece = a.sge(0, 19);
    assert_eq!(a.send(1, IBV_WR_SEND, piece, to_srq(numbers[1])), 0);
    let immediate = |wr: &mut ibv_send_wr| {
        to_srq(numbers[0])(wr);
        wr.imm_data = 5_u32.to_be();
    };
    assert_eq!(a.send(2, IBV_WR_SEND_WITH_IMM, a.sge(0, 6), immediate), 0);
    let write = |wr: &mut ibv_send_wr| {
        to_srq(numbers[0])(wr);
        wr.imm_data = 6_u32.to_be();
        rdma(wr, b.side.at(4096), b.side.rkey());
    };
    assert_eq!(a.send(3, IBV_WR_RDMA_WRITE_WITH_IMM, piece, write), 0);
    let read = |wr: &mut ibv_send_wr| {
        to_srq(numbers[0])(wr);
        rdma(wr, b.side.at(4096), b.side.rkey());
    };
    assert_eq!(a.send(4, IBV_WR_RDMA_READ, a.sge(512, 19), read), 0);
    for wr_id in 1..=4 {
        expect_completion(a.cq, wr_id, IBV_WC_SUCCESS);
    }
    let wc = expect_completion(b.cqs[1], 11, IBV_WC_SUCCESS);
    assert_eq!((wc.byte_len, wc.qp_num), (19, number_of(b.target)));
    assert_eq!(b.side.read(1024, 19), b"to the second queue");
    let wc = expect_completion(b.cqs[0], 10, IBV_WC_SUCCESS);
    assert_eq!((wc.byte_len, wc.imm_data), (6, 5_u32.to_be()));
    let wc = expect_completion(b.cqs[0], 20, IBV_WC_SUCCESS);
    assert_eq!(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    assert_eq!(b.side.read(4096, 19), b"to the second queue");
    assert_eq!(a.read(512, 19), b"to the second queue");
}

#[test]
fn built_requests_name_their_queue() {
    let operations = (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE).into();
    let (mut a, b) = connected(operations);
    a.fill(0, b"built");
    b.receive(0, 10, 0, 64);
    b.receive(1, 11, 64, 64);
    let qp = call!(ibv_qp_to_qp_ex(a.qp));
    // SAFETY: the queue pair is not destroyed yet, and its functions do not change.
    let functions = unsafe { &*qp };
    let (start, complete) = (functions.wr_start.unwrap(), functions.wr_complete.unwrap());
    let (send, set_sge) = (functions.wr_send.unwrap(), functions.wr_set_sge.unwrap());
    let name = functions.wr_set_xrc_srqn.unwrap();
    let piece = a.sge(0, 5);
    let build = |wr_id, number: Option<u32>| {
        // SAFETY: `qp` is a queue pair that is not destroyed yet; its program writes these fields between the calls, on one thread.
        unsafe {
            (*qp).wr_id = wr_id;
            (*qp).wr_flags = IBV_SEND_SIGNALED;
        }
        call!(send(qp));
        if let Some(number) = number {
            call!(name(qp, number));
        }
        call!(set_sge(qp, piece.lkey, piece.addr, piece.length));
    };
    let numbers = b.numbers();
    call!(start(qp));
    build(1, Some(numbers[1]));
    build(2, Some(numbers[0]));
    assert_eq!(call!(complete(qp)), 0);
    for wr_id in 1..=2 {
        expect_completion(a.cq, wr_id, IBV_WC_SUCCESS);
    }
    expect_completion(b.cqs[1], 11, IBV_WC_SUCCESS);
    expect_completion(b.cqs[0], 10, IBV_WC_SUCCESS);
    for wrong in [None, Some(1 << 24)] {
        call!(start(qp));
        build(3, wrong);
        assert_eq!(call!(complete(qp)), EINVAL, "{wrong:?}");
    }
}

#[test]
fn unknown_queue_fails_the_request() {
    let (a, b) = connected(0);
    let piece = a.sge(0, 8);
    let unknown = b.numbers()[1].wrapping_add(1000) & 0xff_ffff;
    assert_eq!(a.send(1, IBV_WR_SEND, piece, to_srq(1 << 24)), EINVAL);
    assert_eq!(a.send(2, IBV_WR_SEND, piece, to_srq(unknown)), 0);
    expect_completion(a.cq, 2, IBV_WC_REM_INV_REQ_ERR);
    let mut event = b.side.event();
    assert_eq!(event.event_type, IBV_EVENT_QP_REQ_ERR);
    assert_eq!(event_object(&event), b.target.cast());
    call!(ibv_ack_async_event(&raw mut event));
    let mut event = b.side.event();
    assert_eq!(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    call!(ibv_ack_async_event(&raw mut event));
}

#[test]
fn targets_take_no_requests() {
    let (a, b) = connected(0);
    let mut wr = request(1, IBV_WR_SEND);
    let mut bad = ptr::null_mut();
    assert_eq!(post_send(b.target, &raw mut wr, &raw mut bad), EINVAL);
    let mut wr = ibv_recv_wr::zeroed();
    for qp in [a.qp, b.target] {
        let mut bad = ptr::null_mut();
        assert_eq!(post_recv(qp, &raw mut wr, &raw mut bad), EINVAL);
    }
}

#[test]
fn file_names_a_domain_of_the_process() {
    let side = Side::new(SideParams::default());
    let context = side.context;
    let path = std::env::temp_dir().join(format!("verbena-xrc-{}", std::process::id()));
    let [one, two] = [(), ()].map(|()| File::options().append(true).create(true).open(&path));
    std::fs::remove_file(&path).unwrap();
    let (one, two) = (one.unwrap(), two.unwrap());
    let (first, second) = (one.as_raw_fd(), two.as_raw_fd());
    assert_refused(open_domain(context, -1, 0), EINVAL, "no file, none created");
    assert_refused(
        open_domain(context, -7, O_CREAT),
        libc::EBADF,
        "no descriptor",
    );
    assert_refused(
        open_domain(context, first, 0),
        libc::EAGAIN,
        "no domain yet",
    );
    let xrcd = open_domain(context, first, O_CREAT | O_EXCL);
    assert!(!xrcd.is_null(), "{}", errno());
    assert_refused(
        open_domain(context, second, O_CREAT | O_EXCL),
        EINVAL,
        "exists",
    );
    let same = open_domain(context, second, 0);
    assert!(!same.is_null(), "{}", errno());
    let open_xrcd = verbs_of(context).open_xrcd.unwrap();
    for (comp_mask, number) in [(IBV_XRCD_INIT_ATTR_FD, EINVAL), (1 << 2, EOPNOTSUPP)] {
        let mut attr = ibv_xrcd_init_attr {
            comp_mask,
            fd: -1,
            oflags: O_CREAT,
        };
        assert_refused(call!(open_xrcd(context, &raw mut attr)), number, "mask");
    }
    // A target of one handle finds a queue of the other.
    let srq = create_srq(&side, srq_attr(&side, xrcd, side.cq));
    let target = create_target(context, same);
    assert_eq!(close_domain(context, xrcd), EBUSY);
    assert_eq!(close_domain(context, same), EBUSY);
    let open_qp = verbs_of(context).open_qp.unwrap();
    let mut attr = ibv_qp_open_attr {
        comp_mask: IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
        qp_num: number_of(target),
        xrcd,
        qp_context: ptr::null_mut(),
        qp_type: IBV_QPT_XRC_RECV,
    };
    let other = call!(open_qp(context, &raw mut attr));
    assert!(!other.is_null(), "{}", errno());
    assert_eq!(number_of(other), number_of(target));
    assert_eq!(call!(ibv_destroy_qp(target)), 0);
    let (mut state, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
    let mask = IBV_QP_STATE as c_int;
    let code = call!(ibv_query_qp(other, &raw mut state, mask, &raw mut init));
    assert_eq!(
        (code, init.qp_type),
        (0, IBV_QPT_XRC_RECV),
        "it still exists"
    );
    assert_refused(
        call!(open_qp(context, &raw mut attr)),
        EINVAL,
        "its number is gone",
    );
    assert_eq!(call!(ibv_destroy_qp(other)), 0);
    attr.qp_num = side.number();
    assert_refused(
        call!(open_qp(context, &raw mut attr)),
        EINVAL,
        "not a target",
    );
    attr.qp_type = IBV_QPT_RC;
    assert_refused(call!(open_qp(context, &raw mut attr)), EINVAL, "type");
    attr.comp_mask = 1 << 4;
    assert_refused(call!(open_qp(context, &raw mut attr)), EOPNOTSUPP, "mask");
    assert_eq!(call!(ibv_destroy_srq(srq)), 0);
    for handle in [xrcd, same] {
        assert_eq!(close_domain(context, handle), 0);
    }
    assert_refused(
        open_domain(context, first, 0),
        libc::EAGAIN,
        "its domain ended",
    );
}

#[test]
fn target_of_another_domain_is_not_opened() {
    let receiver = Receiver::new();
    let context = receiver.side.context;
    let foreign = open_domain(context, -1, O_CREAT);
    let open_qp = verbs_of(context).open_qp.unwrap();
    let mut attr = ibv_qp_open_attr {
        comp_mask: IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
        qp_num: number_of(receiver.target),
        xrcd: foreign,
        qp_context: ptr::null_mut(),
        qp_type: IBV_QPT_XRC_RECV,
    };
    assert_refused(
        call!(open_qp(context, &raw mut attr)),
        EINVAL,
        "another domain",
    );
    assert_eq!(close_domain(context, foreign), 0);
}

#[test]
fn device_reports_xrc() {
    let side = Side::new(SideParams::default());
    let mut attr = ibv_device_attr_ex::zeroed();
    let query = verbs_of(side.context).query_device_ex.unwrap();
    let size = size_of::<ibv_device_attr_ex>();
    let code = call!(query(side.context, ptr::null(), &raw mut attr, size));
    assert_eq!(code, 0);
    assert_ne!(attr.orig_attr.device_cap_flags & IBV_DEVICE_XRC, 0);
    let rc = attr.odp_caps.per_transport_caps.rc_odp_caps;
    assert_eq!(attr.xrc_odp_caps, rc);
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let b = Receiver::new();
    let side = &b.side;
    type Change = fn(&mut ibv_srq_init_attr_ex);
    let wrong: [(Change, c_int); 5] = [
        (|a| a.comp_mask &= !IBV_SRQ_INIT_ATTR_CQ, EINVAL),
        (|a| a.comp_mask &= !IBV_SRQ_INIT_ATTR_XRCD, EINVAL),
        (|a| a.cq = ptr::null_mut(), EINVAL),
        (|a| a.xrcd = ptr::null_mut(), EINVAL),
        (|a| a.srq_type = IBV_SRQT_BASIC, EOPNOTSUPP),
    ];
    for (at, (change, number)) in wrong.into_iter().enumerate() {
        let mut attr = srq_attr(side, b.xrcd, b.cqs[0]);
        change(&mut attr);
        assert_refused(create_srq(side, attr), number, &format!("case {at}"));
    }
    // A queue of an XRC domain is not a queue pair's own.
    let mut attr = side.init();
    attr.srq = b.srqs[0];
    assert_refused(call!(ibv_create_qp(side.pd, &raw mut attr)), EINVAL, "own");
    assert_refused(
        create_target(side.context, ptr::null_mut()),
        EINVAL,
        "no domain",
    );
    let shared = Side::new(SideParams {
        shared: 4,
        ..SideParams::default()
    });
    assert_eq!(srq_number(&shared, shared.srq), Err(EOPNOTSUPP));
}
