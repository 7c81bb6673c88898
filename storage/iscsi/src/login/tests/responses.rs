//! Single responses: a table of operational keys, headers with wrong fields, and redirections.

use super::*;

/// The result of one operational answer, as text.
fn outcome(key: &str, value: &str) -> String {
    let mut login = login(offer());
    match login.handle_response(&agreeing(&login), &text_of(&[(key, value)])) {
        Ok(Progress::Done(LoginOutcome {
            terms,
            time2wait,
            time2retain,
            ..
        })) => match key {
            "HeaderDigest" => terms.header_digest.to_string(),
            "InitialR2T" => terms.initial_r2t.to_string(),
            "ImmediateData" => terms.immediate_data.to_string(),
            "MaxBurstLength" => format!("{} {}", terms.max_burst, terms.first_burst),
            "FirstBurstLength" => terms.first_burst.to_string(),
            "MaxOutstandingR2T" => terms.max_r2t.to_string(),
            "MaxRecvDataSegmentLength" => terms.max_send.to_string(),
            "DefaultTime2Wait" => time2wait.to_string(),
            "DefaultTime2Retain" => time2retain.to_string(),
            _ => "fine".into(),
        },
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            assert_eq!(
                login.handle_response(&response(&login), b""),
                Err(LoginError::Finished)
            );
            error.to_string()
        }
    }
}

#[test]
fn every_key_combines_by_its_rule() {
    let rows = [
        ("HeaderDigest", "None", "false"),
        ("HeaderDigest", "Reject", "false"),
        ("HeaderDigest", "CRC32C", "offer of None"),
        ("InitialR2T", "Yes", "true"),
        ("InitialR2T", "No", "false"),
        // Without an answer the default holds.
        ("InitialR2T", "NotUnderstood", "true"),
        ("InitialR2T", "yes", "should be Yes or No"),
        ("ImmediateData", "No", "false"),
        ("ImmediateData", "Irrelevant", "true"),
        ("MaxBurstLength", "4096", "4096 4096"),
        ("MaxBurstLength", "0x100000", "1048576 65536"),
        ("MaxBurstLength", "Reject", "262144 65536"),
        ("MaxBurstLength", "1048577", "does not allow"),
        (
            "MaxBurstLength",
            "511",
            "MaxBurstLength=511, which should be a number from 512",
        ),
        ("MaxBurstLength", "16777216", "should be a number from 512"),
        ("MaxBurstLength", "", "should be a number"),
        ("MaxBurstLength", "-1", "should be a number"),
        (
            "MaxBurstLength",
            "99999999999999999999999",
            "should be a number",
        ),
        ("FirstBurstLength", "262144", "262144"),
        ("FirstBurstLength", "512", "512"),
        ("MaxOutstandingR2T", "1", "1"),
        ("MaxOutstandingR2T", "0", "from 1 to 65535"),
        ("MaxOutstandingR2T", "2", "does not allow"),
        ("MaxConnections", "1", "fine"),
        ("MaxConnections", "2", "does not allow"),
        ("ErrorRecoveryLevel", "0", "fine"),
        ("ErrorRecoveryLevel", "1", "does not allow"),
        ("ErrorRecoveryLevel", "3", "from 0 to 2"),
        ("DataPDUInOrder", "Yes", "fine"),
        ("DataPDUInOrder", "No", "does not allow"),
        ("DataSequenceInOrder", "No", "does not allow"),
        ("DefaultTime2Wait", "3600", "3600"),
        ("DefaultTime2Wait", "1", "does not allow"),
        ("DefaultTime2Wait", "3601", "from 0 to 3600"),
        ("DefaultTime2Retain", "0", "0"),
        ("DefaultTime2Retain", "1", "does not allow"),
        ("MaxRecvDataSegmentLength", "512", "512"),
        ("MaxRecvDataSegmentLength", "16777215", "16777215"),
        ("MaxRecvDataSegmentLength", "NotUnderstood", "8192"),
        ("MaxRecvDataSegmentLength", "511", "from 512"),
        ("TargetPortalGroupTag", "65536", "from 0 to 65535"),
        ("InitiatorAlias", "NotUnderstood", "fine"),
        ("InitiatorName", "iqn.x", "may not send now"),
        ("AuthMethod", "None", "may not send now"),
        ("CHAP_A", "5", "may not send now"),
        ("X-unknown", "1", "fine"),
        ("RDMAExtensions", "Yes", "fine"),
        // The login ends with this response, so the answer cannot be sent any more.
        ("IFMarker", "Yes", "without an answer"),
    ];
    for (key, value, expected) in rows {
        let got = outcome(key, value);
        assert!(got.contains(expected), "{key}={value}: {got}");
    }
}

#[test]
fn a_key_is_negotiated_once() {
    let mut one = login(offer());
    let twice = text_of(&[("MaxBurstLength", "4096"), ("MaxBurstLength", "4096")]);
    let key = || "MaxBurstLength".to_owned();
    let repeated = Err(LoginError::Repeated { key: key() });
    assert_eq!(one.handle_response(&agreeing(&one), &twice), repeated);
    let mut one = login(offer());
    let once = text_of(&[("MaxBurstLength", "4096"), ("TargetAlias", "a")]);
    assert_eq!(
        one.handle_response(&response(&one), &once),
        Ok(Progress::Continue)
    );
    assert_eq!(one.handle_response(&agreeing(&one), &once), repeated);
}

