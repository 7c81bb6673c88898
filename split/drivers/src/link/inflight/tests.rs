//! The limit for a short and for a long path, and which packet is timed.

use super::*;

impl Inflight {
    /// The packet being timed was sent `by` earlier.
    fn backdate(&mut self, by: Duration) {
        let (_, since) = self.timed.as_mut().unwrap();
        *since -= by;
    }
}

#[test]
fn short_path_limits_bytes_in_flight() {
    let mut flight = Inflight::default();
    let mut out = 0;
    while flight.has_room() {
        flight.add(out, 64 << 10);
        out += 1;
    }
    assert_eq!(u64::from(out) * (64 << 10), MIN_LIMIT);
    flight.complete(5, 64 << 10);
    assert!(flight.has_room());
    // Only the first was timed, and it is still in flight.
    assert_eq!(flight.min_rtt, None);
}

#[test]
fn short_packets_stay_below_the_limit() {
    let mut flight = Inflight::default();
    for slot in 0..256 {
        assert!(flight.has_room());
        flight.add(slot, 1514);
    }
    assert!(flight.has_room());
}

#[test]
fn shortest_round_trip_sets_the_limit() {
    let mut flight = Inflight::default();
    flight.add(1, 100);
    flight.backdate(Duration::from_millis(2));
    flight.complete(1, 100);
    let most = flight.limit();
    // 2 ms at 20 Gb/s.
    assert!(most >= 5_000_000, "{most}");
    flight.add(2, 100);
    flight.backdate(Duration::from_millis(20));
    flight.complete(2, 100);
    assert_eq!(
        flight.limit(),
        most,
        "it waited, and says nothing of the way"
    );
    assert_eq!(flight.bytes, 0);
}
