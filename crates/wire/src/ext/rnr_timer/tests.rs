//! The timer codes against InfiniBand's table.

use super::*;

/// Durations by code in units of 10 µs, from the InfiniBand specification.
const TABLE: [u64; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

#[test]
fn every_code_has_its_duration() {
    for (code, hundredths) in (0..).zip(TABLE) {
        let timer = RnrTimer::new(code).expect("five bits");
        assert_eq!(timer.duration(), Duration::from_micros(hundredths * 10));
        assert_eq!(timer.code(), code);
    }
    for code in 32..=u8::MAX {
        assert_eq!(RnrTimer::new(code), None);
    }
}

#[test]
fn prints_the_time() {
    let printed = |code| RnrTimer::new(code).expect("five bits").to_string();
    assert_eq!(printed(12), "640µs");
    assert_eq!(printed(0), "655.36ms");
}
