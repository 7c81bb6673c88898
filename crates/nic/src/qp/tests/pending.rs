//! V5: memory that is reserved and not registered yet. Only what needs it waits, and every wait ends.

use core::time::Duration;

use verbena_events::event::{Event, Wake};
use verbena_mem::{Access, Bind, Buffer, Reserved, WindowType};
use verbena_wire::To;

use crate::state::{Personality, QpState, QpType};
use crate::testing::{PD, Pair, SEND, Setup, Side, direct, read, write};
use crate::wc::Status;
use crate::wr::{RemoteAddr, SendOp, Sge};

/// Memory of a side whose registration is pending.
struct PendingBuffer {
    memory: Buffer,
    reserved: Reserved,
}

fn reserve_buffer(side: &Side, len: usize) -> PendingBuffer {
    let (memory, reserved) = Buffer::pending(&side.tpt, len, PD, Access::ALL).unwrap();
    PendingBuffer { memory, reserved }
}

impl PendingBuffer {
    fn sge(&self, len: u32) -> Sge {
        Sge {
            addr: self.memory.at(),
            len,
            stag: self.memory.stag(),
        }
    }

    fn remote(&self) -> RemoteAddr {
        RemoteAddr {
            stag: self.memory.stag(),
            to: To::new(self.memory.at()),
        }
    }

    /// Completes the registration; the waiters are woken, and must be exactly these.
    fn complete(self, side: &mut Side, waiters: &[u32]) -> Buffer {
        let settled = self.reserved.complete();
        assert_eq!(settled.outcome, Ok(()));
        assert_eq!(settled.waiters, waiters);
        wake_waiters(side, &settled.waiters);
        self.memory
    }

    fn fail(self, side: &mut Side) {
        let waiters = self.reserved.fail();
        assert!(!waiters.is_empty(), "a queue pair waits");
        wake_waiters(side, &waiters);
    }
}

fn wake_waiters(side: &mut Side, waiters: &[u32]) {
    for qp in waiters {
        side.qp.wake(Wake::Memory(*qp), &mut side.out);
    }
}

fn fetch_add(remote: RemoteAddr) -> SendOp {
    SendOp::FetchAdd {
        remote,
        add: 5,
        mask: 0,
    }
}

/// Staged and direct, with and without extensions, in both personalities.
fn every_setup(test: impl Fn(Setup)) {
    for base in [Setup::default(), direct()] {
        for personality in [Personality::Roce, Personality::Iwarp] {
            for extensions in [false, true] {
                for markers in [false, true] {
                    test(Setup {
                        personality,
                        extensions,
                        markers,
                        ..base
                    });
                }
            }
        }
    }
}

#[test]
fn pending_gather_memory_stalls_only_send_queue() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        let source = reserve_buffer(&pair.a, 3000);
        source.memory.write(0, &[7; 3000]);
        pair.a.memory.write(0, &[8; 100]);
        let (to, behind) = (pair.b.remote(0), pair.b.remote(4000));
        let pieces = [pair.a.sge(0, 50), source.sge(2950)];
        pair.a.post(1, write(to), &pieces);
        let one = [pair.a.sge(0, 100)];
        pair.a.post(2, write(behind), &one);
        let out_before = pair.a.qp.counters().bytes_out;
        pair.run();
        assert!(pair.a.statuses().is_empty(), "{setup:?}");
        assert_eq!(
            pair.a.qp.counters().bytes_out,
            out_before,
            "nothing of it leaves"
        );
        assert_eq!(
            pair.a.qp.deadline(),
            None,
            "our own requests wait as long as it takes"
        );
        // The peer's requests are received and answered meanwhile.
        pair.b.memory.write(5000, &[9; 600]);
        let (ours, from) = (pair.a.remote(5000), pair.b.sge(5000, 600));
        pair.b.post(3, write(ours), &[from]);
        let (ours, sink) = (pair.a.remote(0), pair.b.sge(6000, 100));
        pair.b.post(4, read(ours), &[sink]);
        pair.run();
        assert_eq!(
            pair.b.statuses(),
            [(3, Status::Success), (4, Status::Success)]
        );
        assert_eq!(pair.a.memory.read(5000, 600), [9; 600]);
        assert_eq!(pair.b.memory.read(6000, 100), [8; 100]);

        let waiter = pair.a.qp.number();
        let _memory = source.complete(&mut pair.a, &[waiter]);
        pair.run();
        assert_eq!(
            pair.a.statuses(),
            [(1, Status::Success), (2, Status::Success)]
        );
        assert_eq!(pair.b.memory.read(50, 2950), [7; 2950]);
        assert_eq!(pair.b.memory.read(4000, 100), [8; 100]);
    });
}

