//! Corner cases of the protocol that have broken implementations before, each a story of two connections.

use super::world::{Faults, World};
use super::*;

const START: [u32; 2] = [u32::MAX - 1000, 7];

fn world(seed: u64) -> World {
    World::new(seed, [TcpConfig::default(), TcpConfig::default()], START)
}

fn world_of(config: &TcpConfig) -> World {
    World::new(3, [config.clone(), config.clone()], START)
}

fn both(world: &World) -> [Option<State>; 2] {
    [world.sides[0].state(), world.sides[1].state()]
}

fn is_established(world: &mut World) -> bool {
    both(world) == [Some(State::Established); 2]
}

/// Connected, with no end of data until a test sets `closes`.
fn established(mut world: World) -> World {
    for side in &mut world.sides {
        side.closes = false;
    }
    world.run_until("both are established", is_established);
    world
}

#[test]
fn perfect_link_repeats_nothing() {
    for framing in [Framing::Bytes, Framing::Messages] {
        let config = TcpConfig {
            framing,
            ..TcpConfig::default()
        };
        let mut world = world_of(&config);
        world.sends([1_000_000, 300_000], u64::MAX);
        world.settle();
        world.assert_complete();
        assert_eq!(world.retransmitted(), 0);
    }
}

#[test]
fn simultaneous_open_makes_one_connection() {
    let mut world = world(1);
    world.connect(1);
    world.sends([10_000, 20_000], u64::MAX);
    world.run_until("a side has seen the other's SYN", |world| {
        world.sides[0].state() == Some(State::SynReceived)
    });
    world.settle();
    world.assert_complete();
}

#[test]
fn window_of_a_syn_is_not_scaled() {
    for shift in [0, 14] {
        let config = TcpConfig {
            receive_window: 10_000 << shift,
            ..TcpConfig::default()
        };
        let mut world = world_of(&config);
        world.connect(1);
        world.sends([500_000, 500_000], u64::MAX);
        // The world checks every segment against the window.
        world.settle();
        world.assert_complete();
    }
}

#[test]
fn simultaneous_close_passes_through_closing() {
    let mut world = established(world(1));
    for side in &mut world.sides {
        side.closes = true;
    }
    world.run_until("both are closing", |world| {
        both(world) == [Some(State::Closing); 2]
    });
    world.run_until("both wait", |world| {
        both(world) == [Some(State::TimeWait); 2]
    });
    world.settle();
    world.assert_complete();
}

#[test]
fn half_closed_side_still_receives() {
    let mut world = established(world(1));
    world.sides[0].closes = true;
    world.run_until("the end of one direction", |world| {
        both(world) == [Some(State::FinWait2), Some(State::CloseWait)]
    });
    world.sides[1].total = 500_000;
    world.sides[1].closes = true;
    world.settle();
    world.assert_complete();
}

#[test]
fn lost_last_acknowledgement_is_sent_again() {
    let mut world = established(world(1));
    for side in &mut world.sides {
        side.closes = side.total == 0;
    }
    world.sides[1].closes = false;
    world.run_until("the passive side", |world| {
        world.sides[1].state() == Some(State::CloseWait)
    });
    world.sides[1].closes = true;
    world.run_until("the active side waits", |world| {
        world.sides[0].state() == Some(State::TimeWait)
    });
    world.is_cut = true;
    let repeats = |world: &World| world.sides[1].conn.as_ref().map(|c| c.counters().timeouts);
    world.run_until("the FIN is repeated", |world| repeats(world) > Some(0));
    world.is_cut = false;
    world.settle();
    world.assert_complete();
}

#[test]
fn idle_connection_sends_nothing() {
    let mut world = world(5);
    world.sends([100_000, 100_000], u64::MAX);
    let mut world = established(world);
    world.settle();
    assert_eq!(both(&world), [Some(State::Established); 2]);
    for side in &mut world.sides {
        assert_eq!(side.conn().deadline(), None);
        assert_eq!(side.conn().released(), 100_000);
    }
}

#[test]
fn keep_alive_finds_a_dead_peer() {
    let config = TcpConfig {
        keep_alive: Some(KeepAlive {
            idle: Duration::from_secs(7200),
            interval: Duration::from_secs(75),
            probes: 9,
        }),
        ..TcpConfig::default()
    };
    let mut world = established(world_of(&config));
    let began = world.now;
    while world.now.since(began) < Duration::from_secs(50_000) {
        world.step();
    }
    assert_eq!(both(&world), [Some(State::Established); 2], "it answers");
    let probes = world.sides[0].conn().counters().probes;
    assert!((1..20).contains(&probes), "{probes}");
    world.is_cut = true;
    world.settle();
    for side in &mut world.sides {
        assert_eq!(side.conn().close_reason(), Some(CloseReason::TimedOut));
    }
}

