//! Many threads at one adapter: no wake-up is lost and no thread waits for ever, whatever the others do.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use verbena_mem::Access;
use verbena_nic::Wc;
use verbena_nic::qp::PostError;
use verbena_nic::wr::Data;
use verbena_nic::{Arm, Flags, ReceiveWr, SendOp, SendWr, Status};

use crate::common::{
    SEND, Side, TEST_TIMEOUT, accept_next, loopback, make_qp, pair, pseudo_random, read_from, wait,
    within, write_to,
};

/// Longer than any test here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// A sleeper with work that is not notified for this long has missed a wake-up.
const WAKEUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Registers a listener that notifies a channel.
fn notify_channel(side: &Side) -> Receiver<()> {
    let (wake, woken) = mpsc::channel();
    let wake = Mutex::new(wake);
    side.cq.set_notify(Some(Arc::new(move || {
        // The receiver may be gone.
        let _ = wake.lock().unwrap().send(());
    })));
    woken
}

fn try_post(side: &Side, id: u64, op: SendOp, len: usize) -> bool {
    let wr = SendWr {
        id,
        op,
        flags: Flags::SIGNALED,
        data: Data::Gather(&[side.sge(0, len)]),
    };
    match side.qp.post_send(&wr) {
        Ok(()) => true,
        Err(PostError::Full(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

/// Polls `polls` times, and sleeps until a notification if nothing came; true unless a wake-up was missed.
fn poll_then_sleep(
    side: &Side,
    woken: &Receiver<()>,
    polls: u64,
    mut took: impl FnMut(u64),
) -> bool {
    let mut some = [Wc::default(); 16];
    let mut any = false;
    let mut poll = |any: &mut bool| {
        let n = side.cq.poll(&mut some);
        for wc in &some[..n] {
            assert_eq!(wc.status, Status::Success, "{:?}", side.qp.view());
            took(wc.id);
        }
        *any |= n > 0;
        n > 0
    };
    for _ in 0..polls {
        poll(&mut any);
    }
    if any {
        return true;
    }
    side.cq.arm(Arm::Next);
    // Completions before the arming do not notify.
    if !poll(&mut any) && woken.recv_timeout(WAKEUP_TIMEOUT).is_err() {
        return false;
    }
    while woken.try_recv().is_ok() {}
    poll(&mut any);
    true
}

/// Both sides poll for a while, as programs do, then arm and sleep: lending and returning at every turn.
#[test]
fn no_wakeup_is_lost_between_sleeping_peers() {
    within(LIMIT, || {
        for crc in ["on", "off"] {
            let (a, b) = pair(&[("crc", crc), ("lend_polls", "3")]);
            const ROUNDS: u64 = 1500;
            const RECEIVES: u64 = 1 << 32;
            let play = |ours: &Side, first: bool| {
                let woken = notify_channel(ours);
                for id in 0..64 {
                    ours.receive(RECEIVES + id, &[ours.sge(2 << 20, 4096)]);
                }
                let (mut sent, mut got) = (0, 0);
                let mut acknowledged = 0;
                while got < ROUNDS || acknowledged < ROUNDS {
                    let due = if first { got + 1 } else { got };
                    while sent < due.min(ROUNDS) {
                        assert!(try_post(
                            ours,
                            sent,
                            SEND,
                            (pseudo_random(sent) % 4096) as usize
                        ));
                        sent += 1;
                    }
                    let any =
                        poll_then_sleep(ours, &woken, pseudo_random(sent * 3 + got) % 12, |id| {
                            if id >= RECEIVES {
                                got += 1;
                                ours.receive(id, &[ours.sge(2 << 20, 4096)]);
                            } else {
                                acknowledged += 1;
                            }
                        });
                    assert!(
                        any,
                        "forgotten: sent {sent}, {acknowledged} ended, got {got}"
                    );
                }
            };
            std::thread::scope(|s| {
                s.spawn(|| play(&a, true));
                s.spawn(|| play(&b, false));
            });
        }
    });
}

/// Posting, polling, sleeping, resizing, registering, and queue pairs that come and go on the same queues.
#[test]
fn concurrent_operations_on_shared_queues_complete() {
    within(LIMIT, || {
        let (a, b) = pair(&[]);
        let (going, posted, ended, got) = (
            AtomicBool::new(true),
            AtomicU64::new(0),
            AtomicU64::new(0),
            AtomicU64::new(0),
        );
        for id in 0..512 {
            b.receive(id, &[b.sge(2 << 20, 64)]);
        }
        let on = || going.load(Ordering::Acquire);
        let (posters, connections) = (AtomicU64::new(3), AtomicU64::new(0));
        let behind = || {
            // The older number first: requests end meanwhile.
            let ended = ended.load(Ordering::Acquire);
            posted.load(Ordering::Acquire).saturating_sub(ended)
        };
        let open = || posters.load(Ordering::Acquire) > 0 || behind() > 0;
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    while on() {
                        // Unpolled completions must fit their queue.
                        if behind() > 2000 {
                            std::thread::yield_now();
                            continue;
                        }
                        let id = posted.fetch_add(1, Ordering::AcqRel);
                        let tried = Instant::now();
                        while !try_post(&a, id, SEND, (pseudo_random(id) % 64) as usize) {
                            std::thread::yield_now();
                            assert!(tried.elapsed() < TEST_TIMEOUT, "the queue stays full");
                        }
                    }
                    posters.fetch_sub(1, Ordering::AcqRel);
                });
            }
            for _ in 0..2 {
                s.spawn(|| {
                    let mut some = [Wc::default(); 16];
                    while open() {
                        let n = a.cq.poll(&mut some);
                        let ours = some[..n].iter().filter(|wc| wc.qpn == a.qp.number());
                        for wc in ours {
                            assert_eq!(wc.status, Status::Success);
                            ended.fetch_add(1, Ordering::AcqRel);
                        }
                    }
                });
            }
            s.spawn(|| {
                let woken = notify_channel(&b);
                while open() {
                    let any = poll_then_sleep(&b, &woken, 2, |id| {
                        got.fetch_add(1, Ordering::AcqRel);
                        b.receive(id, &[b.sge(2 << 20, 64)]);
                    });
                    assert!(any || !open(), "forgotten");
                }
            });
            s.spawn(|| {
                for entries in [4096, 6000, 8192].into_iter().cycle() {
                    if !on() {
                        break;
                    }
                    a.cq.resize(entries).unwrap();
                    b.cq.resize(entries).unwrap();
                }
            });
            s.spawn(|| {
                while on() {
                    let function = a.engine.function();
                    drop(
                        function
                            .register_buffer(a.pd, 1 << 16, Access::ALL)
                            .unwrap(),
                    );
                }
            });
            s.spawn(|| {
                let listener = b.engine.listen(loopback(), 4).unwrap();
                while on() {
                    // On the queue that is polled; the other end has its own, so that the sleeper's counts are right.
                    let cq = b.engine.create_cq(16).unwrap();
                    let (one, two) = (
                        make_qp(&a.engine, &a.cq, a.pd),
                        make_qp(&b.engine, &cq, b.pd),
                    );
                    let to = listener.local_addr().unwrap();
                    one.connect(to, b"", |_| ()).unwrap();
                    accept_next(&listener, &two);
                    let scatter = [b.sge(3 << 20, 64)];
                    let _ = two.post_receive(&ReceiveWr {
                        id: 0,
                        scatter: &scatter,
                    });
                    if pseudo_random(posted.load(Ordering::Relaxed)).is_multiple_of(2) {
                        drop(two);
                    }
                    connections.fetch_add(1, Ordering::AcqRel);
                }
            });
            wait("enough of everything", || {
                let received = got.load(Ordering::Acquire);
                received > 5000 && connections.load(Ordering::Acquire) > 20
            });
            going.store(false, Ordering::Release);
            wait("everything ends", || !open());
            assert_eq!(
                ended.load(Ordering::Acquire),
                posted.load(Ordering::Acquire)
            );
            // Wakes the sleeper, which finds that it is over. A poller may still count it.
            assert!(try_post(&a, 0, SEND, 0));
        });
    });
}

