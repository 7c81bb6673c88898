//! Peers behind a failing network: two namespaces with a veth link, which drops everything for a while or for good.
//! Needs root, or a user namespace; the tests print a note where they cannot run.

use std::net::TcpListener;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use verbena_engine::{Engine, HandlerOptions, QueuePairOptions};
use verbena_mem::Access;
use verbena_nic::{Arm, Event, QpState, QpType, Status, UlpQp, Wc};

use crate::common::tcp::tcp_rows;
use crate::common::{LIMITS, SEND, Side, config, read_from, ulp, wait};
use crate::space::{self, Netns};

/// Longer than every time limit that the tests set.
const LIMIT: Duration = Duration::from_secs(30);

/// Two namespaces and their link.
struct VethLink {
    ends: [Netns; 2],
}

const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

impl VethLink {
    fn new() -> VethLink {
        let ends = [Netns::new(), Netns::new()];
        ends[0].connect_veth("cable", &ends[1], "cable");
        for (end, address) in ends.iter().zip(ADDRESSES) {
            end.ip(&format!("address add {address}/24 dev cable"));
        }
        VethLink { ends }
    }

    /// Each end sends to a host that does not exist: everything is lost, without an error.
    fn cut(&self) {
        for (end, peer) in self.ends.iter().zip(ADDRESSES.iter().rev()) {
            end.ip(&format!(
                "neigh replace {peer} lladdr 02:00:00:00:00:99 nud permanent dev cable"
            ));
        }
    }

    fn mend(&self) {
        for (end, peer) in self.ends.iter().zip(ADDRESSES.iter().rev()) {
            end.ip(&format!("neigh del {peer} dev cable"));
        }
    }

    /// Two connected sides, one at each end.
    fn pair(&self, kind: &Kind, settings: &[(&str, &str)]) -> [Side; 2] {
        let [a, b] = [0, 1].map(|at| {
            let mut all = vec![("device", ADDRESSES[at]), ("personality", kind.personality)];
            all.extend_from_slice(settings);
            self.ends[at].run(|| side(&all, kind.qp_type))
        });
        let listener = self.ends[1].run(|| {
            let at = format!("{}:0", ADDRESSES[1]).parse().unwrap();
            b.engine.listen(at, 4).unwrap()
        });
        let to = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| self.ends[0].run(|| crate::common::dial(&a.qp, to).unwrap()));
            self.ends[1].run(|| crate::common::accept_next(&listener, &b.qp));
        });
        [a, b]
    }
}

/// A kind of connection.
#[derive(Debug, Clone, Copy)]
struct Kind {
    personality: &'static str,
    qp_type: QpType,
}

const KINDS: [Kind; 3] = [
    Kind {
        personality: "roce",
        qp_type: QpType::Rc,
    },
    Kind {
        personality: "iwarp",
        qp_type: QpType::Rc,
    },
    Kind {
        personality: "roce",
        qp_type: QpType::Uc,
    },
];

pub(crate) fn side(settings: &[(&str, &str)], qp_type: QpType) -> Side {
    let engine = Engine::new(config(settings)).unwrap();
    let pd = engine.function().allocate_pd().unwrap();
    let cq = engine.create_cq(4096).unwrap();
    let memory = engine.function().register_buffer(pd, 64 << 10, Access::ALL);
    let options = QueuePairOptions {
        limits: LIMITS,
        qp_type,
        ..QueuePairOptions::new(pd)
    };
    let qp = engine.create_qp(&cq, &cq, options).unwrap();
    Side {
        qp,
        cq,
        memory: memory.unwrap(),
        pd,
        engine,
    }
}

fn receive_some(side: &Side, count: u64) {
    (0..count).for_each(|id| side.receive(id, &[side.sge(0, 64)]));
}

/// Sends one message, and waits until it has arrived.
fn exchange(a: &Side, b: &Side, id: u64) {
    a.post(id, SEND, &[a.sge(0, 64)]);
    for side in [a, b] {
        let mut one = [Wc::default()];
        let end = Instant::now() + LIMIT;
        while side.cq.poll(&mut one) == 0 {
            assert!(Instant::now() < end, "{id}: {:?}", side.qp.view());
        }
        assert_eq!(one[0].status, Status::Success, "{id}");
    }
}

/// With the defaults: what is sent meanwhile arrives, and idle connections stay.
#[test]
fn two_second_outage_breaks_no_connection() {
    space::privileged("network::two_second_outage_breaks_no_connection", || {
        let cable = VethLink::new();
        let pairs: Vec<_> = KINDS
            .iter()
            .flat_map(|kind| [true, false].map(|busy| (busy, cable.pair(kind, &[]))))
            .collect();
        for (_, [a, b]) in &pairs {
            receive_some(b, 8);
            exchange(a, b, 0);
        }
        cable.cut();
        for (_, [a, _]) in pairs.iter().filter(|(busy, _)| *busy) {
            a.post(1, SEND, &[a.sge(0, 64)]);
        }
        // real time: the outage's length is the subject; only the kernel's timers run meanwhile.
        std::thread::sleep(Duration::from_millis(2200));
        cable.mend();
        for (busy, [a, b]) in &pairs {
            if *busy {
                let sent = wait_for(a, 1);
                let got = wait_for(b, 1);
                assert_eq!((sent, got), (Status::Success, Status::Success));
            }
            exchange(a, b, 2);
            assert_eq!((a.qp.state(), b.qp.state()), (QpState::Rts, QpState::Rts));
        }
    });
}

