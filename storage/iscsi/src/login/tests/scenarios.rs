//! Complete logins against the scripted target, in one and in two stages.

use super::super::chap::Algorithm;
use super::target::Target;
use super::*;
use crate::Terms;

fn done(progress: Result<Progress, LoginError>) -> LoginOutcome {
    match progress {
        Ok(Progress::Done(settled)) => settled,
        other => panic!("{other:?}"),
    }
}

fn own() -> Chap {
    Chap::new("host", "a secret of ours")
}

fn theirs() -> Chap {
    Chap::new("disk", "a secret of theirs")
}

#[test]
fn login_without_credentials_takes_one_exchange() {
    let mut target = Target::default();
    let settled = done(target.run(&mut login(offer())));
    assert_eq!(target.exchanges, 1);
    let expected = LoginOutcome {
        terms: Terms {
            max_recv: 262_144,
            initial_r2t: false,
            ..Terms::DEFAULT
        },
        iser: None,
        tsih: 7,
        target_alias: Some("the disk".into()),
        portal_group: Some(1),
        time2wait: 5,
        time2retain: 0,
        authentication: Authentication::None,
    };
    assert_eq!(settled, expected);
}

#[test]
fn two_step_login_takes_two_exchanges() {
    let mut target = Target::default();
    let two_step = true;
    let settled = done(target.run(&mut login(Offer {
        two_step,
        ..offer()
    })));
    assert_eq!(target.exchanges, 2);
    assert_eq!(target.received_value("AuthMethod"), Some("None"));
    assert_eq!(settled.terms.max_burst, 262_144);
}

/// Every algorithm, hex and base64, one-way and mutual, with text split every few bytes.
#[test]
fn chap_succeeds_in_every_form() {
    for algorithm in Algorithm::ALL {
        for base64 in [false, true] {
            for mutual in [None, Some(theirs())] {
                for cut in [11, 100, 8192] {
                    let mut target = Target {
                        account: Some(own()),
                        own: Some(theirs()),
                        algorithm,
                        base64,
                        chunk_len: cut,
                        ..Target::default()
                    };
                    let proof = match mutual {
                        Some(_) => Authentication::Mutual,
                        None => Authentication::Initiator,
                    };
                    let offer = Offer {
                        chap: Some(own()),
                        mutual: mutual.clone(),
                        ..offer()
                    };
                    let settled = done(target.run(&mut login(offer)));
                    assert_eq!(settled.authentication, proof, "{algorithm:?}");
                    assert_eq!(settled.terms.first_burst, 65536);
                }
            }
        }
    }
}

#[test]
fn target_without_accounts_may_skip_one_way_chap() {
    let chap = Some(own());
    let settled = done(Target::default().run(&mut login(Offer { chap, ..offer() })));
    assert_eq!(settled.authentication, Authentication::None);
}

#[test]
fn mutual_chap_cannot_be_skipped() {
    let (chap, mutual) = (Some(own()), Some(theirs()));
    let offer = Offer {
        chap,
        mutual,
        ..offer()
    };
    let error = Target::default().run(&mut login(offer)).unwrap_err();
    let (offered, got) = ("CHAP", "Reject".into());
    assert_eq!(error, LoginError::NoMethod { offered, got });
    assert_eq!(error.blame(), Blame::Neither);
}

#[test]
fn wrong_secret_blames_the_offer() {
    for wrong in [
        Chap::new("host", "mistyped"),
        Chap::new("hos", "a secret of ours"),
    ] {
        let mut target = Target {
            account: Some(own()),
            ..Target::default()
        };
        let chap = Some(wrong);
        let error = target
            .run(&mut login(Offer { chap, ..offer() }))
            .unwrap_err();
        assert_eq!(error.blame(), Blame::Offer);
        assert!(error.to_string().contains("secret is wrong"), "{error}");
    }
}

