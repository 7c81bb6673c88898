//! Decides which thread serves bulk traffic: the polling thread, or the shard beside it.
//!
//! A polling thread that serves its connections saves wake-ups, which is most of the time of a short message. With long messages it spends its
//! time on copies instead, and a program that polls several queues with one thread is as fast as that thread, while other processors
//! may be idle. So a group that carries bulk is given to its shard for a trial window, and stays there for a while if it carried more and the
//! shard did not have to wait for a processor: on a machine without an idle one, the rate of one window is chance, and the shard's time
//! is taken from the program's own threads.

use core::time::Duration;

use verbena_stream::Time;
use verbena_sync::locks::Mutex;

use super::Group;

/// How long bytes are counted for a rate.
pub(super) const WINDOW: Duration = Duration::from_nanos(WINDOW_NANOS);
const WINDOW_NANOS: u64 = 20_000_000;
/// Bytes per second, both directions together, that are bulk.
const BULK: u64 = 256 << 20;
/// The shard must carry more than the polling thread by one part in so many.
const GAIN: u64 = 8;
/// A shard that waits for a processor for more than this part of a window competes for it.
const WAIT: u64 = 8;
/// How long a group stays with the shard before the next comparison, in nanoseconds.
const STAY: u64 = 2_000_000_000;
/// The pause after a comparison that the shard lost, at first and at most, in nanoseconds: it doubles each time.
const PAUSE: (u64, u64) = (640_000_000, 20_480_000_000);
/// A group with more members is not counted.
const MEMBERS: usize = 64;

/// State of the comparison, for the group's timer.
#[derive(Debug, Default)]
pub(super) struct Bulk(Mutex<Comparison>);

#[derive(Debug)]
struct Comparison {
    /// The beginning of the window, in nanoseconds, and the bytes carried before it.
    since: (u64, u64),
    /// How long the shard's thread had waited for a processor before the window, in nanoseconds.
    waited: u64,
    mode: ServingMode,
    /// No comparison before this time, in nanoseconds.
    next: u64,
    /// The pause if the shard loses.
    pause: u64,
}

