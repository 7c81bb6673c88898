//! Ten thousand connected queue pairs, one end per process: connected, a message on each, destroyed, nothing left.
//! If the descriptor limit is too low, a tenth is used, and the test prints so.

use std::sync::mpsc;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use verbena_engine::{QueuePair, QueuePairOptions};
use verbena_nic::wr::Data;
use verbena_nic::{Flags, ReceiveWr, SendWr, Status};
use verbena_testing::own_process;

use crate::common::process::{Peer, print_line, read_line};
use crate::common::{
    SEND, Side, TEST_TIMEOUT, complete, descriptors, loopback, resident_bytes, serialize_tests,
    wait,
};

/// Connects in progress at once; the other side accepts at most 512 half-open ones.
const WINDOW: usize = 256;

fn count() -> usize {
    let most = getrlimit(Resource::Nofile).maximum;
    if most.is_none_or(|most| most > 11_000) {
        return 10_000;
    }
    println!(
        "SKIPPED: ten thousand queue pairs; this process may have {most:?} descriptors. One thousand instead."
    );
    1_000
}

fn make(side: &Side, all: usize) -> Vec<QueuePair> {
    let options = QueuePairOptions::new(side.pd);
    let one = |_| side.engine.create_qp(&side.cq, &side.cq, options).unwrap();
    (0..all).map(one).collect()
}

fn ready() -> Side {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, most).unwrap();
    // On a busy machine the last of many waits long.
    let side = Side::new(&[("startup_timeout", "60s")]);
    side.cq.resize(40_000).unwrap();
    side
}

fn bytes_per_pair(grown: usize, all: usize) -> usize {
    grown / all
}

/// Role `many`.
pub(crate) fn accept_many() {
    let (all, side) = (count(), ready());
    let listener = side.engine.listen(loopback(), 512).unwrap();
    print_line(&listener.local_addr().unwrap().to_string());
    let (files, memory) = (descriptors(), resident_bytes());
    let qps = make(&side, all);
    let (done, notified) = mpsc::channel();
    for qp in &qps {
        let done = done.clone();
        let incoming = listener.next().unwrap().unwrap();
        incoming
            .accept(qp, b"", move |r| done.send(r.is_ok()).unwrap())
            .unwrap();
    }
    for _ in &qps {
        assert!(notified.recv_timeout(TEST_TIMEOUT).unwrap());
    }
    let grown = bytes_per_pair(resident_bytes() - memory, all);
    let scatter = [side.sge(0, 64)];
    for qp in &qps {
        let (id, scatter) = (1, &scatter[..]);
        qp.post_receive(&ReceiveWr { id, scatter }).unwrap();
    }
    print_line(&format!(
        "{grown} bytes per connected queue pair, accepting"
    ));
    let got = complete(&side.cq, all);
    assert!(got.iter().all(|wc| wc.status == Status::Success));
    print_line("got all");
    read_line();
    let start = Instant::now();
    drop(qps);
    wait("descriptors", || descriptors() <= files + 2);
    print_line(&format!("torn down in {:?}", start.elapsed()));
    read_line();
}

#[test]
fn thousands_of_queue_pairs_connect_between_processes() {
    let _alone = serialize_tests();
    own_process!();
    let mut peer = Peer::start("many", &[]);
    let (all, side) = (count(), ready());
    let to = peer.read_line().parse().unwrap();
    let (files, memory) = (descriptors(), resident_bytes());
    let start = Instant::now();
    let qps = make(&side, all);
    let created = start.elapsed();
    let (done, notified) = mpsc::channel();
    let mut answered = 0;
    for (at, qp) in qps.iter().enumerate() {
        let done = done.clone();
        qp.connect(to, b"", move |r| done.send(r).unwrap()).unwrap();
        while at - answered > WINDOW {
            notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
            answered += 1;
        }
    }
    for _ in answered..all {
        notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    }
    let connected = start.elapsed();
    let grown = bytes_per_pair(resident_bytes() - memory, all);
    println!("{all} made in {created:?}, connected after {connected:?}");
    println!("{grown} bytes per connected queue pair, dialling");
    println!("{}", peer.read_line());
    let begun = Instant::now();
    for qp in &qps {
        let wr = SendWr {
            id: 1,
            op: SEND,
            flags: Flags::SIGNALED,
            data: Data::Gather(&[side.sge(0, 64)]),
        };
        qp.post_send(&wr).unwrap();
    }
    let ended = complete(&side.cq, all);
    assert!(ended.iter().all(|wc| wc.status == Status::Success));
    assert_eq!(peer.read_line(), "got all");
    println!("a message on each in {:?}", begun.elapsed());
    let begun = Instant::now();
    drop(qps);
    peer.send_line("tear down");
    println!("{}", peer.read_line());
    wait("descriptors", || descriptors() <= files + 2);
    println!("all gone after {:?}", begun.elapsed());
    peer.send_line("thank you");
}
