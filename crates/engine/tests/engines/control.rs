//! V5 over loopback: registrations that complete later, work posted before they do, and other connections meanwhile.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use verbena_engine::{ControlQueue, Error, QueuePair};
use verbena_mem::{Access, Buffer, Misuse, Tpt};
use verbena_nic::wr::RemoteAddr;
use verbena_nic::{Arm, ControlOp, Error as Refused, SendOp, Sge, Status, WcOp};
use verbena_wire::To;

use crate::common::{
    SEND, Side, TEST_TIMEOUT, connect_pair, loopback, make_qp, pair, pattern, read_from, wait,
    within, write_to,
};

/// Memory whose registration is queued, and its result.
struct PendingMemory {
    memory: Buffer,
    ended: Receiver<Result<(), Error>>,
}

fn register(side: &Side, control: &ControlQueue, len: usize) -> PendingMemory {
    let mut memory = None;
    let reserve = |tpt: &Arc<Tpt>| {
        let (buffer, reserved) = Buffer::pending(tpt, len, side.pd, Access::ALL)?;
        memory = Some(buffer);
        Ok(reserved)
    };
    let (sender, ended) = mpsc::channel();
    let callback = Box::new(move |outcome| drop(sender.send(outcome)));
    control
        .register(7, side.pd, reserve, Some(callback))
        .unwrap();
    let memory = memory.unwrap();
    PendingMemory { memory, ended }
}

impl PendingMemory {
    fn sge(&self, len: usize) -> Sge {
        Sge {
            addr: self.memory.at(),
            len: len as u32,
            stag: self.memory.stag(),
        }
    }

    fn remote(&self) -> RemoteAddr {
        RemoteAddr {
            stag: self.memory.stag(),
            to: To::new(self.memory.at()),
        }
    }
}

/// Blocks the control thread of a side until dropped: what is queued meanwhile stays pending.
struct BlockedControl {
    _open: Sender<()>,
    _control: ControlQueue,
}

fn block_control(side: &Side) -> BlockedControl {
    let control = side.engine.create_control(None, 4).unwrap();
    let (open, wait) = mpsc::channel::<()>();
    let (busy, notified) = mpsc::channel();
    let wait = Mutex::new(wait);
    let hold = move |_| {
        busy.send(()).unwrap();
        let _ = wait.lock().unwrap().recv();
    };
    control.create_cq(0, 1, Some(Box::new(hold))).unwrap();
    notified.recv_timeout(TEST_TIMEOUT).unwrap();
    BlockedControl {
        _open: open,
        _control: control,
    }
}

/// `rounds` messages both ways on a connection.
fn exchange(a: &Side, b: &Side, rounds: u64) {
    for id in 0..rounds {
        b.receive(id, &[b.sge(0, 64)]);
        a.post(id, SEND, &[a.sge(0, 64)]);
        assert_eq!(b.statuses(1), [(id, Status::Success)]);
        assert_eq!(a.statuses(1), [(id, Status::Success)]);
    }
}

/// Another queue pair of an engine.
fn second_of(side: &Side) -> QueuePair {
    make_qp(&side.engine, &side.cq, side.pd)
}

/// Connects a side to a queue pair of another side's engine.
fn admit_on(a: &Side, b: &Side, qp: &QueuePair) {
    let listener = b.engine.listen(loopback(), 4).unwrap();
    connect_pair(&a.qp, &listener, qp);
}

#[test]
fn write_from_pending_gigabyte_completes_after_registration() {
    let (a, b) = pair(&[]);
    let control = a.engine.create_control(None, 16).unwrap();
    let len = 1 << 30;
    let big = register(&a, &control, len);
    let data = pattern(100_000, 3);
    big.memory.write(0, &data);
    a.post(1, write_to(b.remote(0)), &[big.sge(100_000)]);
    // Its last bytes, too: all of it is registered when the first work on it begins.
    let mut end = big.sge(4096);
    end.addr += len as u64 - 4096;
    a.post(2, write_to(b.remote(1 << 20)), &[end]);
    assert_eq!(a.statuses(2), [(1, Status::Success), (2, Status::Success)]);
    big.ended.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    assert_eq!(b.memory.read(0, 100_000), data);
}

