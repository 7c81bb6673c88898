//! Tests of lending and returning a group, with an artificial clock.

use core::time::Duration;

use super::borrower::BUSY_FACTOR;
use super::lending::LEND_BACKOFF;
use super::*;
use crate::config::Config;

/// Long, so that the shard's own timer does not expire during a test.
const USUAL: Duration = Duration::from_secs(1);

/// A group just borrowed by a polling thread, and the time.
pub(super) fn borrowed() -> (Arc<Group>, Time) {
    let mut config = Config::default();
    config.set("lend_time", "1s").unwrap();
    assert_eq!(config.lend_time, USUAL);
    let core = Core::new(config).unwrap();
    let group = Group::new(&core).unwrap();
    group.crowded.store(true, Ordering::Relaxed);
    while !group.owner.is_lent() {
        group.polled_empty();
    }
    // With a known thread, `expire` would look at its real processor time.
    group.borrower.clear();
    (group, sys::now())
}

pub(super) fn is_lent(group: &Group) -> bool {
    group.owner.is_lent()
}

#[test]
fn absent_borrower_loses_the_group() {
    let (group, since) = borrowed();
    group.clone().expire(since + USUAL / 2);
    assert!(is_lent(&group));
    group.clone().expire(since + USUAL * 3 / 2);
    assert!(!is_lent(&group));
}

#[test]
fn posting_borrower_keeps_group_until_it_stops() {
    let (group, since) = borrowed();
    group.note_post();
    group.clone().expire(since + USUAL * 3 / 2);
    assert!(is_lent(&group), "it posted a moment ago");
    group.clone().expire(since + USUAL * 5 / 2);
    assert!(!is_lent(&group), "it has not posted since");
}

#[test]
fn borrower_that_only_posts_loses_the_group() {
    let (group, since) = borrowed();
    for times in 1..BUSY_FACTOR {
        group.note_post();
        group.clone().expire(since + USUAL * times);
        assert!(is_lent(&group), "after {times}");
    }
    group.note_post();
    group.clone().expire(since + USUAL * (BUSY_FACTOR + 1));
    assert!(!is_lent(&group));
}

#[test]
fn only_polling_resets_the_sleep_backoff() {
    let (group, since) = borrowed();
    group
        .lending
        .backoff
        .store(LEND_BACKOFF.1, Ordering::Relaxed);
    group.note_post();
    group.clone().expire(since + USUAL * 3 / 2);
    assert_eq!(
        group.lending.backoff.load(Ordering::Relaxed),
        LEND_BACKOFF.1
    );
    group.clone().expire(since + USUAL / 2);
    assert_eq!(
        group.lending.backoff.load(Ordering::Relaxed),
        LEND_BACKOFF.0
    );
}

#[test]
fn post_to_unlent_group_is_not_noted() {
    let core = Core::new(Config::default()).unwrap();
    let group = Group::new(&core).unwrap();
    group.note_post();
    assert!(!group.borrower.has_posted());
}

#[test]
fn poster_with_few_connections_loses_the_group() {
    let (group, since) = borrowed();
    group.crowded.store(false, Ordering::Relaxed);
    group.note_post();
    group.clone().expire(since + USUAL * 3 / 2);
    assert!(!is_lent(&group), "the shard must serve its connections");
}

#[test]
fn successful_poll_keeps_the_group() {
    let (group, since) = borrowed();
    group.polled_some();
    group.clone().expire(since + USUAL * 3 / 2);
    assert!(is_lent(&group), "it polled, and not in vain");
    group.clone().expire(since + USUAL * 3);
    assert!(!is_lent(&group), "it has not polled since");
}

#[test]
fn runnable_borrower_keeps_group_up_to_busy_limit() {
    let (group, since) = borrowed();
    // Whether it computes is known only at the second check.
    group.borrower.set_current_thread();
    group.clone().expire(since + USUAL * 3 / 2);
    assert!(is_lent(&group));
    group.clone().expire(since + USUAL * (BUSY_FACTOR + 1));
    assert!(!is_lent(&group), "however little it ran");
}

#[test]
fn serving_borrower_keeps_the_group() {
    let (group, since) = borrowed();
    group.borrower.set_serving(true);
    group.clone().expire(since + USUAL * 3 / 2);
    assert!(is_lent(&group));
    group.borrower.set_serving(false);
    group.clone().expire(since + USUAL * 3 / 2);
    assert!(!is_lent(&group));
}

#[test]
fn group_allows_sleep_after_the_backoff() {
    let (group, _) = borrowed();
    assert!(group.may_sleep(), "it has no reason");
    let long_ago = sys::now().nanos() - 1;
    group.lending.back_off(sys::now() + USUAL);
    assert!(!group.may_sleep());
    group
        .lending
        .blocked_until
        .store(long_ago, Ordering::Relaxed);
    assert!(group.may_sleep());
    let until = || group.lending.blocked_until.load(Ordering::Relaxed);
    assert_eq!(until(), 0, "the clock is not read for it any more");
    group.lending.back_off(sys::now() + USUAL);
    assert!(!group.may_sleep() && until() > 0, "another reason");
}

/// A group that is fed by a UDP socket at this address.
#[cfg(not(shuttle))]
fn borrowed_with_udp_port(address: &str) -> (Arc<Core>, Arc<Group>) {
    let mut config = Config::default();
    config.set("device", address).unwrap();
    config.set("lend_time", "1s").unwrap();
    let core = Core::new(config).unwrap();
    let group = Group::new(&core).unwrap();
    let port = core.roce_ports.at(&core, address.parse().unwrap());
    group.add_udp_port(&port.unwrap());
    while !group.owner.is_lent() {
        group.polled_empty();
    }
    (core, group)
}

#[cfg(not(shuttle))]
#[test]
fn datagram_wakes_a_thread_that_sleeps_in_a_poll() {
    let (core, group) = borrowed_with_udp_port("127.91.6.1");
    assert!(!group.sleep_if_due(), "it has not been preempted");
    group.poll_sleep.set_due();
    assert!(group.sleep_if_due());
    let peer = std::net::UdpSocket::bind("127.91.6.2:0").unwrap();
    peer.send_to(b"no packet", "127.91.6.1:4791").unwrap();
    assert!(group.sleep_in_poller(Duration::from_secs(60)), "at once");
    group.polled_empty();
    assert_eq!(core.routes.ud_demux.drops().malformed, 1, "it was read");
    assert!(!group.sleep_in_poller(Duration::from_millis(1)));
}
