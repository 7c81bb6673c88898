//! Tests that a queue pair that found no room continues when there is some, whichever thread reads the socket.

use core::time::Duration;

use verbena_nic::qp::Limits;
use verbena_nic::ud::{Destination, UdSendWr};
use verbena_nic::wr::Data;
use verbena_nic::{Flags, QpState, Wc};

use super::*;
use crate::{Config, Engine, UdOptions, UdPair};

/// A queue pair with ten posted sends, as if the socket had had no room for the first.
fn blocked(engine: &Engine, cq: &crate::CompletionQueue) -> UdPair {
    let pd = engine.function().allocate_pd().unwrap();
    let options = UdOptions {
        limits: Limits::default(),
        ..UdOptions::new(pd)
    };
    let ud = engine.create_ud(cq, cq, options).unwrap();
    for state in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd] {
        assert!(ud.modify(state));
    }
    let here = engine.addresses().unwrap()[0];
    for id in 0..10 {
        let to = Destination {
            address: here,
            source: here,
            number: ud.number(),
            qkey: 0,
        };
        let wr = UdSendWr {
            id,
            immediate: None,
            flags: Flags::SIGNALED,
            data: Data::Inline(b"later"),
            to,
        };
        ud.post_sends(&[wr]).unwrap();
    }
    // On the `nic` object directly, so that no thread transmits.
    assert!(ud.member.qp.modify(QpState::Rts, &mut Outbox::new()));
    assert_eq!(ud.view().sends, 10);
    ud
}

#[test]
fn blocked_sends_resume_when_socket_is_writable() {
    let mut config = Config::from_parts(None, core::iter::empty()).unwrap();
    config.set("device", "127.0.0.1").unwrap();
    let engine = Engine::new(config).unwrap();
    let cq = engine.create_cq(100).unwrap();
    for lent in [false, true] {
        let ud = blocked(&engine, &cq);
        let udp_port = &ud.member.udp_ports[0];
        if lent {
            udp_port.lend();
        }
        udp_port.resume_when_writable(&ud.member);
        udp_port.resume_when_writable(&ud.member);
        let until = sys::now() + Duration::from_secs(10);
        sys::wait(until, || ud.view().sends == 0);
        let mut done = [Wc::default(); 20];
        assert_eq!(cq.cq().poll(&mut done), 10, "lent: {lent}");
        assert!(done.iter().take(10).map(|wc| wc.id).eq(0..10));
        assert!(udp_port.state.lock().blocked.is_empty());
        if lent {
            udp_port.take_back();
        }
    }
}

#[test]
fn failed_retry_pauses_then_resumes_blocked_sends() {
    let mut config = Config::from_parts(None, core::iter::empty()).unwrap();
    config.set("device", "127.0.0.1").unwrap();
    let engine = Engine::new(config).unwrap();
    let cq = engine.create_cq(100).unwrap();
    let ud = blocked(&engine, &cq);
    // In SQD it does not send, as if sends found no room although the socket polls writable.
    assert!(ud.member.qp.modify(QpState::Sqd, &mut Outbox::new()));
    let udp_port = &ud.member.udp_ports[0];
    udp_port.resume_when_writable(&ud.member);
    let until = sys::now() + Duration::from_secs(10);
    sys::wait(until, || udp_port.state.lock().blocked.is_empty());
    assert!(ud.member.qp.modify(QpState::Rts, &mut Outbox::new()));
    udp_port.resume_when_writable(&ud.member);
    sys::wait(until, || ud.view().sends == 0);
    assert_eq!(ud.view().counters.sent, 10);
}
