//! The end of queue pairs: nothing of them is left in any queue, and queue pairs that waited behind them continue.

use verbena_events::event::Event;
use verbena_mem::Buffer;
use verbena_stream::{Role, Time};

use super::*;
use crate::testing::{SEND, Setup, feed, poll, stream, transmit};
use crate::wc::Status;
use crate::wr::{Data, Flags, ReceiveWr, SendWr};

/// Connections between two functions: clients on one, servers with one shared receive queue on the other.
struct World {
    clients: Function,
    servers: Function,
    pairs: Vec<(Arc<Qp>, Arc<Qp>)>,
    srq: u32,
    server_cq: u32,
    out: Outbox,
    _memory: Buffer,
}

impl World {
    fn new(count: usize) -> World {
        World::of(&vec![QpType::Rc; count])
    }

    fn of(types: &[QpType]) -> World {
        let (clients, client_pd, client_cq) = function_with_cq();
        let (servers, pd, server_cq) = function_with_cq();
        let memory = servers.register_buffer(pd, 4096, Access::ALL).unwrap();
        let srq = servers.create_srq(pd, 100, 1).unwrap().number();
        let mut world = World {
            clients,
            servers,
            pairs: Vec::new(),
            srq,
            server_cq,
            out: Outbox::new(),
            _memory: memory,
        };
        for &qp_type in types {
            let client = world.clients.create_qp(NewQp {
                qp_type,
                ..new_qp(client_pd, client_cq)
            });
            let server = world.servers.create_qp(NewQp {
                qp_type,
                srq: Some(srq),
                ..new_qp(pd, server_cq)
            });
            let pair = (client.unwrap(), server.unwrap());
            for (qp, role) in [(&pair.0, Role::Initiator), (&pair.1, Role::Responder)] {
                qp.modify(QpState::Init, &mut world.out).unwrap();
                let setup = Setup {
                    qp_type,
                    ..Setup::default()
                };
                let stream = stream(role, setup);
                assert!(qp.attach(stream, true, &mut world.out));
            }
            world.pairs.push(pair);
        }
        world.run();
        world
    }

    /// Carries bytes until no side sends, and settles the outbox after every call, as the code that drives queue pairs must.
    fn run(&mut self) {
        loop {
            let mut moved = 0;
            for (client, server) in &self.pairs {
                let bytes = transmit(client, 4000, Time::ZERO, &mut self.out);
                feed(server, &bytes, Time::ZERO, &mut self.out);
                self.servers.settle(&mut self.out);
                let back = transmit(server, 4000, Time::ZERO, &mut self.out);
                self.servers.settle(&mut self.out);
                feed(client, &back, Time::ZERO, &mut Outbox::new());
                moved += bytes.len() + back.len();
            }
            if moved == 0 {
                return;
            }
        }
    }

    fn send(&mut self, pair: usize, id: u64) {
        let wr = SendWr {
            id,
            op: SEND,
            flags: Flags::SIGNALED,
            data: Data::Inline(&[]),
        };
        self.pairs[pair].0.post_send(&wr, &mut self.out).unwrap();
        self.run();
    }

    fn receive(&mut self, id: u64) {
        let wr = ReceiveWr { id, scatter: &[] };
        self.servers
            .post_srq_receive(self.srq, &wr, &mut self.out)
            .unwrap();
    }

    /// Which server got which receive.
    fn received(&self) -> Vec<(u32, u64)> {
        let cq = self.servers.cq(self.server_cq).unwrap();
        poll(&cq).iter().map(|wc| (wc.qpn, wc.id)).collect()
    }

    fn server(&self, pair: usize) -> u32 {
        self.pairs[pair].1.number()
    }
}

#[test]
fn posted_shared_receive_wakes_first_waiter() {
    let mut world = World::new(3);
    for pair in [1, 0, 2] {
        world.send(pair, 5);
    }
    assert!(world.received().is_empty());
    for id in 0..3 {
        world.receive(id);
        world.run();
    }
    let order = [world.server(1), world.server(0), world.server(2)];
    assert_eq!(
        world.received(),
        [(order[0], 0), (order[1], 1), (order[2], 2)]
    );
}

/// Everything that makes a queue pair leave the line while a receive is reserved for it.
#[test]
fn reserved_receive_passes_to_next_waiter() {
    type Leave = fn(&mut World, u32);
    let ways: [(&str, Leave); 4] = [
        ("destroyed", |w, qp| {
            w.servers.destroy_qp(qp, &mut w.out).unwrap();
        }),
        ("failed", |w, qp| {
            w.servers.modify_qp(qp, QpState::Err, &mut w.out).unwrap();
        }),
        ("emptied", |w, qp| {
            w.servers.modify_qp(qp, QpState::Reset, &mut w.out).unwrap();
        }),
        ("left by its peer", |w, qp| {
            let qp = w.servers.qp(qp).unwrap();
            qp.handle_eof(true, &mut w.out);
            w.servers.settle(&mut w.out);
        }),
    ];
    for (name, leave) in ways {
        let mut world = World::new(2);
        world.send(0, 1);
        world.send(1, 2);
        // Reserved for the first, whose peer is not told of it.
        world.receive(7);
        let first = world.server(0);
        leave(&mut world, first);
        world.pairs.remove(0);
        world.run();
        assert_eq!(world.received(), [(world.server(0), 7)], "{name}");
    }
}

