//! Segments and reports of an attacker, or of a peer that lies: what must not happen, and how much is answered.

use super::super::segment::MAX_WINDOW_SHIFT;
use super::world::Random;
use super::*;

const OURS: u32 = u32::MAX - 100;
const THEIRS: u32 = 5;
const NOW: Time = Time::from_nanos(1_000_000_000_000);

/// A segment of the peer: offsets of its data and of ours, as [`Connection`] counts them.
fn segment(start: i64, ack: i64) -> Segment {
    Segment {
        source_port: 2,
        destination_port: 1,
        seq: Space::new(THEIRS).wire(start),
        ack: Some(Space::new(OURS).wire(ack)),
        window: 60_000,
        ..Segment::default()
    }
}

fn stamped(start: i64, ack: i64, value: u32) -> Segment {
    let mut segment = segment(start, ack);
    segment.options.timestamps = Some((value, 0));
    segment
}

fn drain(conn: &mut Connection, now: Time) -> Vec<Transmit> {
    let mut out = Vec::new();
    while let Some(transmit) = conn.poll_transmit(now) {
        out.push(transmit);
        assert!(out.len() < 10_000, "it sends without end");
    }
    out
}

/// A connection whose peer has offered these options, established and quiet.
fn established(options: TcpOptions) -> Connection {
    let config = TcpConfig::default();
    let mut conn = Connection::connect(config, (1, 2), secrets(OURS), NOW);
    drain(&mut conn, NOW);
    let mut answer = segment(-1, 0);
    answer.flags.syn = true;
    answer.options = options;
    conn.handle_segment(&answer, 0, NOW);
    assert_eq!(conn.state(), State::Established);
    assert_eq!(drain(&mut conn, NOW).len(), 1);
    conn
}

fn plain() -> Connection {
    established(TcpOptions {
        mss: Some(1460),
        sack_permitted: true,
        ..TcpOptions::default()
    })
}

#[test]
fn repeated_syn_is_answered_again() {
    let mut syn = segment(-1, 0);
    syn.flags.syn = true;
    syn.ack = None;
    let mut conn = Connection::accept(TcpConfig::default(), &syn, secrets(OURS), NOW);
    assert_eq!(drain(&mut conn, NOW).len(), 1);
    let mut answers = 0;
    for _ in 0..100 {
        conn.handle_segment(&syn, 0, NOW);
        for transmit in drain(&mut conn, NOW) {
            assert!(transmit.segment.flags.syn && transmit.segment.ack.is_some());
            answers += 1;
        }
    }
    assert_eq!(answers, MAX_CHALLENGES_PER_SECOND);
    assert_eq!(conn.state(), State::SynReceived);
}

#[test]
fn reset_in_the_window_is_challenged() {
    let mut conn = plain();
    for start in [1, 1000, 60_000] {
        let mut reset = segment(start, 0);
        reset.flags.rst = true;
        conn.handle_segment(&reset, 0, NOW);
        let out = drain(&mut conn, NOW);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].segment.ack, Some(Space::new(THEIRS).wire(0)));
        assert_eq!(conn.state(), State::Established);
    }
    let mut outside = segment(-1, 0);
    outside.flags.rst = true;
    conn.handle_segment(&outside, 0, NOW);
    assert!(drain(&mut conn, NOW).is_empty());
    let mut exact = segment(0, 0);
    exact.flags.rst = true;
    conn.handle_segment(&exact, 0, NOW);
    assert_eq!(conn.close_reason(), Some(CloseReason::Reset));
    assert!(drain(&mut conn, NOW).is_empty());
}

#[test]
fn syn_in_a_connection_is_challenged() {
    let mut conn = plain();
    for start in [-1, 0, 500, 1 << 30] {
        let mut syn = segment(start, 0);
        syn.flags.syn = true;
        conn.handle_segment(&syn, 0, NOW);
        assert_eq!(drain(&mut conn, NOW).len(), 1);
        assert_eq!(conn.state(), State::Established);
    }
}

#[test]
fn challenges_are_limited() {
    let mut conn = plain();
    let mut answers = 0;
    for at in 0..1000u32 {
        let mut forged = segment(i64::from(at % 7) + 1, 0);
        forged.flags.rst = at % 2 == 0;
        forged.flags.syn = at % 2 != 0;
        conn.handle_segment(&forged, 0, NOW);
        answers += drain(&mut conn, NOW).len();
    }
    assert_eq!(answers, MAX_CHALLENGES_PER_SECOND as usize);
}

