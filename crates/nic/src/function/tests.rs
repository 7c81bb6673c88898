//! Tests of a function by its verbs: what each rejects and why, what is destroyed and what stays, which queue pair is woken.

mod destroy;
mod race;
mod scale;
mod services;
mod xrc;

use std::sync::Arc;

use verbena_mem::{Access, Bind, WindowType};
use verbena_wire::Stag;

use super::*;
use crate::error::Kind;
use crate::qp::{Limits, Qp, QpAccessFlags};
use crate::state::{QpState, QpType, RdmacState};
use crate::testing::new_qp;

fn function() -> Function {
    let shares = Shares {
        qps: 8,
        cqs: 8,
        srqs: 8,
        ssqs: 8,
        pds: 8,
        stags: 8,
        event_queues: 8,
        vectors: 8,
    };
    Function::new((0, Services::IMPLEMENTED), shares, 1..9, Policy::Verbs, 1)
}

/// A function with a domain and a completion queue.
fn function_with_cq() -> (Function, Pd, u32) {
    let function = function();
    let pd = function.allocate_pd().unwrap();
    let cq = function.create_cq(100).unwrap().number();
    (function, pd, cq)
}

fn users(error: Error) -> u32 {
    match error {
        Error::InUse { users, .. } => users,
        other => panic!("{other}"),
    }
}

#[test]
fn unknown_numbers_are_refused_without_effect() {
    let (function, pd, cq) = function_with_cq();
    let out = &mut Outbox::new();
    let used = function.used();
    for number in [0, 7, 100, u32::MAX] {
        let refusals = [
            function.free_pd(Pd(number)).err(),
            function.cq(number).err(),
            function.query_cq(number).err(),
            function.resize_cq(number, 5).err(),
            function.destroy_cq(number).err(),
            function.create_srq(Pd(number), 1, 1).err(),
            function.srq(number).err(),
            function.modify_srq(number, 0).err(),
            function.query_srq(number).err(),
            function.destroy_srq(number, &mut Outbox::new()).err(),
            function.qp(number).err(),
            function.query_qp(number).err(),
            function.modify_qp(number, QpState::Init, out).err(),
            function.destroy_qp(number, out).err(),
            function.create_qp(new_qp(Pd(number), cq)).err(),
            function.create_qp(new_qp(pd, number)).err(),
            function
                .create_qp(NewQp {
                    recv_cq: number,
                    ..new_qp(pd, cq)
                })
                .err(),
            function
                .create_qp(NewQp {
                    srq: Some(number),
                    ..new_qp(pd, cq)
                })
                .err(),
            function.register_buffer(Pd(number), 8, Access::ALL).err(),
            function.allocate_window(WindowType::One, Pd(number)).err(),
        ];
        for refusal in refusals {
            assert!(matches!(refusal, Some(Error::NoSuch { number: n, .. }) if n == number));
        }
        assert!(function.deregister(Stag::new(number)).is_err());
    }
    assert_eq!(function.used(), used, "nothing was made");
    assert_eq!(function.query_cq(cq).unwrap().users, 0, "and nothing held");
    function.free_pd(pd).unwrap();
}

#[test]
fn every_limit_reports_exhaustion() {
    let (function, pd, cq) = function_with_cq();
    while function.used().cqs < 8 {
        function.create_cq(1).unwrap();
    }
    for _ in 0..8 {
        function.create_qp(new_qp(pd, cq)).unwrap();
        function.create_srq(pd, 1, 1).unwrap();
        function.allocate_window(WindowType::One, pd).unwrap();
    }
    while function.used().pds < 8 {
        function.allocate_pd().unwrap();
    }
    let refusals = [
        function.create_cq(1).err(),
        function.create_qp(new_qp(pd, cq)).err(),
        function.create_srq(pd, 1, 1).err(),
        function.allocate_window(WindowType::One, pd).err(),
        function.allocate_pd().err(),
    ];
    for refusal in refusals {
        assert_eq!(refusal.unwrap().kind(), Kind::Exhausted);
    }
    assert_eq!(
        function.query_cq(cq).unwrap().users,
        8,
        "the refused one is not counted"
    );
}