#[test]
fn missing_credentials_are_reported_in_both_forms() {
    for two_step in [false, true] {
        let account = Some(own());
        let mut target = Target {
            account,
            ..Target::default()
        };
        let error = target
            .run(&mut login(Offer {
                two_step,
                ..offer()
            }))
            .unwrap_err();
        let words = if two_step {
            "no common auth"
        } else {
            "give a user name"
        };
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn wrong_mutual_chap_response_is_refused() {
    let rows = [
        (
            Some(Chap::new("disk", "mistyped")),
            ChapError::WrongResponse,
        ),
        // A peer that has only our secret, as one that reflects our response would.
        (
            Some(Chap::new("disk", "a secret of ours")),
            ChapError::WrongResponse,
        ),
        (
            Some(Chap::new("dusk", "a secret of theirs")),
            ChapError::Name { got: "dusk".into() },
        ),
        (None, ChapError::NotAuthenticated),
    ];
    for (says, expected) in rows {
        let mut target = Target {
            account: Some(own()),
            own: says,
            ..Target::default()
        };
        let (chap, mutual) = (Some(own()), Some(theirs()));
        let mut login = login(Offer {
            chap,
            mutual,
            ..offer()
        });
        assert_eq!(target.run(&mut login), Err(expected.into()));
    }
}

/// RFC 7143 §9.2.1.
#[test]
fn reflected_challenge_is_not_answered() {
    let mut target = Target {
        account: Some(own()),
        own: Some(theirs()),
        challenge: vec![0x5a; CHALLENGE_LEN - 1],
        ..Target::default()
    };
    let (chap, mutual) = (Some(own()), Some(theirs()));
    let mut login = login(Offer {
        chap,
        mutual,
        ..offer()
    });
    assert_eq!(target.run(&mut login), Err(ChapError::Reflected.into()));
    assert_eq!(target.received_value("CHAP_R"), None);
}

#[test]
fn digest_wishes_decide_the_digests() {
    use DigestPreference::{Accepted, None as No, Preferred, Required};
    for (wish, digests, expected) in [
        (No, true, Some(false)),
        (No, false, Some(false)),
        (Accepted, true, Some(false)),
        (Accepted, false, Some(false)),
        (Preferred, true, Some(true)),
        (Preferred, false, Some(false)),
        (Required, true, Some(true)),
        (Required, false, None),
    ] {
        let offer = Offer {
            header_digest: wish,
            data_digest: wish,
            ..offer()
        };
        let mut target = Target {
            digests,
            ..Target::default()
        };
        match (target.run(&mut login(offer)), expected) {
            (Ok(Progress::Done(LoginOutcome { terms, .. })), Some(agreed)) => {
                assert_eq!((terms.header_digest, terms.data_digest), (agreed, agreed));
            }
            (Err(error), None) => {
                assert_eq!(
                    error,
                    LoginError::NoDigest {
                        key: "HeaderDigest"
                    }
                );
            }
            (other, _) => panic!("{wish:?} {digests}: {other:?}"),
        }
    }
}

/// An initiator that accepts digests gets them from a target that requires them; one that does not offer them is rejected.
#[test]
fn target_can_require_accepted_digests() {
    for (wish, good) in [
        (DigestPreference::Accepted, true),
        (DigestPreference::Preferred, true),
        (DigestPreference::None, false),
    ] {
        let offer = Offer {
            header_digest: wish,
            data_digest: wish,
            ..offer()
        };
        let mut target = Target {
            requires_digests: true,
            ..Target::default()
        };
        let ended = target.run(&mut login(offer));
        let agreed = match ended {
            Ok(Progress::Done(LoginOutcome { terms, .. })) => {
                terms.header_digest && terms.data_digest
            }
            _ => false,
        };
        assert_eq!(agreed, good, "{wish:?}");
    }
}

#[test]
fn iser_is_negotiated_or_the_login_fails() {
    let iser = Some(IserOffer::default());
    let offer = Offer {
        iser,
        header_digest: DigestPreference::Preferred,
        ..offer()
    };
    let asks = vec![
        ("MaxOutstandingUnexpectedPDUs", "16"),
        ("MaxAHSLength", "64"),
    ];
    let mut target = Target {
        offers: asks,
        ..Target::default()
    };
    let settled = done(target.run(&mut login(offer.clone())));
    assert_eq!(
        target.received[3].0, "RDMAExtensions",
        "before all that depends on it"
    );
    assert_eq!(target.received_value("HeaderDigest"), Some("None"));
    assert_eq!(target.received_value("MaxRecvDataSegmentLength"), None);
    let expected = IserTerms {
        max_recv: 8192,
        max_send: 65536,
        unexpected_in: 64,
        unexpected_out: 16,
        max_ahs: 64,
    };
    assert_eq!(settled.iser, Some(expected));
    assert_eq!(
        (settled.terms.max_recv, settled.terms.max_send),
        (8192, 65536)
    );
    let mut target = Target {
        iser: false,
        ..Target::default()
    };
    assert_eq!(target.run(&mut login(offer)), Err(LoginError::NoIser));
}

#[test]
fn discovery_login_sends_only_relevant_keys() {
    let offer = Offer {
        purpose: Purpose::Discovery,
        iser: Some(IserOffer::default()),
        ..offer()
    };
    let mut target = Target::default();
    let settled = done(target.run(&mut login(offer)));
    assert_eq!(target.received_value("SessionType"), Some("Discovery"));
    for absent in [
        "TargetName",
        "MaxBurstLength",
        "InitialR2T",
        "RDMAExtensions",
    ] {
        assert_eq!(target.received_value(absent), None, "{absent}");
    }
    assert_eq!((settled.iser, settled.terms.max_recv), (None, 262_144));
}

#[test]
fn keys_offered_by_the_target_are_answered() {
    let asks = vec![
        ("MaxRecvDataSegmentLength", "131072"),
        ("X-org.example.colour", "green"),
        ("X#Odd", "NotUnderstood"),
        ("IFMarker", "No"),
        ("TaskReporting", "FastAbort,RFC3720"),
        ("iSCSIProtocolLevel", "2"),
        ("MaxConnections", "4"),
    ];
    let purpose = Purpose::Discovery;
    let mut target = Target {
        offers: asks,
        chunk_len: 9,
        ..Target::default()
    };
    let settled = done(target.run(&mut login(Offer { purpose, ..offer() })));
    assert_eq!(settled.terms.max_send, 131_072);
    let answers = [
        ("X-org.example.colour", Some("NotUnderstood")),
        ("X#Odd", None),
        ("IFMarker", Some("Reject")),
        ("TaskReporting", Some("RFC3720")),
        ("iSCSIProtocolLevel", Some("1")),
        ("MaxConnections", Some("1")),
    ];
    for (key, answer) in answers {
        assert_eq!(target.received_value(key), answer, "{key}");
    }
}

/// Our names fit one PDU, so text of ours that spans PDUs takes many answers to the target's offers.
#[test]
fn long_answers_span_several_requests() {
    let mut login = login(offer());
    let mut asks = Vec::new();
    for i in 0..400 {
        text::push(
            &mut asks,
            &format!("X-org.example.a-key-of-some-length-{i}"),
            "?",
        );
    }
    assert_eq!(
        login.handle_response(&response(&login), &asks),
        Ok(Progress::Continue)
    );
    let mut sent = Vec::new();
    loop {
        let (request, text) = login.next();
        sent.extend_from_slice(&text);
        assert_eq!(request.nsg.is_none(), request.more, "T only with the end");
        if !request.more {
            break;
        }
        assert_eq!(text.len(), 8192);
        assert_eq!(
            login.handle_response(&response(&login), b""),
            Ok(Progress::Continue)
        );
    }
    let answers = text::Pairs::new(&sent).map(Result::unwrap);
    assert_eq!(answers.filter(|(_, v)| *v == "NotUnderstood").count(), 400);
    done(login.handle_response(&agreeing(&login), b""));
}

#[test]
fn debug_of_a_login_shows_no_secret() {
    let (chap, mutual) = (Some(own()), Some(theirs()));
    let login = login(Offer {
        chap,
        mutual,
        ..offer()
    });
    let shown = format!("{login:?}");
    assert!(!shown.contains("a secret of"), "{shown}");
    let bytes = format!("{:?}", b"a secret of ours");
    assert!(!shown.contains(bytes.trim_matches(['[', ']'])), "{shown}");
}