/// Declarations are allowed in every stage, operational keys are not.
#[test]
fn security_stage_refuses_operational_keys() {
    let two_step = || {
        login(Offer {
            two_step: true,
            ..offer()
        })
    };
    let mut one = two_step();
    let max = text_of(&[("MaxRecvDataSegmentLength", "4096"), ("AuthMethod", "None")]);
    assert_eq!(
        one.handle_response(&agreeing(&one), &max),
        Ok(Progress::Continue)
    );
    let Ok(Progress::Done(settled)) = one.handle_response(&agreeing(&one), b"") else {
        panic!("not done");
    };
    assert_eq!(settled.terms.max_send, 4096);
    for key in ["InitialR2T", "HeaderDigest", "IFMarker"] {
        let mut one = two_step();
        let error = one
            .handle_response(&response(&one), &text_of(&[(key, "No")]))
            .unwrap_err();
        assert_eq!(error, LoginError::misplaced(key));
    }
}

#[test]
fn mismatched_response_headers_are_refused() {
    type Change = fn(&mut LoginResponse);
    let rows: [(Change, &str); 8] = [
        (|r| r.itt = 2, "task tag 0x2, expected 0x1"),
        (
            |r| r.isid[5] = 9,
            "ISID 0x80aabbcc0009, expected 0x80aabbcc0001",
        ),
        (|r| r.version_active = 1, "version 1"),
        (
            |r| r.csg = Stage::Security,
            "from stage security to full-feature",
        ),
        (
            |r| r.nsg = Some(Stage::Operational),
            "from stage operational to operational",
        ),
        (|r| r.nsg = Some(Stage::Unknown(2)), "unknown"),
        (|r| r.more = true, "which it was not asked to"),
        (|r| r.tsih = 0, "TSIH"),
    ];
    for (change, expected) in rows {
        let mut login = login(offer());
        let mut response = agreeing(&login);
        change(&mut response);
        let error = login.handle_response(&response, b"").unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.blame(), Blame::Target);
    }
}

/// The target may not make a stage transition that was not requested.
#[test]
fn target_cannot_skip_authentication() {
    let chap = Some(Chap::new("host", "a secret of ours"));
    let mut one = login(Offer { chap, ..offer() });
    let rush = LoginResponse {
        nsg: Some(Stage::Operational),
        ..response(&one)
    };
    assert!(matches!(
        one.handle_response(&rush, b""),
        Err(LoginError::Stage { .. })
    ));
}

#[test]
fn misplaced_chap_keys_are_refused() {
    let chap = || Some(Chap::new("host", "a secret of ours"));
    let begin = || {
        login(Offer {
            chap: chap(),
            ..offer()
        })
    };
    let steps: [&[(&str, &str)]; 5] = [
        &[("CHAP_A", "5"), ("CHAP_I", "1"), ("CHAP_C", "0x00")],
        &[("AuthMethod", "CHAP"), ("CHAP_A", "5")],
        &[
            ("AuthMethod", "CHAP"),
            ("CHAP_N", "disk"),
            ("CHAP_R", "0x00"),
        ],
        &[("AuthMethod", "CHAP"), ("CHAP_X", "0x00")],
        &[("AuthMethod", "None"), ("CHAP_R", "0x00")],
    ];
    for step in steps {
        let mut login = begin();
        let error = login
            .handle_response(&response(&login), &text_of(step))
            .unwrap_err();
        assert!(
            matches!(error, LoginError::Misplaced { .. }),
            "{step:?}: {error}"
        );
    }
    // A CHAP response that was not requested.
    let mut login = begin();
    for step in [&[("AuthMethod", "CHAP")][..], steps[0]] {
        assert_eq!(
            login.handle_response(&response(&login), &text_of(step)),
            Ok(Progress::Continue)
        );
    }
    let error = login.handle_response(&agreeing(&login), &text_of(&[("CHAP_N", "disk")]));
    assert!(
        matches!(error, Err(LoginError::Misplaced { .. })),
        "{error:?}"
    );
}

#[test]
fn redirection_reports_the_new_address() {
    let rows = [
        (0x0101, "10.1.2.3:3261", Some(("10.1.2.3", 3261, false))),
        (0x0102, "[2001:db8::7]", Some(("2001:db8::7", 3260, true))),
        (0x0101, "", None),
        (0x0101, "nowhere at all", None),
    ];
    for (status, address, expected) in rows {
        let mut login = login(offer());
        let status = LoginStatus::from_code(status);
        let response = LoginResponse {
            status,
            ..response(&login)
        };
        let got = login.handle_response(&response, &text_of(&[("TargetAddress", address)]));
        match (got, expected) {
            (Ok(Progress::Redirected { address, permanent }), Some(expected)) => {
                assert_eq!((address.host.as_str(), address.port, permanent), expected);
            }
            (Err(LoginError::NoAddress { .. }), None) => {}
            (got, _) => panic!("{address}: {got:?}"),
        }
    }
}

#[test]
fn malformed_text_blames_the_target() {
    for data in [&b"MaxBurstLength=1"[..], b"=1\0", b"no pair\0", b"\xff=1\0"] {
        let mut login = login(offer());
        let error = login.handle_response(&response(&login), data).unwrap_err();
        assert!(matches!(error, LoginError::Text(_)), "{error}");
        assert_eq!(error.blame(), Blame::Target);
    }
}
