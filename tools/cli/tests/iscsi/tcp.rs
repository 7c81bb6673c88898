//! The target over TCP: the functions of the fixture, checked with libiscsi's programs.

use std::path::Path;

use crate::target::{Carrier, Tgt};

const MIB: u64 = 1 << 20;

#[test]
fn targets_and_units_are_found() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let (first, second) = (tgt.target(), tgt.target());
    tgt.lun(&first, 1, 8 * MIB);
    tgt.lun(&first, 7, MIB);
    tgt.lun(&second, 1, MIB);
    let (well, said) = tgt.client(&["iscsi-ls", "-s", &format!("iscsi://{}", tgt.portal())]);
    assert!(well, "{said}");
    // libiscsi counts to the last block and rounds down.
    for what in [&first.name, &second.name, "Lun:1", "Lun:7", "Size:7M"] {
        assert!(said.contains(what), "{what}: {said}");
    }
    let (well, said) = tgt.client(&["iscsi-inq", &tgt.url("", &first, 7)]);
    assert!(well && said.contains("DIRECT_ACCESS"), "{said}");
    let (well, said) = tgt.client(&["iscsi-inq", &tgt.url("", &first, 2)]);
    assert!(!well, "there is no such unit: {said}");
}

#[test]
fn concurrent_targets_are_independent() {
    let Some(mut one) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let mut other = Tgt::start(Carrier::Tcp).expect("the first one started");
    let (target, same_name) = (one.target(), other.target());
    one.lun(&target, 1, MIB);
    other.lun(&same_name, 1, 2 * MIB);
    for (tgt, blocks) in [(&one, 2047), (&other, 4095)] {
        let (_, said) = tgt.client(&["iscsi-readcapacity16", &tgt.url("", &target, 1)]);
        let last = format!("RETURNED LOGICAL BLOCK ADDRESS:{blocks}\n");
        assert!(said.contains(&last), "{said}");
    }
}

#[test]
fn target_requires_configured_chap_accounts() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    tgt.lun(&target, 1, MIB);
    tgt.account(&target, "alice", "twelve-letters");
    tgt.own_account(&target, "bob", "also-twelve-of-them");
    let way_back = |password: &str| {
        let url = tgt.url("alice%twelve-letters", &target, 1);
        format!("{url}?target_user=bob&target_password={password}")
    };
    for (url, refusal) in [
        (tgt.url("", &target, 1), Some("Authentication failure")),
        (
            tgt.url("alice%wrong", &target, 1),
            Some("Authentication failure"),
        ),
        (tgt.url("alice%twelve-letters", &target, 1), None),
        (way_back("also-twelve-of-them"), None),
        (way_back("wrong"), Some("Invalid CHAP_R response")),
    ] {
        let (well, said) = tgt.client(&["iscsi-inq", &url]);
        assert_eq!(well, refusal.is_none(), "{url}: {said}");
        assert!(said.contains(refusal.unwrap_or_default()), "{url}: {said}");
    }
}

#[test]
fn written_data_is_in_backing_file() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    let file = tgt.lun(&target, 1, 64 * MIB);
    tgt.digests(&target);
    let url = tgt.url("", &target, 1);
    for test in ["ALL.Write10.Simple", "ALL.Read10.Simple"] {
        let (_, said) = tgt.client(&["iscsi-test-cu", "-d", "-f", "-t", test, &url]);
        assert!(said.contains("Simple ...passed"), "{said}");
    }
    assert_ne!(std::fs::read(&file).unwrap(), vec![0; 64 << 20]);
}

#[test]
fn write_protected_unit_is_not_written() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    let file = tgt.lun(&target, 1, 64 * MIB);
    tgt.read_only(&target, 1);
    let url = tgt.url("", &target, 1);
    let words = [
        "iscsi-test-cu",
        "-d",
        "-f",
        "-t",
        "ALL.Write10.Simple",
        &url,
    ];
    let (_, said) = tgt.client(&words);
    assert!(said.contains("WRITE_PROTECTED"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), vec![0; 64 << 20]);
}

#[test]
fn restarted_target_keeps_its_data() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    let file = tgt.lun(&target, 1, MIB);
    tgt.account(&target, "alice", "twelve-letters");
    let mut bytes = vec![0; 1 << 20];
    bytes[..512].fill(7);
    std::fs::write(&file, &bytes).unwrap();
    let url = tgt.url("alice%twelve-letters", &target, 1);
    tgt.kill();
    let (well, said) = tgt.client(&["iscsi-inq", &url]);
    assert!(!well, "no target is there: {said}");
    tgt.restart();
    let (well, said) = tgt.client(&["iscsi-inq", &url]);
    assert!(well, "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    assert_eq!(tgt.sessions(), 0, "{}", tgt.shown());
}

#[test]
fn target_is_removed_when_test_panics() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    let file = tgt.lun(&target, 1, MIB);
    let portal = tgt.portal();
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _tgt = tgt;
        std::panic::resume_unwind(Box::new("as a failing test would"));
    }));
    assert!(failed.is_err());
    assert!(!Path::new(file.parent().unwrap()).exists());
    assert!(std::net::TcpStream::connect(portal).is_err());
}
