//! Datagram queue pairs over real sockets: both address families, polling and events, and what is dropped.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use verbena_engine::{Error, UdOptions, UdPair};
use verbena_mem::{Access, Buffer, Tpt};
use verbena_nic::qp::{PostError, PostSendError};
use verbena_nic::ud::{Destination, GRH_LEN, MAX_DATAGRAM, UdSendWr};
use verbena_nic::{Arm, Flags, Outbox, QpState, ReceiveWr, Sge, Status, Wc, WcOp};
use verbena_wire::number::Qpn;

use crate::common::datagrams::{GROUP, KEY, LOCALHOST, Side, make, ready, to_group, wr};
use crate::common::{complete, pattern, serialize_tests, wait};

/// A datagram each way, every byte checked.
fn exchange(a: &Side, b: &Side, len: usize, salt: u8) {
    for (from, to) in [(a, b), (b, a)] {
        let words = pattern(len, salt);
        to.receive(7, 8192, GRH_LEN + len);
        assert!(from.memory.write(0, &words));
        from.send(1, to.to(from), &[from.sge(0, len)]);
        let came = complete(&to.cq, 1)[0];
        assert_eq!(
            (came.status, came.op, came.id),
            (Status::Success, WcOp::Receive, 7)
        );
        assert_eq!(came.len as usize, GRH_LEN + len);
        assert_eq!(came.src_qp, from.ud.number().get());
        assert_eq!(came.qpn, to.ud.number().get());
        assert!(came.grh.is_some());
        let sent = complete(&from.cq, 1)[0];
        assert_eq!(
            (sent.status, sent.id, sent.op),
            (Status::Success, 1, WcOp::Send)
        );
        assert!(to.memory.read(8192 + GRH_LEN, len) == words);
    }
}

#[test]
fn ten_thousand_datagrams_are_delivered() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    for round in 0..5000 {
        exchange(&a, &b, 1 + round % 64, round as u8);
    }
    exchange(&a, &b, MAX_DATAGRAM, 1);
    assert_eq!(a.ud.view().counters.received, 5001);
    assert_eq!(b.ud.view().counters.sent, 5001);
    let grh = b.memory.read(8192, GRH_LEN);
    assert_eq!((grh[20], grh[29]), (0x45, 17));
    assert_eq!(grh[32..], [127, 0, 0, 1, 127, 0, 0, 1]);
}

#[test]
fn ipv6_datagrams_are_delivered() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new("::1"), Side::new("::1"));
    for round in 0..200 {
        exchange(&a, &b, round * 20, round as u8);
    }
    let grh = b.memory.read(8192, GRH_LEN);
    assert_eq!((grh[0], grh[6]), (0x60, 17));
    assert_eq!(grh[23], 1);
}

#[test]
fn queue_pair_sends_datagrams_to_itself() {
    let _alone = serialize_tests();
    let a = Side::new(LOCALHOST);
    a.receive(1, 4096, 100);
    assert!(a.memory.write(0, b"to myself"));
    a.send(2, a.to(&a), &[a.sge(0, 9)]);
    let done = complete(&a.cq, 2);
    assert!(done.iter().all(|wc| wc.status == Status::Success));
    assert_eq!(a.memory.read(4096 + GRH_LEN, 9), b"to myself");
}