#[test]
fn verbs_enforce_reported_attributes() {
    let (function, pd, cq) = function_with_cq();
    let a = *function.attributes();
    let largest = Limits {
        sends: a.requests,
        receives: a.requests,
        max_sge: a.max_sge,
        inline: a.inline,
    };
    let make = |limits| {
        function.create_qp(NewQp {
            limits,
            ..new_qp(pd, cq)
        })
    };
    make(largest).unwrap();
    for change in [
        |l: &mut Limits| l.sends += 1,
        |l: &mut Limits| l.receives += 1,
        |l: &mut Limits| l.max_sge += 1,
        |l: &mut Limits| l.inline += 1,
    ] {
        let mut limits = largest;
        change(&mut limits);
        assert_eq!(make(limits).unwrap_err().kind(), Kind::Misuse);
    }
    function.create_cq(a.entries).unwrap();
    assert!(function.create_cq(a.entries + 1).is_err());
    let srq = function
        .create_srq(pd, a.shared_receives, a.max_sge)
        .unwrap();
    assert!(
        function
            .create_srq(pd, a.shared_receives + 1, a.max_sge)
            .is_err()
    );
    assert!(
        function
            .create_srq(pd, a.shared_receives, a.max_sge + 1)
            .is_err()
    );
    function
        .modify_srq(srq.number(), a.shared_receives)
        .unwrap();
    let above = function.modify_srq(srq.number(), a.shared_receives + 1);
    assert!(matches!(above, Err(Error::TooLarge { .. })));
}

#[test]
fn protection_domain_in_use_cannot_be_freed() {
    let (function, pd, cq) = function_with_cq();
    let out = &mut Outbox::new();
    let qp = function.create_qp(new_qp(pd, cq)).unwrap().number();
    let srq = function.create_srq(pd, 1, 1).unwrap().number();
    let buffer = function.register_buffer(pd, 64, Access::ALL).unwrap();
    let window = function.allocate_window(WindowType::TwoB, pd).unwrap();
    let at = verbena_wire::To::new(0);
    let other = function.allocate_pd().unwrap();
    let shared = function
        .register_shared(buffer.stag(), at, other, Access::LOCAL_READ)
        .unwrap();
    assert_eq!(users(function.free_pd(pd).unwrap_err()), 4);
    assert_eq!(users(function.free_pd(other).unwrap_err()), 1);
    function.deregister(shared).unwrap();
    function.free_pd(other).unwrap();
    let bind = Bind {
        window,
        region: buffer.stag(),
        addr: buffer.at(),
        len: 8,
        access: Access::REMOTE_READ,
        pd,
        qp,
        key: 3,
        zero_based: false,
        one_touch: false,
    };
    let bound = function.tpt().bind(&bind).unwrap();
    assert_eq!(users(function.free_pd(pd).unwrap_err()), 4);
    function.deregister(bound).unwrap();
    drop(buffer);
    function.destroy_srq(srq, &mut Outbox::new()).unwrap();
    assert_eq!(users(function.free_pd(pd).unwrap_err()), 1);
    function.destroy_qp(qp, out).unwrap();
    function.free_pd(pd).unwrap();
    assert!(function.free_pd(pd).is_err());
}