#[test]
fn pending_sinks_stall_reads_and_atomics() {
    let mut pair = Pair::roce();
    pair.b.memory.write(0, &[3; 64]);
    let sink = reserve_buffer(&pair.a, 64);
    let from = pair.b.remote(0);
    pair.a.post(1, read(from), &[sink.sge(48)]);
    pair.a.post(2, fetch_add(from), &[sink.sge(8)]);
    pair.run();
    assert!(pair.a.statuses().is_empty());
    let waiter = pair.a.qp.number();
    let memory = sink.complete(&mut pair.a, &[waiter]);
    pair.run();
    assert_eq!(
        pair.a.statuses(),
        [(1, Status::Success), (2, Status::Success)]
    );
    assert_eq!(memory.read(8, 40), [3; 40]);
}

#[test]
fn failed_registration_fails_the_waiting_request() {
    for op in [0, 1] {
        let mut pair = Pair::roce();
        let source = reserve_buffer(&pair.a, 64);
        let to = pair.b.remote(0);
        let op = if op == 0 { write(to) } else { read(to) };
        pair.a.post(1, op, &[source.sge(64)]);
        let sge = pair.a.sge(0, 10);
        pair.a.post(2, write(to), &[sge]);
        pair.run();
        source.fail(&mut pair.a);
        pair.run();
        let ended = [(1, Status::LocProtErr), (2, Status::WrFlushErr)];
        assert_eq!(pair.a.statuses(), ended);
        assert_eq!(pair.a.qp.state(), QpState::Err);
    }
}

/// Binds a new window to a pending region.
fn bind(side: &Side, region: &PendingBuffer) -> SendOp {
    let window = side.tpt.allocate_window(WindowType::TwoB, PD).unwrap();
    SendOp::Bind(Bind {
        window,
        region: region.memory.stag(),
        addr: region.memory.at(),
        len: 64,
        access: Access::REMOTE_WRITE,
        pd: PD,
        qp: side.qp.number(),
        key: 0x5a,
        zero_based: true,
        one_touch: false,
    })
}

#[test]
fn a_bind_waits_for_its_region() {
    let mut pair = Pair::roce();
    let region = reserve_buffer(&pair.a, 64);
    pair.a.post(1, bind(&pair.a, &region), &[]);
    pair.run();
    assert!(pair.a.statuses().is_empty());
    let waiter = pair.a.qp.number();
    let _memory = region.complete(&mut pair.a, &[waiter]);
    pair.run();
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
}

#[test]
fn pending_unreliable_bind_completes_without_peer() {
    let mut pair = Pair::new(Setup {
        qp_type: QpType::Uc,
        ..Setup::default()
    });
    let region = reserve_buffer(&pair.a, 64);
    pair.a.post(1, bind(&pair.a, &region), &[]);
    pair.a.qp.handle_eof(true, &mut pair.a.out);
    assert!(pair.a.statuses().is_empty());
    let waiter = pair.a.qp.number();
    let _memory = region.complete(&mut pair.a, &[waiter]);
    assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
}

#[test]
fn a_write_to_pending_memory_waits_and_arrives() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        pair.a.memory.write(0, &[7; 3000]);
        let target = reserve_buffer(&pair.b, 3000);
        let sge = pair.a.sge(0, 3000);
        pair.a.post(1, write(target.remote()), &[sge]);
        let (behind, sge) = (pair.b.remote(100), pair.a.sge(0, 10));
        pair.a.post(2, write(behind), &[sge]);
        pair.run();
        assert_eq!(
            pair.b.memory.read(100, 10),
            [0; 10],
            "it is behind: {setup:?}"
        );
        // Requests of the side that owns the memory are sent.
        let (to, sge) = (pair.a.remote(5000), pair.b.sge(0, 10));
        pair.b.memory.write(0, &[9; 10]);
        pair.b.post(3, write(to), &[sge]);
        pair.run();
        assert_eq!(pair.a.memory.read(5000, 10), [9; 10]);
        assert!(pair.b.qp.deadline().is_some());

        let waiter = pair.b.qp.number();
        let memory = target.complete(&mut pair.b, &[waiter]);
        pair.run();
        assert_eq!(
            pair.a.statuses(),
            [(1, Status::Success), (2, Status::Success)]
        );
        assert_eq!(pair.b.statuses(), [(3, Status::Success)]);
        assert_eq!(memory.read(0, 3000), [7; 3000]);
        assert_eq!(pair.b.memory.read(100, 10), [7; 10]);
        assert_eq!(pair.b.qp.deadline(), None);
    });
}

