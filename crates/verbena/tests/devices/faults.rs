//! Faults that a test sets: each kind on connected queue pairs, over the stream and over RoCEv2, with the cause that is told.
//! Every test with RoCEv2 has addresses of its own, because all of them use UDP port 4791.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use verbena::events::Event;
use verbena::faults::Script;
use verbena::low::{Cq, Data, Qp, QpOptions, QpState, RecvWr};
use verbena::unstable::Wire;
use verbena::{Access, Device, Memory, Status};
use verbena_testing::{WAIT_LIMIT, wait_until};

use crate::common::device;
use crate::common::low::{SEND, complete, connect_qps, wr};

const INJECTED: &str = "(injected by verbena faults)";

struct Side {
    qp: Qp,
    cq: Cq,
    memory: Memory,
    device: Device,
}

impl Side {
    fn new(settings: &[(&str, &str)]) -> Side {
        let device = device(settings);
        let (pd, cq) = (device.pd().unwrap(), device.cq(256).unwrap());
        Side {
            qp: Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap(),
            memory: pd.memory(4096, Access::ALL).unwrap(),
            cq,
            device,
        }
    }

    fn set(&self, script: &str) {
        let script: Script = script.parse().unwrap();
        self.device.set_faults(&script).unwrap();
    }

    fn fired(&self) -> u64 {
        self.device.faults().rules[0].fired
    }

    fn receive(&self, ids: core::ops::Range<u64>) {
        for id in ids {
            let scatter = [self.memory.sge(0, 64).unwrap()];
            let scatter = &scatter;
            self.qp.post_recv(&[RecvWr { id, scatter }]).unwrap();
        }
    }

    fn send(&self, ids: core::ops::Range<u64>) {
        let piece = [self.memory.sge(64, 64).unwrap()];
        for id in ids {
            let request = wr(id, SEND, Data::Gather(&piece));
            self.qp.post_send(&[request]).unwrap();
        }
    }

    fn statuses(&self, count: usize) -> Vec<(u64, Status)> {
        let done = complete(&self.cq, count);
        done.iter().map(|wc| (wc.id, wc.status)).collect()
    }

    fn assert_injected(&self) {
        let failure = self.qp.view().failure.expect("a failure");
        assert_eq!(failure.kind.name(), "injected", "{failure:?}");
        assert!(failure.sentence.ends_with(INJECTED), "{failure:?}");
    }
}

fn connected(a: &[(&str, &str)], b: &[(&str, &str)], at: &str) -> (Side, Side) {
    let (a, b) = (Side::new(a), Side::new(b));
    let listener = b.device.listen(at).unwrap();
    let joining = a.qp.connect(listener.local_addr().unwrap(), b"").unwrap();
    let request = listener.next().wait().unwrap();
    request.accept_on(&b.qp, b"").unwrap().wait().unwrap();
    joining.wait().unwrap();
    (a, b)
}

/// Over the stream in shared memory, over TCP, and over RoCEv2 at addresses of this test.
fn everywhere(test: u8, run: impl Fn(Side, Side)) {
    let (a, b) = connected(&[], &[], "127.0.0.1:0");
    run(a, b);
    let tcp = [("same_host", "off")];
    let (a, b) = connected(&tcp, &tcp, "127.0.0.1:0");
    run(a, b);
    let address = |host| format!("127.0.83.{}", test * 2 + host);
    let (ours, theirs) = (address(0), address(1));
    let (a, b) = connected(
        &[("device", &ours), ("wire", "roce")],
        &[("device", &theirs), ("wire", "roce")],
        &format!("{theirs}:0"),
    );
    run(a, b);
}

#[test]
fn failed_send_flushes_those_behind_it() {
    everywhere(1, |a, b| {
        a.set("completion nth=3 status=REM_ACCESS_ERR");
        b.receive(0..5);
        a.send(1..6);
        let flushed = Status::WrFlushErr;
        let expected = [
            Status::Success,
            Status::Success,
            Status::RemAccessErr,
            flushed,
            flushed,
        ];
        let expected: Vec<_> = (1..).zip(expected).collect();
        assert_eq!(a.statuses(5), expected);
        assert_eq!(a.fired(), 1);
        a.assert_injected();
        let request = a.qp.view().failure.unwrap().request.unwrap();
        assert_eq!((request.0.id, request.1), (3, Status::RemAccessErr));
    });
}

#[test]
fn failed_receive_ends_the_queue_pair() {
    everywhere(2, |a, b| {
        b.set("receive nth=2 status=LOC_LEN_ERR");
        b.receive(0..3);
        a.send(1..3);
        let expected = [
            (0, Status::Success),
            (1, Status::LocLenErr),
            (2, Status::WrFlushErr),
        ];
        assert_eq!(b.statuses(3), expected);
        b.assert_injected();
    });
}

#[test]
fn refused_posts_return_their_number() {
    let (a, b) = connected(&[], &[], "127.0.0.1:0");
    a.set("seed=5; post rate=0.3 errno=ENOMEM");
    b.receive(0..100);
    let piece = [a.memory.sge(64, 64).unwrap()];
    let post = |side: &Side| -> Vec<u64> {
        let refused = |id: &u64| {
            let posted = side.qp.post_send(&[wr(*id, SEND, Data::Gather(&piece))]);
            posted.is_err_and(|error| {
                let error = verbena::Error::from(error.source);
                assert_eq!(error.os_error(), Some(12), "{error}");
                true
            })
        };
        (0..100).filter(refused).collect()
    };
    let first = post(&a);
    assert_eq!(first.len() as u64, a.fired());
    assert!((10..60).contains(&first.len()), "{first:?}");
    let good = 100 - first.len();
    assert!(a.statuses(good).iter().all(|(_, s)| *s == Status::Success));
    // The same seed gives the same faults.
    a.set("seed=5; post rate=0.3 errno=ENOMEM");
    b.statuses(good);
    b.receive(0..good as u64);
    assert_eq!(post(&a), first);
}