impl Default for Comparison {
    fn default() -> Comparison {
        Comparison {
            since: (0, 0),
            waited: 0,
            mode: ServingMode::Polling,
            next: 0,
            pause: PAUSE.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServingMode {
    /// The polling thread serves, if there is one.
    Polling,
    /// The shard serves for one window; the rate before, in bytes per second.
    Trial(u64),
    /// The shard serves until this time, in nanoseconds.
    Shard(u64),
}

impl Comparison {
    /// Ends a window at `now`, with the bytes so far; `lent` if a polling thread serves. `waited` reads the shard's waiting time so
    /// far, which takes system calls and is only needed where the shard is about to serve or has served.
    fn next_mode(
        &mut self,
        now: u64,
        bytes: u64,
        lent: bool,
        waited: impl FnOnce() -> u64,
    ) -> ServingMode {
        let (since, before) = core::mem::replace(&mut self.since, (now, bytes));
        let span = now.saturating_sub(since).max(1);
        let carried = u128::from(bytes.saturating_sub(before)) * 1_000_000_000;
        let rate = u64::try_from(carried / u128::from(span)).unwrap_or(u64::MAX);
        // A window that ended late gives no rate.
        let known = span < 4 * WINDOW_NANOS;
        let starts = known && lent && rate >= BULK && now >= self.next;
        if self.mode == ServingMode::Polling && !starts {
            return ServingMode::Polling;
        }
        let waited = waited();
        let before = core::mem::replace(&mut self.waited, waited);
        let idle = waited.saturating_sub(before) <= span / WAIT;
        self.mode = match self.mode {
            ServingMode::Polling => ServingMode::Trial(rate),
            ServingMode::Trial(polling)
                if known && !lent && idle && rate > polling + polling / GAIN =>
            {
                self.pause = PAUSE.0;
                ServingMode::Shard(now + STAY)
            }
            ServingMode::Shard(_) if known && !idle => self.give_back(now),
            ServingMode::Trial(_) => self.give_back(now),
            ServingMode::Shard(until) if known && !lent && rate >= BULK && now < until => self.mode,
            _ => ServingMode::Polling,
        };
        self.mode
    }

    /// The shard lost: the next comparison is after a pause.
    fn give_back(&mut self, now: u64) -> ServingMode {
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE.1);
        ServingMode::Polling
    }
}

impl Group {
    /// Called by the timer, with whether a polling thread serves the group; true if the shard is to serve it for its bulk traffic.
    pub(super) fn compare_bulk(&self, now: Time, lent: bool) -> bool {
        let mut comparison = self.bulk.0.lock();
        let before = comparison.mode;
        let over = now.nanos() >= comparison.since.0 + WINDOW_NANOS;
        if before == ServingMode::Polling && !(lent && over) {
            return false;
        }
        if over || lent {
            let way = comparison.next_mode(now.nanos(), self.byte_count(), lent, || {
                self.shard.run_delay_nanos()
            });
            if way == ServingMode::Polling {
                if before != way {
                    self.lending.unblock();
                }
                return false;
            }
        }
        drop(comparison);
        // Longer than the timer's interval, which may be late.
        self.lending.block_until(now + 2 * WINDOW);
        true
    }

    /// Bytes that the members have sent and received; 0 with more than [`MEMBERS`] members.
    fn byte_count(&self) -> u64 {
        let members = self.members.read();
        if members.list.len() > MEMBERS {
            return 0;
        }
        // Counted without the lock, as a member may be about to leave.
        let list = members.list.clone();
        drop(members);
        list.iter().map(|one| one.byte_count()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use verbena_nic::Outbox;

    use super::super::Member;
    use super::super::tests::{borrowed, is_lent};
    use super::*;
    use crate::poll::owner::Owner;
    use crate::poll::shard::ShardTask;
    use crate::sys::Socket;
    use crate::sys::testing::connection;

    /// A member whose byte count is set by the test.
    struct Carrier(Socket, AtomicU64);

    impl Member for Carrier {
        fn token(&self) -> u64 {
            77
        }

        fn sockets(&self) -> (&Socket, Option<&Socket>) {
            (&self.0, None)
        }

        fn turn(&self, _: &mut Outbox) {}

        fn poll_turn(&self, _: Time, _: &mut Outbox) -> bool {
            false
        }

        fn send_deferred(&self, _: bool, _: &mut Outbox) {}

        fn byte_count(&self) -> u64 {
            self.1.load(Ordering::Relaxed)
        }
    }

    /// Adds a member to the group. The function ends a window in which the member carried so many bytes; true if the group is lent then.
    fn carrier(group: &Arc<Group>, since: Time) -> (Arc<Carrier>, impl FnMut(u64) -> bool) {
        let (socket, _) = connection(Ipv4Addr::LOCALHOST.into());
        let carrier = Arc::new(Carrier(socket, AtomicU64::new(0)));
        group.join(carrier.clone());
        let (group, carries) = (group.clone(), carrier.clone());
        let mut now = since;
        let window = move |bytes: u64| {
            now = now + WINDOW;
            carries.1.fetch_add(bytes, Ordering::Relaxed);
            group.clone().expire(now);
            is_lent(&group)
        };
        (carrier, window)
    }

    #[test]
    fn shard_serves_bulk_while_it_is_faster() {
        let (group, since) = borrowed();
        let (carrier, mut window) = carrier(&group, since);
        assert!(window(0));
        assert!(!window(60_000_000), "a trial");
        assert!(!window(80_000_000), "it carried more");
        assert!(!window(80_000_000), "and does still");
        assert!(!window(1000), "bulk has ended");
        for _ in 0..100 {
            group.polled_empty();
        }
        assert!(is_lent(&group), "the polling thread serves again");
        group.leave(&*carrier);
    }

    /// The thread may not be lent the group during the trial, so that it must not be expected back.
    #[test]
    fn shard_serves_bulk_of_former_sleeper() {
        let (group, since) = borrowed();
        group.begin_sleep();
        group.end_sleep(since);
        let (carrier, mut window) = carrier(&group, since);
        assert!(window(0));
        assert!(!window(60_000_000), "a trial");
        assert_eq!(group.owner.load(), Owner::Shard { timer: true });
        group.leave(&*carrier);
    }

    /// The ways of `n` windows of a group with these rates, in bytes per second, under the polling thread and under the shard.
    fn windows(polling: u64, shard: u64, n: usize) -> Vec<ServingMode> {
        let mut comparison = Comparison::default();
        let (mut now, mut bytes) = (1 << 40, 0);
        comparison.next_mode(now, bytes, true, || 0);
        let step = |_| {
            let lent = comparison.mode == ServingMode::Polling;
            let rate = if lent { polling } else { shard };
            now += WINDOW_NANOS;
            bytes += rate / (1_000_000_000 / WINDOW_NANOS);
            comparison.next_mode(now, bytes, lent, || 0)
        };
        (0..n).map(step).collect()
    }

    #[test]
    fn faster_shard_keeps_the_group() {
        let ways = windows(3_000_000_000, 4_000_000_000, 220);
        assert_eq!(ways[0], ServingMode::Trial(3_000_000_000));
        assert!(matches!(ways[1], ServingMode::Shard(_)));
        let shard = ways
            .iter()
            .filter(|way| matches!(way, ServingMode::Shard(_)));
        assert!(shard.count() > 200, "most of the time: {ways:?}");
        assert!(
            ways[2..].contains(&ServingMode::Trial(3_000_000_000)),
            "and then compared again"
        );
    }

    #[test]
    fn slower_shard_is_tried_with_backoff() {
        let ways = windows(3_000_000_000, 3_000_000_000, 3000);
        let trials = ways
            .iter()
            .filter(|way| **way != ServingMode::Polling)
            .count();
        assert!((3..=7).contains(&trials), "{trials} in a minute");
    }

    #[test]
    fn light_traffic_starts_no_trial() {
        let ways = windows(BULK / 2, 4_000_000_000, 100);
        assert!(
            ways.iter().all(|way| *way == ServingMode::Polling),
            "{ways:?}"
        );
    }

    #[test]
    fn polling_resumes_when_bulk_ends() {
        let mut comparison = Comparison {
            since: (1 << 40, 0),
            mode: ServingMode::Shard(u64::MAX),
            ..Comparison::default()
        };
        let now = (1 << 40) + WINDOW_NANOS;
        assert_eq!(
            comparison.next_mode(now, 1 << 30, false, || 0),
            ServingMode::Shard(u64::MAX)
        );
        let now = now + WINDOW_NANOS;
        assert_eq!(
            comparison.next_mode(now, (1 << 30) + 64, false, || 0),
            ServingMode::Polling
        );
    }

    #[test]
    fn shard_waiting_for_a_processor_returns_group() {
        let start = 1 << 40;
        let mut comparison = Comparison {
            since: (start, 0),
            mode: ServingMode::Trial(1 << 30),
            ..Comparison::default()
        };
        let delay = WINDOW_NANOS / WAIT + 1;
        let way = comparison.next_mode(start + WINDOW_NANOS, 1 << 32, false, || delay);
        assert_eq!(way, ServingMode::Polling, "a trial");
        assert_eq!(comparison.next, start + WINDOW_NANOS + PAUSE.0);
        comparison.mode = ServingMode::Shard(u64::MAX);
        let way = comparison.next_mode(start + 2 * WINDOW_NANOS, 1 << 33, false, || delay + 1);
        assert_eq!(way, ServingMode::Shard(u64::MAX), "it did not wait again");
        let way = comparison.next_mode(start + 3 * WINDOW_NANOS, 1 << 34, false, || 3 * delay);
        assert_eq!(way, ServingMode::Polling);
    }

    #[test]
    fn late_window_starts_no_trial() {
        let mut comparison = Comparison::default();
        comparison.next_mode(1 << 40, 0, true, || 0);
        let late = (1 << 40) + 5 * WINDOW_NANOS;
        assert_eq!(
            comparison.next_mode(late, 1 << 40, true, || 0),
            ServingMode::Polling
        );
    }
}