#[test]
fn srq_serves_several_ud_queue_pairs() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let srq = b.engine.create_srq(b.pd, 64, 4).unwrap();
    let uds: Vec<UdPair> = (0..3)
        .map(|_| {
            let options = UdOptions {
                srq: Some(srq.number()),
                ..UdOptions::new(b.pd)
            };
            let ud = b.engine.create_ud(&b.cq, &b.cq, options).unwrap();
            ready(&ud);
            ud
        })
        .collect();
    for id in 0..9 {
        let scatter = &[b.sge(id * 100, 100)];
        let id = id as u64;
        srq.post(&[ReceiveWr { id, scatter }]).unwrap();
    }
    for round in 0..9 {
        let number = uds[round % 3].number();
        let to = Destination { number, ..b.to(&a) };
        a.send(1, to, &[a.sge(0, 50)]);
        let came = complete(&b.cq, 1)[0];
        assert_eq!((came.id, came.qpn), (round as u64, number.get()));
    }
    // No receive: dropped, not queued for the next receive.
    a.send(
        1,
        Destination {
            number: uds[0].number(),
            ..b.to(&a)
        },
        &[],
    );
    wait("a count", || uds[0].view().counters.no_receive == 1);
    let scatter = &[b.sge(0, 100)];
    srq.post(&[ReceiveWr { id: 10, scatter }]).unwrap();
    a.send(
        1,
        Destination {
            number: uds[1].number(),
            ..b.to(&a)
        },
        &[],
    );
    assert_eq!(complete(&b.cq, 1)[0].qpn, uds[1].number().get());
    // The SRQ and the completion queue cannot be destroyed while queue pairs use them.
    let (function, number) = (b.engine.function().clone(), srq.number());
    assert!(function.destroy_srq(number, &mut Outbox::new()).is_err());
    assert!(function.destroy_cq(b.cq.number()).is_err());
    assert!(function.free_pd(b.pd).is_err());
    assert_eq!(function.used().qps, 4);
    drop(uds);
    assert_eq!(function.used().qps, 1);
}

#[test]
fn drops_are_counted_by_cause() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let to = b.to(&a);
    for _ in 0..100 {
        a.send(1, to, &[a.sge(0, 10)]);
    }
    wait("a count", || b.ud.view().counters.no_receive == 100);
    b.receive(1, 0, GRH_LEN + 9);
    a.send(
        2,
        Destination {
            qkey: KEY + 1,
            ..to
        },
        &[a.sge(0, 9)],
    );
    a.send(3, to, &[a.sge(0, 10)]);
    wait("a count", || b.ud.view().counters.too_long == 1);
    assert_eq!(b.ud.view().counters.wrong_key, 1);
    // A Q_Key with the highest bit set means the sender's own, and the receive is still posted.
    a.send(
        4,
        Destination {
            qkey: 0x8000_0000,
            ..to
        },
        &[a.sge(0, 9)],
    );
    assert_eq!(complete(&b.cq, 1)[0].id, 1);
    let unused = Qpn::wrapping(to.number.get() ^ 1);
    a.send(
        5,
        Destination {
            number: unused,
            ..to
        },
        &[],
    );
    wait("a count", || b.engine.datagram_drops().no_receiver == 1);
    let sent = complete(&a.cq, 104);
    assert!(sent.iter().all(|wc| wc.status == Status::Success));
    // Not in a state that receives.
    b.ud.modify(QpState::Reset).unwrap();
    a.send(6, to, &[]);
    wait("a count", || b.ud.view().counters.not_receiving == 1);
}

/// A flood to a queue pair without receives does not affect another one on the same port.
#[test]
fn datagram_flood_does_not_starve_other_queue_pairs() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let flooded = make(&b.engine, &b.cq, b.pd);
    ready(&flooded);
    let to = Destination {
        number: flooded.number(),
        ..b.to(&a)
    };
    let sges = [a.sge(0, 64)];
    let mut flood = [wr(0, to, &sges); 64];
    flood.iter_mut().for_each(|wr| wr.flags = Flags::NONE);
    for round in 0..200 {
        a.ud.post_sends(&flood).unwrap();
        if round % 10 == 0 {
            // Unreliable: what a full socket buffer loses is sent again.
            b.receive(1, 0, 200);
            let mut some = [Wc::default()];
            wait(&format!("a datagram beside flood {round}"), || {
                a.ud.post_sends(&[UdSendWr {
                    flags: Flags::NONE,
                    ..wr(0, b.to(&a), &sges)
                }])
                .unwrap();
                b.cq.poll(&mut some) > 0
            });
            assert_eq!(some[0].qpn, b.ud.number().get());
        }
    }
    assert!(flooded.view().counters.no_receive > 0);
}

