//! XRC domains, shared receive queues and queue pairs of a function: which parts fit, and what may be destroyed when.

use std::sync::Arc;

use super::*;
use crate::xrc::XrcDomain;

fn target(pd: Pd, cq: u32) -> NewQp {
    NewQp {
        qp_type: QpType::XrcRecv,
        ..new_qp(pd, cq)
    }
}

fn reason(refused: Result<impl Sized, Error>) -> &'static str {
    match refused.err() {
        Some(Error::Xrc(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn xrc_queue_keeps_its_parts() {
    let (function, pd, cq) = function_with_cq();
    let domain = Arc::new(XrcDomain::new(5));
    let srq = function.create_xrc_srq(&domain, (pd, cq), 10, 2).unwrap();
    assert_eq!(domain.number_of(srq.number()).get(), 5 + srq.number());
    assert_eq!(users(function.destroy_cq(cq).unwrap_err()), 1);
    assert_eq!(users(function.free_pd(pd).unwrap_err()), 1);
    // A target does not keep it: it has no queue of its own.
    let out = &mut Outbox::new();
    let hidden = function.create_cq(1).unwrap().number();
    let qp = function
        .create_xrc_target(&domain, target(pd, hidden))
        .unwrap();
    function.destroy_srq(srq.number(), out).unwrap();
    assert_eq!(domain.srq_count(), 0);
    function.destroy_cq(cq).unwrap();
    function.destroy_qp(qp.number(), out).unwrap();
    function.destroy_cq(hidden).unwrap();
    function.free_pd(pd).unwrap();
}

#[test]
fn xrc_parts_that_do_not_fit_are_refused() {
    let (function, pd, cq) = function_with_cq();
    let domain = Arc::new(XrcDomain::new(0));
    let srq = function.create_xrc_srq(&domain, (pd, cq), 10, 2).unwrap();
    let used = function.used();
    let with_srq = NewQp {
        srq: Some(srq.number()),
        ..new_qp(pd, cq)
    };
    assert!(reason(function.create_qp(with_srq)).contains("cannot be a queue pair's own"));
    let initiator = NewQp {
        qp_type: QpType::XrcSend,
        ..with_srq
    };
    assert!(reason(function.create_qp(initiator)).contains("has no receives"));
    assert!(reason(function.create_qp(target(pd, cq))).contains("needs an XRC domain"));
    let reliable = function.create_xrc_target(&domain, new_qp(pd, cq));
    assert!(reason(reliable).contains("type XrcRecv"));
    let unknown = function.create_xrc_srq(&domain, (pd, 77), 10, 2).err();
    assert_eq!(unknown, function.query_cq(77).err());
    assert_eq!(function.used(), used);
    assert_eq!(domain.srq_count(), 1);
}