#[test]
fn closed_window_is_probed_until_it_opens() {
    let config = TcpConfig {
        receive_window: 20_000,
        ..TcpConfig::default()
    };
    let mut world = World::new(1, [TcpConfig::default(), config], START);
    world.sends([100_000, 0], u64::MAX);
    let mut world = established(world);
    world.sides[1].takes = 0;
    // Far longer than the user timeout: a peer that answers is not given up (RFC 9293, 3.8.6.1).
    let began = world.now;
    while world.now.since(began) < Duration::from_secs(1000) {
        world.flush();
        let deadline = world.sides[0].conn().deadline();
        if deadline.is_none_or(|at| at > world.now + Duration::from_secs(100)) {
            break;
        }
        world.step();
        world.sides[1].takes = 0;
    }
    let counters = world.sides[0].conn().counters();
    assert!((10..40).contains(&counters.probes), "{}", world.describe());
    assert_eq!(counters.retransmitted, 0);
    world.sides[1].takes = 1000;
    for side in &mut world.sides {
        side.closes = true;
    }
    world.settle();
    world.assert_complete();
}

#[test]
fn window_that_closed_long_ago_is_probed_first() {
    let config = TcpConfig {
        receive_window: 20_000,
        ..TcpConfig::default()
    };
    let mut world = World::new(1, [TcpConfig::default(), config], START);
    world.sends([20_000, 0], u64::MAX);
    let mut world = established(world);
    world.sides[1].takes = 0;
    world.run_until("the window is full", |world| {
        world.sides[0].conn().released() == 20_000
    });
    world.now = world.now + Duration::from_secs(10_000);
    world.sides[0].total += 10_000;
    world.run_until("a probe is answered", |world| {
        let counters = world.sides[0].conn().counters();
        counters.probes == 1 && counters.segments_in > 0 && world.is_link_empty()
    });
    assert_eq!(both(&world), [Some(State::Established); 2]);
    world.sides[1].takes = 1000;
    world.run_until("the rest arrives", |world| {
        world.sides[1].consumed == 30_000
    });
}

#[test]
fn lost_window_update_does_not_stop_the_stream() {
    let config = TcpConfig {
        receive_window: 20_000,
        ..TcpConfig::default()
    };
    let mut world = World::new(1, [TcpConfig::default(), config], START);
    world.sends([100_000, 0], u64::MAX);
    let mut world = established(world);
    world.sides[1].takes = 0;
    world.run_until("the window is closed", |world| {
        world.sides[0].conn().counters().probes > 0
    });
    world.is_cut = true;
    world.sides[1].takes = 1000;
    world.run_until("the update is sent", |world| {
        world.sides[1].consumed == 20_000
    });
    let probes = world.sides[0].conn().counters().probes;
    world.run_until("a probe is lost", |world| {
        world.sides[0].conn().counters().probes > probes
    });
    world.is_cut = false;
    for side in &mut world.sides {
        side.closes = true;
    }
    world.settle();
    world.assert_complete();
}

#[test]
fn message_longer_than_the_window_is_cut() {
    let sender = TcpConfig {
        framing: Framing::Messages,
        ..TcpConfig::default()
    };
    let receiver = TcpConfig {
        receive_window: 700,
        ..TcpConfig::default()
    };
    let mut world = World::new(1, [sender, receiver], START);
    world.sends([10_000, 0], u64::MAX);
    world.settle();
    world.assert_complete();
}

#[test]
fn single_segment_is_acknowledged_after_the_delay() {
    let mut world = established(world(1));
    // The window of the SYN is small, and the first data lets it grow.
    world.sides[0].total = 100;
    world.settle();
    world.sides[0].total = 200;
    let began = world.now;
    world.run_until("it is acknowledged", |world| {
        world.sides[0].conn().released() == 200
    });
    let delay = TcpConfig::default().delayed_ack;
    assert_eq!(world.now.since(began), delay + 2 * MS);
}

#[test]
fn every_second_segment_is_acknowledged() {
    let mut world = established(world(1));
    world.settle();
    let before = world.sides[1].out;
    // Segments arrive one after the other.
    world.faults.byte_time = 80;
    world.sides[0].total = 14_480;
    world.settle();
    let mss = world.sides[0].conn().mss();
    assert_eq!(mss, 1448);
    let acks = world.sides[1].out - before;
    assert!((5..=6).contains(&acks), "{acks}");
}

#[test]
fn lost_tail_is_repaired_by_a_probe() {
    let mut world = established(world(1));
    world.sides[0].total = 100_000;
    world.settle();
    world.sides[0].total += 10_000;
    world.is_cut = true;
    world.run_until("the data is sent", |world| {
        world.sides[0].queued == 110_000 && world.sides[0].conn().board.next() == 110_000
    });
    world.run_until("it is lost", |world| world.is_link_empty());
    world.is_cut = false;
    world.run_until("it is repaired", |world| {
        world.sides[0].conn().released() == 110_000
    });
    let counters = world.sides[0].conn().counters();
    assert_eq!((counters.tail_probes, counters.timeouts), (1, 0));
}

