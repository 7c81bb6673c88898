//! Connected processes without traffic make no system call. Their threads are counted.

use std::time::Duration;

use verbena_nic::wr::Data;
use verbena_nic::{Flags, ReceiveWr, SendWr, Status};
use verbena_testing::own_process;

use crate::common::process::{Peer, print_line, read_line};
use crate::common::{SEND, Side, accept_next, dial, loopback, make_qp, serialize_tests, wait};

/// Voluntary context switches of the threads of a process: every blocking system call causes one.
fn context_switches(pid: u32) -> u64 {
    let mut all = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let task = task.unwrap().path();
        let name = std::fs::read_to_string(task.join("comm")).unwrap();
        if !name.starts_with("verbena-") {
            continue;
        }
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        for line in status.lines().filter(|l| l.contains("ctxt_switches")) {
            let count = line.split_whitespace().last().unwrap();
            all += count.parse::<u64>().unwrap();
        }
    }
    all
}

/// Processor time of a process, in ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind = stat.rsplit(')').next().unwrap();
    let fields: Vec<_> = behind.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Listens, accepts three connections, and idles.
pub(crate) fn accept_three_and_idle() {
    let side = Side::new(&[]);
    let listener = side.engine.listen(loopback(), 4).unwrap();
    print_line(&listener.local_addr().unwrap().to_string());
    let qps: Vec<_> = (0..3)
        .map(|_| make_qp(&side.engine, &side.cq, side.pd))
        .collect();
    for qp in &qps {
        accept_next(&listener, qp);
    }
    let scatter = [side.sge(0, 64)];
    for qp in &qps {
        let id = 1;
        let scatter = &scatter;
        qp.post_receive(&ReceiveWr { id, scatter }).unwrap();
    }
    print_line("ready");
    read_line();
}

#[test]
fn idle_connections_cause_no_wakeups() {
    let _alone = serialize_tests();
    own_process!();
    let mut peer = Peer::start("idle", &[]);
    let at = peer.read_line().parse().unwrap();
    let side = Side::new(&[]);
    let qps: Vec<_> = (0..3)
        .map(|_| make_qp(&side.engine, &side.cq, side.pd))
        .collect();
    for qp in &qps {
        dial(qp, at).unwrap();
    }
    assert_eq!(peer.read_line(), "ready");
    // Something was sent before, and a timer ran for the peer's answer.
    let wr = SendWr {
        id: 1,
        op: SEND,
        flags: Flags::SIGNALED,
        data: Data::Gather(&[side.sge(0, 8)]),
    };
    qps[0].post_send(&wr).unwrap();
    assert_eq!(side.statuses(1), [(1, Status::Success)]);
    // A peer that connects and leaves must not leave a timer behind.
    drop(std::net::TcpStream::connect(at).unwrap());
    let pids = [std::process::id(), peer.id()];
    let all = || pids.map(context_switches);
    // The timer for the peer's answer runs for half a second at a time, and expires once more for nothing.
    let still = || {
        let before = all();
        // real time: longer than the timer's interval, which only the peer's silence shows.
        std::thread::sleep(Duration::from_millis(700));
        all() == before
    };
    wait("quiet", still);
    let (before, busy) = (all(), pids.map(ticks));
    // real time: the subject is that nothing happens while no time limit of the adapter expires.
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(all(), before, "a thread woke without need");
    let spent: u64 = pids.map(ticks).iter().sum::<u64>() - busy.iter().sum::<u64>();
    assert!(spent <= 2, "{spent} ticks");
    drop(qps);
}
