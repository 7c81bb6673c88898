//! Shared receive queues over real connections: which connection gets a receive, what happens without one, and the limit event.
//! All queue pairs are of one device (M21).

use std::collections::HashMap;

use verbena::events::Event;
use verbena::low::{Cq, Data, Pd, PostError, PostRecvError, Qp, QpOptions, RecvWr, Srq, Wc};
use verbena::{Access, Device, Error, Fault, Memory, Status};

use crate::common::device;
use crate::common::low::{SEND, complete, connect_qps, wait_until, wr};

/// Several connections whose accepting side uses one shared queue. M21: all of one device.
struct World {
    clients: Vec<Qp>,
    servers: Vec<Qp>,
    sent: Cq,
    got: Cq,
    srq: Srq,
    memory: Memory,
    pd: Pd,
    device: Device,
}

impl World {
    fn new(connections: usize) -> World {
        let device = device(&[]);
        let pd = device.pd().unwrap();
        let (sent, got) = (device.cq(1024).unwrap(), device.cq(1024).unwrap());
        let srq = pd.srq(256, 2).unwrap();
        let listener = device.listen("127.0.0.1:0").unwrap();
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..connections {
            let client = Qp::new(&pd, &sent, &sent, QpOptions::default()).unwrap();
            let server = Qp::with_srq(&pd, &got, &got, &srq, QpOptions::default()).unwrap();
            connect_qps(&listener, &client, &server);
            clients.push(client);
            servers.push(server);
        }
        World {
            clients,
            servers,
            sent,
            got,
            srq,
            memory: pd.memory(1 << 16, Access::ALL).unwrap(),
            pd,
            device,
        }
    }

    fn post(&self, id: u64) {
        let scatter = [self.memory.sge(id as usize * 16, 16).unwrap()];
        let scatter = &scatter;
        self.srq.post(&[RecvWr { id, scatter }]).unwrap();
    }

    fn bytes(&self, id: u64) -> [u8; 2] {
        self.memory.get(id as usize * 16).unwrap()
    }
}

#[test]
fn connections_share_one_receive_queue() {
    let world = World::new(4);
    const EACH: u8 = 50;
    for id in 0..u64::from(EACH) * 4 {
        world.post(id);
    }
    for i in 0..EACH {
        for (c, client) in (0..).zip(&world.clients) {
            let bytes = [c, i];
            let list = [wr(7, SEND, Data::Inline(&bytes))];
            client.post_send(&list).unwrap();
        }
    }
    let mut next = HashMap::new();
    for wc in complete(&world.got, usize::from(EACH) * 4) {
        assert_eq!((wc.status, wc.len), (Status::Success, 2));
        let [c, i] = world.bytes(wc.id);
        assert_eq!(wc.qpn, world.servers[usize::from(c)].number());
        let expected = next.entry(c).or_insert(0);
        assert_eq!(i, *expected, "each connection's messages are in order");
        *expected += 1;
    }
    assert_eq!(world.srq.query().unwrap().waiting, 0);
    assert_eq!(world.srq.query().unwrap().users, 4);
    complete(&world.sent, usize::from(EACH) * 4);
}

