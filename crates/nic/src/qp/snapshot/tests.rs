//! Tests of snapshots against a model: every byte of a response with what was copied of it.

use super::*;

/// A small deterministic random number generator.
fn numbers(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut state = seed;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32 % below
    }
}

#[test]
fn snapshot_matches_byte_model() {
    const SIZE: u32 = 60;
    for seed in 0..300 {
        let mut next = numbers(seed);
        let mut snapshot = Snapshot::default();
        let mut model: Vec<Option<u8>> = vec![None; SIZE as usize];
        for value in 1..20_u8 {
            let offset = next(SIZE);
            let len = next(SIZE - offset) + 1;
            let range = offset as usize..(offset + len) as usize;
            let kept = &model[range.clone()];
            assert_eq!(
                snapshot.has_any(offset, len),
                kept.iter().any(Option::is_some)
            );
            assert_eq!(
                snapshot.has_all(offset, len),
                kept.iter().all(Option::is_some)
            );
            for (at, len) in snapshot.missing(offset, len) {
                for byte in &mut model[at as usize..(at + len) as usize] {
                    assert_eq!(byte.replace(value), None, "seed {seed}");
                }
                snapshot.put(at, vec![value; len as usize]);
            }
            assert!(snapshot.has_all(offset, len));
            let mut bytes = vec![0; len as usize];
            snapshot.overlay(offset, &mut bytes);
            let expected: Vec<u8> = model[range].iter().map(|b| b.unwrap_or(0)).collect();
            assert_eq!(bytes, expected, "seed {seed}");
        }
        let bytes = model.iter().flatten().count();
        assert_eq!(snapshot.bytes, bytes);
        let mut all = vec![0; SIZE as usize];
        snapshot.drop_before(SIZE / 2);
        snapshot.overlay(0, &mut all);
        let kept: Vec<u8> = model.iter().map(|b| b.unwrap_or(0)).collect();
        let half = (SIZE / 2) as usize;
        assert_eq!(all[half..], kept[half..], "seed {seed}");
        snapshot.drop_before(SIZE);
        assert_eq!(snapshot.cost(), 0, "nothing is left of it");
    }
}
