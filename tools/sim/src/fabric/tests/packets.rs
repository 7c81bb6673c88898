//! Scenarios over RoCEv2 packets: what a bad link does not change, and how requests end over one that was cut.
//! Random scenarios are in the simulations of adapters.

use verbena_roce::Mtu;
use verbena_wire::roce::Psn;

use super::*;
use crate::packet_link::PacketLinkOptions;
use crate::rng::Ratio;

/// A link with every fault.
const BAD: PacketLinkOptions = PacketLinkOptions {
    loss: Ratio::per_mille(100),
    repeat: Ratio::per_mille(100),
    reorder: Ratio::per_mille(100),
    reorder_time: Duration::from_micros(200),
    damage: Ratio::per_mille(50),
    mark: Ratio::per_mille(50),
    latency: (Duration::from_micros(5), Duration::from_micros(50)),
    burst: 7,
    is_ipv6: true,
};

/// Options of both sides, with sequence numbers that wrap around soon.
fn options(mtu: Mtu, link: PacketLinkOptions) -> PacketConnectOptions {
    let side = |psn| PacketSideOptions {
        psn: Psn::wrapping(psn),
        retry_count: 60,
        ..PacketSideOptions::default()
    };
    PacketConnectOptions {
        mtu,
        sides: [side(0xff_fff0), side(0x7f_fffc)],
        links: [link; 2],
    }
}

struct PacketPair {
    fabric: Fabric,
    qps: [QpId; 2],
    memory: [Buffer; 2],
    connection: ConnectionId,
}

fn pair(seed: u64, options: &PacketConnectOptions) -> PacketPair {
    let mut fabric = Fabric::new(seed);
    let hosts = [fabric.host(), fabric.host()];
    let qps = hosts.map(|h| fabric.qp(h));
    let memory = hosts.map(|h| fabric.memory(h, 30_000));
    let connection = fabric.connect_packets(qps[0], qps[1], options);
    fabric.run();
    PacketPair {
        fabric,
        qps,
        memory,
        connection,
    }
}

fn write(memory: &Buffer, at: usize) -> SendOp {
    SendOp::Write {
        remote: remote(memory, at),
        immediate: None,
    }
}

#[test]
fn requests_succeed_once_over_bad_links() {
    let mut bad = crate::packet_link::PacketCounts::default();
    for (seed, mtu) in Mtu::ALL.into_iter().cycle().take(20).enumerate() {
        let mut pair = pair(seed as u64, &options(mtu, BAD));
        let bytes: Vec<u8> = (0..9000_u32).map(|at| (at % 251) as u8).collect();
        pair.memory[0].write(0, &bytes);
        let scatter = [sge(&pair.memory[1], 10_000, 9000)];
        let wr = ReceiveWr {
            id: 7,
            scatter: &scatter,
        };
        pair.fabric.post_receive(pair.qps[1], &wr).unwrap();
        let counter = remote(&pair.memory[1], 20_000);
        let add = |id| SendOp::FetchAdd {
            remote: counter,
            add: id,
            mask: 0,
        };
        let ops = [
            (1, write(&pair.memory[1], 0), 0, 9000),
            (2, SEND, 0, 9000),
            (3, add(3), 28_000, 8),
            (4, read(&pair.memory[1]), 10_000, 9000),
            (5, add(5), 28_008, 8),
        ];
        for (id, op, at, len) in ops {
            let data = [sge(&pair.memory[0], at, len)];
            let wr = SendWr {
                id,
                op,
                flags: Flags::SIGNALED,
                data: Data::Gather(&data),
            };
            pair.fabric.post_send(pair.qps[0], &wr).unwrap();
        }
        pair.fabric.run();
        let done = [1, 2, 3, 4, 5].map(|id| (id, Status::Success));
        assert_eq!(statuses(&pair.fabric.sent(pair.qps[0])), done, "{seed}");
        let received = statuses(&pair.fabric.received(pair.qps[1]));
        assert_eq!(received, [(7, Status::Success)], "{seed}");
        for (side, at) in [(1, 0), (1, 10_000), (0, 10_000)] {
            assert_eq!(pair.memory[side].read(at, 9000), bytes, "{seed}");
        }
        assert_eq!(pair.memory[1].read(20_000, 8), 8_u64.to_ne_bytes());
        assert_eq!(pair.memory[0].read(28_008, 8), 3_u64.to_ne_bytes());
        bad.add(&pair.fabric.packets());
    }
    let faults = [bad.lost, bad.repeated, bad.reordered, bad.damaged];
    assert!(faults.iter().all(|count| *count > 20), "{bad:?}");
}

#[test]
fn cut_link_exhausts_the_retries() {
    let mut pair = pair(1, &PacketConnectOptions::default());
    pair.fabric.reset(pair.connection);
    for id in [1, 2] {
        let op = write(&pair.memory[1], 0);
        post(&mut pair.fabric, pair.qps[0], id, op, &pair.memory[0], 5000);
    }
    let before = pair.fabric.now();
    pair.fabric.run();
    let ends = [(1, Status::RetryExcErr), (2, Status::WrFlushErr)];
    assert_eq!(statuses(&pair.fabric.sent(pair.qps[0])), ends);
    // The first time and seven retries.
    let waited = pair.fabric.now().since(before);
    let timeout = PacketSideOptions::default().timeout;
    assert_eq!(waited, timeout * 8);
    assert!(pair.fabric.is_closed(pair.connection));
}

#[test]
fn missing_receive_is_awaited_and_then_used() {
    let mut pair = pair(3, &options(Mtu::B256, BAD));
    let op = SEND;
    post(&mut pair.fabric, pair.qps[0], 1, op, &pair.memory[0], 1000);
    pair.fabric.run();
    assert_eq!(statuses(&pair.fabric.sent(pair.qps[0])), []);
    pair.fabric.run_for(Duration::from_millis(50));
    let scatter = [sge(&pair.memory[1], 0, 1000)];
    let wr = ReceiveWr {
        id: 2,
        scatter: &scatter,
    };
    pair.fabric.post_receive(pair.qps[1], &wr).unwrap();
    pair.fabric.run();
    let sent = statuses(&pair.fabric.sent(pair.qps[0]));
    let received = statuses(&pair.fabric.received(pair.qps[1]));
    assert_eq!(sent, [(1, Status::Success)]);
    assert_eq!(received, [(2, Status::Success)]);
}