#[test]
fn two_sides_that_disagree_do_not_answer_for_ever() {
    let mut conn = plain();
    let mut answers = 0;
    for _ in 0..1000 {
        conn.handle_segment(&segment(-100_000, 0), 0, NOW);
        answers += drain(&mut conn, NOW).len();
    }
    assert_eq!(answers, MAX_CHALLENGES_PER_SECOND as usize);
}

#[test]
fn acknowledgement_of_unsent_data_is_not_used() {
    let mut conn = plain();
    conn.queue(1000).unwrap();
    assert_eq!(drain(&mut conn, NOW).len(), 1);
    let received = conn.handle_segment(&segment(0, 1001), 10, NOW);
    assert!(received.runs.is_empty(), "its data is not used either");
    assert_eq!(conn.released(), 0);
    // Blind injection with an acknowledgement from long ago (RFC 5961, 5.2).
    let received = conn.handle_segment(&segment(0, -100_000), 10, NOW);
    assert!(received.runs.is_empty());
    assert_eq!(drain(&mut conn, NOW).len(), 1);
}

#[test]
fn old_timestamp_is_dropped() {
    let mut conn = established(TcpOptions {
        timestamps: Some((1000, 0)),
        ..TcpOptions::default()
    });
    let received = conn.handle_segment(&stamped(0, 0, 999), 10, NOW);
    assert!(received.runs.is_empty());
    assert_eq!(conn.counters().too_old, 1);
    assert_eq!(drain(&mut conn, NOW).len(), 1);
    // Without a timestamp, too (RFC 7323, 3.2).
    assert!(conn.handle_segment(&segment(0, 0), 10, NOW).runs.is_empty());
    let received = conn.handle_segment(&stamped(0, 0, 1001), 10, NOW);
    assert_eq!(received.in_order, 10);
    // What was remembered 25 days ago says nothing.
    let later = NOW + Duration::from_secs(25 * 24 * 3600);
    let received = conn.handle_segment(&stamped(10, 0, 1), 10, later);
    assert_eq!(received.in_order, 20);
}

#[test]
fn timestamps_wrap() {
    let mut conn = established(TcpOptions {
        timestamps: Some((u32::MAX, 0)),
        ..TcpOptions::default()
    });
    let received = conn.handle_segment(&stamped(0, 0, 1), 10, NOW);
    assert_eq!(received.in_order, 10);
    let received = conn.handle_segment(&stamped(10, 0, u32::MAX), 10, NOW);
    assert_eq!(received.in_order, 10);
}

#[test]
fn divided_acknowledgements_do_not_open_the_window() {
    let run = |step: usize| {
        let mut conn = plain();
        conn.queue(1_000_000).unwrap();
        drain(&mut conn, NOW);
        let flight = conn.board.next();
        for ack in (0..=flight).step_by(step) {
            conn.handle_segment(&segment(0, ack), 0, NOW);
        }
        conn.handle_segment(&segment(0, flight), 0, NOW);
        conn.congestion_window()
    };
    assert!(run(1) <= run(1460));
}

#[test]
fn partial_acknowledgement_keeps_the_boundary() {
    let mut conn = plain();
    conn.queue(1000).unwrap();
    let first = drain(&mut conn, NOW);
    conn.handle_segment(&segment(0, 400), 0, NOW);
    assert_eq!(conn.released(), 0, "the whole segment is still needed");
    let later = conn.deadline().unwrap() + Duration::from_secs(1);
    conn.handle_timeout(later);
    let again = drain(&mut conn, later);
    assert_eq!(again[0].payload, first[0].payload);
}

#[test]
fn repeated_acknowledgements_are_no_data() {
    let mut conn = plain();
    conn.queue(1_000_000).unwrap();
    let sent = drain(&mut conn, NOW).len();
    let before = conn.congestion_window();
    for _ in 0..1000 {
        conn.handle_segment(&segment(0, 0), 0, NOW);
        drain(&mut conn, NOW);
    }
    assert_eq!(conn.counters().segments_out as usize, sent + 2);
    assert_eq!(conn.congestion_window(), before);
}

