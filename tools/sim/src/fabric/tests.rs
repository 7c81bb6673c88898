//! Scenarios between whole adapters, among them the two deadlocks of docs/connections.md.
//! A fabric behaves as documented, and both sides see its faults. Random scenarios are in the simulations of adapters.

mod bugs;
mod faults;
mod packets;

use core::time::Duration;

use verbena_mem::Buffer;
use verbena_nic::wr::Data;
use verbena_nic::{Flags, ReceiveWr, SendOp, SendWr, Status};

use super::*;

const SEND: SendOp = SendOp::Send {
    invalidate: None,
    immediate: None,
};

fn post(fabric: &mut Fabric, qp: QpId, id: u64, op: SendOp, memory: &Buffer, len: usize) {
    let data = [sge(memory, 0, len)];
    let wr = SendWr {
        id,
        op,
        flags: Flags::SIGNALED,
        data: Data::Gather(&data),
    };
    fabric.post_send(qp, &wr).unwrap();
}

fn statuses(wcs: &[Wc]) -> Vec<(u64, Status)> {
    wcs.iter().map(|wc| (wc.id, wc.status)).collect()
}

fn read(memory: &Buffer) -> SendOp {
    SendOp::Read {
        remote: remote(memory, 0),
        local_invalidate: None,
    }
}

/// RC: a missing receive on both sides must not block the read responses and acknowledgements behind it.
#[test]
fn mutual_missing_receives_do_not_block_reads() {
    let mut fabric = Fabric::new(1);
    let hosts = [fabric.host(), fabric.host()];
    let qps = hosts.map(|h| fabric.qp(h));
    let memory = hosts.map(|h| fabric.memory(h, 8000));
    fabric.connect(qps[0], qps[1]);
    fabric.run();
    for side in 0..2 {
        let theirs = &memory[1 - side];
        post(&mut fabric, qps[side], 1, read(theirs), &memory[side], 8000);
        post(&mut fabric, qps[side], 2, SEND, &memory[side], 100);
        post(&mut fabric, qps[side], 3, read(theirs), &memory[side], 8000);
    }
    fabric.run();
    for qp in qps {
        assert_eq!(statuses(&fabric.sent(qp)), [(1, Status::Success)]);
    }
    for side in 0..2 {
        let scatter = [sge(&memory[side], 0, 100)];
        let wr = ReceiveWr {
            id: 9,
            scatter: &scatter,
        };
        fabric.post_receive(qps[side], &wr).unwrap();
    }
    fabric.run();
    for qp in qps {
        let rest = [(2, Status::Success), (3, Status::Success)];
        assert_eq!(statuses(&fabric.sent(qp)), rest);
        assert_eq!(statuses(&fabric.received(qp)), [(9, Status::Success)]);
    }
}

/// RC: queue pairs that wait for a shared receive queue are served in order, one per receive.
#[test]
fn waiting_queue_pairs_share_receives_in_order() {
    let mut fabric = Fabric::new(2);
    let (server, client) = (fabric.host(), fabric.host());
    let srq = fabric.srq(16);
    let memory = [fabric.memory(server, 1000), fabric.memory(client, 1000)];
    let mut pairs = Vec::new();
    for _ in 0..4 {
        let options = QpOptions {
            srq: Some(srq.clone()),
            ..QpOptions::default()
        };
        let pair = (fabric.qp_with(server, options), fabric.qp(client));
        fabric.connect(pair.1, pair.0);
        pairs.push(pair);
    }
    fabric.run();
    for (_, client) in &pairs {
        for id in 0..3 {
            post(&mut fabric, *client, id, SEND, &memory[1], 50);
        }
    }
    fabric.run();
    let scatter = [sge(&memory[0], 0, 50)];
    for id in 0..12 {
        let wr = ReceiveWr {
            id,
            scatter: &scatter,
        };
        fabric.post_shared(&srq, &wr).unwrap();
        fabric.run();
    }
    assert!(srq.is_empty());
    for (server, client) in pairs {
        let all = [0, 1, 2].map(|id| (id, Status::Success));
        assert_eq!(statuses(&fabric.sent(client)), all);
        assert_eq!(fabric.received(server).len(), 3);
    }
}

#[test]
fn connection_reset_fails_waiting_requests() {
    let mut fabric = Fabric::new(3);
    let hosts = [fabric.host(), fabric.host()];
    let qps = hosts.map(|h| fabric.qp(h));
    let memory = fabric.memory(hosts[0], 100);
    let connection = fabric.connect(qps[0], qps[1]);
    fabric.run();
    post(&mut fabric, qps[0], 1, SEND, &memory, 10);
    post(&mut fabric, qps[0], 2, SEND, &memory, 10);
    fabric.run();
    fabric.reset(connection);
    let ends = [(1, Status::RetryExcErr), (2, Status::WrFlushErr)];
    assert_eq!(statuses(&fabric.sent(qps[0])), ends);
    assert!(fabric.is_closed(connection));
}

#[test]
fn killed_host_fails_requests_of_its_peer() {
    let mut fabric = Fabric::new(4);
    let hosts = [fabric.host(), fabric.host()];
    let qps = hosts.map(|h| fabric.qp(h));
    let memory = fabric.memory(hosts[0], 100);
    fabric.connect(qps[0], qps[1]);
    fabric.run();
    post(&mut fabric, qps[0], 1, SEND, &memory, 10);
    fabric.run();
    fabric.kill(hosts[1]);
    fabric.run();
    let ends = [(1, Status::RetryExcErr)];
    assert_eq!(statuses(&fabric.sent(qps[0])), ends);
    assert!(fabric.is_dead(hosts[1]) && !fabric.is_dead(hosts[0]));
}

#[test]
fn stall_delays_and_loses_nothing() {
    let mut fabric = Fabric::new(5);
    let hosts = [fabric.host(), fabric.host()];
    let qps = hosts.map(|h| fabric.qp(h));
    let memory = hosts.map(|h| fabric.memory(h, 100));
    let connection = fabric.connect(qps[0], qps[1]);
    fabric.run();
    fabric.stall(connection, Duration::from_millis(20));
    post(&mut fabric, qps[0], 1, read(&memory[1]), &memory[0], 100);
    fabric.run_for(Duration::from_millis(19));
    assert!(fabric.sent(qps[0]).is_empty());
    fabric.run();
    assert_eq!(statuses(&fabric.sent(qps[0])), [(1, Status::Success)]);
}
