//! Acknowledged pairs over a network that loses, reorders and duplicates datagrams (P2, P3): exactly once, in order, unchanged.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use verbena_nic::wc::{Status, Wc, WcOp};
use verbena_split::carrier::cells::{CellCarrier, CellOptions};
use verbena_split::carrier::{Carrier, CarrierEvent, Memory, MemoryAccess, Pair, PairOptions};

use crate::relay::{Faults, Relay, RelayCounters};

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const PATIENCE: Duration = Duration::from_secs(60);
const OPTIONS: PairOptions = PairOptions {
    acknowledged: true,
    sends: 32,
    receives: 32,
};
const SLOTS: u64 = 16;
const SLOT: usize = 1 << 16;

struct Side {
    carrier: CellCarrier,
    memory: Box<dyn Memory>,
    done: Vec<Wc>,
}

impl Side {
    fn new(mut carrier: CellCarrier) -> Side {
        let len = SLOT * SLOTS as usize;
        let memory = carrier.register_memory(len, MemoryAccess::Local).unwrap();
        let done = Vec::new();
        Side {
            carrier,
            memory,
            done,
        }
    }

    fn turn(&mut self) -> Option<CarrierEvent> {
        self.carrier.turn(Instant::now(), &mut self.done).unwrap();
        self.carrier.next_event()
    }

    fn slot(&self, id: u64, len: usize) -> verbena_nic::wr::Sge {
        self.memory.sge((id % SLOTS) as usize * SLOT, len as u32)
    }

    fn receive(&mut self, pair: Pair, id: u64) {
        let piece = self.slot(id, SLOT);
        self.carrier.post_receive(pair, id, Some(piece)).unwrap();
    }
}

/// A message of varied length, whose contents depend on its number and the position.
fn message(number: u64) -> Vec<u8> {
    let mut state = number;
    let len = match crate::relay::next(&mut state) % 10 {
        0 => 0,
        1..=4 => 64,
        5..=7 => 1 + crate::relay::next(&mut state) as usize % 3000,
        _ => 1 + crate::relay::next(&mut state) as usize % SLOT,
    };
    (0..len)
        .map(|at| (number as usize + at * 31 + at / 251) as u8)
        .collect()
}

/// Sends messages through the relay; returns the relay's counters.
fn send_through_relay(
    messages: u64,
    (cell, datagram): (Option<u16>, Option<usize>),
    faults: Faults,
    seed: u64,
) -> RelayCounters {
    let options = CellOptions {
        cell,
        datagram,
        ..CellOptions::default()
    };
    let mut unit = Side::new(CellCarrier::udp_listen(LOCALHOST, options).unwrap());
    let to = unit.carrier.local_addr().parse().unwrap();
    let mut relay = Relay::new(LOCALHOST, to, faults, seed).unwrap();
    let place = relay.local_addr().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            relay.run(&stop).unwrap();
            relay.counters
        });
        // The relay is stopped in any case.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            transfer(messages, &mut unit, place, options);
        }));
        stop.store(true, Ordering::Relaxed);
        let fates = running.join().unwrap();
        eprintln!("{fates:?}");
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
        fates
    })
}

fn transfer(messages: u64, unit: &mut Side, place: SocketAddr, options: CellOptions) {
    let mut host = Side::new(CellCarrier::udp_dial(place, options).unwrap());
    let pair = host.carrier.create_pair(OPTIONS).unwrap();
    host.carrier.connect(pair, b"").unwrap();
    let mut served = None;
    let (mut connected, mut posted, mut came, mut acknowledged) = (false, 0, 0, 0);
    let start = Instant::now();
    while came < messages || acknowledged < messages {
        assert!(
            start.elapsed() < PATIENCE,
            "{came} of {messages} came, {acknowledged} are acknowledged"
        );
        match host.turn() {
            Some(CarrierEvent::Connected { .. }) => connected = true,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        match unit.turn() {
            Some(CarrierEvent::Request { ticket, .. }) => {
                let pair = unit.carrier.create_pair(OPTIONS).unwrap();
                for id in 0..SLOTS {
                    unit.receive(pair, id);
                }
                unit.carrier.accept(ticket, pair, b"").unwrap();
                served = Some(pair);
            }
            Some(CarrierEvent::Connected { .. }) | None => {}
            Some(other) => panic!("{other:?}"),
        }
        while connected && posted < messages && posted < acknowledged + SLOTS {
            let bytes = message(posted);
            let piece = host.slot(posted, bytes.len());
            let offset = (posted % SLOTS) as usize * SLOT;
            assert!(host.memory.write(offset, &bytes));
            host.carrier.post_send(pair, posted, piece).unwrap();
            posted += 1;
        }
        for wc in std::mem::take(&mut host.done) {
            assert_eq!((wc.id, wc.status), (acknowledged, Status::Success));
            acknowledged += 1;
        }
        for wc in std::mem::take(&mut unit.done) {
            assert_eq!((wc.op, wc.status), (WcOp::Receive, Status::Success));
            let expected = message(came);
            let mut bytes = vec![0; wc.len as usize];
            let offset = (wc.id % SLOTS) as usize * SLOT;
            assert!(unit.memory.read(offset, &mut bytes));
            assert!(bytes == expected, "message {came}");
            came += 1;
            unit.receive(served.unwrap(), wc.id);
        }
        if host.carrier.prepare_sleep() && unit.carrier.prepare_sleep() {
            host.carrier
                .sleep(&mut [], Some(Duration::from_millis(1)))
                .unwrap();
        }
    }
    let view = host.carrier.view(pair).unwrap();
    eprintln!(
        "{messages} messages in {:?}: {:?}",
        start.elapsed(),
        view.counters
    );
}

#[test]
fn mixed_sizes_survive_loss_and_reordering() {
    let faults = Faults {
        loss: 5.0,
        reorder: 5.0,
        duplicate: 2.0,
    };
    let fates = send_through_relay(2000, (None, Some(1472)), faults, 1);
    assert!(
        fates.lost > 100 && fates.reordered > 100 && fates.duplicated > 20,
        "{fates:?}"
    );
}

#[test]
fn cells_of_256_bytes_survive_loss() {
    let faults = Faults {
        loss: 1.0,
        reorder: 1.0,
        duplicate: 1.0,
    };
    let fates = send_through_relay(200, (Some(256), Some(1472)), faults, 2);
    assert!(fates.lost > 0 && fates.reordered > 0, "{fates:?}");
}

#[test]
fn messages_pass_without_network_faults() {
    let fates = send_through_relay(500, (None, None), Faults::default(), 3);
    assert_eq!((fates.lost, fates.reordered, fates.duplicated), (0, 0, 0));
}
