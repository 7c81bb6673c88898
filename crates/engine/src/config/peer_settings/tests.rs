//! Tests of the settings for one peer, and of the choice of addresses.

use super::super::device::{Device, Interface};
use super::super::keywords::Choice;
use super::*;

fn peer(ip: &str) -> IpAddr {
    ip.parse().unwrap()
}

#[test]
fn default_settings_give_default_terms() {
    let settings = Settings::default();
    assert_eq!(settings.terms(Profile::Verbena, false), Terms::default());
    assert_eq!(settings.transfer(), Transfer::default());
}

#[test]
fn crc_defaults_to_off_on_this_host_only() {
    let mut settings = Settings::default();
    assert!(!settings.terms(Profile::Verbena, true).crc);
    assert!(settings.terms(Profile::Siw, false).crc);
    settings.crc = Choice::On;
    assert!(settings.terms(Profile::Verbena, true).crc);
    settings.crc = Choice::Off;
    assert!(!settings.terms(Profile::Verbena, false).crc);
}

#[test]
fn extensions_are_offered_to_verbena_peers_only() {
    let mut settings = Settings::default();
    assert!(settings.terms(Profile::Verbena, false).extensions);
    assert!(!settings.terms(Profile::Siw, false).extensions);
    assert!(!settings.terms(Profile::Standard, false).extensions);
    settings.extensions = false;
    assert!(!settings.terms(Profile::Verbena, false).extensions);
}

#[test]
fn agreed_extensions_determine_the_profile() {
    let settings = Settings::default();
    assert_eq!(
        settings.negotiated_profile(Profile::Standard, true),
        Profile::Verbena
    );
    assert_eq!(
        settings.negotiated_profile(Profile::Verbena, false),
        Profile::Standard
    );
    assert_eq!(
        settings.negotiated_profile(Profile::Siw, false),
        Profile::Siw
    );
}

#[test]
fn fpdu_size_and_rfc7306_depend_on_the_profile() {
    let mut settings = Settings::default();
    assert!(settings.large_fpdus(Profile::Verbena));
    assert!(!settings.large_fpdus(Profile::Siw) && !settings.large_fpdus(Profile::Standard));
    settings.fpdu = Fpdu::Mss;
    assert!(!settings.large_fpdus(Profile::Verbena));
    assert!(settings.supports_rfc7306(Profile::Verbena));
    assert!(!settings.supports_rfc7306(Profile::Standard));
    settings.rfc7306 = Choice::On;
    assert!(settings.supports_rfc7306(Profile::Standard));
}

#[test]
fn without_rtr_messages_startup_is_client_server() {
    let mut settings = Settings::default();
    settings.rtr.write = false;
    settings.rtr.read = false;
    assert!(!settings.terms(Profile::Siw, false).peer_to_peer);
}

#[test]
fn longest_prefix_selects_the_profile() {
    let mut config = crate::Config::default();
    let list = "192.0.2.0/24=standard, 192.0.2.7=siw,0.0.0.0/0=verbena,::/0=siw";
    config.set("peers", list).unwrap();
    assert_eq!(config.expected_profile(peer("192.0.2.7")), Profile::Siw);
    assert_eq!(
        config.expected_profile(peer("192.0.2.8")),
        Profile::Standard
    );
    assert_eq!(
        config.expected_profile(peer("198.51.100.1")),
        Profile::Verbena
    );
    assert_eq!(config.expected_profile(peer("2001:db8::1")), Profile::Siw);
    // The IPv4-mapped form of an address matches the same networks.
    assert_eq!(
        config.expected_profile(peer("::ffff:192.0.2.7")),
        Profile::Siw
    );
    for bad in ["192.0.2.0/33=siw", "192.0.2.0=rxe", "192.0.2.0", "x=siw"] {
        assert!(config.set("peers", bad).is_err(), "{bad}");
    }
}

#[test]
fn device_setting_resolves_to_interface_addresses() {
    let has = |name: &str, ip: &str| Interface {
        name: name.to_owned(),
        ip: peer(ip),
    };
    let machine = [
        has("lo", "127.0.0.1"),
        has("eth0", "169.254.0.1"),
        has("eth0", "192.0.2.2"),
        has("eth0", "2001:db8::2"),
        has("eth0", "fe80::1"),
        has("eth1", "198.51.100.2"),
    ];
    let any = |_| true;
    let auto = Device::Auto.resolve(&machine, any).unwrap();
    assert_eq!(auto, [peer("192.0.2.2"), peer("2001:db8::2")]);
    let without = Device::Auto.resolve(&machine, |ip| ip.is_ipv4()).unwrap();
    assert_eq!(without, [peer("192.0.2.2")], "the other cannot be used yet");
    let alone = Device::Auto.resolve(&machine[..1], any).unwrap();
    assert_eq!(alone, [peer("127.0.0.1")]);
    let named = |name: &str| Device::Interface(name.to_owned()).resolve(&machine, any);
    assert_eq!(
        named("eth0").unwrap(),
        [peer("192.0.2.2"), peer("2001:db8::2")]
    );
    assert_eq!(named("eth2"), None);
    let chosen = Device::Addresses(vec![peer("198.51.100.1")]);
    assert_eq!(
        chosen.resolve(&machine, any).unwrap(),
        [peer("198.51.100.1")]
    );
    let mut config = crate::Config::default();
    config.set("device", "eth0").unwrap();
    assert_eq!(config.device, Device::Interface("eth0".to_owned()));
    for bad in [
        "192.0.2",
        "192.0.2.1,",
        "a b",
        "a/b",
        "interface_name_too_long",
        "",
    ] {
        assert!(config.set("device", bad).is_err(), "{bad}");
    }
}

#[test]
fn roce_only_excludes_peers_over_tcp() {
    let with = |settings: &[(&str, &str)]| {
        let mut config = crate::Config::default();
        for (key, value) in settings {
            config.set(key, value).unwrap();
        }
        config.uses_roce_only()
    };
    assert!(!with(&[]) && !with(&[("wire", "auto")]));
    assert!(!with(&[("peers", "10.0.0.0/8=roce")]));
    assert!(with(&[("wire", "roce")]) && with(&[("profile", "roce")]));
    assert!(!with(&[("wire", "roce"), ("peers", "10.0.0.0/8=siw")]));
}
