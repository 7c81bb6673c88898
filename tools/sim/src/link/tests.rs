//! A link keeps order and values, respects its window, and records every bit it flips.
//! Chunks end where its options allow. Whole connections are tested with the world.

use core::time::Duration;

use verbena_stream::Time;

use super::{Chunks, Link, LinkOptions};
use crate::rng::{Ratio, Rng};

fn odd() -> LinkOptions {
    LinkOptions {
        chunks: Chunks::UpTo(7),
        window: 100,
        short_write: Ratio::per_mille(500),
        latency: (Duration::from_nanos(1), Duration::from_micros(9)),
        stall: Ratio::per_mille(100),
        stall_time: Duration::from_millis(1),
        flip: Ratio::NEVER,
    }
}

/// Sends all of `bytes` and returns the pieces as they arrive.
fn carry(link: &mut Link, bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut rest, mut now, mut pieces) = (bytes, Time::ZERO, Vec::new());
    let mut waiting = 0;
    loop {
        let n = link.room().min(rest.len());
        link.send(&rest[..n], true, now);
        (rest, waiting) = (&rest[n..], waiting + n);
        assert!(waiting <= 100, "the window is exceeded");
        let Some(next) = link.next_arrival() else {
            return pieces;
        };
        assert!(next >= now, "a piece overtook another");
        now = next;
        let piece = link.arrive(now).expect("it has arrived");
        waiting -= piece.len();
        pieces.push(piece);
    }
}

#[test]
fn bytes_arrive_in_order_in_small_pieces() {
    let bytes = Rng::new(1).bytes(5000);
    let pieces = carry(&mut Link::new(odd(), Rng::new(2)), &bytes);
    assert!(pieces.iter().all(|p| (1..=7).contains(&p.len())));
    assert_eq!(pieces.concat(), bytes);
}

#[test]
fn every_flipped_bit_is_recorded() {
    let bytes = Rng::new(1).bytes(5000);
    let options = LinkOptions {
        flip: Ratio::per_mille(20),
        ..odd()
    };
    let mut link = Link::new(options, Rng::new(3));
    let arrived = carry(&mut link, &bytes).concat();
    let pairs = bytes.iter().zip(&arrived).enumerate();
    let damaged = pairs.filter(|(_, (a, b))| a != b);
    let damaged: Vec<u64> = damaged.map(|(k, _)| k as u64).collect();
    assert!(!damaged.is_empty());
    assert_eq!(damaged, link.flipped());
}

#[test]
fn eof_arrives_once_after_the_last_byte() {
    let mut link = Link::new(LinkOptions::without_faults(), Rng::new(4));
    link.send(b"last", false, Time::ZERO);
    link.close(Time::ZERO);
    assert_eq!(link.room(), 0);
    assert!(!link.take_eof(Time::ZERO));
    assert_eq!(link.arrive(Time::ZERO).as_deref(), Some(&b"last"[..]));
    assert!(link.take_eof(Time::ZERO));
    assert!(!link.take_eof(Time::ZERO));
}

#[test]
fn cut_loses_bytes_in_flight() {
    let mut link = Link::new(LinkOptions::without_faults(), Rng::new(4));
    link.send(b"lost", false, Time::ZERO);
    link.cut();
    assert_eq!(link.arrive(Time::ZERO), None);
    assert_eq!(link.next_arrival(), None);
    assert!(link.is_closed() && link.room() == 0);
}
