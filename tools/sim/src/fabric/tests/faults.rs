//! One scenario for each fault of the simulations of adapters other than reset connections: that it occurs, and its outcome.
//! The statuses of both sides are those of docs/connections.md.

use verbena_mem::{Access, Bind, Pd, Policy, WindowType};
use verbena_nic::{Event, Personality};
use verbena_stream::RnrRetry;

use super::*;
use crate::rng::Ratio;

const PATTERN: [u8; 100] = [0x5A; 100];

/// Two connected queue pairs with some memory each.
struct ConnectedPair {
    fabric: Fabric,
    hosts: [HostId; 2],
    qps: [QpId; 2],
    memory: [Arc<Buffer>; 2],
    connection: ConnectionId,
}

impl ConnectedPair {
    fn with(policy: Policy, personality: Personality, connect: ConnectOptions) -> ConnectedPair {
        let mut fabric = Fabric::new(11);
        let hosts = [fabric.host(), fabric.host_with(policy)];
        let options = QpOptions {
            personality,
            ..QpOptions::default()
        };
        let qps = hosts.map(|h| fabric.qp_with(h, options.clone()));
        let memory = hosts.map(|h| Arc::new(fabric.memory(h, 100)));
        memory[0].write(0, &PATTERN);
        let connection = fabric.connect_with(qps[0], qps[1], connect);
        fabric.run();
        ConnectedPair {
            fabric,
            hosts,
            qps,
            memory,
            connection,
        }
    }

    fn new(personality: Personality) -> ConnectedPair {
        ConnectedPair::with(Policy::Verbs, personality, ConnectOptions::default())
    }

    fn post(&mut self, id: u64, op: SendOp, len: usize) {
        post(&mut self.fabric, self.qps[0], id, op, &self.memory[0], len);
    }

    fn sent(&self, side: usize) -> Vec<(u64, Status)> {
        statuses(&self.fabric.sent(self.qps[side]))
    }

    fn state(&self, side: usize) -> QpState {
        self.fabric.queue_pair(self.qps[side]).state()
    }

    fn supply(&mut self, side: usize, id: u64, memory: &Buffer) {
        let scatter = [sge(memory, 0, 100)];
        let wr = ReceiveWr {
            id,
            scatter: &scatter,
        };
        self.fabric.post_receive(self.qps[side], &wr).unwrap();
    }

    /// Events of failure on a host.
    fn failure_events(&mut self, side: usize) -> Vec<Event> {
        let bad = |e: &Event| {
            matches!(
                e,
                Event::QpFatal { .. } | Event::QpAccess { .. } | Event::QpRequest { .. }
            )
        };
        let events = self.fabric.events(self.hosts[side]).into_iter();
        events.map(|(_, e)| e).filter(bad).collect()
    }
}

fn write(memory: &Buffer) -> SendOp {
    SendOp::Write {
        remote: remote(memory, 0),
        immediate: None,
    }
}