#[test]
fn losses_in_a_window_are_repaired_without_a_timeout() {
    let mut timeouts = 0;
    for seed in 0..20 {
        let mut world = World::new(seed, [TcpConfig::default(), TcpConfig::default()], START);
        world.faults = Faults {
            loss: 10,
            delay: 10 * MS,
            byte_time: 80,
            queue: 1_000_000,
            ..Faults::default()
        };
        world.sends([1_000_000, 0], u64::MAX);
        world.settle();
        world.assert_complete();
        timeouts += world.sides[0].conn().counters().timeouts;
    }
    // Timeouts are left where a retransmission and the probe behind it are lost as well, or the handshake is.
    assert!(timeouts < 20, "{timeouts}");
}

#[test]
fn reordering_is_learned() {
    let mut world = world(2);
    world.faults = Faults {
        reorder: 100,
        delay: 10 * MS,
        byte_time: 80,
        queue: 1_000_000,
        ..Faults::default()
    };
    world.sends([4_000_000, 0], u64::MAX);
    world.settle();
    world.assert_complete();
    let counters = world.sides[0].conn().counters();
    let share = counters.retransmitted * 1000 / counters.segments_out;
    assert!(share < 100, "{share} in a thousand were sent again");
}

#[test]
fn silent_peer_is_given_up() {
    let mut world = established(world(1));
    world.settle();
    world.is_cut = true;
    world.sides[0].total = 100;
    let began = world.now;
    world.settle();
    let reason = world.sides[0].conn().close_reason();
    assert_eq!(reason, Some(CloseReason::TimedOut));
    let took = world.now.since(began);
    let limit = TcpConfig::default().user_timeout;
    assert!(took >= limit && took < limit * 2, "{took:?}");
}

#[test]
fn unanswered_syn_is_given_up() {
    let mut world = world(1);
    world.is_cut = true;
    world.settle();
    let conn = world.sides[0].conn();
    assert_eq!(conn.close_reason(), Some(CloseReason::TimedOut));
    assert!((6..12).contains(&conn.counters().segments_out));
}

#[test]
fn nagle_keeps_small_writes_together() {
    for (nagle, most) in [(true, 3), (false, 10)] {
        let config = TcpConfig {
            nagle,
            ..TcpConfig::default()
        };
        let mut world = established(world_of(&config));
        world.settle();
        let before = world.sides[0].out;
        for _ in 0..10 {
            let side = &mut world.sides[0];
            side.total += 10;
            world.flush();
        }
        world.settle();
        let sent = world.sides[0].out - before;
        assert!(sent <= most && (nagle || sent == most), "{nagle} {sent}");
    }
}

#[test]
fn smaller_path_is_used_after_a_report() {
    let config = TcpConfig {
        framing: Framing::Messages,
        ..TcpConfig::default()
    };
    let mut world = established(world_of(&config));
    world.path_changes = true;
    world.is_cut = true;
    world.sides[0].total = 50_000;
    world.flush();
    let now = world.now;
    let conn = world.sides[0].conn();
    let seq = conn.ours.wire(conn.board.una());
    conn.handle_report(PathReport::TooBig { mtu: 1000 }, seq, now);
    assert_eq!(conn.mss(), 1000 - 40 - 12);
    world.run_until("the packets of before are lost", |world| {
        world.now.since(now) > 2 * MS
    });
    world.is_cut = false;
    for side in &mut world.sides {
        side.closes = true;
    }
    world.settle();
    world.assert_complete();
}

#[test]
fn released_connection_resets_late_data() {
    let mut world = established(world(1));
    let now = world.now;
    world.sides[0].conn().release(now);
    world.run_until("the peer knows", |world| {
        world.sides[1].state() == Some(State::CloseWait)
    });
    world.sides[1].total = 100;
    world.settle();
    let reasons = world
        .sides
        .each_mut()
        .map(|side| side.conn().close_reason());
    let expected = [CloseReason::Aborted, CloseReason::Reset].map(Some);
    assert_eq!(reasons, expected);
}

#[test]
fn released_connection_does_not_wait_for_ever() {
    let mut world = established(world(1));
    let now = world.now;
    world.sides[0].conn().release(now);
    world.settle();
    assert_eq!(world.sides[0].state(), Some(State::Closed));
    assert_eq!(world.sides[1].state(), Some(State::CloseWait));
}

#[test]
fn abort_resets_the_peer() {
    let mut world = established(world(1));
    world.sides[1].conn().abort();
    world.settle();
    let reason = world.sides[0].conn().close_reason();
    assert_eq!(reason, Some(CloseReason::Reset));
}
