//! Negotiation at login: digests and authentication.

use verbena_storage::session::Options;

use crate::target::{Carrier, Tgt};
use crate::tool::{Folder, bytes, iscsi, open, random_bytes};

const MIB: u64 = 1 << 20;

#[test]
fn required_digests_are_negotiated_and_used() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let folder = Folder::new("digests");
    let data = random_bytes(2_345_678, 5);
    let input = folder.with("input", &data);
    for (header, payload) in [(true, false), (false, true), (true, true)] {
        let target = tgt.target();
        let file = tgt.lun(&target, 1, 4 * MIB);
        let name = |on| if on { "CRC32C" } else { "None" };
        tgt.set(&target, "HeaderDigest", name(header));
        tgt.set(&target, "DataDigest", name(payload));
        let (h, d) = (name(header).to_lowercase(), name(payload).to_lowercase());
        let url = format!(
            "{}?header_digest={h}&data_digest={d}",
            tgt.url("", &target, 1)
        );
        // Without digests in the address, those that the target requires apply.
        let mut unit = open(&tgt.url("", &target, 1), Options::default());
        let terms = unit.session().settled().terms;
        assert_eq!((terms.header_digest, terms.data_digest), (header, payload));
        unit.close().unwrap();
        let mut unit = open(&url, Options::default());
        let settled = unit.session().settled();
        assert_eq!(
            (settled.terms.header_digest, settled.terms.data_digest),
            (header, payload)
        );
        unit.close().unwrap();
        for size in ["512", "64k", "1m"] {
            let words = [
                "write", &url, "--offset", "99", "--input", &input, "--verify",
            ];
            iscsi(&[&words[..], &["--size", size]].concat()).expect_success();
        }
        assert!(
            bytes(&file)[99..99 + data.len()] == data[..],
            "the disk differs"
        );
    }
    // An initiator that requires them does not accept a target without them.
    let target = tgt.target();
    tgt.lun(&target, 1, MIB);
    let url = format!("{}?data_digest=crc32c", tgt.url("", &target, 1));
    let sentence = iscsi(&["capacity", &url]).expect_error();
    assert!(
        sentence.contains("DataDigest=CRC32C is required and the target refuses it"),
        "{sentence}"
    );
}

#[test]
fn chap_authenticates_initiator_and_target() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    tgt.lun(&target, 1, MIB);
    tgt.account(&target, "alice", "twelve-letters");
    tgt.own_account(&target, "bob", "also-twelve-of-them");
    let alice = tgt.url("alice%twelve-letters", &target, 1);
    let back = |password| format!("{alice}?target_user=bob&target_password={password}");
    iscsi(&["capacity", &alice]).expect_success();
    iscsi(&["capacity", &back("also-twelve-of-them")]).expect_success();
    let refused = [
        tgt.url("", &target, 1),
        tgt.url("alice%twelve-lettres", &target, 1),
        tgt.url("mallory%twelve-letters", &target, 1),
        back("something-else-here"),
        format!("{alice}?target_user=eve&target_password=also-twelve-of-them"),
    ];
    for url in refused {
        let sentence = iscsi(&["capacity", &url]).expect_error();
        assert!(
            sentence.starts_with("logging in at iscsi://127."),
            "{url}: {sentence}"
        );
        for secret in ["twelve-l", "also-twelve", "something-else"] {
            assert!(
                !sentence.contains(secret),
                "a password is shown: {sentence}"
            );
        }
    }
    assert_eq!(tgt.sessions(), 0, "{}", tgt.shown());
}