#[test]
fn pending_memory_blocks_only_its_queue_pair() {
    let (a, b) = pair(&[]);
    let (c, d) = pair(&[]);
    // Another queue pair of the very same engine, with the same completion queue.
    let gate = block_control(&a);
    let control = a.engine.create_control(None, 16).unwrap();
    let source = register(&a, &control, 5000);
    source.memory.write(0, &pattern(5000, 9));
    a.post(1, write_to(b.remote(0)), &[source.sge(5000)]);
    a.post(2, write_to(b.remote(8192)), &[a.sge(0, 10)]);
    // Its receive side continues: the peer writes, reads and sends.
    b.post(3, write_to(a.remote(100)), &[b.sge(0, 10)]);
    b.post(4, read_from(a.remote(100)), &[b.sge(20_000, 10)]);
    a.receive(5, &[a.sge(4096, 64)]);
    b.post(6, SEND, &[b.sge(0, 64)]);
    let done: Vec<_> = [3, 4, 6].map(|id| (id, Status::Success)).into();
    assert_eq!(b.statuses(3), done);
    assert_eq!(a.statuses(1), [(5, Status::Success)]);
    exchange(&c, &d, 200);
    assert_eq!(a.qp.view().sends, 2, "both still wait, in order");
    drop(gate);
    assert_eq!(a.statuses(2), [(1, Status::Success), (2, Status::Success)]);
    source.ended.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    assert_eq!(b.memory.read(0, 5000), pattern(5000, 9));
}