/// With small socket buffers (not smaller than a loopback segment, or TCP itself is slow) every other write finds no room, and
/// interest in room is set and cleared concurrently.
#[test]
fn writable_socket_is_never_missed() {
    within(LIMIT, || {
        for settings in [
            [("buffers", "131072"), ("crc", "off")],
            [("buffers", "131072"), ("personality", "iwarp")],
        ] {
            let (a, b) = pair(&settings);
            const EACH: u64 = 500;
            let work = |ours: &Side, theirs: &Side, seed: u64| {
                for id in 0..EACH {
                    let remote = theirs.remote(1 << 20);
                    let len = (pseudo_random(id ^ seed) % 60_000) as usize;
                    let op = match pseudo_random(id + seed) % 2 {
                        0 => write_to(remote),
                        _ => read_from(remote),
                    };
                    while !try_post(ours, id, op, len) {
                        std::thread::yield_now();
                    }
                }
            };
            std::thread::scope(|s| {
                for seed in 0..2 {
                    let (a, b) = (&a, &b);
                    s.spawn(move || work(a, b, seed));
                    s.spawn(move || work(b, a, seed + 9));
                }
                // Sleeping threads: a polling thread would find the room by itself.
                for side in [&a, &b] {
                    s.spawn(move || {
                        let woken = notify_channel(side);
                        let mut ended = 0;
                        while ended < 2 * EACH {
                            let any = poll_then_sleep(side, &woken, 0, |_| ended += 1);
                            assert!(any, "forgotten after {ended}: {:?}", side.qp.view());
                        }
                    });
                }
            });
        }
    });
}