#[test]
fn flipped_bit_ends_connection_and_reaches_no_memory() {
    let (mut struck, mut whole) = (0, 0);
    for per_mille in [100, 200, 300, 400, 500, 600, 700, 800] {
        for seed in 0..12 {
            let mut fabric = Fabric::new(seed);
            let hosts = [fabric.host(), fabric.host()];
            let qps = hosts.map(|h| fabric.qp(h));
            let memory = hosts.map(|h| fabric.memory(h, 100));
            memory[0].write(0, &PATTERN);
            let mut connect = ConnectOptions::default();
            connect.links[0].flip = Ratio::per_mille(per_mille);
            let connection = fabric.connect_with(qps[0], qps[1], connect);
            fabric.run();
            let before = fabric.flips(connection)[0].0.len();
            if fabric.queue_pair(qps[0]).state() != QpState::Rts || before > 0 {
                continue;
            }
            post(&mut fabric, qps[0], 1, write(&memory[1]), &memory[0], 100);
            fabric.run();
            let damaged = !fabric.flips(connection)[0].0.is_empty();
            let landed = memory[1].read(0, 100);
            match statuses(&fabric.sent(qps[0])).as_slice() {
                [(1, Status::Success)] => {
                    assert!(!damaged && landed == PATTERN);
                    whole += 1;
                }
                [(1, Status::GeneralErr)] => {
                    assert!(damaged && landed == [0; 100]);
                    assert_eq!(fabric.queue_pair(qps[1]).state(), QpState::Err);
                    struck += 1;
                }
                // A damaged length makes the receiver wait for the rest of a longer frame.
                [] => assert!(damaged && landed == [0; 100]),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(struck > 5 && whole > 5, "{struck} struck, {whole} whole");
}

#[test]
fn reset_queue_pair_completes_nothing_and_reconnects() {
    let mut two = ConnectedPair::new(Personality::Roce);
    two.post(1, SEND, 10);
    two.post(2, SEND, 10);
    two.fabric.run();
    let mine = two.memory[1].clone();
    post(&mut two.fabric, two.qps[1], 7, SEND, &mine, 10);
    two.fabric.modify(two.qps[1], QpState::Reset).unwrap();
    two.fabric.run();
    let ends = [(1, Status::RetryExcErr), (2, Status::WrFlushErr)];
    assert_eq!(two.sent(0), ends);
    assert_eq!(two.sent(1), []);
    assert!(two.fabric.is_closed(two.connection));

    let third = two.fabric.qp(two.hosts[0]);
    two.fabric.connect(third, two.qps[1]);
    two.fabric.run();
    let ours = two.memory[0].clone();
    post(&mut two.fabric, third, 3, write(&mine), &ours, 100);
    two.fabric.run();
    let done = statuses(&two.fabric.sent(third));
    assert_eq!(done, [(3, Status::Success)]);
    assert_eq!(mine.read(0, 100), PATTERN);
    assert!(two.sent(0).is_empty() && two.sent(1).is_empty());
}

#[test]
fn iwarp_peer_of_a_reset_qp_is_flushed() {
    let mut two = ConnectedPair::new(Personality::Iwarp);
    assert!(
        two.fabric.modify(two.qps[1], QpState::Reset).is_err(),
        "it has a stream"
    );
    two.post(1, read(&two.memory[1].clone()), 10);
    two.fabric.modify(two.qps[1], QpState::Err).unwrap();
    two.fabric.modify(two.qps[1], QpState::Reset).unwrap();
    two.fabric.run();
    assert_eq!(two.sent(0), [(1, Status::WrFlushErr)]);
    assert_eq!(two.state(0), QpState::Err);
}

#[test]
fn idle_iwarp_pair_closes_cleanly_and_reconnects() {
    let mut two = ConnectedPair::new(Personality::Iwarp);
    two.post(1, write(&two.memory[1].clone()), 100);
    two.fabric.run();
    two.fabric.events(two.hosts[0]);
    two.fabric.modify(two.qps[0], QpState::Closing).unwrap();
    two.fabric.run();
    assert_eq!([0, 1].map(|side| two.state(side)), [QpState::Init; 2]);
    assert!(two.failure_events(0).is_empty() && two.failure_events(1).is_empty());
    assert_eq!(two.sent(0), [(1, Status::Success)]);

    two.fabric.connect(two.qps[1], two.qps[0]);
    two.fabric.run();
    assert_eq!([0, 1].map(|side| two.state(side)), [QpState::Rts; 2]);
    two.post(2, read(&two.memory[1].clone()), 100);
    two.fabric.run();
    assert_eq!(two.sent(0), [(2, Status::Success)]);
}

#[test]
fn iwarp_close_with_outstanding_requests_fails() {
    let mut two = ConnectedPair::new(Personality::Iwarp);
    two.post(1, read(&two.memory[1].clone()), 100);
    two.fabric.modify(two.qps[0], QpState::Closing).unwrap();
    assert_eq!(two.state(0), QpState::Err);
    two.fabric.run();
    assert_eq!(two.sent(0), [(1, Status::WrFlushErr)]);
}

/// M7.
#[test]
fn windows_only_policy_hides_regions_from_peers() {
    let roce = Personality::Roce;
    let mut two = ConnectedPair::with(Policy::WindowsOnly, roce, ConnectOptions::default());
    let theirs = two.memory[1].clone();
    let tpt = two.fabric.tpt(two.hosts[1]).clone();
    let window = tpt.allocate_window(WindowType::TwoB, Pd(1)).unwrap();
    let bind = Bind {
        window,
        region: theirs.stag(),
        addr: theirs.at(),
        len: 100,
        access: Access::REMOTE_WRITE,
        pd: Pd(1),
        qp: two.fabric.queue_pair(two.qps[1]).number(),
        key: window.key(),
        zero_based: false,
        one_touch: false,
    };
    post(
        &mut two.fabric,
        two.qps[1],
        1,
        SendOp::Bind(bind),
        &theirs,
        0,
    );
    two.fabric.run();
    let mut through = remote(&theirs, 0);
    through.stag = window;
    let op = SendOp::Write {
        remote: through,
        immediate: None,
    };
    two.post(2, op, 10);
    two.fabric.run();
    assert_eq!(two.sent(0), [(2, Status::Success)]);
    assert_eq!(theirs.read(0, 10), PATTERN[..10]);
    two.post(3, write(&theirs), 100);
    two.fabric.run();
    assert_eq!(two.sent(0), [(3, Status::RemAccessErr)]);
    assert_eq!(theirs.read(10, 90), [0; 90]);
}

#[test]
fn disabled_operation_is_an_invalid_request() {
    for disabled in 0..3 {
        let mut two = ConnectedPair::new(Personality::Roce);
        let theirs = two.memory[1].clone();
        let enabled = QpAccessFlags {
            write: disabled != 0,
            read: disabled != 1,
            atomic: disabled != 2,
            ..QpAccessFlags::default()
        };
        two.fabric.enable(two.qps[1], enabled);
        let add = SendOp::FetchAdd {
            remote: remote(&theirs, 0),
            add: 1,
            mask: 0,
        };
        let op = [write(&theirs), read(&theirs), add][disabled];
        two.post(1, op, 8);
        two.fabric.run();
        assert_eq!(two.sent(0), [(1, Status::RemInvReqErr)]);
        assert_eq!(theirs.read(0, 100), [0; 100]);
        assert_eq!(two.memory[0].read(0, 100), PATTERN);
        let qp = two.fabric.queue_pair(two.qps[1]).number();
        assert_eq!(two.failure_events(1), [Event::QpRequest { qp }]);
    }
}

#[test]
fn rnr_retry_never_fails_at_once() {
    let mut connect = ConnectOptions::default();
    connect.sides[0].rnr_retry = RnrRetry::Never;
    let mut two = ConnectedPair::with(Policy::Verbs, Personality::Roce, connect);
    two.post(1, SEND, 10);
    let before = two.fabric.now();
    two.fabric.run();
    assert_eq!(two.sent(0), [(1, Status::RnrRetryExcErr)]);
    assert_eq!(two.fabric.now(), before);
}

#[test]
fn srq_limit_event_is_raised_once_per_arming() {
    let mut fabric = Fabric::new(12);
    let (server, client) = (fabric.host(), fabric.host());
    let srq = fabric.srq(16);
    let memory = [fabric.memory(server, 100), fabric.memory(client, 100)];
    let options = QpOptions {
        srq: Some(srq.clone()),
        ..QpOptions::default()
    };
    let (near, far) = (fabric.qp_with(server, options), fabric.qp(client));
    fabric.connect(far, near);
    fabric.run();
    let scatter = [sge(&memory[0], 0, 50)];
    for id in 0..8 {
        let wr = ReceiveWr {
            id,
            scatter: &scatter,
        };
        fabric.post_shared(&srq, &wr).unwrap();
    }
    let after = |fabric: &mut Fabric| {
        post(fabric, far, 1, SEND, &memory[1], 10);
        fabric.run();
        let events = fabric.events(server).into_iter();
        let low = events.filter(|(_, e)| matches!(e, Event::SrqLimit { .. }));
        low.count()
    };
    assert_eq!(after(&mut fabric), 0, "never armed");
    assert!(srq.set_limit(6));
    assert_eq!([0, 1, 2].map(|_| after(&mut fabric)), [0, 1, 0]);
    assert!(srq.set_limit(4));
    assert_eq!([0, 1].map(|_| after(&mut fabric)), [1, 0]);
}

#[test]
fn memory_of_another_protection_domain_is_refused() {
    let abroad = Pd(2);
    let mut two = ConnectedPair::new(Personality::Roce);
    let far = two
        .fabric
        .memory_with(two.hosts[1], 100, abroad, Access::ALL);
    let far = far.unwrap();
    two.post(1, write(&far), 10);
    two.fabric.run();
    assert_eq!(two.sent(0), [(1, Status::RemAccessErr)]);
    assert_eq!(far.read(0, 100), [0; 100]);

    let mut two = ConnectedPair::new(Personality::Roce);
    let near = two
        .fabric
        .memory_with(two.hosts[0], 100, abroad, Access::ALL);
    let theirs = two.memory[1].clone();
    post(
        &mut two.fabric,
        two.qps[0],
        1,
        write(&theirs),
        &near.unwrap(),
        10,
    );
    two.fabric.run();
    assert_eq!(two.sent(0), [(1, Status::LocProtErr)]);

    let mut two = ConnectedPair::new(Personality::Roce);
    let far = two
        .fabric
        .memory_with(two.hosts[1], 100, abroad, Access::ALL);
    let far = far.unwrap();
    two.supply(1, 9, &far);
    two.post(1, SEND, 10);
    two.fabric.run();
    assert_eq!(two.sent(0), [(1, Status::RemOpErr)]);
    let received = statuses(&two.fabric.received(two.qps[1]));
    assert_eq!(received, [(9, Status::LocProtErr)]);
    assert_eq!(far.read(0, 100), [0; 100]);
}

/// RoCE: a draining queue pair finishes what it began, keeps what is posted, and continues where it stopped.
#[test]
fn queue_pair_drains_under_traffic_and_resumes() {
    let mut connect = ConnectOptions::default();
    let travel = Duration::from_millis(1);
    connect.links[1].latency = (travel, travel);
    let mut two = ConnectedPair::with(Policy::Verbs, Personality::Roce, connect);
    let theirs = two.memory[1].clone();
    two.post(1, read(&theirs), 10);
    two.fabric.run_for(travel / 2);
    two.fabric.modify(two.qps[0], QpState::Sqd).unwrap();
    let drained = |two: &mut ConnectedPair| {
        let events = two.fabric.events(two.hosts[0]).into_iter();
        let drained = events.filter(|(_, e)| matches!(e, Event::SqDrained { .. }));
        drained.count()
    };
    assert_eq!(drained(&mut two), 0, "the answer is under way");
    two.fabric.run();
    assert_eq!(drained(&mut two), 1);
    two.post(2, read(&theirs), 10);
    two.fabric.run();
    assert_eq!(two.sent(0), [(1, Status::Success)]);
    two.fabric.modify(two.qps[0], QpState::Rts).unwrap();
    two.fabric.run();
    assert_eq!(two.sent(0), [(2, Status::Success)]);
}
