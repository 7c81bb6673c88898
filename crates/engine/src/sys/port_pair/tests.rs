//! Tests of pairs: one number for TCP, UDP and all addresses, and ports that are partly in use.

use super::super::random_u64;
use super::super::testing::loopbacks;
use super::*;

/// The range that adapters use by default.
const RANGE: RangeInclusive<u16> = 20_000..=29_999;

#[test]
fn one_port_serves_tcp_and_udp() {
    let addresses = loopbacks();
    let BoundPort {
        number: port,
        pairs,
        ..
    } = PortPair::bind_range(&addresses, &[], RANGE, random_u64().unwrap(), |_| true).unwrap();
    assert!(RANGE.contains(&port));
    assert_eq!(pairs.len(), addresses.len());
    for (pair, ip) in pairs.iter().zip(addresses) {
        let at = SocketAddr::new(ip, port);
        assert_eq!(pair.tcp.local_addr().unwrap(), at);
        assert_eq!(pair.udp.local_addr().unwrap(), at);
    }
}

#[test]
fn port_with_udp_taken_is_in_use() {
    for ip in loopbacks() {
        let random = random_u64().unwrap();
        let BoundPort {
            number: port,
            pairs,
            ..
        } = PortPair::bind_range(&[ip], &[], RANGE, random, |_| true).unwrap();
        let PortPair { tcp, udp } = pairs.into_iter().next().unwrap();
        let own = |range| PortPair::bind_range(&[ip], &[], range, 0, |_| true);
        assert!(own(port..=port).unwrap_err().is_in_use());
        drop(tcp);
        let only_udp = own(port..=port).unwrap_err();
        assert!(only_udp.is_in_use(), "the datagrams are still there");
        drop(udp);
        // A child that another test forks at this moment has copies for a moment.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while let Err(error) = own(port..=port) {
            assert!(error.is_in_use() && std::time::Instant::now() < end);
        }
    }
}

#[test]
fn every_port_is_tried_from_any_start() {
    let ip = loopbacks()[0];
    let BoundPort {
        number: port,
        pairs,
        ..
    } = PortPair::bind_range(&[ip], &[], RANGE, random_u64().unwrap(), |_| true).unwrap();
    drop(pairs);
    // Three numbers around a free one: whatever the start, one of them is found.
    let range = port.saturating_sub(1)..=port.saturating_add(1);
    for start in 0..6 {
        let found = PortPair::bind_range(&[ip], &[], range.clone(), start, |_| true)
            .unwrap()
            .number;
        assert!(range.contains(&found));
    }
}

#[test]
fn preferred_ports_are_tried_first() {
    let ip = loopbacks()[0];
    let random = random_u64().unwrap();
    let even = |port: u16| port.is_multiple_of(2);
    let bound = PortPair::bind_range(&[ip], &[], RANGE, random, even).unwrap();
    let found = bound.number;
    assert!(even(found));
    // If none of them is free, another one is taken.
    let found = PortPair::bind_range(&[ip], &[], RANGE, random, |port| port == found)
        .unwrap()
        .number;
    assert!(RANGE.contains(&found));
}

#[test]
fn port_is_kept_from_others_at_shared_addresses() {
    let at = |host: u8| IpAddr::from([127, 0, 0, host]);
    let random = random_u64().unwrap();
    let shared = [at(9), "203.0.113.9".parse().unwrap()];
    let first = PortPair::bind_range(&[at(10)], &shared, RANGE, random, |_| true).unwrap();
    assert_eq!(first.reserved.len(), 1, "the host has one of them");
    let only = first.number..=first.number;
    let other = PortPair::bind_range(&[at(11)], &shared, only.clone(), 0, |_| true);
    assert!(other.unwrap_err().is_in_use());
    PortPair::bind_range(&[at(11)], &[], only, 0, |_| true).unwrap();
}

#[test]
fn other_bind_errors_end_the_search() {
    // TEST-NET-3 (RFC 5737), which no machine has.
    let foreign = "203.0.113.9".parse().unwrap();
    let error = PortPair::bind_range(&[foreign], &[], RANGE, 0, |_| true).unwrap_err();
    assert_eq!(error.code(), libc::EADDRNOTAVAIL);
}

#[test]
fn an_empty_range_has_no_port() {
    #[expect(clippy::reversed_empty_ranges, reason = "that is the case")]
    let none = PortPair::bind_range(&loopbacks(), &[], 5..=4, 3, |_| true);
    assert!(none.unwrap_err().is_in_use());
}
