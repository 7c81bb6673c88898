//! M18 over sockets: the depths that the consumer chose take effect, as seen on the wire and by the poster.
//! A relay counts the reads that are outstanding.

use verbena::low::{
    Data, Limits, PostError, PostRecvError, PostSendError, Qp, QpOptions, QpState, RecvWr, SendOp,
    Wc,
};
use verbena::{Access, Error, Fault, Status};

use crate::common::device;
use crate::common::low::{SEND, complete, connect_qps, wait_until, wr};
use crate::common::relay::Relay;

/// Reads beyond the depth wait on this side, whichever side chose it, and all complete in the end.
#[test]
fn outstanding_reads_respect_ord_and_ird() {
    const READS: usize = 12;
    for (ord, ird, both) in [(3, 16, 3), (16, 2, 2), (1, 1, 1), (64, 64, READS)] {
        // Standard opcodes, so that the relay can read them.
        let settings = &[("extensions", "off")];
        let (ours, theirs) = (device(settings), device(settings));
        let (pd, cq) = (ours.pd().unwrap(), ours.cq(64).unwrap());
        let a = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
        a.set_attr(|attr| attr.ord = Some(ord));
        let (their_pd, their_cq) = (theirs.pd().unwrap(), theirs.cq(64).unwrap());
        let b = Qp::new(&their_pd, &their_cq, &their_cq, QpOptions::default()).unwrap();
        b.set_attr(|attr| attr.ird = Some(ird));
        let listener = theirs.listen("127.0.0.1:0").unwrap();
        let relay = Relay::to(listener.local_addr().unwrap());
        let joining = a.connect(relay.at, b"").unwrap();
        let request = listener.next().wait().unwrap();
        request.accept_on(&b, b"").unwrap().wait().unwrap();
        joining.wait().unwrap();

        let (here, there) = (
            pd.memory(1 << 16, Access::ALL).unwrap(),
            their_pd.memory(1 << 16, Access::ALL).unwrap(),
        );
        there
            .write_at(0, &crate::common::pattern(1 << 16, 5))
            .unwrap();
        let before = relay.reads().0;
        relay.hold(true);
        let sent = a.view().counters.messages_out;
        for i in 0..READS {
            let sink = [here.sge(i * 4096, 4096).unwrap()];
            let op = SendOp::Read {
                remote: there.remote_addr(i * 4096).unwrap(),
                local_invalidate: None,
            };
            a.post_send(&[wr(i as u64, op, Data::Gather(&sink))])
                .unwrap();
        }
        // Posted requests are transmitted at once, so by now all that may be transmitted have been.
        let begun = a.view().counters.messages_out - sent;
        assert_eq!(begun, both as u64, "ord {ord}, ird {ird}");
        wait_until("the requests are on the wire", || {
            relay.reads().0 - before == both
        });
        assert_eq!(cq.poll(&mut [Wc::default(); 4]), 0);
        assert_eq!(relay.reads().0 - before, both);
        relay.hold(false);
        for (id, wc) in (0..).zip(complete(&cq, READS)) {
            assert_eq!((wc.id, wc.status), (id, Status::Success));
        }
        let (asked, most) = relay.reads();
        assert_eq!(
            (asked - before, most),
            (READS, both),
            "ord {ord}, ird {ird}"
        );
        let mut got = vec![0; READS * 4096];
        here.read_at(0, &mut got).unwrap();
        assert!(got == crate::common::pattern(1 << 16, 5)[..READS * 4096]);
    }
}

/// Accepts as many requests as were asked for at creation, then fails with that number.
#[test]
fn a_full_queue_refuses_with_its_depth() {
    let device = device(&[]);
    let (pd, cq, got) = (
        device.pd().unwrap(),
        device.cq(64).unwrap(),
        device.cq(64).unwrap(),
    );
    let memory = pd.memory(64, Access::ALL).unwrap();
    let limits = Limits {
        sends: 4,
        receives: 3,
        max_sge: 2,
        inline: 10,
    };
    let options = QpOptions::default().limits(limits);
    let a = Qp::new(&pd, &cq, &cq, options).unwrap();
    let b = Qp::new(&pd, &got, &got, options).unwrap();
    // M21: both are queue pairs of one device.
    connect_qps(&device.listen("127.0.0.1:0").unwrap(), &a, &b);

    // No receive is posted, so nothing completes.
    let send = wr(1, SEND, Data::Inline(b"0123456789"));
    assert_eq!(
        a.post_send(&[send; 6]),
        Err(PostSendError {
            posted: 4,
            source: PostError::Full(4)
        })
    );
    assert_eq!(
        a.post_send(&[send]),
        Err(PostSendError {
            posted: 0,
            source: PostError::Full(4)
        })
    );
    let error = Error::from(PostError::Full(4));
    assert_eq!(error.fault(), Fault::Limit);
    assert!(error.to_string().contains('4'), "{error}");

    let place = [memory.sge(0, 16).unwrap()];
    let receive = RecvWr {
        id: 2,
        scatter: &place,
    };
    let posted = b.post_recv(&[receive; 3]);
    assert_eq!(posted, Ok(()));
    assert_eq!(complete(&got, 3).len(), 3);
    b.post_recv(&[receive]).unwrap();
    for wc in complete(&cq, 4).into_iter().chain(complete(&got, 1)) {
        assert_eq!(wc.status, Status::Success);
    }
    assert_eq!(
        b.post_recv(&[receive; 5]),
        Err(PostRecvError {
            posted: 3,
            source: PostError::Full(3)
        })
    );
    assert_eq!(b.view().receives, 3);
    a.post_send(&[send]).unwrap();
    complete(&cq, 1);

    let pieces = [memory.sge(0, 1).unwrap(); 3];
    let refused = a.post_send(&[wr(1, SEND, Data::Gather(&pieces))]);
    assert_eq!(
        refused,
        Err(PostSendError {
            posted: 0,
            source: PostError::TooManySges { got: 3, limit: 2 }
        })
    );
    let refused = a.post_send(&[wr(1, SEND, Data::Inline(&[0; 11]))]);
    assert_eq!(
        refused,
        Err(PostSendError {
            posted: 0,
            source: PostError::Inline { got: 11, limit: 10 }
        })
    );
    assert_eq!(a.view().state, QpState::Rts, "refusals change nothing");
}

#[test]
fn limits_beyond_device_are_refused_at_creation() {
    let device = device(&[]);
    let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
    let most = device.attributes().requests;
    let sends = |sends| {
        QpOptions::default().limits(Limits {
            sends,
            ..Limits::default()
        })
    };
    Qp::new(&pd, &cq, &cq, sends(most)).unwrap();
    let refused = Qp::new(&pd, &cq, &cq, sends(most + 1)).unwrap_err();
    assert_eq!(refused.fault(), Fault::Caller);
    let numbers = [(most + 1).to_string(), most.to_string()];
    assert!(
        numbers.iter().all(|n| refused.to_string().contains(n)),
        "{refused}"
    );
}