/// The status of the next completion.
fn wait_for(side: &Side, id: u64) -> Status {
    let (mut one, end) = ([Wc::default()], Instant::now() + LIMIT);
    while side.cq.poll(&mut one) == 0 {
        assert!(Instant::now() < end, "{id}: {:?}", side.qp.view());
    }
    one[0].status
}

/// Whether the end of its connection was reported.
pub(crate) fn is_end_reported(side: &Side) -> bool {
    let mut notified = std::iter::from_fn(|| side.engine.events().try_take());
    notified.any(|event| matches!(event, Event::Disconnected { .. }))
}

/// A host that is gone sends nothing: senders, receivers and idle peers notice in bounded time.
#[test]
fn vanished_host_is_noticed_by_every_role() {
    space::privileged("network::vanished_host_is_noticed_by_every_role", || {
        let cable = VethLink::new();
        let settings = [("dead_after", "1s"), ("keep_alive", "2s")];
        let roles: Vec<_> = KINDS
            .iter()
            .flat_map(|kind| [true, false].map(|sends| (*kind, sends)))
            .map(|(kind, sends)| (kind, sends, cable.pair(&kind, &settings)))
            .collect();
        for (_, _, [a, b]) in &roles {
            receive_some(b, 8);
            exchange(a, b, 0);
            // A receiver has receives posted; a sender has none.
            a.receive(7, &[a.sge(0, 64)]);
        }
        cable.cut();
        for (_, _, [a, _]) in roles.iter().filter(|(_, sends, _)| *sends) {
            a.post(1, SEND, &[a.sge(0, 64)]);
        }
        for (kind, sends, [a, b]) in &roles {
            wait(&format!("the end of {kind:?}, sends: {sends}"), || {
                is_end_reported(a)
            });
            wait(&format!("the end for the receiver of {kind:?}"), || {
                is_end_reported(b)
            });
            let reliable = kind.qp_type == QpType::Rc;
            let iwarp = kind.personality == "iwarp";
            let mut some = [Wc::default(); 16];
            let n = a.cq.poll(&mut some);
            let statuses: Vec<_> = some[..n].iter().map(|wc| (wc.id, wc.status)).collect();
            let expected: &[(u64, Status)] = match (sends, reliable, iwarp) {
                (true, true, false) => &[(1, Status::RetryExcErr), (7, Status::WrFlushErr)],
                (true, true, true) => &[(1, Status::Success), (7, Status::WrFlushErr)],
                (false, true, true) => &[(7, Status::WrFlushErr)],
                (true, false, _) => &[(1, Status::Success)],
                // Receives of the RoCE personality stay posted.
                (false, _, _) => &[],
            };
            assert_eq!(statuses, expected, "{kind:?}, sends: {sends}");
        }
    });
}

/// The peer's TCP owes nothing, since it has acknowledged the request; its only shard is blocked by a handler.
#[test]
fn acknowledged_request_fails_when_its_host_vanishes() {
    space::privileged(
        "network::acknowledged_request_fails_when_its_host_vanishes",
        || {
            let cable = VethLink::new();
            let settings = [("dead_after", "1s"), ("shards", "1")];
            let [a, b] = cable.pair(&KINDS[0], &settings);
            receive_some(&b, 8);
            exchange(&a, &b, 0);
            let (open, gate) = mpsc::channel::<()>();
            let (entered, begun) = mpsc::channel();
            let gate = Mutex::new(gate);
            let hold = HandlerOptions::new(move |_| {
                let _ = entered.send(());
                let _ = gate.lock().unwrap().recv();
            });
            let id = b.engine.set_handler(&hold).unwrap();
            b.cq.set_handler(Some(id)).unwrap();
            b.cq.arm(Arm::Next);
            a.post(1, SEND, &[a.sge(0, 64)]);
            begun.recv_timeout(LIMIT).unwrap();
            a.post(2, read_from(b.remote(0)), &[a.sge(0, 64)]);
            wait("the request is acknowledged and unread", || {
                let [ours, theirs] = [0, 1].map(|end| cable.ends[end].run(tcp_rows));
                let acknowledged = ours.iter().all(|row| row.unacknowledged == 0);
                acknowledged && theirs.iter().any(|row| row.unread > 0)
            });
            cable.cut();
            let mut statuses = Vec::new();
            while statuses.last().is_none_or(|s| *s == Status::Success) {
                statuses.push(wait_for(&a, 2));
            }
            assert_eq!(statuses.last(), Some(&Status::RetryExcErr));
            drop(open);
        },
    );
}

/// With and without requests in flight.
#[test]
fn vanished_peer_of_upper_protocol_is_noticed() {
    space::privileged(
        "network::vanished_peer_of_upper_protocol_is_noticed",
        || {
            let cable = VethLink::new();
            let settings = [("device", ADDRESSES[0]), ("keep_alive", "2s")];
            let a = cable.ends[0].run(|| side(&settings, QpType::Rc));
            let target = cable.ends[1].run(|| TcpListener::bind((ADDRESSES[1], 0)).unwrap());
            let to = target.local_addr().unwrap();
            let connect = || ulp::connect(&a.engine, &a.cq, a.pd, to);
            let pairs = cable.ends[0].run(|| [connect(), connect()]);
            let _streams = [target.accept().unwrap(), target.accept().unwrap()];
            cable.cut();
            pairs[1].post(|qp, _| qp.send(&[0; 48])).unwrap();
            wait("both fail", || {
                pairs.iter().all(|pair| pair.qp().state() == QpState::Err)
            });
        },
    );
}
