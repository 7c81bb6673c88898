//! Queue pairs that the program creates and moves through the states itself, as `rping -q` does. The connection manager connects them.

use core::ffi::c_int;
use core::ptr;

use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;
use verbena_capi::verbs::*;

use super::begin;
use crate::common::streams::{Channel, Id, Server, check_transfer, conn_param, init};
use crate::common::{call, errno};

/// A queue pair that the program creates itself, for an identifier.
struct OwnQp {
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
}

impl OwnQp {
    fn new(id: *mut rdma_cm_id) -> OwnQp {
        // SAFETY: `id` has a device, since its route is resolved; the objects are destroyed when the result is dropped. `init` is a local.
        unsafe {
            let pd = ibv_alloc_pd((*id).verbs);
            let cq = ibv_create_cq((*id).verbs, 64, ptr::null_mut(), ptr::null_mut(), 0);
            assert!(!pd.is_null() && !cq.is_null());
            let mut init = init();
            init.send_cq = cq;
            init.recv_cq = cq;
            let qp = ibv_create_qp(pd, &raw mut init);
            assert!(!qp.is_null(), "{}", errno());
            let own = OwnQp { id, pd, cq, qp };
            own.to(IBV_QPS_INIT);
            own
        }
    }

    #[track_caller]
    fn to(&self, state: u32) {
        let mut attr = ibv_qp_attr {
            qp_state: state,
            ..ibv_qp_attr::zeroed()
        };
        let mut mask: c_int = 0;
        let asked = call!(rdma_init_qp_attr(self.id, &raw mut attr, &raw mut mask));
        assert_eq!(asked, 0, "{}", errno());
        assert_ne!(mask & IBV_QP_STATE as c_int, 0);
        assert_eq!(
            call!(ibv_modify_qp(self.qp, &raw mut attr, mask)),
            0,
            "to {state}"
        );
    }

    fn param(&self) -> rdma_conn_param {
        rdma_conn_param {
            // SAFETY: `self.qp` is destroyed when `self` is dropped; its number does not change.
            qp_num: unsafe { (*self.qp).qp_num },
            ..conn_param(b"mine")
        }
    }
}

impl Drop for OwnQp {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        assert_eq!(call!(ibv_destroy_qp(self.qp)), 0);
        assert_eq!(call!(ibv_destroy_cq(self.cq)), 0);
        assert_eq!(call!(ibv_dealloc_pd(self.pd)), 0);
    }
}

#[test]
fn program_owned_queue_pairs_connect_through_cm() {
    begin();
    let server = Server::new(0);
    for from_client in [true, false] {
        let channel = Channel::new();
        let id = Id::new(&channel);
        id.resolve(&channel, server.at);
        let ours = OwnQp::new(id.0);
        let mut param = ours.param();
        assert_eq!(call!(rdma_connect(id.0, &raw mut param)), 0);

        let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        assert!(asked.private_data().starts_with(b"mine"));
        let child = asked.id();
        drop(asked);
        let theirs = OwnQp::new(child.0);
        theirs.to(IBV_QPS_RTR);
        theirs.to(IBV_QPS_RTS);
        let mut param = theirs.param();
        assert_eq!(call!(rdma_accept(child.0, &raw mut param)), 0);

        let answered = channel.expect(RDMA_CM_EVENT_CONNECT_RESPONSE);
        assert!(answered.private_data().starts_with(b"mine"));
        drop(answered);
        ours.to(IBV_QPS_RTR);
        ours.to(IBV_QPS_RTS);
        assert_eq!(call!(rdma_establish(id.0)), 0);
        server.channel.expect(RDMA_CM_EVENT_ESTABLISHED);
        check_transfer(ours.qp, theirs.qp);
        check_transfer(theirs.qp, ours.qp);

        let who = if from_client { &id } else { &child };
        assert_eq!(who.disconnect(), 0);
        channel.expect(RDMA_CM_EVENT_DISCONNECTED);
        server.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
        // The identifiers are destroyed first, as in rping.
        drop(id);
        drop(child);
    }
}

#[test]
fn connect_with_unknown_qp_number_is_refused() {
    begin();
    let server = Server::new(0);
    let channel = Channel::new();
    let id = Id::new(&channel);
    id.resolve(&channel, server.at);
    let mut param = rdma_conn_param {
        qp_num: 0xffff,
        ..conn_param(b"")
    };
    assert_eq!(call!(rdma_connect(id.0, &raw mut param)), -1);
    assert_eq!(errno(), libc::EINVAL);
    assert_eq!(call!(rdma_establish(id.0)), -1);
}