/// The code that drives the next queue pair's connection must be told, or its READY is not sent.
#[test]
fn destroy_reports_next_waiter_as_woken() {
    let mut world = World::new(2);
    world.send(0, 1);
    world.send(1, 2);
    world.receive(7);
    world.servers.settle(&mut world.out);
    let first = world.server(0);
    world.servers.destroy_qp(first, &mut world.out).unwrap();
    let heirs: Vec<u32> = world
        .out
        .take_woken()
        .iter()
        .filter_map(|w| w.qp())
        .collect();
    assert_eq!(heirs, [world.server(1)]);
}

#[test]
fn uc_queue_pair_does_not_wait_for_receives() {
    let mut world = World::of(&[QpType::Uc, QpType::Rc]);
    world.send(0, 1);
    world.send(1, 2);
    world.receive(7);
    world.run();
    assert_eq!(world.received(), [(world.server(1), 7)]);
}

#[test]
fn destroyed_queue_pair_completes_nothing() {
    let mut world = World::new(2);
    for pair in 0..2 {
        world.receive(10 + pair as u64);
        world.send(pair, 1);
    }
    let cq = world.servers.cq(world.server_cq).unwrap();
    assert_eq!(cq.len(), 2);
    let (gone, left) = (world.pairs[0].1.clone(), world.server(1));
    let out = &mut Outbox::new();
    world.servers.destroy_qp(gone.number(), out).unwrap();
    assert!(world.servers.destroy_qp(gone.number(), out).is_err());
    assert_eq!(world.received(), [(left, 11)]);
    // A handle still exists: nothing can be done with it any more.
    assert!(gone.modify(QpState::Init, out).is_err() && gone.modify(QpState::Err, out).is_err());
    assert!(!gone.attach(stream(Role::Responder, Setup::default()), true, out));
    feed(&gone, &[1; 100], Time::ZERO, out);
    gone.handle_eof(true, out);
    gone.fail_overflowed(out);
    assert!(transmit(&gone, 1000, Time::ZERO, out).is_empty());
    assert!(cq.is_empty() && out.events().is_empty());
}

#[test]
fn destroy_acknowledges_received_messages() {
    let mut world = World::new(1);
    world.receive(1);
    let (client, server) = world.pairs[0].clone();
    let out = &mut Outbox::new();
    let wr = SendWr {
        id: 9,
        op: SEND,
        flags: Flags::SIGNALED,
        data: Data::Inline(&[]),
    };
    client.post_send(&wr, out).unwrap();
    let bytes = transmit(&client, 4000, Time::ZERO, out);
    feed(&server, &bytes, Time::ZERO, out);
    let last = world.servers.destroy_qp(server.number(), out).unwrap();
    feed(&client, &last, Time::ZERO, out);
    client.handle_eof(false, out);
    let done = poll(&client.init().send_cq);
    assert_eq!((done.len(), done[0].status), (1, Status::Success));
}

#[test]
fn cq_overflow_fails_every_attached_queue_pair() {
    let mut world = World::new(3);
    world.servers.resize_cq(world.server_cq, 1).unwrap();
    let pd = world.pairs[0].1.init().pd;
    let cq = world.servers.create_cq(10).unwrap().number();
    let bystander = world.servers.create_qp(new_qp(pd, cq)).unwrap();
    bystander.modify(QpState::Init, &mut world.out).unwrap();
    for id in 0..2 {
        world.receive(id);
        world.send(0, id);
    }
    for (_, server) in &world.pairs {
        assert_eq!(server.state(), QpState::Err);
        assert_eq!(server.cause().unwrap(), "a completion queue overflowed");
    }
    assert_eq!(bystander.state(), QpState::Init);
    let raised = world.out.events().iter();
    let raised = raised
        .filter(|e| matches!(e, Event::CqOverflow { .. }))
        .count();
    assert_eq!(raised, 1);
}

#[test]
fn last_wqe_event_is_raised_once() {
    let mut world = World::new(1);
    let qp = world.server(0);
    for _ in 0..2 {
        let out = &mut world.out;
        world.servers.modify_qp(qp, QpState::Err, out).unwrap();
    }
    let raised = world.out.events().iter();
    let raised = raised.filter(|e| **e == Event::LastWqe { qp }).count();
    assert_eq!(raised, 1);
}
