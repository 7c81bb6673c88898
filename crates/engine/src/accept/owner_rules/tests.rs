//! Tests of the network rules of the profile, for every kind of rule.

use super::*;

fn claims(presents: &str, owners: &str) -> OwnerRules {
    let mut config = Config::default();
    config.set("presents", presents).unwrap();
    config.set("owners", owners).unwrap();
    OwnerRules::physical(&config).unwrap()
}

fn refused(claims: &OwnerRules, local: &str, peer: Option<&str>) -> Option<String> {
    let peer = peer.map(|peer| peer.parse().unwrap());
    let outcome = claims.check(Service::Rdma, local.parse().unwrap(), peer);
    outcome.err().map(|error| error.to_string())
}

#[test]
fn profile_without_rules_has_no_claims() {
    assert!(OwnerRules::physical(&Config::default()).is_none());
}

#[test]
fn address_of_another_device_is_refused() {
    let first = claims(
        "verbena0=rdma,verbena1=rdma,scsi0=iscsi",
        "127.0.0.2=verbena1,*:3260=scsi0,127.0.0.1:7=verbena0,127.0.0.1:9<127.0.0.3:5=verbena1",
    );
    let second = first.for_device("verbena1");
    assert_eq!(
        refused(&first, "127.0.0.2:0", None).unwrap(),
        "packets for 127.0.0.2:0 belong to verbena1, not to verbena0 (setting `owners`)"
    );
    assert_eq!(refused(&second, "127.0.0.2:80", None), None);
    assert!(refused(&second, "127.0.0.1:7", None).is_some());
    assert_eq!(refused(&first, "127.0.0.1:7", None), None);
    // A rule for a port takes precedence over one for an address, a rule for a connection over both.
    for claims in [&first, &second] {
        assert!(refused(claims, "127.0.0.2:3260", None).is_some());
        assert!(refused(claims, "0.0.0.0:3260", None).is_some());
    }
    assert!(refused(&first, "127.0.0.1:9", Some("127.0.0.3:5")).is_some());
    assert_eq!(refused(&second, "127.0.0.1:9", Some("127.0.0.3:5")), None);
    assert_eq!(refused(&first, "127.0.0.1:9", Some("127.0.0.3:6")), None);
    // The mapped address that an IPv6 socket reports.
    assert!(refused(&first, "[::ffff:127.0.0.2]:1", None).is_some());
    // Connections that match no rule are allowed, also to devices that the profile does not name.
    let tenant = first.for_device("verbena0v9");
    assert_eq!(refused(&tenant, "127.0.0.1:80", None), None);
    assert!(refused(&tenant, "127.0.0.2:80", None).is_some());
}

#[test]
fn services_of_one_device_are_separate_owners() {
    let one = claims(
        "verbena0=nic+rdma",
        "127.0.0.1=verbena0/nic,127.0.0.2=verbena0/rdma",
    );
    assert!(refused(&one, "127.0.0.1:1", None).is_some());
    assert_eq!(refused(&one, "127.0.0.2:1", None), None);
}
