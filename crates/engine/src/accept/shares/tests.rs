//! Tests of which place is given up for a newcomer.

use core::net::IpAddr;

use super::{Shares, Source};

const LIMIT: usize = 8;

fn source(text: &str) -> Source {
    Source::of(text.parse::<IpAddr>().unwrap())
}

/// A new connection without a request yet: its number, and what was displaced for it.
fn enter(table: &mut Shares<u64>, from: Source) -> Option<(u64, Option<u64>)> {
    let (number, displaced) = table.enter(from)?;
    table.wait_for_peer(from, number, Some(number));
    check(table);
    Some((number, displaced))
}

fn enter_with_request(table: &mut Shares<u64>, from: Source) -> Option<(u64, Option<u64>)> {
    let come = enter(table, from)?;
    table.wait_for_program(from, come.0);
    check(table);
    Some(come)
}

fn check(table: &Shares<u64>) {
    let sum: usize = table.sources.values().map(super::Share::len).sum();
    assert_eq!(sum, table.taken);
    assert!(table.taken <= table.limit);
    assert_eq!(table.ranked.len(), table.sources.len());
    for (rank, source) in &table.ranked {
        assert_eq!(table.sources[source].rank(), *rank);
    }
}

#[test]
fn oldest_incomplete_connection_is_displaced() {
    let (mut table, a) = (Shares::new(LIMIT), source("192.0.2.1"));
    for n in 0..LIMIT as u64 {
        assert_eq!(enter(&mut table, a), Some((n, None)));
    }
    for n in 0..100 {
        assert_eq!(enter(&mut table, a), Some((n + 8, Some(n))));
    }
}

#[test]
fn flood_displaces_only_connections_of_its_source() {
    let (mut table, a, b) = (Shares::new(LIMIT), source("192.0.2.1"), source("192.0.2.2"));
    for _ in 0..3 {
        enter(&mut table, b).unwrap();
    }
    for _ in 0..5 {
        enter(&mut table, a).unwrap();
    }
    for _ in 0..100 {
        let (_, displaced) = enter(&mut table, a).unwrap();
        assert!(displaced.unwrap() > 2, "of the other source");
    }
    // The other source may still grow to half of the permits.
    assert!(enter(&mut table, b).unwrap().1.unwrap() > 2);
    assert_eq!(table.sources[&b].len(), 4);
}

#[test]
fn sources_with_one_permit_lose_the_oldest() {
    let mut table = Shares::new(LIMIT);
    for n in 0..100_u64 {
        let from = source(&format!("192.0.2.{n}"));
        let displaced = n.checked_sub(LIMIT as u64);
        assert_eq!(enter(&mut table, from), Some((n, displaced)));
    }
}

#[test]
fn waiting_request_is_displaced_by_smaller_source_only() {
    let (mut table, a, b) = (Shares::new(LIMIT), source("192.0.2.1"), source("192.0.2.2"));
    for n in 0..LIMIT as u64 {
        assert_eq!(enter_with_request(&mut table, a), Some((n, None)));
    }
    assert_eq!(enter(&mut table, a), None);
    assert_eq!(enter(&mut table, b), Some((9, Some(0))));
    // The incomplete connection of another source is not displaced by the source with the most permits.
    assert_eq!(enter(&mut table, a), None);
}

#[test]
fn answered_request_can_be_displaced() {
    let (mut table, a) = (Shares::new(2), source("192.0.2.1"));
    enter_with_request(&mut table, a);
    enter_with_request(&mut table, a);
    assert_eq!(enter(&mut table, a), None);
    table.wait_for_peer(a, 1, None);
    assert_eq!(enter(&mut table, a), Some((3, Some(1))));
    // A displaced permit is not counted twice when it leaves, nor added again.
    table.leave(a, 1);
    table.wait_for_peer(a, 1, None);
    table.wait_for_program(a, 1);
    check(&table);
    assert_eq!(table.taken, 2);
    table.leave(a, 0);
    table.leave(a, 3);
    assert!(table.sources.is_empty() && table.ranked.is_empty());
}

#[test]
fn ipv6_source_is_a_64_bit_prefix() {
    assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
    assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
    assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
    // All hosts of a link have the same first 64 bits there.
    assert_ne!(source("fe80::1"), source("fe80::2"));
    assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
}
