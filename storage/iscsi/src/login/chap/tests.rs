//! CHAP: responses against values computed with another implementation, and malformed steps.

use super::*;

const SECRET: &str = "twelve bytes";

fn step(pairs: &[(&str, &str)]) -> ChapKeys {
    let mut said = ChapKeys::default();
    for (key, value) in pairs {
        assert!(said.store(key, value), "{key}");
    }
    said
}

fn exchange(mutual: bool) -> ChapExchange {
    let mutual = mutual.then(|| Chap::new("disk", "another one"));
    ChapExchange::new(Chap::new("host", SECRET), mutual, [9; CHALLENGE_LEN])
}

/// The reference values are those of Python's hashlib.
#[test]
fn chap_responses_equal_reference_values() {
    let challenge: Vec<u8> = (0..16).collect();
    let rows = [
        (Algorithm::Md5, "0x13d6679c461c9ba140ac8df45f128526"),
        (
            Algorithm::Sha1,
            "0x337138449f37c6ea866111071f42eb64fb85204c",
        ),
        (
            Algorithm::Sha256,
            "0x5a9071b020c72647ebdf65d440ed6dd6b2f808597a4fd31d7dbea9755bf79dc8",
        ),
    ];
    for (algorithm, expected) in rows {
        let got = algorithm.response(0x2a, &Secret::new(SECRET), &challenge);
        assert_eq!(text::hex(&got), expected, "{algorithm:?}");
    }
}

#[test]
fn the_strongest_algorithm_is_offered_first() {
    let mut text = Vec::new();
    ChapExchange::offer(&mut text);
    assert_eq!(text, b"CHAP_A=6,5,7\0");
}

#[test]
fn chap_answer_has_name_and_no_secret() {
    for mutual in [false, true] {
        let mut out = Vec::new();
        let said = step(&[
            ("CHAP_A", "5"),
            ("CHAP_I", "0x2a"),
            ("CHAP_C", "0bAAECAwQFBgcICQoLDA0ODw=="),
        ]);
        exchange(mutual).answer(&said, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("CHAP_N=host\0CHAP_R=0x13d6679c461c9ba140ac8df45f128526\0"),
            "{text}"
        );
        assert_eq!(text.contains("CHAP_I=9\0CHAP_C=0x0909"), mutual);
        assert!(!text.contains(SECRET));
    }
}

#[test]
fn malformed_challenges_are_refused() {
    let long = text::hex(&[1; MAX_BINARY + 1]);
    let rows: [([&str; 3], &str); 9] = [
        (["8", "1", "0x01"], "CHAP_A=8"),
        (["Reject", "1", "0x01"], "CHAP_A=Reject"),
        (["5,6", "1", "0x01"], "CHAP_A=5,6"),
        (["5", "256", "0x01"], "above 255"),
        (["5", "x", "0x01"], "CHAP_I"),
        (["5", "1", "0x"], "CHAP_C"),
        (["5", "1", "01"], "without 0x or 0b"),
        (["5", "1", "0b===="], "CHAP_C"),
        (["5", "1", &long], "1025 bytes"),
    ];
    for ([a, i, c], expected) in rows {
        let said = step(&[("CHAP_A", a), ("CHAP_I", i), ("CHAP_C", c)]);
        let error = exchange(false).answer(&said, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    for missing in ["CHAP_A", "CHAP_I", "CHAP_C"] {
        let all = [("CHAP_A", "5"), ("CHAP_I", "1"), ("CHAP_C", "0x01")];
        let rest: Vec<_> = all.into_iter().filter(|(k, _)| *k != missing).collect();
        let error = exchange(false).answer(&step(&rest), &mut Vec::new());
        assert_eq!(error, Err(ChapError::Missing { key: missing }));
    }
    let most = text::hex(&[1; MAX_BINARY]);
    let said = step(&[("CHAP_A", "7"), ("CHAP_I", "255"), ("CHAP_C", &most)]);
    assert_eq!(exchange(false).answer(&said, &mut Vec::new()), Ok(()));
}

#[test]
fn only_the_right_mutual_response_is_accepted() {
    let challenge = step(&[("CHAP_A", "7"), ("CHAP_I", "1"), ("CHAP_C", "0x01")]);
    let prove = |id: u8, secret: &str, change: usize| {
        let secret = Secret::new(secret);
        let mut proof = Algorithm::Sha256.response(id, &secret, &[9; CHALLENGE_LEN - 1]);
        proof.truncate(change);
        let mut exchange = exchange(true);
        exchange.answer(&challenge, &mut Vec::new()).unwrap();
        assert!(!exchange.is_done());
        let said = step(&[("CHAP_N", "disk"), ("CHAP_R", &text::hex(&proof))]);
        let judged = exchange.verify(&said);
        assert_eq!(exchange.is_done(), judged.is_ok());
        judged
    };
    assert_eq!(prove(9, "another one", 32), Ok(()));
    assert_eq!(prove(9, "another one", 31), Err(ChapError::WrongResponse));
    assert_eq!(prove(8, "another one", 32), Err(ChapError::WrongResponse));
    assert_eq!(prove(9, SECRET, 32), Err(ChapError::WrongResponse));
    // No challenge was exchanged yet.
    let said = step(&[("CHAP_N", "disk"), ("CHAP_R", "0x00")]);
    assert_eq!(
        exchange(true).verify(&said),
        Err(ChapError::NotAuthenticated)
    );
}

#[test]
fn debug_does_not_show_a_secret() {
    let shown = format!("{:?}", exchange(true));
    let numbers = format!("{:?}", SECRET.as_bytes());
    assert!(
        !shown.contains(SECRET) && !shown.contains(&numbers),
        "{shown}"
    );
    assert!(shown.contains("not shown"));
}
