//! Valid addresses, and the error messages of invalid ones.

use super::*;

fn good(text: &str) -> Address {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn bad(text: &str) -> String {
    text.parse::<Address>().expect_err(text).to_string()
}

fn login(user: &str, password: &str) -> Option<Credentials> {
    Some(Credentials {
        user: user.into(),
        password: password.into(),
    })
}

#[test]
fn address_with_all_parts_is_parsed() {
    let all = "iscsi://me%secret@example.org:13260/iqn.2024-01.org.example:disk/7\
               ?target_user=it&target_password=too&header_digest=crc32c&data_digest=NONE";
    assert_eq!(
        good(all),
        Address {
            transport: Transport::Iscsi,
            host: "example.org".into(),
            port: 13260,
            credentials: login("me", "secret"),
            target_credentials: login("it", "too"),
            target: Some("iqn.2024-01.org.example:disk".into()),
            lun: Some(7),
            header_digest: Digest::Crc32c,
            data_digest: Digest::None,
        }
    );
}

#[test]
fn target_and_lun_are_optional() {
    for portal in [
        "iser://192.0.2.1",
        "iser://192.0.2.1/",
        "ISER://192.0.2.1:3260",
    ] {
        let address = good(portal);
        assert_eq!((address.transport, address.port), (Transport::Iser, 3260));
        assert_eq!((address.target, address.lun), (None, None));
    }
    for target in [
        "iscsi://h/eui.02004567A425678D",
        "iscsi://h/eui.02004567a425678d/",
    ] {
        let address = good(target);
        assert_eq!(address.target.as_deref(), Some("eui.02004567a425678d"));
        assert_eq!(address.lun, None);
    }
}

#[test]
fn ipv6_addresses_need_brackets() {
    let address = good("iscsi://[2001:db8::1]:860/naa.52004567BA64678D/0");
    assert_eq!((&*address.host, address.port), ("2001:db8::1", 860));
    assert_eq!(good("iscsi://[fe80::1%eth0]").host, "fe80::1%eth0");
    assert!(bad("iscsi://2001:db8::1/iqn.x/1").contains("needs brackets, as in [2001:db8::1]"));
    for wrong in ["[1.2.3.4]", "[::1", "[::1]3260", "[]"] {
        assert!(
            bad(&format!("iscsi://{wrong}/")).contains("no IPv6"),
            "{wrong}"
        );
    }
}

#[test]
fn percent_encoding_is_decoded() {
    let address = good("iscsi://u%p%40ss%25@h/iqn.2024-01.org.example%3Ad%c3%a9/1");
    assert_eq!(address.credentials, login("u", "p@ss%"));
    assert_eq!(
        address.target.as_deref(),
        Some("iqn.2024-01.org.example:dé")
    );
    for wrong in ["iqn.%", "iqn.%4", "iqn.%zz", "iqn.%ff"] {
        assert!(
            bad(&format!("iscsi://h/{wrong}/1")).contains("percent sign"),
            "{wrong}"
        );
    }
    // The last at sign is the separator, since a host has none.
    assert_eq!(good("iscsi://u%p@q@h").credentials, login("u", "p@q"));
}

#[test]
fn invalid_addresses_are_refused_with_a_reason() {
    let long = format!("iscsi://h/iqn.{}/1", "x".repeat(220));
    let secret = format!("iscsi://u%{}@h", "x".repeat(256));
    let cases = [
        ("", "must begin with iscsi://"),
        ("host/iqn.x/1", "must begin with iscsi://"),
        ("http://host/iqn.x/1", "must begin with iscsi://"),
        ("iscsi://", "the host is missing"),
        ("iscsi:///iqn.x/1", "the host is missing"),
        ("iscsi://:3260/iqn.x/1", "the host is missing"),
        ("iscsi://a b/iqn.x/1", "invalid characters"),
        ("iscsi://h:/iqn.x/1", "`` is no port"),
        ("iscsi://h:0/iqn.x/1", "`0` is no port"),
        ("iscsi://h:65536/iqn.x/1", "`65536` is no port"),
        ("iscsi://me@h/iqn.x/1", "user%password"),
        ("iscsi://%p@h/iqn.x/1", "the user name is empty"),
        ("iscsi://u%@h/iqn.x/1", "the password is empty"),
        (&secret, "longer than 255"),
        ("iscsi://h/disk/1", "no target name"),
        ("iscsi://h/iqn.a%2fb/1", "no target name"),
        (&long, "has 224 bytes"),
        ("iscsi://h/iqn.x/one", "`one` is not a LUN"),
        ("iscsi://h/iqn.x/-1", "is not a LUN"),
        ("iscsi://h/iqn.x/16384", "is not a LUN (0 to 16383)"),
        ("iscsi://h//1", "is not a LUN"),
        ("iscsi://h/iqn.x/1/2", "follows the LUN: `2`"),
        ("iscsi://h/iqn.x/1?speed=high", "`speed` is no option"),
        ("iscsi://h/iqn.x/1?data_digest=md5", "`md5` is no digest"),
        (
            "iscsi://h/iqn.x/1?data_digest=none&data_digest=none",
            "twice",
        ),
        ("iscsi://u%p@h/iqn.x/1?target_user=t", "go together"),
        (
            "iscsi://h/i?target_user=t&target_password=p",
            "no target name",
        ),
        (
            "iscsi://h/iqn.x?target_user=t&target_password=p",
            "go together",
        ),
    ];
    for (text, part) in cases {
        let said = bad(text);
        assert!(said.contains(part), "{text}: {said}");
        assert!(
            said.contains("iscsi://[user%password@]host[:port]/"),
            "{said}"
        );
    }
}

#[test]
fn passwords_are_never_shown() {
    for wrong in [
        "iscsi://me%hidden@h/disk/1",
        "iscsi://me%hid%den@h/iqn.x/1",
        "iscsi://me%x@h/iqn.x/1?target_user=t&target_password=hidden%",
        "hidden@h",
    ] {
        assert!(!bad(wrong).contains("hid"), "{}", bad(wrong));
    }
    let address = good("iscsi://me%hidden@h/iqn.x/1?target_user=t&target_password=hidden");
    assert!(!format!("{address} {address:?}").contains("hidden"));
}

#[test]
fn shown_addresses_parse_again() {
    for text in [
        "iscsi://h",
        "iser://[::1]:860/iqn.x",
        "iscsi://192.0.2.1/iqn.x/3",
    ] {
        assert_eq!(good(text).to_string(), text);
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "(iscsi://|iser://)?[\\[\\]a-f0-9:%@/?&=.\\PC]{0,60}") {
        if let Ok(address) = text.parse::<Address>() {
            let shown: Address = address.to_string().parse().expect("what is shown is an address");
            proptest::prop_assert_eq!(
                (shown.host, shown.port, shown.target, shown.lun),
                (address.host, address.port, address.target, address.lun)
            );
        }
    }
}
