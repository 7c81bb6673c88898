//! The programs.

use verbena_nic::wr::Data;
use verbena_nic::{Flags, ReceiveWr, SendOp, SendWr, Status, Wc};
use verbena_sync::locks::mpsc;

use crate::host::{Host, Random, loopback};

pub(crate) fn name(_: u64) -> &'static str {
    "first"
}

pub(crate) fn run(seed: u64) {
    let mut random = Random::new(seed);
    let (a, b) = (Host::new(&mut random), Host::new(&mut random));
    let (ours, theirs) = (a.queue_pair(), b.queue_pair());
    let listener = b.engine.listen(loopback(), 4).unwrap();
    let (done, told) = mpsc::channel();
    let sure = done.clone();
    ours.connect(listener.local_addr().unwrap(), b"hello", move |r| {
        done.send(r.is_ok()).unwrap()
    })
    .unwrap();
    let incoming = listener.next().unwrap().unwrap();
    incoming
        .accept(&theirs, b"welcome", move |r| sure.send(r.is_ok()).unwrap())
        .unwrap();
    assert!(told.recv().unwrap());
    assert!(told.recv().unwrap());
    theirs
        .post_receive(&ReceiveWr {
            id: 1,
            scatter: &[b.sge(0, 4096)],
        })
        .unwrap();
    a.memory.write(0, &[7; 3000]);
    ours.post_send(&SendWr {
        id: 2,
        op: SendOp::Send {
            invalidate: None,
            immediate: None,
        },
        flags: Flags::SIGNALED,
        data: Data::Gather(&[a.sge(0, 3000)]),
    })
    .unwrap();
    for host in [&b, &a] {
        let mut wc = [Wc::default(); 1];
        while host.cq.poll(&mut wc) == 0 {
            verbena_sync::thread::spin_loop();
        }
        assert_eq!(wc[0].status, Status::Success);
    }
    assert_eq!(b.memory.read(0, 3000), vec![7; 3000]);
}
