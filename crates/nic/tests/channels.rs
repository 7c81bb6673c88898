//! V6: memory for requests grows with a shared send queue, not with its channels; measured by the growth of the process.

#[allow(dead_code, reason = "shared with the benchmarks")]
#[path = "../benches/common/mod.rs"]
mod common;

use std::sync::Arc;

use common::{Host, Wire, run};
use verbena_nic::qp::{Limits, Qp, Registration, Transfer};
use verbena_nic::wc::Wc;
use verbena_nic::wr::Data;
use verbena_nic::{
    Flags, NewQp, Outbox, Personality, QpType, ReceiveWr, SendOp, SendWr, Ssq, SsqLimits, Status,
};
use verbena_stream::Role;

const CHANNELS: usize = 10_000;
const REQUESTS: usize = 1024;
/// Requests that each channel, or each queue pair, has had in the end.
const EACH: usize = 8;
const PAGE: usize = 4096;

/// Resident bytes of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = statm.split(' ').nth(1).unwrap();
    pages.parse::<usize>().unwrap() * PAGE
}

fn wr<'a>() -> SendWr<'a> {
    SendWr {
        id: 1,
        op: SendOp::Send {
            invalidate: None,
            immediate: None,
        },
        flags: Flags::SIGNALED,
        data: Data::Inline(b"news"),
    }
}

struct World {
    a: Host,
    b: Host,
    wire: Wire,
    pairs: Vec<(Arc<Qp>, Arc<Qp>)>,
}

impl World {
    fn new(make: impl Fn(&Host) -> Arc<Qp>) -> World {
        let mut world = World {
            a: Host::new(),
            b: Host::new(),
            wire: Wire::default(),
            pairs: Vec::new(),
        };
        world.add(1, &make);
        world
    }

    fn add(&mut self, count: usize, make: &impl Fn(&Host) -> Arc<Qp>) {
        for _ in 0..count {
            let (qp, peer) = (make(&self.a), self.b.qp());
            self.a.connect(&qp, Role::Initiator, false);
            self.b.connect(&peer, Role::Responder, false);
            self.pairs.push((qp, peer));
            self.run(self.pairs.len() - 1);
        }
    }

    fn run(&mut self, at: usize) {
        let (qp, peer) = self.pairs[at].clone();
        run(&mut self.wire, &qp, &mut self.a.out, &peer, &mut self.b.out);
    }

    fn receives(&mut self, at: usize, count: usize) {
        let wr = ReceiveWr {
            id: 1,
            scatter: &[],
        };
        for _ in 0..count {
            let posted = self.pairs[at].1.post_receive(&wr, &mut self.b.out);
            posted.unwrap();
        }
    }

    /// Polls the completions of both sides; all are successful.
    fn drain(&self) -> usize {
        let (mut wcs, mut count) = ([Wc::default(); 64], 0);
        loop {
            let n = self.a.cq.poll(&mut wcs);
            count += n;
            assert!(wcs[..n].iter().all(|wc| wc.status == Status::Success));
            if n + self.b.cq.poll(&mut wcs) == 0 {
                return count;
            }
        }
    }
}

fn empty<'a>() -> SendWr<'a> {
    SendWr {
        data: Data::Inline(&[]),
        ..wr()
    }
}

/// Growth by requests over queue pairs with queues of their own, each used by eight requests at once.
fn own_queues() -> usize {
    let mut world = World::new(Host::qp);
    world.add(CHANNELS - 1, &Host::qp);
    for at in 0..CHANNELS {
        // Receives have a ring of their own, which is not measured: it is allocated before.
        world.receives(at, EACH);
    }
    let before = resident();
    for at in 0..CHANNELS {
        let qp = world.pairs[at].0.clone();
        for _ in 0..EACH {
            qp.post_send(&empty(), &mut world.a.out).unwrap();
        }
        world.run(at);
        assert_eq!(world.drain(), EACH);
    }
    resident().saturating_sub(before)
}

/// The same requests through one shared queue that is kept full.
fn shared_queue() -> usize {
    let mut world = World::new(Host::qp);
    let limits = SsqLimits {
        requests: REQUESTS,
        ..SsqLimits::default()
    };
    let cq = world.a.function.create_cq(2 * REQUESTS).unwrap();
    let ssq = world.a.function.create_ssq(world.a.pd, cq.number(), limits);
    let ssq: Arc<Ssq> = ssq.unwrap();
    let channel = |host: &Host| {
        let new = NewQp {
            wc_qpn: None,
            pd: host.pd,
            personality: Personality::Roce,
            qp_type: QpType::Rc,
            send_cq: 0,
            recv_cq: host.cq.number(),
            srq: None,
            limits: Limits::default(),
            transfer: Transfer::default(),
            registration: Registration::default(),
        };
        host.function.create_channel(ssq.number(), new).unwrap()
    };
    world.pairs.clear();
    world.add(CHANNELS, &channel);
    for at in 0..CHANNELS {
        world.receives(at, EACH);
    }
    let lowest = world.pairs[0].0.number();
    let before = resident();
    let mut done = 0;
    for first in (0..CHANNELS).step_by(REQUESTS / EACH) {
        let these = first..(first + REQUESTS / EACH).min(CHANNELS);
        for _ in 0..EACH {
            for at in these.clone() {
                ssq.post(world.pairs[at].0.number(), &empty()).unwrap();
            }
        }
        let mut out = Outbox::new();
        while world.a.function.query_ssq(ssq.number()).unwrap().waiting > 0 {
            let carrier = &mut |qp: &Arc<Qp>, out: &mut Outbox| {
                let peer = &world.pairs[(qp.number() - lowest) as usize].1;
                run(&mut world.wire, qp, out, peer, &mut world.b.out);
                // Its peers complete in a queue of a thousand entries.
                while world.b.cq.poll(&mut [Wc::default(); 64]) > 0 {}
            };
            ssq.pump(carrier, &mut out);
        }
        let mut wcs = [Wc::default(); 64];
        loop {
            let n = cq.poll(&mut wcs);
            assert!(wcs[..n].iter().all(|wc| wc.status == Status::Success));
            done += n;
            if n + world.b.cq.poll(&mut wcs) == 0 {
                break;
            }
        }
    }
    assert_eq!(done, CHANNELS * EACH);
    resident().saturating_sub(before)
}

#[test]
fn request_memory_grows_with_queue_not_channels() {
    let shared = shared_queue();
    let own = own_queues();
    println!(
        "{CHANNELS} channels of one queue for {REQUESTS} requests: {shared} bytes more after use"
    );
    println!("{CHANNELS} queue pairs with queues of their own: {own} bytes more after use");
    // A kilobyte for each request that the queue can hold, and some allocator overhead.
    let most = REQUESTS * 1024 + CHANNELS * 128;
    assert!(shared <= most, "{shared} bytes, at most {most}");
    assert!(own > 8 * shared, "{own} bytes beside {shared}");
}
