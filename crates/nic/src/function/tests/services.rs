//! Tests of functions that are for some services only (V2): every kind of queue pair, in a function of every set.

use verbena_stream::Time;
use verbena_wire::number::Qpn;

use super::*;
use crate::carrier::Carrier;
use crate::qp::{Receiving, Sending};
use crate::ssq::SsqLimits;
use crate::ulp::{NewUlp, UlpInit, UlpQp};

#[derive(Debug)]
struct Driver(u32);

impl UlpQp for Driver {
    fn number(&self) -> u32 {
        self.0
    }

    fn state(&self) -> QpState {
        QpState::Rts
    }

    fn handle_connected(&self) {}

    fn receive(&self, _: &mut dyn Carrier, _: Time, _: &mut Outbox) -> Receiving {
        Receiving::WouldBlock
    }

    fn try_transmit(&self, _: &mut dyn Carrier, _: Time, _: &mut Outbox) -> Option<Sending> {
        Some(Sending::Idle)
    }

    fn fail(&self, _: &str, _: &mut Outbox) {}

    fn retire(&self, _: &mut Outbox) -> bool {
        true
    }

    fn is_busy(&self) -> bool {
        false
    }
}

/// The results for a queue pair on a connection, a channel of a shared send queue, one for datagrams, and one for iSCSI.
fn outcomes(services: &[Service]) -> [Option<Error>; 4] {
    let shares = function().attributes.shares;
    let services = services.iter().copied().collect();
    let function = Function::new((5, services), shares, 1..9, Policy::Verbs, 1);
    let pd = function.allocate_pd().unwrap();
    let cq = function.create_cq(100).unwrap().number();
    let ssq = function.create_ssq(pd, cq, SsqLimits::default()).unwrap();
    let used = function.used();
    let ud = NewUd {
        qpn: Qpn::new(9).unwrap(),
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        limits: Limits::default(),
    };
    let ulp = NewUlp {
        service: Service::Iscsi,
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        limits: Limits::default(),
    };
    let new = new_qp(pd, cq);
    let said = [
        function.create_qp(new).err(),
        function.create_channel(ssq.number(), new).err(),
        function.create_ud(ud).err(),
        function
            .create_ulp(ulp, |init: UlpInit| Driver(init.number))
            .map(|made| assert!(made.0 >= FIRST_QP))
            .err(),
    ];
    let made = said.iter().filter(|said| said.is_none()).count() as u32;
    assert_eq!(function.used().qps, made);
    assert_eq!(function.used().pds, used.pds);
    said
}

#[test]
fn function_creates_only_qps_of_its_services() {
    let refused = |service, services: &[Service]| {
        Some(Error::Service {
            number: 5,
            service,
            services: services.iter().copied().collect(),
        })
    };
    let (rdma, iscsi) = (Service::Rdma, Service::Iscsi);
    assert_eq!(outcomes(&[rdma, iscsi]), [None; 4]);
    let no = refused(iscsi, &[rdma]);
    assert_eq!(outcomes(&[rdma]), [None, None, None, no]);
    let no = refused(rdma, &[iscsi]);
    assert_eq!(outcomes(&[iscsi]), [no, no, no, None]);
    let none: [Service; 0] = [];
    let (no, nor) = (refused(rdma, &none), refused(iscsi, &none));
    assert_eq!(outcomes(&none), [no, no, no, nor]);
    assert_eq!(
        no.unwrap().to_string(),
        "function 5 has no queue pairs for rdma: its device provides nothing (setting `presents`)"
    );
    assert_eq!(no.unwrap().kind(), Kind::Misuse);
}
