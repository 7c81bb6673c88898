//! Peers in separate processes: killed, stopped, and killed with unread bytes, which resets the connection.

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::*;

const UNIT_VARIABLE: &str = "VERBENA_TEST_UNIT";

/// The process that is killed: it connects, reports that it is ready, and waits for the end of its input.
#[test]
fn child_waits_to_be_killed() {
    let Ok(unit) = std::env::var(UNIT_VARIABLE) else {
        return;
    };
    let mut host = Side::new(IwarpCarrier::dial(unit.parse().unwrap(), Config::default()).unwrap());
    let a = host.carrier.create_pair(SMALL).unwrap();
    (0..8).for_each(|id| host.receive(a, id));
    host.carrier.connect(a, b"may I?").unwrap();
    until([&mut host], |[host]| host.take_connected(a));
    host.send(a, 100, b"here");
    until([&mut host], |[host]| host.take_done(100));
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// A host in a separate process, connected.
fn spawn_host(unit: &mut Side) -> (Child, Pair) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("carrier::iwarp::tests::peer_death::child_waits_to_be_killed")
        .env(UNIT_VARIABLE, unit.carrier.address().unwrap().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let b = unit.carrier.create_pair(SMALL).unwrap();
    (0..8).for_each(|id| unit.receive(b, id));
    let (ticket, _) = until([&mut *unit], |[unit]| unit.take_request());
    unit.carrier.accept(ticket, b, b"").unwrap();
    until([&mut *unit], |[unit]| unit.take_connected(b));
    until([&mut *unit], |[unit]| unit.take_done(0));
    let (mut received, mut byte) = (Vec::new(), [0]);
    let out = child.stdout.as_mut().unwrap();
    while !received.ends_with(b"ready\n") {
        out.read_exact(&mut byte).unwrap();
        received.push(byte[0]);
    }
    (child, b)
}

#[test]
fn killed_peer_ends_the_pair() {
    let mut unit = unit();
    let (mut child, b) = spawn_host(&mut unit);
    child.kill().unwrap();
    child.wait().unwrap();
    until([&mut unit], |[unit]| unit.take_end(b));
    for id in 1..8 {
        let wc = until([&mut unit], |[unit]| unit.take_done(id));
        assert_eq!(wc.status, Status::WrFlushErr);
    }
    unit.carrier.destroy(b);
}

/// Stops the process: its kernel still acknowledges TCP segments.
fn stop(child: &Child) {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::STOP).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
}

#[test]
fn local_failure_is_reported_despite_stopped_peer() {
    let mut unit = unit();
    let (mut child, b) = spawn_host(&mut unit);
    stop(&child);
    let beyond = unit.own.sge(64 * SLOT - 1, 2);
    unit.carrier.post_send(b, 1000, beyond).unwrap();
    until([&mut unit], |[unit]| unit.take_end(b));
    let wc = until([&mut unit], |[unit]| unit.take_done(1000));
    assert_eq!(wc.status, Status::LocProtErr);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn peer_killed_with_unread_bytes_ends_the_pair() {
    let mut unit = unit();
    let (mut child, b) = spawn_host(&mut unit);
    stop(&child);
    for id in 0..8 {
        unit.send(b, 100 + id, b"unread");
    }
    unit.turn();
    child.kill().unwrap();
    child.wait().unwrap();
    let why = until([&mut unit], |[unit]| unit.take_end(b));
    for id in 100..108 {
        let wc = until([&mut unit], |[unit]| unit.take_done(id));
        assert_ne!(wc.status, Status::Success, "{why}");
    }
}