#[test]
fn three_hundred_queue_pairs_share_a_port() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let uds: Vec<UdPair> = (0..300).map(|_| make(&b.engine, &b.cq, b.pd)).collect();
    let mut numbers: Vec<u32> = uds.iter().map(|ud| ud.number().get()).collect();
    for (at, ud) in uds.iter().enumerate() {
        ready(ud);
        let scatter = &[b.sge(at * 128, 128)];
        ud.post_receive(&ReceiveWr {
            id: at as u64,
            scatter,
        })
        .unwrap();
        let to = Destination {
            number: ud.number(),
            ..b.to(&a)
        };
        assert!(a.memory.write(0, &(at as u64).to_le_bytes()));
        a.send(1, to, &[a.sge(0, 8)]);
        let came = complete(&b.cq, 1)[0];
        assert_eq!((came.id, came.qpn), (at as u64, ud.number().get()));
        assert_eq!(
            b.memory.read(at * 128 + GRH_LEN, 8),
            (at as u64).to_le_bytes()
        );
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 300);
}

/// A sleeping program is woken by each datagram.
#[test]
fn datagram_wakes_a_sleeping_thread() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let channel = std::sync::Arc::new(verbena_engine::sys::Channel::new().unwrap());
    b.cq.set_notify(Some(channel.clone()));
    for round in 0..200 {
        b.receive(round, 0, 100);
        b.cq.arm(if round % 2 == 0 {
            Arm::Next
        } else {
            Arm::Solicited
        });
        assert_eq!(b.cq.poll(&mut [Wc::default()]), 0);
        let sges = [a.sge(0, 10)];
        let solicited = Flags::SOLICITED | Flags::SIGNALED;
        a.ud.post_sends(&[UdSendWr {
            flags: solicited,
            immediate: Some(9),
            ..wr(1, b.to(&a), &sges)
        }])
        .unwrap();
        assert!(channel.take().unwrap());
        let mut came = [Wc::default()];
        assert_eq!(b.cq.poll(&mut came), 1);
        assert_eq!(
            (came[0].id, came[0].immediate, came[0].solicited),
            (round, Some(9), true)
        );
        // In between it polls, and the socket is lent to it: arming must return it.
        let until = Instant::now() + Duration::from_micros(round * 20);
        while Instant::now() < until {
            assert_eq!(b.cq.poll(&mut came), 0);
        }
        complete(&a.cq, 1);
    }
}

/// One queue is polled while another one on the same port sleeps, and the other way round.
#[test]
fn polling_thread_reads_for_sleeping_threads() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let quiet = b.engine.create_cq(64).unwrap();
    let sleeper = make(&b.engine, &quiet, b.pd);
    ready(&sleeper);
    let channel = std::sync::Arc::new(verbena_engine::sys::Channel::new().unwrap());
    quiet.set_notify(Some(channel.clone()));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(b.cq.poll(&mut [Wc::default()]), 0);
            }
        });
        for id in 0..500 {
            let scatter = &[b.sge(0, 100)];
            sleeper.post_receive(&ReceiveWr { id, scatter }).unwrap();
            quiet.arm(Arm::Next);
            a.send(
                1,
                Destination {
                    number: sleeper.number(),
                    ..b.to(&a)
                },
                &[],
            );
            assert!(channel.take().unwrap());
            assert_eq!(complete(&quiet, 1)[0].id, id);
            complete(&a.cq, 1);
        }
        stop.store(true, Ordering::Relaxed);
    });
    // No thread polls any more: the socket is returned to the shard.
    let scatter = &[b.sge(0, 100)];
    sleeper.post_receive(&ReceiveWr { id: 1, scatter }).unwrap();
    quiet.arm(Arm::Next);
    a.send(
        1,
        Destination {
            number: sleeper.number(),
            ..b.to(&a)
        },
        &[],
    );
    assert!(channel.take().unwrap());
}

