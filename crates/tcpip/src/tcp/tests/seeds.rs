//! Thousands of worlds from seeds: random settings, faults, sizes and consumers. `TCP_SEEDS=FIRST..LAST` runs others than the default.

use super::world::{Faults, Random, World};
use super::*;

/// Seeds in the test command.
const SEEDS: core::ops::Range<u64> = 0..300;

fn range() -> core::ops::Range<u64> {
    let Ok(text) = std::env::var("TCP_SEEDS") else {
        return SEEDS;
    };
    let (first, last) = text.split_once("..").expect("FIRST..LAST");
    first.parse().expect("a number")..last.parse().expect("a number")
}

fn config(random: &mut Random) -> TcpConfig {
    let windows = [1, 100, 2000, 20_000, 65_535, 300_000, 4 << 20];
    TcpConfig {
        receive_window: windows[random.below(7) as usize],
        framing: if random.happens(500) {
            Framing::Messages
        } else {
            Framing::Bytes
        },
        mtu: [1500, 1500, 9000, 600][random.below(4) as usize],
        is_v6: random.happens(300),
        nagle: random.happens(200),
        timestamps: random.happens(800),
        sack: random.happens(800),
        window_scaling: random.happens(800),
        // A fifth of the segments is lost, and nothing may be given up.
        user_timeout: Duration::from_secs(7200),
        connect_timeout: Duration::from_secs(7200),
        ..TcpConfig::default()
    }
}

fn faults(random: &mut Random) -> Faults {
    let mut rate = |most: u64| {
        if random.happens(500) {
            random.below(most)
        } else {
            0
        }
    };
    Faults {
        loss: rate(200),
        repeat: rate(200),
        reorder: rate(500),
        delay: Duration::from_micros(10 + rate(100_000)),
        byte_time: rate(1000),
        queue: 3000 + rate(300_000),
    }
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let configs = [config(&mut random), config(&mut random)];
    let mtu = configs[0].mtu.max(configs[1].mtu);
    // Half of the connections wrap soon after they begin.
    let mut initial = || {
        if random.happens(500) {
            0u32.wrapping_sub(random.below(5000) as u32)
        } else {
            random.next() as u32
        }
    };
    let initial = [initial(), initial()];
    let mut small = u64::MAX;
    for config in &configs {
        small = small.min(config.receive_window);
    }
    let most = if small < 1000 { 300 } else { 150_000 };
    let totals = [random.below(most), random.below(most)];
    let mut world = World::new(seed, configs, initial);
    world.faults = faults(&mut random);
    let longest = [1, 50, 2000, u64::MAX][random.below(4) as usize];
    let longest = if most > 1000 {
        longest.max(200)
    } else {
        longest
    };
    world.sends(totals, longest);
    for side in &mut world.sides {
        side.takes = [1000, 1000, 200, 20][random.below(4) as usize];
    }
    if random.happens(100) {
        world.connect(1);
    }
    world.settle();
    world.assert_complete();
    let most = (20 + 12 * world.harmed) * mtu as u64;
    assert!(
        world.repeated <= most,
        "{} bytes were sent again, and {} segments were harmed",
        world.repeated,
        world.harmed
    );
}

#[test]
fn every_byte_arrives_once_for_every_seed() {
    for seed in range() {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}