#[test]
fn a_receive_into_pending_memory_waits_for_it() {
    for shared in [false, true] {
        every_setup(|setup| {
            let mut pair = Pair::new(Setup { shared, ..setup });
            pair.a.memory.write(0, &[7; 2000]);
            let target = reserve_buffer(&pair.b, 1900);
            // The first element is registered, the second is not.
            let scatter = [pair.b.sge(0, 100), target.sge(1900)];
            pair.b.receive(5, &scatter);
            let sge = pair.a.sge(0, 2000);
            pair.a.post(1, SEND, &[sge]);
            pair.run();
            assert!(pair.b.received().is_empty(), "{setup:?}");
            let waiter = pair.b.qp.number();
            let memory = target.complete(&mut pair.b, &[waiter]);
            pair.run();
            let received = pair.b.received();
            assert_eq!((received[0].id, received[0].len), (5, 2000));
            assert_eq!(pair.b.memory.read(0, 100), [7; 100]);
            assert_eq!(memory.read(0, 1900), [7; 1900]);
            assert_eq!(pair.a.statuses(), [(1, Status::Success)]);
        });
    }
}

#[test]
fn pending_reads_and_atomics_are_answered_in_order() {
    every_setup(|setup| {
        let mut pair = Pair::new(setup);
        let source = reserve_buffer(&pair.b, 1032);
        source.memory.write(0, &[1; 1032]);
        let sink = pair.a.sge(0, 1024);
        pair.a.post(1, read(source.remote()), &[sink]);
        let sink = pair.a.sge(2000, 8);
        // Another word than those that are read, which are sent from their memory.
        let mut word = source.remote();
        word.to = To::new(source.memory.at() + 1024);
        pair.a.post(2, fetch_add(word), &[sink]);
        let (other, sink) = (pair.b.remote(0), pair.a.sge(3000, 8));
        pair.a.post(3, read(other), &[sink]);
        let sge = pair.a.sge(5000, 16);
        pair.a.memory.write(5000, &[5; 16]);
        pair.a.post(4, write(other), &[sge]);
        pair.run();
        assert!(pair.a.statuses().is_empty());
        assert_eq!(
            pair.b.memory.read(0, 16),
            [0; 16],
            "nothing overtakes: {setup:?}"
        );
        let waiter = pair.b.qp.number();
        let memory = source.complete(&mut pair.b, &[waiter]);
        pair.run();
        let ended: Vec<_> = (1..=4).map(|id| (id, Status::Success)).collect();
        assert_eq!(pair.a.statuses(), ended);
        assert_eq!(pair.a.memory.read(0, 1024), [1; 1024]);
        assert_eq!(pair.a.memory.read(2000, 8), [1; 8]);
        assert_eq!(pair.a.memory.read(3000, 8), [0; 8]);
        assert_eq!(pair.b.memory.read(0, 16), [5; 16]);
        assert_eq!(
            memory.read(1024, 8),
            (0x0101_0101_0101_0101_u64 + 5).to_ne_bytes()
        );
    });
}

/// Requests of the peer for pending memory.
fn remote_ops(remote: RemoteAddr) -> [SendOp; 3] {
    [write(remote), read(remote), fetch_add(remote)]
}

#[test]
fn failed_registration_is_remote_access_error() {
    for which in 0..3 {
        let mut pair = Pair::roce();
        let target = reserve_buffer(&pair.b, 64);
        let sge = pair.a.sge(0, 8);
        pair.a.post(1, remote_ops(target.remote())[which], &[sge]);
        pair.run();
        target.fail(&mut pair.b);
        pair.run();
        assert_eq!(pair.a.statuses(), [(1, Status::RemAccessErr)]);
        let qp = pair.b.qp.number();
        assert!(pair.b.events().contains(&Event::QpAccess { qp }));
    }
}

