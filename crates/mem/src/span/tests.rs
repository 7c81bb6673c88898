//! Tests of spans: copies as seen by other threads, and lists: order, joining, and the bound.

use super::*;

fn span(at: usize, len: usize) -> Span {
    Span::new(at as *mut u8, len)
}

#[test]
fn adjacent_spans_are_joined() {
    let mut spans = Spans::new();
    assert!(spans.push(span(100, 10)) && spans.push(span(110, 5)));
    assert!(spans.push(span(0, 0)) && spans.push(span(200, 1)));
    assert_eq!(spans.as_slice(), [span(100, 15), span(200, 1)]);
    assert_eq!(spans.bytes(), 16);
    spans.clear();
    assert!(spans.as_slice().is_empty());
}

#[test]
fn full_span_list_still_joins_neighbours() {
    let mut spans = Spans::new();
    for i in 0..MAX_SPANS {
        assert!(spans.push(span(1000 * (i + 1), 1)));
    }
    assert!(!spans.push(span(1, 1)));
    assert!(spans.push(span(1000 * MAX_SPANS + 1, 1)));
    assert_eq!(spans.bytes(), MAX_SPANS + 1);
}

#[test]
fn copies_of_all_lengths_and_alignments_are_whole() {
    for start in 0..9 {
        for len in 0..80 {
            let from: Vec<u8> = (1..=len as u8).collect();
            let mut memory = [0xee_u8; 96];
            let place = Span::new(memory[start..].as_mut_ptr(), len);
            // SAFETY: `place` lies in the local array `memory`, to which no other reference is used during the call.
            unsafe { place.copy_in(from.as_ptr(), len) }.unwrap();
            assert_eq!(memory[start..start + len], from);
            let others = memory[..start].iter().chain(&memory[start + len..]);
            assert!(others.into_iter().all(|byte| *byte == 0xee));
        }
    }
}

/// Programs poll the last byte of a write and then use the memory at once (riostream, ib_write_lat): nothing may be
/// written after it, not even the same byte again.
#[test]
fn the_last_byte_is_written_once_and_last() {
    use std::sync::atomic::{AtomicU8, Ordering};
    const ROUNDS: u8 = if cfg!(miri) { 2 } else { 200 };
    const TIMES: usize = if cfg!(miri) { 1 } else { 2 };
    let lens = [1, 2, 5, 8, 16, 31, 32, 33, 48, 64, 65, 100, 128, 200];
    for len in lens.into_iter().cycle().take(lens.len() * TIMES) {
        let memory: Vec<AtomicU8> = (0..len).map(|_| AtomicU8::new(0)).collect();
        let (first, last) = (&memory[0], &memory[len - 1]);
        let place = Span::new(first.as_ptr(), len);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for round in 1..=ROUNDS {
                    // Without a pause, to see the byte as early as possible; yields now and then in case the writer needs this processor.
                    let mut looks = 0_u32;
                    while last.load(Ordering::Acquire) != round {
                        looks += 1;
                        if looks.is_multiple_of(2000) {
                            std::thread::yield_now();
                        }
                    }
                    assert_eq!(first.load(Ordering::Relaxed), round, "{len} bytes");
                    last.store(255, Ordering::Release);
                    for _ in 0..50 {
                        assert_eq!(last.load(Ordering::Relaxed), 255, "{len} bytes");
                    }
                    // Through other memory than that which is copied to.
                    TAKEN.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                let from = vec![round; len];
                // SAFETY: the memory consists of atomics, is long enough, and lives until the threads are joined.
                unsafe { place.copy_in(from.as_ptr(), len) }.unwrap();
                let is_taken = || TAKEN.load(Ordering::Acquire) == round;
                while !is_taken() {
                    assert!(!reader.is_finished() || is_taken(), "{len} bytes");
                    std::thread::yield_now();
                }
            }
        });
    }
    static TAKEN: AtomicU8 = AtomicU8::new(0);
}
