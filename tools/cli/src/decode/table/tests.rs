//! The limits of connections and of summaries: connections of other protocols make room, incomplete ones do not.

use verbena_wire::mpa::Kind;

use super::*;

fn segment(n: usize, payload: &[u8]) -> Segment<'_> {
    let [.., a, b] = (n as u32).to_be_bytes();
    let host = [10, (n >> 16) as u8, a, b];
    Segment {
        from: (host, 40000).into(),
        to: ([10, 9, 9, 9], 7174).into(),
        seq: 1,
        ack: Some(1),
        syn: false,
        fin: false,
        rst: false,
        payload,
        truncated: false,
    }
}

fn counters(payload: &[u8], flows: usize) -> CaptureCounters {
    let mut table = Table::new(Options::default());
    let mut records = Vec::new();
    for n in 0..flows {
        table.handle(&segment(n, payload), Duration::ZERO, &mut records);
    }
    table.handle(
        &segment(flows, Kind::Request.key()),
        Duration::ZERO,
        &mut records,
    );
    assert!(table.flows.len() <= MAX_FLOWS);
    let mut tally = CaptureCounters::default();
    table.finish(&mut tally, &mut records);
    tally
}

#[test]
fn foreign_connections_make_room_for_others() {
    let tally = counters(b"GET / HTTP/1.1", MAX_FLOWS + 10);
    assert_eq!(tally.streams, 1);
    assert_eq!(tally.other_flows, MAX_FLOWS as u64 + 10);
    assert_eq!(tally.refused_flows, 0);
}

#[test]
fn streams_beyond_limit_are_refused_and_counted() {
    let tally = counters(Kind::Request.key(), MAX_FLOWS + 10);
    assert_eq!(tally.streams, MAX_FLOWS as u64);
    assert_eq!(tally.refused_flows, 11);
    assert!(tally.to_string().contains("11 segments of too many"));
}

/// Also if they end one by one, at the same addresses.
#[test]
fn summaries_beyond_limit_are_counted() {
    let mut table = Table::new(Options::default());
    table.max_summaries = 2;
    let mut records = Vec::new();
    for n in 0..5 {
        let (mut opening, mut request) = (segment(1, b""), segment(1, Kind::Request.key()));
        (opening.syn, opening.ack, opening.seq) = (true, None, 1000 * n);
        request.seq = opening.seq + 1;
        for segment in [opening, request] {
            table.handle(&segment, Duration::ZERO, &mut records);
        }
    }
    assert_eq!(table.done.len(), 2);
    let mut tally = CaptureCounters::default();
    assert_eq!(table.finish(&mut tally, &mut records).len(), 2);
    assert_eq!((tally.streams, tally.unsummarized), (5, 3));
    assert!(tally.to_string().contains("3 without a summary"));
}