/// All find it empty and wait; each posted receive lets exactly one of them continue.
#[test]
fn each_posted_receive_admits_one_waiting_message() {
    let world = World::new(3);
    for (c, client) in (0..).zip(&world.clients) {
        let bytes = [c, 9];
        client
            .post_send(&[wr(7, SEND, Data::Inline(&bytes))])
            .unwrap();
        let server = &world.servers[usize::from(c)];
        // Polling serves the connections.
        wait_until("the message finds no receive", || {
            assert_eq!(world.got.poll(&mut [Wc::default(); 4]), 0);
            server.view().counters.rnr_sent > 0
        });
    }
    let mut seen = Vec::new();
    for id in 0..3 {
        world.post(id);
        let wc = complete(&world.got, 1)[0];
        assert_eq!((wc.id, wc.status), (id, Status::Success));
        seen.push(world.bytes(id)[0]);
        assert_eq!(
            world.got.poll(&mut [Wc::default(); 4]),
            0,
            "one receive, one message"
        );
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
    for wc in complete(&world.sent, 3) {
        assert_eq!(wc.status, Status::Success);
    }
}

/// The limit events since the last call.
fn limits(device: &Device) -> impl Iterator<Item = Event> {
    let ours = |event: &Event| matches!(event, Event::SrqLimit { .. });
    std::iter::from_fn(|| device.next_event()).filter(ours)
}

#[test]
fn srq_limit_event_is_raised_once() {
    let world = World::new(1);
    for id in 0..4 {
        world.post(id);
    }
    world.srq.set_limit(3).unwrap();
    let mut events = Vec::new();
    for _ in 0..3 {
        let list = [wr(7, SEND, Data::Inline(b"xx"))];
        world.clients[0].post_send(&list).unwrap();
        complete(&world.got, 1);
        wait_until("the sender heard", || {
            world.clients[0].view().sends == 0 || world.sent.poll(&mut [Wc::default(); 4]) > 0
        });
        events.extend(limits(&world.device));
    }
    // The thread that took the receive may raise the event after the message was delivered.
    wait_until("it is told", || {
        events.extend(limits(&world.device));
        !events.is_empty()
    });
    let srq = world.srq.number();
    assert_eq!(events, [Event::SrqLimit { srq }]);
    assert_eq!(
        world.srq.query().unwrap().limit,
        0,
        "and is not armed any more"
    );
}

#[test]
fn srq_in_use_is_not_destroyed() {
    let world = World::new(2);
    world.post(0);
    let World {
        clients,
        servers,
        srq,
        pd,
        device,
        memory,
        sent,
        got,
    } = world;
    let (srq, error) = srq.destroy().unwrap_err();
    assert_eq!(error.fault(), Fault::Caller);
    assert!(error.to_string().contains("in use by 2"), "{error}");
    // It can still be used after the failed call.
    clients[0]
        .post_send(&[wr(7, SEND, Data::Inline(b"on"))])
        .unwrap();
    assert_eq!(complete(&got, 1)[0].status, Status::Success);
    // Dropped in use, it lives as long as its queue pairs.
    drop(srq);
    assert_eq!(device.used().srqs, 1);
    drop(servers);
    assert_eq!(device.used().srqs, 0);
    drop((clients, pd, memory, sent));
}

#[test]
fn invalid_srq_use_is_refused() {
    let (device, other) = (device(&[]), device(&[]));
    let (pd, cq) = (device.pd().unwrap(), device.cq(16).unwrap());
    let srq = pd.srq(4, 1).unwrap();
    let list = [1, 2, 3, 4, 5].map(|id| RecvWr { id, scatter: &[] });
    assert_eq!(
        srq.post(&list),
        Err(PostRecvError {
            posted: 4,
            source: PostError::Full(4)
        })
    );
    let memory = pd.memory(64, Access::ALL).unwrap();
    let pieces = [memory.sge(0, 1).unwrap(); 2];
    let refused = srq.post(&[RecvWr {
        id: 6,
        scatter: &pieces,
    }]);
    assert_eq!(
        refused,
        Err(PostRecvError {
            posted: 0,
            source: PostError::Full(4)
        }),
        "fullness is first"
    );
    let on = |pd: &Pd, srq: &Srq| Qp::with_srq(pd, &cq, &cq, srq, QpOptions::default());
    let qp = on(&pd, &srq).unwrap();
    qp.modify(verbena::low::QpState::Init).unwrap();
    assert_eq!(
        qp.post_recv(&list[..1]),
        Err(PostRecvError {
            posted: 0,
            source: PostError::Shared
        })
    );
    let elsewhere = on(&device.pd().unwrap(), &srq).unwrap_err();
    assert!(
        elsewhere.to_string().contains("protection domain"),
        "{elsewhere}"
    );
    let foreign = on(&pd, &other.pd().unwrap().srq(4, 1).unwrap());
    assert!(matches!(foreign, Err(Error::Foreign)));
    let most = device.attributes().shared_receives;
    assert!(pd.srq(most + 1, 1).is_err());
}