#[test]
fn pending_target_delays_only_its_connection() {
    for settings in [[("crc", "off")], [("crc", "on")], [("extensions", "off")]] {
        let (a, b) = pair(&settings);
        // A second connection of the engine whose memory is pending.
        let (c, second) = (Side::new(&settings), second_of(&b));
        admit_on(&c, &b, &second);
        let gate = block_control(&b);
        let control = b.engine.create_control(None, 16).unwrap();
        let (target, source) = (
            register(&b, &control, 1 << 20),
            register(&b, &control, 1 << 20),
        );
        source.memory.write(0, &pattern(300_000, 5));
        a.memory.write(0, &pattern(300_000, 1));
        a.post(1, read_from(source.remote()), &[a.sge(1 << 20, 300_000)]);
        a.post(2, write_to(target.remote()), &[a.sge(0, 300_000)]);
        // Requests of the waiting side itself are sent.
        a.receive(5, &[a.sge(2 << 20, 64)]);
        b.post(6, SEND, &[b.sge(0, 64)]);
        assert_eq!(a.statuses(1), [(5, Status::Success)], "{settings:?}");
        for id in 0..50 {
            c.post(id, write_to(b.remote(1 << 20)), &[c.sge(0, 5000)]);
            assert_eq!(c.statuses(1), [(id, Status::Success)]);
        }
        assert_eq!(target.memory.read(0, 100), [0; 100]);
        drop(gate);
        target.ended.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
        assert_eq!(a.statuses(2), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(b.statuses(1), [(6, Status::Success)]);
        wait("it arrives", || {
            target.memory.read(0, 300_000) == pattern(300_000, 1)
        });
        assert_eq!(a.memory.read(1 << 20, 300_000), pattern(300_000, 5));
    }
}

#[test]
fn receive_into_pending_memory_completes_after_registration() {
    let (a, b) = pair(&[]);
    let gate = block_control(&b);
    let control = b.engine.create_control(None, 16).unwrap();
    let target = register(&b, &control, 5000);
    b.receive(1, &[target.sge(5000)]);
    a.memory.write(0, &pattern(5000, 4));
    a.post(2, SEND, &[a.sge(0, 5000)]);
    b.post(3, write_to(a.remote(8192)), &[b.sge(0, 8)]);
    wait("it is on its way", || b.qp.view().counters.messages_out > 0);
    drop(gate);
    let mut done = b.statuses(2);
    done.sort_by_key(|(id, _)| *id);
    assert_eq!(done, [(1, Status::Success), (3, Status::Success)]);
    assert_eq!(a.statuses(1), [(2, Status::Success)]);
    assert_eq!(target.memory.read(0, 5000), pattern(5000, 4));
}

/// A registration that fails: another one of memory that is gone by then.
fn failing_registration(
    side: &Side,
    control: &ControlQueue,
) -> (verbena_wire::Stag, Receiver<Result<(), Error>>) {
    let memory = side
        .engine
        .function()
        .register_buffer(side.pd, 4096, Access::ALL)
        .unwrap();
    let (sender, ended) = mpsc::channel();
    let callback = Box::new(move |outcome| drop(sender.send(outcome)));
    let terms = (To::new(0), side.pd, Access::ALL);
    let stag = control
        .register_shared(8, memory.stag(), terms, Some(callback))
        .unwrap();
    (stag, ended)
}

#[test]
fn failed_registration_fails_waiting_work() {
    for remote in [false, true] {
        let (a, b) = pair(&[]);
        let owner = if remote { &b } else { &a };
        let gate = block_control(owner);
        let cq = owner.engine.create_cq(16).unwrap();
        let control = owner.engine.create_control(Some(&cq), 16).unwrap();
        let (stag, ended) = failing_registration(owner, &control);
        if remote {
            let to = To::new(0);
            a.post(1, write_to(RemoteAddr { stag, to }), &[a.sge(0, 100)]);
        } else {
            let sge = Sge {
                addr: 0,
                len: 100,
                stag,
            };
            a.post(1, write_to(b.remote(0)), &[sge]);
        }
        a.post(2, SEND, &[a.sge(0, 8)]);
        drop(gate);
        let status = if remote {
            Status::RemAccessErr
        } else {
            Status::LocProtErr
        };
        assert_eq!(a.statuses(2), [(1, status), (2, Status::WrFlushErr)]);
        let outcome = ended.recv_timeout(TEST_TIMEOUT).unwrap();
        assert!(matches!(
            outcome,
            Err(Error::Adapter(Refused::Memory(Misuse::Stag(_))))
        ));
        let wc = crate::common::complete(&cq, 1)[0];
        assert_eq!((wc.id, wc.qpn), (8, control.number()));
        assert_eq!(wc.op, WcOp::Control(ControlOp::Register));
        assert_eq!(wc.status, Status::LocQpOpErr);
    }
}

/// Requests in a control queue pair that is destroyed fail, and so does the work that waits for them.
#[test]
fn dropped_control_queue_fails_waiting_work() {
    let (a, b) = pair(&[]);
    let (gate_a, gate_b) = (block_control(&a), block_control(&b));
    let control = a.engine.create_control(None, 16).unwrap();
    let source = register(&a, &control, 100);
    a.post(1, write_to(b.remote(0)), &[source.sge(100)]);
    drop(control);
    assert_eq!(a.statuses(1), [(1, Status::LocProtErr)]);
    let outcome = source.ended.recv_timeout(TEST_TIMEOUT).unwrap();
    assert!(matches!(outcome, Err(Error::Closed)));
    let (c, d) = pair(&[]);
    let gate_d = block_control(&d);
    let control = d.engine.create_control(None, 16).unwrap();
    let target = register(&d, &control, 100);
    c.post(1, write_to(target.remote()), &[c.sge(0, 100)]);
    drop(control);
    assert_eq!(c.statuses(1), [(1, Status::RemAccessErr)]);
    drop((gate_a, gate_b, gate_d));
}

#[test]
fn memory_wait_timeout_is_an_access_error() {
    let (a, b) = pair(&[("memory_wait", "200ms")]);
    let gate = block_control(&b);
    let control = b.engine.create_control(None, 16).unwrap();
    let target = register(&b, &control, 5000);
    let began = Instant::now();
    let add = SendOp::FetchAdd {
        remote: target.remote(),
        add: 1,
        mask: 0,
    };
    a.post(1, add, &[a.sge(0, 8)]);
    assert_eq!(a.statuses(1), [(1, Status::RemAccessErr)]);
    assert!(began.elapsed() >= Duration::from_millis(200));
    let (c, d) = pair(&[("memory_wait", "200ms")]);
    let gate_d = block_control(&d);
    let control_d = d.engine.create_control(None, 16).unwrap();
    let target_d = register(&d, &control_d, 5000);
    c.post(1, write_to(target_d.remote()), &[c.sge(0, 5000)]);
    assert_eq!(c.statuses(1), [(1, Status::RemAccessErr)]);
    drop((gate, gate_d));
    target.ended.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
}

#[test]
fn control_queue_completes_in_order_and_notifies() {
    let side = Side::new(&[]);
    let cq = side.engine.create_cq(64).unwrap();
    let control = side.engine.create_control(Some(&cq), 64).unwrap();
    let (wake, woken) = mpsc::channel();
    cq.set_notify(Some(Arc::new(move || wake.send(()).unwrap())));
    cq.arm(Arm::Next);
    let memory = register(&side, &control, 100);
    control.deregister(8, memory.memory.stag(), None).unwrap();
    woken.recv_timeout(TEST_TIMEOUT).unwrap();
    let ops: Vec<_> = crate::common::complete(&cq, 2)
        .iter()
        .map(|wc| (wc.id, wc.op))
        .collect();
    let expected = [
        (7, WcOp::Control(ControlOp::Register)),
        (8, WcOp::Control(ControlOp::Deregister)),
    ];
    assert_eq!(ops, expected);
    let twice = control.deregister(9, memory.memory.stag(), None);
    assert!(twice.is_err());
    assert_eq!(control.outstanding(), 0);
}

#[test]
fn shutdown_completes_pending_registrations() {
    within(TEST_TIMEOUT, || {
        let side = Side::new(&[]);
        let gate = block_control(&side);
        let control = side.engine.create_control(None, 64).unwrap();
        let later = register(&side, &control, 100);
        let Side { engine, .. } = side;
        let dropping = std::thread::spawn(move || drop(engine));
        drop(gate);
        dropping.join().unwrap();
        // Completed before the end, or failed; never lost.
        let outcome = later.ended.recv_timeout(TEST_TIMEOUT).unwrap();
        assert!(matches!(outcome, Ok(()) | Err(Error::Closed)));
        let closed = control.create_cq(1, 1, None);
        assert!(matches!(closed, Err(Error::Closed)));
    });
}

/// No wake-up is lost in any order: thousands of registrations with a write directly after each.
#[test]
fn work_races_with_registrations_without_lost_wakeups() {
    let (a, b) = pair(&[]);
    let control = a.engine.create_control(None, 1024).unwrap();
    let far = b.engine.create_control(None, 1024).unwrap();
    for round in 0..1500 {
        let source = register(&a, &control, 4096);
        let target = register(&b, &far, 4096);
        a.post(1, write_to(target.remote()), &[source.sge(64)]);
        a.post(2, read_from(target.remote()), &[source.sge(64)]);
        assert_eq!(
            a.statuses(2),
            [(1, Status::Success), (2, Status::Success)],
            "{round}"
        );
    }
}

/// A completion callback may panic, as a handler may; the control thread continues.
#[test]
fn panicking_callback_does_not_stop_control_queue() {
    let side = Side::new(&[]);
    let control = side.engine.create_control(None, 8).unwrap();
    let panics = |_| panic!("on purpose");
    control.create_cq(1, 16, Some(Box::new(panics))).unwrap();
    let (tell, notified) = mpsc::channel();
    let tell = Box::new(move |outcome: Result<(), Error>| drop(tell.send(outcome)));
    control.create_cq(2, 16, Some(tell)).unwrap();
    notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
}
