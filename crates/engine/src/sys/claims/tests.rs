//! Tests of taking words once, of bounds, and of invalid files. Two processes: `tests/claims.rs`.

use std::sync::atomic::AtomicUsize;

use super::*;

fn copy(claims: &Claims) -> OwnedFd {
    claims.fd().try_clone_to_owned().unwrap()
}

#[test]
fn word_is_taken_only_from_its_expected_value() {
    let claims = Claims::new(3).unwrap();
    assert_eq!(claims.len(), 3);
    let other = Claims::adopt(copy(&claims)).unwrap();
    assert_eq!(other.len(), 3);
    assert_eq!(claims.take(1, 0, 7), Ok(()));
    let late = ClaimError::Taken {
        at: 1,
        expected: 0,
        found: 7,
    };
    assert_eq!(other.take(1, 0, 8), Err(late));
    assert_eq!((other.load(0), other.load(1)), (Ok(0), Ok(7)));
    assert_eq!(other.take(1, 7, 8), Ok(()));
    assert_eq!(claims.load(1), Ok(8));
}

#[test]
fn word_outside_the_table_is_refused() {
    let claims = Claims::new(3).unwrap();
    for at in [3, 4, usize::MAX, usize::MAX / 8 + 1] {
        let outside = ClaimError::OutOfRange { at, words: 3 };
        assert_eq!(claims.load(at), Err(outside));
        assert_eq!(claims.take(at, 0, 1), Err(outside));
    }
    assert!(Claims::new(0).unwrap().is_empty());
    assert!(Claims::new(usize::MAX).is_err());
    // A trailing part of a word is not counted.
    let odd = Mapping::new(23).unwrap();
    let odd = Claims::adopt(odd.fd().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!((odd.len(), odd.load(1)), (2, Ok(0)));
    assert!(odd.load(2).is_err());
    let (reader, _writer) = std::io::pipe().unwrap();
    assert_eq!(
        Claims::adopt(reader.into()).unwrap_err(),
        SharedMemoryError::NotMemfd
    );
}

#[test]
fn each_word_is_taken_by_one_thread() {
    let claims = Claims::new(10_000).unwrap();
    let taken = [const { AtomicUsize::new(0) }; 3];
    std::thread::scope(|scope| {
        for (id, taken) in (1_u64..).zip(&taken) {
            let claims = &claims;
            scope.spawn(move || {
                let won = (0..claims.len()).filter(|at| claims.take(*at, 0, id).is_ok());
                taken.store(won.count(), Ordering::Relaxed);
            });
        }
    });
    for (id, taken) in (1_u64..).zip(&taken) {
        let held = (0..claims.len()).filter(|at| claims.load(*at) == Ok(id));
        assert_eq!(held.count(), taken.load(Ordering::Relaxed));
    }
    assert!((0..claims.len()).all(|at| claims.load(at) != Ok(0)));
}