#[test]
fn queues_stay_while_queue_pairs_use_them() {
    let (function, pd, cq) = function_with_cq();
    let out = &mut Outbox::new();
    let other = function.create_cq(5).unwrap().number();
    let srq = function.create_srq(pd, 10, 2).unwrap().number();
    let with_srq = NewQp {
        recv_cq: other,
        srq: Some(srq),
        ..new_qp(pd, cq)
    };
    let first = function.create_qp(with_srq).unwrap().number();
    let second = function.create_qp(new_qp(pd, cq)).unwrap().number();
    assert_eq!(users(function.destroy_cq(cq).unwrap_err()), 2);
    assert_eq!(users(function.destroy_cq(other).unwrap_err()), 1);
    assert_eq!(
        users(function.destroy_srq(srq, &mut Outbox::new()).unwrap_err()),
        1
    );
    assert_eq!(function.query_srq(srq).unwrap().users, 1);
    function.destroy_qp(first, out).unwrap();
    function.destroy_srq(srq, &mut Outbox::new()).unwrap();
    function.destroy_cq(other).unwrap();
    function.destroy_qp(second, out).unwrap();
    function.destroy_cq(cq).unwrap();
}

#[test]
fn srq_of_another_domain_is_refused() {
    let (function, pd, cq) = function_with_cq();
    let other = function.allocate_pd().unwrap();
    let srq = function.create_srq(other, 10, 2).unwrap().number();
    let refused = function.create_qp(NewQp {
        srq: Some(srq),
        ..new_qp(pd, cq)
    });
    let expected = "shared receive queue 1 belongs to protection domain 2, not 1";
    assert_eq!(refused.unwrap_err().to_string(), expected);
    function.destroy_srq(srq, &mut Outbox::new()).unwrap();
}

#[test]
fn queries_report_current_attributes() {
    let (function, pd, cq) = function_with_cq();
    let out = &mut Outbox::new();
    function.resize_cq(cq, 7).unwrap();
    assert_eq!(function.query_cq(cq).unwrap().entries, 7);
    assert!(function.resize_cq(cq, 0).is_err());
    let srq = function.create_srq(pd, 10, 2).unwrap();
    function.modify_srq(srq.number(), 3).unwrap();
    let wr = crate::wr::ReceiveWr {
        id: 1,
        scatter: &[],
    };
    function.post_srq_receive(srq.number(), &wr, out).unwrap();
    let info = function.query_srq(srq.number()).unwrap();
    assert_eq!((info.pd, info.receives, info.max_sge), (pd, 10, 2));
    assert_eq!((info.waiting, info.limit, info.users), (1, 3, 0));

    let new = new_qp(pd, cq);
    let qp = function.create_qp(new).unwrap();
    let enabled = QpAccessFlags {
        write: false,
        ..QpAccessFlags::default()
    };
    qp.set_access_flags(enabled, out);
    function.modify_qp(qp.number(), QpState::Init, out).unwrap();
    let info = function.query_qp(qp.number()).unwrap();
    assert_eq!((info.init_attr, info.view.enabled), (new, enabled));
    assert_eq!((info.view.state, info.verbs), (QpState::Init, 1));
    assert_eq!((info.rdmac, info.view.cause), (RdmacState::Idle, None));
    let refused = function.modify_qp(qp.number(), QpState::Sqd, out);
    let expected = "queue pair 2 cannot go from Init to Sqd";
    assert_eq!(refused.unwrap_err().to_string(), expected);
    function.modify_qp(qp.number(), QpState::Err, out).unwrap();
    let info = function.query_qp(qp.number()).unwrap();
    assert_eq!(info.view.cause.unwrap(), "requested by the consumer");
}

fn same(a: &Arc<Qp>, b: &Arc<Qp>) -> bool {
    Arc::ptr_eq(a, b)
}

#[test]
fn freed_queue_pair_number_is_not_reused_next() {
    let (function, pd, cq) = function_with_cq();
    let out = &mut Outbox::new();
    let first = function.create_qp(new_qp(pd, cq)).unwrap();
    let second = function.create_qp(new_qp(pd, cq)).unwrap();
    assert!(same(&function.qp(first.number()).unwrap(), &first));
    assert!(same(&function.qp(second.number()).unwrap(), &second));
    function.destroy_qp(first.number(), out).unwrap();
    let third = function.create_qp(new_qp(pd, cq)).unwrap();
    assert_ne!(third.number(), first.number());
    assert!(function.qp(first.number()).is_err());
}
