//! XRC queue pairs of identifiers: the server tells its client the number of its shared receive queue in the private data.

use core::ptr;

use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;
use verbena_capi::verbs::*;

use super::begin;
use crate::common::streams::{Channel, Id, Server, init};
use crate::common::{
    ALL, call, errno, expect_completion, post_send, post_srq_recv, request, verbs_of,
};

fn init_ex(qp_type: u32) -> ibv_qp_init_attr_ex {
    let usual = init();
    ibv_qp_init_attr_ex {
        cap: usual.cap,
        qp_type,
        sq_sig_all: usual.sq_sig_all,
        ..ibv_qp_init_attr_ex::zeroed()
    }
}

#[test]
fn connection_manager_connects_xrc_queue_pairs() {
    begin();
    let server = Server::new(0);
    let channel = Channel::new();
    let client = Id::new(&channel);
    client.resolve(&channel, server.at);
    let mut attr = init_ex(IBV_QPT_XRC_SEND);
    let made = call!(rdma_create_qp_ex(client.0, &raw mut attr));
    assert_eq!(made, 0, "{}", errno());
    assert_eq!(client.connect(b""), 0, "{}", errno());

    let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    let child = asked.id();
    // SAFETY: the request's identifier has a device, and is destroyed at the end.
    let (context, pd) = unsafe { ((*child.0).verbs, (*child.0).pd) };
    let verbs = verbs_of(context);
    let (open, close) = (verbs.open_xrcd.unwrap(), verbs.close_xrcd.unwrap());
    let mut domain = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd: -1,
        oflags: libc::O_CREAT,
    };
    let xrcd = call!(open(context, &raw mut domain));
    assert!(!xrcd.is_null(), "{}", errno());
    let none = ptr::null_mut();
    let cq = call!(ibv_create_cq(context, 8, none, ptr::null_mut(), 0));
    let mut queue = ibv_srq_init_attr_ex::zeroed();
    queue.attr.max_wr = 4;
    queue.attr.max_sge = 1;
    queue.srq_type = IBV_SRQT_XRC;
    (queue.xrcd, queue.cq) = (xrcd, cq);
    queue.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD;
    let refused = call!(rdma_create_srq_ex(child.0, &raw mut queue));
    assert_eq!(
        (refused, errno()),
        (-1, libc::EINVAL),
        "no completion queue"
    );
    queue.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
    let made = call!(rdma_create_srq_ex(child.0, &raw mut queue));
    assert_eq!(made, 0, "{}", errno());
    let mut attr = init_ex(IBV_QPT_XRC_RECV);
    let refused = call!(rdma_create_qp_ex(child.0, &raw mut attr));
    assert_eq!((refused, errno()), (-1, libc::EINVAL), "no XRC domain");
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd;
    let made = call!(rdma_create_qp_ex(child.0, &raw mut attr));
    assert_eq!(made, 0, "{}", errno());
    // SAFETY: `child` is an identifier that is destroyed at the end, and `rdma_create_srq_ex` has set its `srq`.
    let srq = unsafe { (*child.0).srq };
    let mut number = 0;
    let get_srq_num = verbs.get_srq_num.unwrap();
    assert_eq!(call!(get_srq_num(srq, &raw mut number)), 0);
    assert_eq!(child.accept(&number.to_be_bytes()), 0, "{}", errno());
    drop(asked);
    server.channel.expect(RDMA_CM_EVENT_ESTABLISHED);
    let answered = channel.expect(RDMA_CM_EVENT_ESTABLISHED);
    let told = answered.private_data();
    let number = u32::from_be_bytes(told[..4].try_into().unwrap());

    let mut bytes = Box::new([0_u8; 64]);
    let mr = call!(ibv_reg_mr(pd, bytes.as_mut_ptr().cast(), 64, ALL));
    assert!(!mr.is_null(), "{}", errno());
    let mut piece = ibv_sge {
        addr: bytes.as_ptr() as u64,
        length: 64,
        // SAFETY: the region is registered.
        lkey: unsafe { (*mr).lkey },
    };
    let mut receive = ibv_recv_wr {
        wr_id: 5,
        sg_list: &raw mut piece,
        num_sge: 1,
        ..ibv_recv_wr::zeroed()
    };
    let mut bad = ptr::null_mut();
    assert_eq!(post_srq_recv(srq, &raw mut receive, &raw mut bad), 0);
    let text = *b"by number";
    let mut piece = ibv_sge {
        addr: text.as_ptr() as u64,
        length: text.len() as u32,
        lkey: 0,
    };
    let mut send = request(1, IBV_WR_SEND);
    send.sg_list = &raw mut piece;
    send.num_sge = 1;
    send.send_flags |= IBV_SEND_INLINE;
    send.qp_type.xrc.remote_srqn = number;
    let mut bad = ptr::null_mut();
    // SAFETY: the identifiers and their queue pairs are destroyed at the end.
    let (qp, sent, target) =
        unsafe { ((*client.0).qp, (*client.0).send_cq, (*(*child.0).qp).qp_num) };
    assert_eq!(post_send(qp, &raw mut send, &raw mut bad), 0);
    let wc = expect_completion(cq, 5, IBV_WC_SUCCESS);
    assert_eq!((wc.byte_len, wc.qp_num), (9, target));
    expect_completion(sent, 1, IBV_WC_SUCCESS);
    // SAFETY: the buffer exists; the adapter writes it, so it is read as volatile.
    let got = unsafe { ptr::read_volatile(bytes.as_ptr().cast::<[u8; 9]>()) };
    assert_eq!(&got, b"by number");
    assert_eq!(call!(ibv_dereg_mr(mr)), 0);
    child.destroy_qp();
    call!(rdma_destroy_srq(child.0));
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
    assert_eq!(call!(close(xrcd)), 0);
}
