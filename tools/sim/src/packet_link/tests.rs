//! The packet link alone: what it does with packets, and that its counts are true.
//! Every packet that it delivers unchanged has a valid ICRC.

use super::*;

const COUNT: u64 = 2000;

/// Sends packets of four bytes, one per microsecond, and returns those that arrive, in their order; damaged ones are left out.
fn run(options: PacketLinkOptions) -> (Vec<u32>, PacketCounts) {
    let mut link = PacketLink::new(options, Rng::new(5));
    let mut now = Time::ZERO;
    let mut arrived = Vec::new();
    for number in 0..COUNT as u32 {
        now = now + Duration::from_micros(1);
        link.send(number.to_be_bytes().to_vec(), now);
    }
    while let Some(at) = link.next_arrival() {
        assert_eq!(link.arrive(Time::ZERO), None, "before its time");
        let packet = link.arrive(at).unwrap();
        if link.has_valid_icrc(&packet) {
            arrived.push(u32::from_be_bytes(*packet.first_chunk().unwrap()));
        }
    }
    (arrived, link.counts())
}

fn in_order(arrived: &[u32]) -> bool {
    arrived.is_sorted()
}

const CLEAN: PacketLinkOptions = PacketLinkOptions {
    latency: (Duration::ZERO, Duration::from_micros(20)),
    ..PacketLinkOptions::without_faults()
};

#[test]
fn link_without_faults_delivers_in_order() {
    for is_ipv6 in [false, true] {
        let (arrived, counts) = run(PacketLinkOptions { is_ipv6, ..CLEAN });
        assert_eq!(arrived, Vec::from_iter(0..COUNT as u32));
        let sent = COUNT;
        let expected = PacketCounts {
            sent,
            ..PacketCounts::default()
        };
        assert_eq!(counts, expected);
    }
}

#[test]
fn each_fault_happens_as_often_as_asked() {
    let tenth = Ratio::per_mille(100);
    let near = |count: u64| (150..250).contains(&count);
    let (arrived, counts) = run(PacketLinkOptions {
        loss: tenth,
        ..CLEAN
    });
    assert!(near(counts.lost) && arrived.len() as u64 == COUNT - counts.lost);
    assert!(in_order(&arrived));
    let (arrived, counts) = run(PacketLinkOptions {
        repeat: tenth,
        ..CLEAN
    });
    assert!(near(counts.repeated) && arrived.len() as u64 == COUNT + counts.repeated);
    let (arrived, counts) = run(PacketLinkOptions {
        reorder: tenth,
        reorder_time: Duration::from_micros(100),
        ..CLEAN
    });
    assert!(near(counts.reordered) && !in_order(&arrived));
    assert_eq!(arrived.len() as u64, COUNT);
    let (arrived, counts) = run(PacketLinkOptions {
        damage: tenth,
        ..CLEAN
    });
    assert!(near(counts.damaged));
    // Bits that were flipped twice, and those that routers may change, are not damage to the receiver.
    assert!(arrived.len() as u64 >= COUNT - counts.damaged);
    assert!(arrived.len() as u64 <= COUNT - counts.damaged * 9 / 10);
}

#[test]
fn cut_link_delivers_nothing() {
    let mut link = PacketLink::new(CLEAN, Rng::new(1));
    link.send(vec![1; 12], Time::ZERO);
    link.cut();
    link.send(vec![2; 12], Time::ZERO);
    assert_eq!((link.next_arrival(), link.is_cut()), (None, true));
    assert_eq!(link.counts().lost, 1);
}