#[test]
fn delayed_sends_arrive_late_and_whole() {
    everywhere(3, |a, b| {
        const DELAY: Duration = Duration::from_millis(30);
        a.set("delay nth=2 time=30ms");
        b.receive(0..3);
        let begun = Instant::now();
        a.send(1..4);
        let expected = [1, 2, 3].map(|id| (id, Status::Success));
        assert_eq!(a.statuses(3), expected);
        assert!(begun.elapsed() >= DELAY);
        assert_eq!(b.statuses(3).len(), 3);
        a.send(4..5);
        b.receive(4..5);
        assert_eq!(a.statuses(1), [(4, Status::Success)]);
    });
}

#[test]
fn refused_messages_arrive_in_the_end() {
    everywhere(4, |a, b| {
        b.set("rnr nth=1 count=3");
        b.receive(0..2);
        a.send(1..3);
        assert_eq!(a.statuses(2), [1, 2].map(|id| (id, Status::Success)));
        assert_eq!(b.statuses(2), [0, 1].map(|id| (id, Status::Success)));
        assert!(b.qp.view().counters.rnr_sent >= 3);
        // For a time instead, begun while nothing arrives.
        b.set("rnr time=20ms");
        assert_eq!(b.fired(), 1);
        b.receive(5..6);
        a.send(5..6);
        assert_eq!(a.statuses(1), [(5, Status::Success)]);
    });
}

#[test]
fn killed_queue_pair_raises_an_event() {
    everywhere(5, |a, b| {
        let (tell, told) = mpsc::channel();
        a.device.on_event(move |event| {
            let _ = tell.send(event);
        });
        a.receive(7..8);
        a.set("kill");
        assert_eq!(a.fired(), 1);
        assert_eq!(a.statuses(1), [(7, Status::WrFlushErr)]);
        assert_eq!(a.qp.state(), QpState::Err);
        a.assert_injected();
        let fatal = |event| matches!(event, Event::QpFatal { .. });
        while !fatal(told.recv_timeout(WAIT_LIMIT).expect("an event")) {}
        drop(b);
    });
}

#[test]
fn kill_at_a_post_flushes_it() {
    let (a, b) = connected(&[], &[], "127.0.0.1:0");
    a.set("kill nth=2");
    b.receive(0..2);
    a.send(1..2);
    assert_eq!(a.statuses(1), [(1, Status::Success)]);
    a.send(2..3);
    assert_eq!(a.statuses(1), [(2, Status::WrFlushErr)]);
    a.assert_injected();
    // The peer is told.
    wait_until("the end of the peer", || b.qp.state() == QpState::Err);
}

#[test]
fn reset_connection_fails_its_requests() {
    everywhere(6, |a, b| {
        a.set("reset nth=2");
        b.receive(0..1);
        a.send(1..2);
        assert_eq!(a.statuses(1), [(1, Status::Success)]);
        a.send(2..3);
        // Over RoCEv2, which has no reset, it ends as by a kill.
        let roce = a.device.config().wire == Wire::Roce;
        let status = match roce {
            true => Status::WrFlushErr,
            false => Status::RetryExcErr,
        };
        assert_eq!(a.statuses(1), [(2, status)]);
        assert_eq!(a.fired(), 1);
        a.assert_injected();
        drop(b);
    });
}

#[test]
fn failed_connect_leaves_the_queue_pair_usable() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    a.set("connect nth=1 errno=ECONNREFUSED");
    let listener = b.device.listen("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let refused = a.qp.connect(to, b"").expect_err("an error");
    assert_eq!(refused.os_error(), Some(111), "{refused}");
    connect_qps(&listener, &a.qp, &b.qp);
}

#[test]
fn port_goes_down_and_up_again() {
    let (a, b) = connected(&[], &[], "127.0.0.1:0");
    let (tell, told) = mpsc::channel();
    a.device.on_event(move |event| {
        if matches!(event, Event::PortError { .. } | Event::PortActive { .. }) {
            let _ = tell.send(event);
        }
    });
    a.set("port-down time=500ms");
    let next = || told.recv_timeout(WAIT_LIMIT).expect("an event");
    assert_eq!(next(), Event::PortError { port: 1 });
    b.receive(0..1);
    a.send(1..2);
    assert_eq!(next(), Event::PortActive { port: 1 });
    assert!(a.device.is_link_up().unwrap());
    assert_eq!(a.statuses(1), [(1, Status::Success)]);
}

#[test]
fn other_queue_pairs_are_not_touched() {
    let (a, b) = connected(&[], &[], "127.0.0.1:0");
    a.set("completion qp=99999 every=1 status=REM_OP_ERR; kill qp=99999");
    b.receive(0..4);
    a.send(1..5);
    let expected: Vec<_> = (1..5).map(|id| (id, Status::Success)).collect();
    assert_eq!(a.statuses(4), expected);
    assert_eq!(a.fired(), 0);
    a.device.clear_faults();
    assert!(a.device.faults().rules.is_empty());
}

#[test]
fn setting_makes_faults_from_the_start() {
    let faulty = [("faults", "register nth=1 errno=EACCES")];
    let device = device(&faulty);
    let pd = device.pd().unwrap();
    let refused = pd.memory(4096, Access::ALL).unwrap_err();
    assert_eq!(refused.os_error(), Some(13), "{refused}");
    pd.memory(4096, Access::ALL).unwrap();
    let mut config = verbena::Config::default();
    let wrong = config.set("faults", "register nth=1").unwrap_err();
    assert!(wrong.to_string().contains("verbena faults"), "{wrong}");
}