#[test]
fn ud_queue_pairs_are_destroyed_under_traffic() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let group = GROUP.parse().unwrap();
    let number = AtomicU32::new(b.ud.number().get());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let sges = [a.sge(0, 20)];
            while !stop.load(Ordering::Relaxed) {
                let to = Destination {
                    number: Qpn::wrapping(number.load(Ordering::Relaxed)),
                    ..b.to(&a)
                };
                for to in [to, to_group(&a, group)] {
                    let wr = UdSendWr {
                        flags: Flags::NONE,
                        ..wr(1, to, &sges)
                    };
                    a.ud.post_sends(&[wr]).unwrap();
                }
            }
        });
        for _ in 0..200 {
            let ud = make(&b.engine, &b.cq, b.pd);
            ready(&ud);
            number.store(ud.number().get(), Ordering::Relaxed);
            ud.attach(group).unwrap();
            for id in 0..20 {
                let scatter = &[b.sge(0, 100)];
                ud.post_receive(&ReceiveWr { id, scatter }).unwrap();
            }
            let came = complete(&b.cq, 5);
            assert!(came.iter().all(|wc| wc.qpn == ud.number().get()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Datagrams that still arrive for destroyed queue pairs are counted as having no destination.
    let before = b.engine.datagram_drops().no_receiver;
    let number = Qpn::wrapping(number.load(Ordering::Relaxed));
    let to = Destination { number, ..b.to(&a) };
    a.send(1, to, &[]);
    wait("no queue pair has the number", || {
        b.engine.datagram_drops().no_receiver > before
    });
    // No completion of a destroyed queue pair is left in the queue.
    assert_eq!(b.cq.poll(&mut [Wc::default()]), 0);
    assert_eq!(b.engine.function().used().qps, 1);
}

#[test]
fn shutdown_flushes_ud_receives() {
    let _alone = serialize_tests();
    let a = Side::new(LOCALHOST);
    let to = a.to(&a);
    a.receive(3, 0, 100);
    let ended = a.engine.shut_down(Duration::from_millis(100)).unwrap();
    assert_eq!((ended.finished, ended.flushed), (1, 0));
    let done = complete(&a.cq, 1)[0];
    assert_eq!((done.id, done.status), (3, Status::WrFlushErr));
    let refused = a.ud.post_sends(&[wr(1, to, &[])]);
    assert!(matches!(
        refused,
        Err(PostSendError {
            posted: 0,
            source: PostError::State(QpState::Err)
        })
    ));
    assert!(a.ud.attach(GROUP.parse().unwrap()).is_err());
}

#[test]
fn pending_memory_holds_the_ud_send_queue() {
    let _alone = serialize_tests();
    let (a, b) = (Side::new(LOCALHOST), Side::new(LOCALHOST));
    let control = a.engine.create_control(None, 8).unwrap();
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let register = |callback: Box<dyn FnOnce(Result<(), Error>) + Send>| {
        let mut memory = None;
        let reserve = |tpt: &std::sync::Arc<Tpt>| {
            let (buffer, reserved) = Buffer::pending(tpt, 64, a.pd, Access::ALL)?;
            memory = Some(buffer);
            Ok(reserved)
        };
        control.register(7, a.pd, reserve, Some(callback)).unwrap();
        memory.unwrap()
    };
    // The control thread is blocked in the first one, so that the second one stays pending.
    let _first = register(Box::new(move |_| {
        let _ = gate.recv();
    }));
    let later = register(Box::new(|_| ()));
    b.receive(1, 0, 100);
    b.receive(2, 100, 100);
    b.receive(3, 200, 100);
    let pending = Sge {
        addr: later.at(),
        len: 8,
        stag: later.stag(),
    };
    a.send(1, b.to(&a), &[pending]);
    a.send(2, b.to(&a), &[a.sge(0, 16)]);
    assert_eq!(a.ud.view().sends, 2, "in order: the second stands, too");
    // A later datagram of another queue pair arrives first.
    let other = make(&a.engine, &a.cq, a.pd);
    ready(&other);
    other
        .post_sends(&[wr(3, b.to(&a), &[a.sge(0, 32)])])
        .unwrap();
    assert_eq!(complete(&b.cq, 1)[0].len, 72);
    assert_eq!(complete(&a.cq, 1)[0].id, 3);
    drop(open);
    let came = complete(&b.cq, 2);
    assert_eq!([came[0].len, came[1].len], [48, 56]);
    let sent = complete(&a.cq, 2);
    assert_eq!([sent[0].id, sent[1].id], [1, 2]);
}
