//! Simulations of the split driver with every `cargo test`: the first seeds, and what they must cover.
//! Every kind of fault must occur. The long run is `verbena-sim --split`.

use std::sync::Arc;

use verbena_mem::{Pd, Policy, Tpt};
use verbena_push::Arrangement;

use super::accounting::{Indication, PacketAccounting};
use super::memory::Memory;
use super::*;

#[test]
fn first_split_seeds_pass_and_repeat() {
    let mut all = RunCounters::default();
    for seed in 0..40 {
        let one = run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        if seed % 8 == 0 {
            assert_eq!(run(seed).unwrap(), one, "seed {seed}");
        }
        all.add(&one);
    }
    assert!(all.events["packets over cells"] > 10_000, "{all}");
    for trouble in ["floods", "cells dropped by full queues", "partitions"] {
        assert!(all.events[trouble] > 4, "{trouble}: {all}");
    }
    for trouble in [
        "killed hosts",
        "ended connections",
        "cells dropped by partitions",
    ] {
        assert!(all.events[trouble] > 4, "{trouble}: {all}");
    }
}

/// The checkers detect what they are for.
#[test]
fn accounting_finds_wrong_packets() {
    let sent = |arrangement, count: u32| {
        let mut accounting = PacketAccounting::new(4, arrangement);
        let packets: Vec<Vec<u8>> = (0..count).map(|_| accounting.next(40).1).collect();
        (0..count).for_each(|number| accounting.record_sent(number, Indication::WithData, Some(7)));
        (accounting, packets)
    };
    let (mut accounting, packets) = sent(Arrangement::Single, 3);
    accounting.arrive(&packets[0]).unwrap();
    assert!(
        accounting
            .arrive(&packets[0])
            .unwrap_err()
            .contains("twice")
    );
    assert!(
        accounting
            .arrive(&packets[2])
            .unwrap_err()
            .contains("order")
    );
    let mut damaged = packets[1].clone();
    damaged[20] ^= 1;
    assert!(accounting.arrive(&damaged).unwrap_err().contains("damaged"));
    let damaged = &packets[1][..39];
    assert!(accounting.arrive(damaged).unwrap_err().contains("damaged"));
    let (_, other) = PacketAccounting::new(5, Arrangement::Single).next(40);
    assert!(
        accounting
            .arrive(&other)
            .unwrap_err()
            .contains("another connection")
    );
    assert!(accounting.judge().unwrap_err().contains("2 packets"));
    let (mut accounting, packets) = sent(Arrangement::Sends, 3);
    accounting.arrive(&packets[1]).unwrap();
    assert!(accounting.arrive(&packets[0]).is_err(), "backwards");
    assert!(accounting.check_late(&packets[2], 8).is_ok());
    assert!(
        accounting.check_late(&packets[2], 7).is_err(),
        "meant for it"
    );
    accounting.judge().unwrap();
}

#[test]
fn painted_memory_finds_wrong_accesses() {
    let tpt = Arc::new(Tpt::new(1..100, Policy::Verbs, 1));
    let make = || Memory::new(&tpt, Pd(1), (3, 2, 50), Arrangement::Single).unwrap();
    let mut memory = make();
    memory.store(0, &[1; 30]).unwrap();
    assert!(memory.store(0, &[1; 30]).is_err(), "not taken yet");
    assert!(memory.store(1, &[1; 51]).is_err(), "too long");
    assert!(memory.take(0, 29).is_err(), "a byte behind the packet");
    assert_eq!(memory.take(0, 30).unwrap(), [1; 30]);
    assert!(memory.take(0, 30).is_err(), "held");
    assert!(memory.store(0, &[1; 30]).is_err(), "held");
    memory.judge().unwrap();
    memory.store(1, &[1; 30]).unwrap();
    assert!(memory.free().is_err(), "no packet was reported");
    let mut memory = make();
    memory.free().unwrap();
    assert!(memory.free().is_err(), "twice");
    assert!(memory.store(1, &[1; 30]).is_err(), "freed");
}
