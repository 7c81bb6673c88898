//! Errors: the party at fault for every status, and the limit on a peer's text that an error repeats.

use super::*;

#[test]
fn every_login_status_has_its_blame() {
    let rows = [
        (0x0200, Blame::Offer, "see its log"),
        (0x0201, Blame::Offer, "secret is wrong"),
        (0x0202, Blame::Offer, "does not allow"),
        (0x0203, Blame::Offer, "no target of that name"),
        (0x0204, Blame::Offer, "removed"),
        (0x0205, Blame::Neither, "version 0"),
        (0x0206, Blame::Resources, "no more connections"),
        (0x0207, Blame::Offer, "key is missing"),
        (0x0208, Blame::Resources, "no more connections"),
        (0x0209, Blame::Offer, "type of session"),
        (0x020a, Blame::Offer, "see its log"),
        (0x020b, Blame::Offer, "see its log"),
        (0x0277, Blame::Offer, "initiator error with an unknown code"),
        (0x0300, Blame::Target, "internal error"),
        (0x0301, Blame::Resources, "is unavailable"),
        (0x0302, Blame::Resources, "out of resources"),
        (0x0377, Blame::Target, "target error with an unknown code"),
        (0x0103, Blame::Target, "target error with an unknown code"),
        (0xff00, Blame::Target, "target error with an unknown code"),
    ];
    for (code, blame, words) in rows {
        let error = LoginError::refused(LoginStatus::from_code(code), true);
        assert_eq!(error.blame(), blame, "{code:#06x}");
        assert!(error.to_string().contains(words), "{code:#06x}: {error}");
    }
    let bare = LoginError::refused(LoginStatus::AuthenticationFailed, false);
    assert!(bare.to_string().contains("give a user name"), "{bare}");
}

#[test]
fn long_value_is_truncated_and_escaped() {
    let error = LoginError::value("Key", &"\n\u{1b}é".repeat(500), "short");
    let text = error.to_string();
    assert!(text.chars().count() < 600, "{text}");
    assert!(!text.contains(char::is_control), "{text}");
}
