//! Tests of the order of requests: independence of thread scheduling, and the effect of a slow peer.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use verbena_stream::Time;

use super::{MAX_WAIT, Order};

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const TINY: Duration = Duration::from_nanos(1);

fn start() -> Time {
    Time::default() + Duration::from_secs(1)
}

#[test]
fn requests_of_one_peer_keep_their_order() {
    let mut order = Order::default();
    let numbers: Vec<u64> = (0..4).map(|_| order.add(A)).collect();
    for at in [2, 1, 3] {
        assert_eq!(order.complete(numbers[at], at), None);
        let (shown, again) = order.release(start());
        assert_eq!(shown, []);
        assert_eq!(again, Some(start() + MAX_WAIT));
    }
    assert_eq!(order.complete(numbers[0], 0), None);
    assert_eq!(order.release(start()), (vec![0, 1, 2, 3], None));
}

#[test]
fn peers_do_not_wait_for_each_other() {
    let mut order = Order::default();
    let (_, b) = (order.add(A), order.add(B));
    assert_eq!(order.complete(b, "b"), None);
    assert_eq!(order.release(start()), (vec!["b"], None));
}

#[test]
fn slow_connection_delays_later_requests_once() {
    let mut order = Order::default();
    let slow: Vec<u64> = (0..100).map(|_| order.add(A)).collect();
    let quick = order.add(A);
    assert_eq!(order.complete(quick, 1), None);
    let until = start() + MAX_WAIT;
    assert_eq!(order.release(start()), (vec![], Some(until)));
    assert_eq!(order.release(until), (vec![1], None));

    let later = order.add(A);
    assert_eq!(order.complete(later, 2), None);
    assert_eq!(order.release(until + TINY), (vec![2], None));

    assert_eq!(order.complete(slow[7], 3), None);
    assert_eq!(order.release(until + TINY), (vec![3], None));
}

#[test]
fn closed_connection_is_not_waited_for() {
    let mut order = Order::default();
    let (gone, stays) = (order.add(A), order.add(A));
    assert_eq!(order.complete(stays, ()), None);
    assert_eq!(order.release(start()).0, []);
    assert_eq!(
        order.remove(gone),
        (None, true),
        "a later request waits for it"
    );
    assert_eq!(order.release(start()), (vec![()], None));
    assert_eq!(order.remove(stays), (None, false), "it was shown");
    assert_eq!(
        order.complete(stays, ()),
        Some(()),
        "and is not known any more"
    );
}

#[test]
fn completed_requests_are_never_lost() {
    let mut order = Order::default();
    let (_, second) = (order.add(A), order.add(A));
    assert_eq!(order.complete(second, 2), None);
    assert_eq!(
        order.remove(1),
        (Some(2), false),
        "given back to be dropped elsewhere"
    );
    let third = order.add(A);
    assert_eq!(order.complete(third, 3), None);
    assert_eq!(order.take_all(), [3]);
}
