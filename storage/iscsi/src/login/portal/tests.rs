//! Portals, as values of TargetAddress.

use proptest::prelude::*;

use super::*;

#[test]
fn target_addresses_are_parsed() {
    let rows = [
        ("127.0.0.1:13260,1", Some(("127.0.0.1", 13260, Some(1)))),
        ("10.0.0.9,65535", Some(("10.0.0.9", 3260, Some(65535)))),
        ("disk.example.com", Some(("disk.example.com", 3260, None))),
        ("[fe80::1]:3261,2", Some(("fe80::1", 3261, Some(2)))),
        ("[::1]", Some(("::1", 3260, None))),
        ("platte_ä:1", Some(("platte_ä", 1, None))),
        ("", None),
        (":3260,1", None),
        ("host:,1", None),
        ("host:0,1", None),
        ("host:65536,1", None),
        ("host:+1", None),
        ("host,", None),
        ("host,1,2", None),
        ("host:1:2", None),
        ("fe80::1", None),
        ("[fe80::1", None),
        ("[host]:1", None),
        ("[::1]x", None),
        ("a host", None),
        ("../etc", None),
        ("host\n", None),
    ];
    for (text, expected) in rows {
        let portal = Portal::parse(text);
        let got = portal.as_ref().map(|p| (p.host.as_str(), p.port, p.group));
        assert_eq!(got, expected, "{text:?}");
    }
    assert_eq!(Portal::parse(&"a".repeat(256)), None);
}

proptest! {
    #[test]
    fn portal_survives_display_and_parse(text in "(\\[?[a-z0-9:.]{0,12}\\]?)(:[0-9]{0,5})?(,[0-9]{0,5})?|\\PC{0,20}") {
        if let Some(portal) = Portal::parse(&text) {
            prop_assert_eq!(Portal::parse(&portal.to_string()), Some(portal));
        }
    }
}