#[test]
fn remote_access_waits_at_most_five_seconds() {
    for which in 0..3 {
        let mut pair = Pair::roce();
        let target = reserve_buffer(&pair.b, 64);
        let sge = pair.a.sge(0, 8);
        pair.a.post(1, remote_ops(target.remote())[which], &[sge]);
        pair.run();
        let began = pair.now;
        // Receives that are posted meanwhile, and wakeups for other entries, do not extend the time.
        let scatter = [pair.b.sge(0, 100)];
        pair.now = began + Duration::from_secs(3);
        pair.b.receive(7, &scatter);
        let waiter = pair.b.qp.number();
        wake_waiters(&mut pair.b, &[waiter]);
        pair.run();
        assert_eq!(pair.b.qp.deadline(), Some(began + Duration::from_secs(5)));
        pair.wait();
        assert_eq!(pair.now, began + Duration::from_secs(5));
        assert_eq!(pair.a.statuses(), [(1, Status::RemAccessErr)], "{which}");
        // Its registration ends when nothing waits for it any more.
        let settled = target.reserved.complete();
        assert_eq!(settled.outcome, Ok(()));
        wake_waiters(&mut pair.b, &settled.waiters);
        pair.run();
        assert_eq!(pair.b.qp.state(), QpState::Err);
    }
}

#[test]
fn never_registered_receive_memory_is_protection_error() {
    let mut pair = Pair::roce();
    let target = reserve_buffer(&pair.b, 64);
    pair.b.receive(5, &[target.sge(64)]);
    let sge = pair.a.sge(0, 8);
    pair.a.post(1, SEND, &[sge]);
    pair.run();
    pair.wait();
    let received = pair.b.received();
    assert_eq!(
        (received[0].id, received[0].status),
        (5, Status::LocProtErr)
    );
    assert_eq!(pair.a.statuses(), [(1, Status::RemOpErr)]);
}

#[test]
fn unreliable_connection_drops_expired_pending_write() {
    for base in [Setup::default(), direct()] {
        let mut pair = Pair::new(Setup {
            qp_type: QpType::Uc,
            ..base
        });
        pair.a.memory.write(0, &[7; 1000]);
        let target = reserve_buffer(&pair.b, 1000);
        let sge = pair.a.sge(0, 1000);
        pair.a.post(1, write(target.remote()), &[sge]);
        let to = pair.b.remote(0);
        pair.a.post(2, write(to), &[sge]);
        pair.run();
        assert_eq!(pair.b.memory.read(0, 1000), [0; 1000]);
        pair.wait();
        pair.run();
        assert_eq!(pair.b.memory.read(0, 1000), [7; 1000]);
        assert_eq!(target.memory.read(0, 1000), [0; 1000]);
    }
}

#[test]
fn reset_ends_waits_for_pending_memory() {
    let mut pair = Pair::roce();
    let source = reserve_buffer(&pair.a, 64);
    let (to, number) = (pair.b.remote(0), pair.a.qp.number());
    pair.a.post(1, write(to), &[source.sge(64)]);
    pair.run();
    pair.a.qp.modify(QpState::Err, &mut pair.a.out).unwrap();
    assert_eq!(pair.a.statuses(), [(1, Status::WrFlushErr)]);
    pair.a.qp.modify(QpState::Reset, &mut pair.a.out).unwrap();
    let _memory = source.complete(&mut pair.a, &[number]);
    assert!(pair.a.statuses().is_empty());

    let mut pair = Pair::roce();
    let target = reserve_buffer(&pair.b, 64);
    let sge = pair.a.sge(0, 8);
    pair.a.post(1, write(target.remote()), &[sge]);
    pair.run();
    let number = pair.b.qp.number();
    pair.b.qp.modify(QpState::Reset, &mut pair.b.out).unwrap();
    assert_eq!(pair.b.qp.deadline(), None);
    let memory = target.complete(&mut pair.b, &[number]);
    assert_eq!(memory.read(0, 8), [0; 8], "bytes of that time are gone");
}

#[test]
fn disconnect_waits_for_pending_writes() {
    let mut pair = Pair::new(Setup {
        extensions: false,
        ..Setup::default()
    });
    pair.a.memory.write(0, &[7; 100]);
    let target = reserve_buffer(&pair.b, 100);
    let sge = pair.a.sge(0, 100);
    pair.a.post(1, write(target.remote()), &[sge]);
    pair.run();
    pair.b.qp.handle_eof(true, &mut pair.b.out);
    assert!(pair.b.events().is_empty(), "not yet");
    let number = pair.b.qp.number();
    let memory = target.complete(&mut pair.b, &[number]);
    assert_eq!(memory.read(0, 100), [7; 100]);
    assert_eq!(pair.b.events(), [Event::Disconnected { qp: number }]);
}