/// A standard peer's long message waits in the socket for its receive, and is then read to its end without a polling thread.
#[test]
fn waiting_message_is_read_to_its_end() {
    within(LIMIT, || {
        for crc in ["on", "off"] {
            let (a, b) = pair(&[("extensions", "off"), ("crc", crc), ("buffers", "131072")]);
            let woken = notify_channel(&b);
            let read_bytes = || b.qp.view().counters.bytes_in;
            for round in 0..20 {
                b.cq.arm(Arm::Next);
                let before = read_bytes();
                a.post(round, SEND, &[a.sge(0, 3 << 20)]);
                // Before or after its first bytes have been read.
                if round % 2 == 0 {
                    wait("the message waits", || read_bytes() > before);
                }
                b.receive(round, &[b.sge(0, 3 << 20)]);
                woken.recv_timeout(WAKEUP_TIMEOUT).unwrap();
                assert_eq!(b.statuses(1), [(round, Status::Success)]);
                assert_eq!(a.statuses(1), [(round, Status::Success)]);
            }
        }
    });
}

/// A polling thread may be the one that ends a connection.
#[test]
fn polling_thread_may_end_a_connection() {
    within(LIMIT, || {
        for round in 0..40 {
            let (a, b) = pair(&[("linger", "300ms")]);
            let (polling, polls) = (AtomicBool::new(true), AtomicU64::new(0));
            std::thread::scope(|s| {
                s.spawn(|| {
                    while polling.load(Ordering::Acquire) {
                        a.cq.poll(&mut [Wc::default(); 4]);
                        polls.fetch_add(1, Ordering::AcqRel);
                    }
                });
                let enough = pseudo_random(round) % 20_000;
                wait("it polls", || polls.load(Ordering::Acquire) >= enough);
                let mut remote = b.remote(0);
                remote.stag = verbena_wire::Stag::new(0xdead_0000);
                a.post(1, write_to(remote), &[a.sge(0, 10)]);
                wait("its end", || a.qp.peer_addr().is_none());
                polling.store(false, Ordering::Release);
            });
        }
    });
}
