//! Memory per idle queue pair and per region: the growth of the process, divided; docs/performance.md has the numbers.
//! It counts resident pages, so it includes the allocator's overhead. It runs on Linux only, where they are in `/proc`.

#![allow(missing_docs, reason = "a program, not a library")]

#[allow(dead_code, reason = "shared with the other benchmark")]
mod common;

use common::{Host, Wire, run};
use verbena_mem::{Access, Buffer};
use verbena_nic::wc::Wc;
use verbena_nic::wr::Data;
use verbena_nic::{Flags, Qp, ReceiveWr, SendOp, SendWr, Sge};
use verbena_stream::Role;
use verbena_wire::To;

const PAGE: usize = 4096;
const QPS: usize = 10_000;
const REGIONS: usize = 100_000;

fn main() {
    println!(
        "{:>6} bytes: a queue pair itself",
        size_of::<verbena_nic::Qp>()
    );
    let (mut a, mut b) = (Host::new(), Host::new());
    let mut wire = Wire::default();
    let before = resident();
    let qps: Vec<_> = (0..QPS).map(|_| a.qp()).collect();
    report("a queue pair in Reset", before, QPS);

    let before = resident();
    let peers: Vec<_> = (0..QPS).map(|_| b.qp()).collect();
    for (qp, peer) in qps.iter().zip(&peers) {
        a.connect(qp, Role::Initiator, true);
        b.connect(peer, Role::Responder, true);
        run(&mut wire, qp, &mut a.out, peer, &mut b.out);
    }
    report(
        "a second one, and a connection between both, idle",
        before,
        QPS,
    );

    let buffer = a.function.register_buffer(a.pd, 1 << 16, Access::ALL);
    let buffer = buffer.expect("memory is there");
    let before = resident();
    for (qp, peer) in qps.iter().zip(&peers) {
        send_large(&mut wire, (&mut a, qp), (&mut b, peer), &buffer);
    }
    report("what both keep of a Send of 64 KiB", before, QPS);

    let stag = buffer.stag();
    let before = resident();
    for _ in 0..REGIONS {
        let shared = a
            .function
            .register_shared(stag, To::new(0), a.pd, Access::LOCAL_READ);
        shared.expect("the table has room");
    }
    report("a region on shared translation", before, REGIONS);
}

/// A Send of 64 KiB that the peer receives without keeping it.
fn send_large(
    wire: &mut Wire,
    (a, qp): (&mut Host, &Qp),
    (b, peer): (&mut Host, &Qp),
    from: &Buffer,
) {
    let to = b.function.register_buffer(b.pd, from.len(), Access::ALL);
    let to = to.expect("memory is there");
    let piece = |buffer: &Buffer| Sge {
        addr: buffer.at(),
        len: buffer.len() as u32,
        stag: buffer.stag(),
    };
    let (id, scatter) = (1, &[piece(&to)][..]);
    let posted = peer.post_receive(&ReceiveWr { id, scatter }, &mut b.out);
    posted.expect("the queue has room");
    let wr = SendWr {
        id,
        op: SendOp::Send {
            invalidate: None,
            immediate: None,
        },
        flags: Flags::SIGNALED,
        data: Data::Gather(&[piece(from)]),
    };
    qp.post_send(&wr, &mut a.out).expect("the queue has room");
    run(wire, qp, &mut a.out, peer, &mut b.out);
    for cq in [&a.cq, &b.cq] {
        assert_eq!(cq.poll(&mut [Wc::default()]), 1);
    }
}

fn report(what: &str, before: usize, count: usize) {
    println!(
        "{:>6} bytes: {what}",
        resident().saturating_sub(before) / count
    );
}

/// Resident bytes of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is readable");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse::<usize>().ok());
    pages.expect("a number") * PAGE
}
