//! Connections that are made and closed leak neither descriptors nor memory. One test, because both are counted per process.

use std::sync::mpsc;

use verbena_engine::{Engine, QueuePairOptions};
use verbena_testing::own_process;

use crate::common::{
    SEND, Side, TEST_TIMEOUT, accept_next, config, connect_pair, descriptors, dial, loopback,
    make_qp, resident_bytes, serialize_tests, wait,
};

/// What a process may grow by independently of the number of cycles.
const SLACK: usize = 3 << 20;

/// Connects two new queue pairs and drops them: in turns one side first, the other first, and with messages in flight.
fn cycle(a: &Side, b: &Side, round: usize) {
    let (qp, peer) = (
        make_qp(&a.engine, &a.cq, a.pd),
        make_qp(&b.engine, &b.cq, b.pd),
    );
    let listener = b.engine.listen(loopback(), 4).unwrap();
    connect_pair(&qp, &listener, &peer);
    if round.is_multiple_of(3) {
        let wr = verbena_nic::SendWr {
            id: 1,
            op: SEND,
            flags: verbena_nic::Flags::SIGNALED,
            data: verbena_nic::wr::Data::Gather(&[a.sge(0, 100)]),
        };
        qp.post_send(&wr).unwrap();
    }
    if round.is_multiple_of(2) {
        drop(qp);
        drop(peer);
    } else {
        drop(peer);
        drop(qp);
    }
}

/// An own receive queue for each connection, and one queue for all sends.
fn cycle_with_queue(a: &Side, b: &Side) {
    let recv = a.engine.create_cq(16).unwrap();
    let options = QueuePairOptions::new(a.pd);
    let qp = a.engine.create_qp(&a.cq, &recv, options).unwrap();
    let peer = make_qp(&b.engine, &b.cq, b.pd);
    let listener = b.engine.listen(loopback(), 4).unwrap();
    connect_pair(&qp, &listener, &peer);
}

#[test]
fn thousand_connections_leak_nothing() {
    let _alone = serialize_tests();
    own_process!();
    crate::common::within(std::time::Duration::from_secs(40), all_cycles);
}

/// Threads are counted per process, too.
fn engines_end_their_threads() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    let engine = Engine::new(config(&[("shards", "2")])).unwrap();
    assert_eq!(threads(), before, "nothing was made yet");
    let cqs = (engine.create_cq(16).unwrap(), engine.create_cq(16).unwrap());
    assert_eq!(threads(), before + 2, "both shards");
    drop(cqs);
    drop(engine);
    wait("threads end", || threads() == before);
}

fn all_cycles() {
    engines_end_their_threads();
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    for round in 0..200 {
        cycle(&a, &b, round);
    }
    let bare = || a.engine.function().used().qps == 1 && b.engine.function().used().qps == 1;
    wait("queue pairs are gone", bare);
    // Two shards, their descriptors, listeners and tables: whatever the first cycles allocated. Sockets that still close are few.
    let (files, memory) = (descriptors(), resident_bytes());
    for round in 0..1000 {
        cycle(&a, &b, round);
    }
    wait("descriptors are given back", || descriptors() <= files + 2);
    let grown = resident_bytes().saturating_sub(memory);
    println!("1,000 cycles: {grown} bytes grown");
    assert!(grown < SLACK, "{grown} bytes for 1,000 cycles");

    for _ in 0..100 {
        cycle_with_queue(&a, &b);
    }
    wait("queues are given back", || descriptors() <= files + 6);

    // Engines that are dropped at any point of a startup.
    for round in 0..30 {
        let brief = [("startup_timeout", "100ms")];
        let (c, d) = (Side::new(&brief), Side::new(&brief));
        let listener = d.engine.listen(loopback(), 4).unwrap();
        let (done, notified) = mpsc::channel();
        c.qp.connect(listener.local_addr().unwrap(), b"", move |r| {
            done.send(r).unwrap();
        })
        .unwrap();
        match round % 3 {
            0 => drop(c),
            1 => {
                accept_next(&listener, &d.qp);
                drop(c.engine);
            }
            _ => drop(d),
        }
        // `done` is called in any case, and once.
        assert!(notified.recv_timeout(TEST_TIMEOUT).is_ok(), "round {round}");
        assert!(notified.recv().is_err());
    }
    wait("engines are gone", || descriptors() <= files + 6);
    assert!(dial(&a.qp, "127.0.0.1:1".parse().unwrap()).is_err());
}
