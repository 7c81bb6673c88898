//! The last frames of a queue pair reach a live peer, and memory that changes while it is sent breaks nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verbena_nic::Wc;
use verbena_nic::qp::PostError;
use verbena_nic::wr::Data;
use verbena_nic::{Flags, QpState, SendOp, SendWr, Status};

use crate::common::{SEND, Side, pair, pattern, pseudo_random, read_from, wait, within, write_to};

const LIMIT: Duration = Duration::from_secs(120);

fn post(side: &Side, id: u64, op: SendOp, len: usize) -> Result<(), PostError> {
    side.qp.post_send(&SendWr {
        id,
        op,
        flags: Flags::SIGNALED,
        data: Data::Gather(&[side.sge(0, len)]),
    })
}

/// Posts until the queue pair accepts no more; collects all completions.
fn post_until_error(a: &Side, b: &Side, mut bad: Option<u64>) -> Vec<(u64, Status)> {
    let (mut posted, mut ended) = (0, Vec::new());
    let end = Instant::now() + Duration::from_secs(60);
    let mut open = true;
    while open || (ended.len() as u64) < posted {
        let mut remote = b.remote(0);
        if open && posted - (ended.len() as u64) < 200 {
            if bad == Some(posted) {
                remote.stag = verbena_wire::Stag::new(0xdead_0000);
                bad = None;
            }
            match post(a, posted, write_to(remote), 40_000) {
                Ok(()) => posted += 1,
                Err(PostError::Full(_)) => {}
                Err(_) => open = false,
            }
        }
        open &= a.qp.state() == QpState::Rts;
        let mut some = [Wc::default(); 32];
        let n = a.cq.poll(&mut some);
        ended.extend(some[..n].iter().map(|wc| (wc.id, wc.status)));
        assert!(Instant::now() < end, "{} of {posted} ended", ended.len());
    }
    ended
}

/// docs/connections.md: the requester learns which request failed, and why, under full load.
#[test]
fn terminate_reaches_a_peer_under_full_load() {
    within(LIMIT, || {
        for round in 0..20_u64 {
            let crc = if round % 2 == 0 { "on" } else { "off" };
            let (a, b) = pair(&[("crc", crc)]);
            let bad = pseudo_random(round) % 300;
            let ended = post_until_error(&a, &b, Some(bad));
            let status = ended.iter().find(|(id, _)| *id == bad).map(|(_, s)| *s);
            let why = a.qp.view().cause;
            assert_eq!(status, Some(Status::RemAccessErr), "round {round}: {why:?}");
            let before = ended.iter().take_while(|(id, _)| *id < bad);
            assert!(before.clone().all(|(_, s)| *s == Status::Success));
        }
    });
}

/// The other end moves to the error state in the middle of a stream: as on InfiniBand it sends no Terminate, and it ends after a
/// whole frame.
#[test]
fn error_state_sends_no_terminate() {
    within(LIMIT, || {
        for round in 0..20_u64 {
            let (a, b) = pair(&[("crc", if round % 2 == 0 { "on" } else { "off" })]);
            std::thread::scope(|s| {
                let pressed = s.spawn(|| post_until_error(&a, &b, None));
                let bytes = pseudo_random(round) % (4 << 20);
                wait("it is under load", || {
                    b.qp.view().counters.bytes_in >= bytes
                });
                b.qp.modify(QpState::Err).unwrap();
                pressed.join().unwrap();
            });
            let cause = a.qp.view().cause.unwrap_or_default();
            assert!(cause.contains("the peer is gone"), "round {round}: {cause}");
        }
    });
}

/// A completion queue that overflows fails its queue pairs, and the peers learn of it.
#[test]
fn cq_overflow_is_reported_to_peers() {
    let (a, b) = pair(&[]);
    let full = b.engine.create_cq(2).unwrap();
    let qp = crate::common::make_qp(&b.engine, &full, b.pd);
    let ours = crate::common::make_qp(&a.engine, &a.cq, a.pd);
    let idle = crate::common::make_qp(&b.engine, &full, b.pd);
    let also = crate::common::make_qp(&a.engine, &a.cq, a.pd);
    let listener = b.engine.listen(crate::common::loopback(), 4).unwrap();
    for (one, two) in [(&ours, &qp), (&also, &idle)] {
        one.connect(listener.local_addr().unwrap(), b"", |_| ())
            .unwrap();
        crate::common::accept_next(&listener, two);
    }
    for qp in [&ours, &also] {
        crate::common::wait("connected", || qp.state() == QpState::Rts);
    }
    for id in 0..4 {
        let scatter = [b.sge(0, 8)];
        let wr = verbena_nic::ReceiveWr {
            id,
            scatter: &scatter,
        };
        qp.post_receive(&wr).unwrap();
    }
    for id in 0..4 {
        let wr = SendWr {
            id,
            op: SEND,
            flags: Flags::NONE,
            data: Data::Gather(&[a.sge(0, 8)]),
        };
        // Fails if the queue has overflowed by now.
        let _ = ours.post_send(&wr);
    }
    // Both queue pairs of the queue fail, also the idle one, and both peers learn of it.
    crate::common::wait("told", || ours.state() == QpState::Err);
    crate::common::wait("told although idle", || also.state() == QpState::Err);
}

/// Flags, counters and rings may change while they are sent. That is legal, and the checksum must match the sent bytes.
#[test]
fn memory_changed_during_transmission_breaks_nothing() {
    const MIN_ROUNDS: u64 = 20;
    within(LIMIT, || {
        for crc in ["on", "off"] {
            let (a, b) = pair(&[("crc", crc)]);
            let going = AtomicBool::new(true);
            std::thread::scope(|s| {
                s.spawn(|| {
                    for salt in 0.. {
                        if !going.load(Ordering::Acquire) {
                            break;
                        }
                        let words = pattern(200_000, salt as u8);
                        a.memory.write(0, &words);
                        b.memory.write(0, &words);
                    }
                });
                let end = Instant::now() + Duration::from_millis(400);
                let mut id = 0;
                while Instant::now() < end || id <= MIN_ROUNDS {
                    let len = (pseudo_random(id) % 200_000) as usize;
                    b.receive(id, &[b.sge(2 << 20, 1 << 20)]);
                    a.post(id, SEND, &[a.sge(0, len)]);
                    a.post(id, write_to(b.remote(0)), &[a.sge(0, len)]);
                    a.post(id, read_from(b.remote(0)), &[a.sge(2 << 20, len)]);
                    for side in [(&a, 3), (&b, 1)] {
                        let ended = side.0.complete(side.1);
                        assert!(ended.iter().all(|wc| wc.status == Status::Success));
                    }
                    id += 1;
                }
                going.store(false, Ordering::Release);
            });
        }
    });
}
