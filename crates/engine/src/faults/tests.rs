//! Which faults happen: the same for the same seed, and only to what a rule is for.

use core::time::Duration;

use super::*;

const QP: QpNumbers = (2, 0x4711);

fn faults(script: &str) -> Faults {
    let faults = Faults::default();
    faults.set(&script.parse().unwrap(), 1);
    faults
}

/// The numbers, from 1, of the posts that are refused.
fn refused(script: &str, posts: u64) -> Vec<u64> {
    let faults = faults(script);
    let refuses = |_: &u64| faults.on_send(QP, Time::ZERO).refuse.is_some();
    (1..=posts).filter(refuses).collect()
}

#[test]
fn triggers_count_posts_from_one() {
    assert_eq!(refused("post nth=3 errno=ENOMEM", 10), [3]);
    assert_eq!(refused("post every=4 errno=ENOMEM", 10), [4, 8]);
    assert_eq!(refused("post every=2 times=2 errno=ENOMEM", 10), [2, 4]);
    assert_eq!(refused("post rate=100% times=3 errno=EIO", 10), [1, 2, 3]);
}

#[test]
fn same_seed_gives_same_faults() {
    let script = |seed| format!("seed={seed}; post rate=0.1 errno=ENOMEM");
    let first = refused(&script(7), 10_000);
    assert_eq!(first, refused(&script(7), 10_000));
    assert_ne!(first, refused(&script(8), 10_000));
    assert!((800..1200).contains(&first.len()), "{}", first.len());
}

#[test]
fn rules_apply_to_named_queue_pairs_only() {
    let faults = faults("post qp=7,18193 every=1 errno=EINVAL");
    assert_eq!(faults.on_send((3, 3), Time::ZERO).refuse, None);
    assert_eq!(faults.on_send(QP, Time::ZERO).refuse, Some(libc::EINVAL));
    assert_eq!(
        faults.on_send((7, 9), Time::ZERO).refuse,
        Some(libc::EINVAL)
    );
    let counts = faults.counts();
    assert_eq!((counts.rules[0].seen, counts.rules[0].fired), (2, 2));
}

#[test]
fn port_that_is_down_holds_requests() {
    let faults = faults("port-down nth=2 time=20ms");
    assert_eq!(faults.on_send(QP, Time::ZERO).fault, None);
    let second = faults.on_send(QP, Time::ZERO);
    let up = Time::ZERO + Duration::from_millis(20);
    assert_eq!(second.port_down, Some(Duration::from_millis(20)));
    assert_eq!(second.fault, Some(SendFault::HoldUntil(up)));
}

#[test]
fn region_limit_refuses_at_its_number() {
    let faults = faults("regions most=2; register nth=1 errno=EACCES");
    assert_eq!(faults.on_register(0), Some(libc::EACCES));
    assert_eq!(faults.on_register(1), None);
    assert_eq!(faults.on_register(2), Some(libc::ENOMEM));
}

#[test]
fn posts_leave_a_rule_that_is_being_applied() {
    // Two queue pairs were killed; or there was none.
    for (killed, by_next_post) in [(2, None), (0, Some(0))] {
        let faults = faults("kill");
        let rule = faults.counts().rules[0].rule.clone();
        assert_eq!(faults.on_send(QP, Time::ZERO).kill, None);
        faults.applied(0, &rule, killed);
        assert_eq!(faults.on_send(QP, Time::ZERO).kill, by_next_post);
        assert_eq!(faults.counts().rules[0].fired, killed.max(1));
    }
}
