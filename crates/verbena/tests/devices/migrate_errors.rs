//! Migrations that fail, and why (V1). The connection continues where it was.

use verbena::low::{Cq, Data, Qp, QpOptions, RecvWr, Wc};
use verbena::{Access, Device, Error, Status};

use crate::common::low::{SEND, complete, connect_qps, wait_until, wr};
use crate::common::{LOOPBACK, device, virtual_function};

/// Two connected queue pairs of one device, and a virtual function of it.
fn connected_qps() -> (Device, Device, Cq, Qp, Cq, Qp) {
    let adapter = device(LOOPBACK);
    let (a, b) = (adapter.cq(64).unwrap(), adapter.cq(64).unwrap());
    let pd = adapter.pd().unwrap();
    let options = QpOptions::default();
    let ours = Qp::new(&pd, &a, &a, options).unwrap();
    let theirs = Qp::new(&pd, &b, &b, options).unwrap();
    let listener = adapter.listen("127.0.0.1:0").unwrap();
    connect_qps(&listener, &ours, &theirs);
    let function = virtual_function(&adapter);
    (adapter, function, a, ours, b, theirs)
}

fn send(qp: &Qp, id: u64) {
    qp.post_send(&[wr(id, SEND, Data::Inline(b"hello"))])
        .unwrap();
}

#[test]
fn refused_migration_keeps_the_connection() {
    let (_adapter, function, a, ours, b, theirs) = connected_qps();
    let (pd, elsewhere) = (function.pd().unwrap(), function.cq(64).unwrap());
    // Queues of one function, a domain of another.
    let refused = ours.migrate(&pd, &a, &a, None).unwrap_err();
    assert!(matches!(refused.source, Error::Foreign), "{refused}");
    // A shared receive queue for a queue pair that has its own.
    let srq = pd.srq(16, 1).unwrap();
    let refused = refused
        .qp
        .migrate(&pd, &elsewhere, &elsewhere, Some(&srq))
        .unwrap_err();
    assert!(
        refused.to_string().contains("a shared one was given"),
        "{refused}"
    );
    // The new queue is too small for the completions that were not polled.
    let ours = refused.qp;
    for id in 0..3 {
        theirs.post_recv(&[RecvWr { id, scatter: &[] }]).unwrap();
        ours.post_send(&[wr(id, SEND, Data::Inline(b""))]).unwrap();
    }
    assert_eq!(complete(&b, 3).len(), 3);
    wait_until("all sends are done", || ours.view().sends == 0);
    let small = function.cq(2).unwrap();
    let refused = ours.migrate(&pd, &small, &small, None).unwrap_err();
    assert!(
        refused.to_string().contains("3 completions wait"),
        "{refused}"
    );
    // It can still be migrated, with its completions.
    let moved = refused
        .qp
        .migrate(&pd, &elsewhere, &elsewhere, None)
        .unwrap();
    let mut some = [Wc::default(); 8];
    assert_eq!(a.poll(&mut some), 0, "nothing is left behind");
    let came = complete(&elsewhere, 3);
    assert!(came.iter().all(|wc| wc.qpn == moved.number()));
    assert_eq!(came.iter().map(|wc| wc.id).collect::<Vec<_>>(), [0, 1, 2]);
    theirs
        .post_recv(&[RecvWr {
            id: 9,
            scatter: &[],
        }])
        .unwrap();
    moved.post_send(&[wr(9, SEND, Data::Inline(b""))]).unwrap();
    assert_eq!(complete(&b, 1)[0].id, 9);
}

#[test]
fn disconnected_queue_pair_is_not_migrated() {
    let (_adapter, function, _a, ours, b, theirs) = connected_qps();
    let (pd, cq) = (function.pd().unwrap(), function.cq(64).unwrap());
    drop(ours);
    wait_until("the peer has noticed", || theirs.view().peer_disconnected);
    let refused = theirs.migrate(&pd, &cq, &cq, None).unwrap_err();
    assert!(
        refused.to_string().contains("without an established"),
        "{refused}"
    );
    drop((refused, b));
}

#[test]
fn srq_queue_pair_migrates_to_another_srq() {
    let adapter = device(LOOPBACK);
    let function = virtual_function(&adapter);
    let (a, b) = (adapter.cq(64).unwrap(), adapter.cq(64).unwrap());
    let pd = adapter.pd().unwrap();
    let srq = pd.srq(16, 1).unwrap();
    let ours = Qp::with_srq(&pd, &a, &a, &srq, QpOptions::default()).unwrap();
    let theirs = Qp::new(&pd, &b, &b, QpOptions::default()).unwrap();
    let listener = adapter.listen("127.0.0.1:0").unwrap();
    connect_qps(&listener, &theirs, &ours);
    // A message that finds no receive waits at its sender, before the move and after it.
    send(&theirs, 1);
    wait_until("it was refused", || ours.view().counters.rnr_sent == 1);
    let (there, done) = (function.pd().unwrap(), function.cq(64).unwrap());
    let refused = ours.migrate(&there, &done, &done, None).unwrap_err();
    assert!(refused.to_string().contains("none was given"), "{refused}");
    let stock = there.srq(16, 1).unwrap();
    let moved = refused
        .qp
        .migrate(&there, &done, &done, Some(&stock))
        .unwrap();
    let memory = there.memory(64, Access::ALL).unwrap();
    let scatter = [memory.sge(0, 64).unwrap()];
    stock
        .post(&[RecvWr {
            id: 5,
            scatter: &scatter,
        }])
        .unwrap();
    let came = complete(&done, 1);
    assert_eq!((came[0].id, came[0].qpn), (5, moved.number()));
    assert_eq!(came[0].status, Status::Success);
    // The old queue is not in use any more.
    drop(srq);
}