#[test]
fn blocks_of_unsent_data_are_ignored() {
    let mut conn = plain();
    conn.queue(10_000).unwrap();
    drain(&mut conn, NOW);
    let mut lie = segment(0, 0);
    let wire = |at| Space::new(OURS).wire(at);
    let blocks = [
        (5000, 20_000),
        (9000, 8000),
        (-70_000, 90_000),
        (0, 1 << 31),
    ];
    lie.options.sacks = blocks.iter().map(|&(a, b)| (wire(a), wire(b))).collect();
    conn.handle_segment(&lie, 0, NOW);
    assert!(!conn.board.has_sacked() && !conn.board.has_lost());
    conn.board.assert_invariants();
}

#[test]
fn data_that_the_peer_threw_away_is_sent_again() {
    let mut conn = plain();
    conn.queue(14_600).unwrap();
    assert_eq!(drain(&mut conn, NOW).len(), 10);
    let wire = |at| Space::new(OURS).wire(at);
    let mut news = segment(0, 0);
    news.options.sacks.push((wire(1460), wire(14_600)));
    conn.handle_segment(&news, 0, NOW);
    assert_eq!(drain(&mut conn, NOW)[0].payload, 0..1460);
    // Only the hole is acknowledged, and the rest no more: it has reneged.
    conn.handle_segment(&segment(0, 1460), 0, NOW + MS);
    let mut again = Vec::new();
    let mut now = NOW + MS;
    while again.last() != Some(&14_600) {
        again.extend(drain(&mut conn, now).iter().map(|t| t.payload.end));
        conn.handle_segment(&segment(0, again.last().map_or(0, |e| *e as i64)), 0, now);
        now = now + 300 * MS;
        conn.handle_timeout(now);
        assert!(again.len() < 100);
    }
    assert_eq!(again[0], 2920);
}

#[test]
fn report_about_unsent_data_is_ignored() {
    let mut conn = plain();
    conn.queue(10_000).unwrap();
    drain(&mut conn, NOW);
    let report = PathReport::TooBig { mtu: 600 };
    for quoted in [-5, 10_000, 1 << 30] {
        conn.handle_report(report, Space::new(OURS).wire(quoted), NOW);
        assert_eq!(conn.mss(), 1460);
    }
    let tiny = PathReport::TooBig { mtu: 68 };
    conn.handle_report(tiny, Space::new(OURS).wire(0), NOW);
    assert_eq!(conn.mss(), 1460);
    // Such a report does not close a connection either (RFC 5927, 5.2).
    conn.handle_report(PathReport::Unreachable, Space::new(OURS).wire(0), NOW);
    assert_eq!(conn.state(), State::Established);
}

#[test]
fn report_against_evidence_needs_a_loss() {
    let mut conn = plain();
    conn.queue(20_000).unwrap();
    drain(&mut conn, NOW);
    conn.handle_segment(&segment(0, 2920), 0, NOW);
    drain(&mut conn, NOW);
    let report = PathReport::TooBig { mtu: 600 };
    conn.handle_report(report, Space::new(OURS).wire(3000), NOW);
    assert_eq!(conn.mss(), 1460, "packets of 1500 bytes have arrived");
    let end = conn.board.next();
    conn.handle_segment(&segment(0, end), 0, NOW);
    conn.queue(1000).unwrap();
    drain(&mut conn, NOW);
    let later = NOW + Duration::from_secs(5);
    conn.handle_timeout(later);
    assert_eq!(conn.mss(), 1460, "the quoted data has arrived");
}

#[test]
fn refusal_counts_only_for_the_syn() {
    let mut conn = Connection::connect(TcpConfig::default(), (1, 2), secrets(OURS), NOW);
    drain(&mut conn, NOW);
    conn.handle_report(PathReport::Unreachable, OURS.wrapping_add(1), NOW);
    assert_eq!(conn.state(), State::SynSent);
    let mut reset = segment(0, 1);
    reset.flags.rst = true;
    conn.handle_segment(&reset, 0, NOW);
    assert_eq!(conn.state(), State::SynSent, "it acknowledges no SYN");
    conn.handle_report(PathReport::Unreachable, OURS, NOW);
    assert_eq!(conn.close_reason(), Some(CloseReason::Refused));
}

