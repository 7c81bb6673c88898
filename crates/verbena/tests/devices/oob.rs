//! Out-of-band connections through the low layer: names as text, first PSNs, time limits, and errors.
//! Both queue pairs are in one process.

use std::time::Duration;

use verbena::low::{Cq, Data, Psn, Psns, Qp, QpEndpoint, QpOptions, QpState, RecvWr, SendOp};
use verbena::{Access, Device, Error, Fault, Memory, Status};

use crate::common::low::{SEND, complete, wait_until, wr};
use crate::common::{device, pattern};

struct Side {
    qp: Qp,
    cq: Cq,
    memory: Memory,
    device: Device,
}

fn side() -> Side {
    let device = device(&[("device", "127.0.0.1")]);
    let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
    let options = QpOptions::default().oob(true);
    Side {
        qp: Qp::new(&pd, &cq, &cq, options).unwrap(),
        memory: pd.memory(8192, Access::ALL).unwrap(),
        cq,
        device,
    }
}

/// The name as the peer gets it, through text.
fn endpoint_via_text(side: &Side) -> QpEndpoint {
    let line = side.qp.endpoint().unwrap().to_string() + "\n";
    line.parse().unwrap()
}

#[test]
fn queue_pairs_connect_out_of_band() {
    let (a, b) = (side(), side());
    let psn = |n| Psn::new(n).unwrap();
    for (side, send, receive) in [(&a, 7, 9), (&b, 9, 7)] {
        let psns = Psns {
            send: psn(send),
            receive: psn(receive),
        };
        side.qp.set_attr(|attr| attr.psns = Some(psns));
    }
    a.qp.set_peer(endpoint_via_text(&b)).unwrap();
    // The other one later: requests wait for it.
    a.qp.modify(QpState::Rts).unwrap();
    let data = pattern(4000, 3);
    a.memory.write_at(0, &data).unwrap();
    let write = SendOp::Write {
        remote: b.memory.remote_addr(4096).unwrap(),
        immediate: None,
    };
    let whole = [a.memory.sge(0, 4000).unwrap()];
    a.qp.post_send(&[wr(1, write, Data::Gather(&whole))])
        .unwrap();
    b.qp.set_peer(endpoint_via_text(&a)).unwrap();
    assert_eq!(complete(&a.cq, 1)[0].status, Status::Success);
    let mut got = vec![0; 4000];
    b.memory.read_at(4096, &mut got).unwrap();
    assert!(got == data);
    wait_until("both know", || {
        a.qp.peer_addr().is_some() && b.qp.peer_addr().is_some()
    });

    b.qp.modify(QpState::Rts).unwrap();
    let scatter = [a.memory.sge(0, 64).unwrap()];
    a.qp.post_recv(&[RecvWr {
        id: 2,
        scatter: &scatter,
    }])
    .unwrap();
    b.qp.post_send(&[wr(3, SEND, Data::Inline(b"back"))])
        .unwrap();
    let came = complete(&a.cq, 1)[0];
    assert_eq!((came.id, came.len), (2, 4));
    assert_eq!(
        came.qpn,
        a.qp.endpoint().unwrap().number,
        "completions bear it"
    );
    assert_eq!(a.device.addresses().unwrap(), b.device.addresses().unwrap());
}

#[test]
fn absent_peer_fails_requests_in_time() {
    let (a, gone) = (side(), endpoint_via_text(&side()));
    a.qp.set_attr(|attr| attr.peer_timeout = Some(Duration::from_millis(300)));
    a.qp.set_peer(gone).unwrap();
    a.qp.modify(QpState::Rts).unwrap();
    a.qp.post_send(&[wr(1, SEND, Data::Inline(b"hello"))])
        .unwrap();
    assert_eq!(complete(&a.cq, 1)[0].status, Status::RetryExcErr);
}

#[test]
fn invalid_calls_are_refused() {
    let a = side();
    let pd = a.device.pd().unwrap();
    let plain = Qp::new(&pd, &a.cq, &a.cq, QpOptions::default()).unwrap();
    for refused in [
        plain.endpoint().map(|_| ()),
        plain.set_peer(endpoint_via_text(&a)),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.fault(), Fault::Caller, "{error}");
    }
    assert_eq!(plain.view().state, QpState::Reset, "nothing has changed");
    let big = QpEndpoint {
        number: 1 << 24,
        ..endpoint_via_text(&a)
    };
    assert!(matches!(
        a.qp.set_peer(big),
        Err(Error::InvalidQpEndpoint { .. })
    ));
    let elsewhere = "192.0.2.1".parse().unwrap();
    let refused =
        a.qp.set_peer_from(elsewhere, endpoint_via_text(&a))
            .unwrap_err();
    assert_eq!(refused.fault(), Fault::Caller, "{refused}");
    for text in [
        "",
        "127.0.0.1",
        "#7",
        "127.0.0.1#",
        "host#7",
        "::1#16777216",
    ] {
        let error = text.parse::<QpEndpoint>().unwrap_err();
        assert_eq!(error.fault(), Fault::Peer, "{error}");
    }
    let long = "x".repeat(1 << 20).parse::<QpEndpoint>().unwrap_err();
    assert!(long.to_string().len() < 200);
    assert_eq!("fe80::1#2".parse::<QpEndpoint>().unwrap().number, 2);
}
