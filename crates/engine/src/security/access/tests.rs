//! Tests of the access lists: which sources are refused, and how often that is reported.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{AccessList, PERIOD, Recent, RefusedBy, SOURCES};
use crate::config::Config;
use crate::sys;

fn list(allow: &str, deny: &str) -> AccessList {
    let mut config = Config::default();
    config.set("allow", allow).unwrap();
    config.set("deny", deny).unwrap();
    AccessList::new(&config)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn empty_allow_admits_all_and_deny_wins() {
    let all = ["192.0.2.1", "198.51.100.9", "2001:db8::1", "::1"];
    let open = list("", "");
    assert!(all.iter().all(|source| open.admits(ip(source))));
    let denied = list("", "192.0.2.0/24,2001:db8::/32");
    let admitted = |list: &AccessList| all.map(|source| list.admits(ip(source)));
    assert_eq!(admitted(&denied), [false, true, false, true]);
    let allowed = list("192.0.2.1, ::1", "");
    assert_eq!(admitted(&allowed), [true, false, false, true]);
    let both = list("192.0.2.0/24,198.51.100.0/24", "192.0.2.1");
    assert_eq!(admitted(&both), [false, true, false, false]);
    assert_eq!((open.refused(), both.refused()), (0, 3));
}

#[test]
fn mapped_address_matches_as_ipv4() {
    for deny in ["192.0.2.1", "::ffff:192.0.2.1", "::ffff:192.0.2.0/120"] {
        let list = list("", deny);
        assert!(!list.admits(ip("::ffff:192.0.2.1")), "{deny}");
        assert!(!list.admits(ip("192.0.2.1")), "{deny}");
        assert!(list.admits(ip("192.0.3.1")), "{deny}");
    }
    // All of IPv6 is not all of IPv4.
    assert!(list("", "::/0").admits(ip("192.0.2.1")));
}

#[test]
fn refused_source_is_reported_once_per_period() {
    let list = list("", "192.0.2.0/24");
    let reported = Arc::new(Mutex::new(Vec::new()));
    let ours = reported.clone();
    list.on_refusal(move |refusal| ours.lock().push((refusal.source, refusal.count)));
    for _ in 0..100 {
        list.admits(ip("192.0.2.1"));
        list.admits(ip("192.0.2.2"));
    }
    let both = [(Some(ip("192.0.2.1")), 1), (Some(ip("192.0.2.2")), 1)];
    assert_eq!(*reported.lock(), both);
    assert_eq!(list.refused(), 200);
}

#[test]
fn repeated_refusals_are_reported_after_the_period() {
    let (mut recent, began) = (Recent::default(), sys::now());
    let one = ip("192.0.2.1");
    assert_eq!(recent.record(one, began), Some((Some(one), 1)));
    for _ in 0..9 {
        assert_eq!(recent.record(one, began + Duration::from_secs(59)), None);
    }
    assert_eq!(recent.record(one, began + PERIOD), Some((Some(one), 10)));
}

#[test]
fn untracked_sources_are_reported_together() {
    let (mut recent, began) = (Recent::default(), sys::now());
    let source = |n: u32| IpAddr::from(n.to_be_bytes());
    let mut reported = 0;
    for n in 0..10_000 {
        reported += usize::from(recent.record(source(n), began).is_some());
    }
    assert_eq!((reported, recent.sources.len()), (SOURCES + 1, SOURCES));
    // After the period the sources are tracked anew.
    let later = began + PERIOD;
    let fresh = recent.record(source(20_000), later).unwrap();
    assert_eq!(fresh, (Some(source(20_000)), 1));
    assert_eq!(recent.sources.len(), 1);
}

#[test]
fn refusal_names_the_setting() {
    let (list, reported) = (
        list("192.0.2.0/24", "192.0.2.7"),
        Arc::new(Mutex::new(Vec::new())),
    );
    let ours = reported.clone();
    list.on_refusal(move |refusal| ours.lock().push((refusal.by, refusal.to_string())));
    list.admits(ip("192.0.2.7"));
    list.admits(ip("198.51.100.1"));
    let wanted = [
        (
            RefusedBy::Deny,
            "refused 192.0.2.7: the setting `deny` names it".to_owned(),
        ),
        (
            RefusedBy::Allow,
            "refused 198.51.100.1: the setting `allow` does not name it".to_owned(),
        ),
    ];
    assert_eq!(*reported.lock(), wanted);
}