#[test]
fn answer_from_an_older_connection_is_reset() {
    let mut conn = Connection::connect(TcpConfig::default(), (1, 2), secrets(OURS), NOW);
    drain(&mut conn, NOW);
    let mut old = segment(-1, 500);
    old.flags.syn = true;
    conn.handle_segment(&old, 0, NOW);
    let out = drain(&mut conn, NOW);
    assert_eq!(conn.state(), State::SynSent);
    assert!(out[0].segment.flags.rst);
    assert_eq!(Some(out[0].segment.seq), old.ack);
}

#[test]
fn time_wait_is_reused_by_newer_connections_only() {
    let mut conn = established(TcpOptions {
        timestamps: Some((1000, 0)),
        ..TcpOptions::default()
    });
    conn.close(NOW);
    drain(&mut conn, NOW);
    let mut fin = stamped(0, 1, 1001);
    fin.flags.fin = true;
    conn.handle_segment(&fin, 0, NOW);
    assert_eq!(conn.state(), State::TimeWait);
    let mut reset = stamped(1, 1, 1002);
    reset.flags.rst = true;
    conn.handle_segment(&reset, 0, NOW);
    assert_eq!(conn.state(), State::TimeWait, "RFC 1337");
    let syn = |start: i64, value: u32| {
        let mut syn = stamped(start, 0, value);
        syn.flags.syn = true;
        syn.ack = None;
        syn
    };
    assert!(conn.may_be_reused(&syn(-50_000, 1003)));
    assert!(!conn.may_be_reused(&syn(50_000, 999)));
    assert!(conn.may_be_reused(&syn(2, 1001)));
    assert!(!conn.may_be_reused(&syn(1, 1001)));
}

#[test]
fn window_of_a_byte_does_not_make_tiny_segments() {
    let mut conn = plain();
    conn.queue(10_000).unwrap();
    drain(&mut conn, NOW);
    let end = conn.board.next();
    conn.queue(100_000).unwrap();
    let mut ack = segment(0, end);
    for window in 1..100 {
        ack.window = window;
        conn.handle_segment(&ack, 0, NOW);
        assert!(drain(&mut conn, NOW).is_empty(), "{window}");
    }
}

#[test]
fn arbitrary_segments_break_nothing() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut conn = if random.happens(500) {
            plain()
        } else {
            let mut syn = segment(-1, 0);
            syn.flags.syn = true;
            syn.options.sack_permitted = true;
            syn.options.window_scale = Some(MAX_WINDOW_SHIFT);
            Connection::accept(TcpConfig::default(), &syn, secrets(OURS), NOW)
        };
        let mut now = NOW;
        let mut arrived = 0;
        for _ in 0..300 {
            let near = |random: &mut Random, base: i64| {
                let spans = [1, 10, 3000, 100_000, 1 << 40];
                let span = spans[random.below(5) as usize];
                base + random.below(span) as i64 - random.below(span) as i64 / 2
            };
            let (next, una) = (conn.rx.next(), conn.board.una());
            let mut segment = segment(near(&mut random, next), near(&mut random, una));
            segment.window = random.next() as u16;
            segment.flags.syn = random.happens(50);
            segment.flags.fin = random.happens(50);
            segment.flags.rst = random.happens(20);
            if random.happens(50) {
                segment.ack = None;
            }
            for _ in 0..random.below(4) {
                let block = (near(&mut random, una), near(&mut random, una));
                let wire = |at| Space::new(OURS).wire(at);
                segment.options.sacks.push((wire(block.0), wire(block.1)));
            }
            let len = random.below(3000) as usize;
            let received = conn.handle_segment(&segment, len, now);
            let new: usize = received.runs.iter().map(|run| run.payload.len()).sum();
            arrived += new as u64;
            assert!(new <= len && received.in_order <= arrived);
            conn.board.assert_invariants();
            conn.rx.assert_invariants();
            if random.happens(100) {
                let _ = conn.queue(random.below(5000));
            }
            if random.happens(10) {
                conn.close(now);
            }
            conn.consume(random.below(3000));
            let out = drain(&mut conn, now);
            assert!(out.len() < 2000);
            if random.happens(100) {
                let report = PathReport::TooBig {
                    mtu: random.below(2000) as usize,
                };
                let quoted = near(&mut random, una);
                conn.handle_report(report, Space::new(OURS).wire(quoted), now);
            }
            if let Some(deadline) = conn.deadline().filter(|_| random.happens(200)) {
                now = now.max(deadline);
                conn.handle_timeout(now);
                drain(&mut conn, now);
            }
        }
    }
}
