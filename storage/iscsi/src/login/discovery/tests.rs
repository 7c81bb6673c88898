//! Answers to SendTargets: recorded ones, split over several responses, over the limits, and of random bytes.

use proptest::prelude::*;

use super::*;

const TAG: u32 = 9;

fn response(is_final: bool, more: bool, ttt: u32) -> TextResponse {
    TextResponse {
        is_final,
        more,
        data_len: 0,
        lun: Lun::default(),
        itt: TAG,
        ttt,
        stat_sn: 0,
        window: Default::default(),
    }
}

fn last() -> TextResponse {
    response(true, false, NO_TAG)
}

fn ask(text: &[u8]) -> Result<Vec<TargetRecord>, DiscoveryError> {
    match Discovery::new(TAG).handle_response(&last(), text)? {
        DiscoveryProgress::Done(records) => Ok(records),
        DiscoveryProgress::Continue => panic!("it was the last response"),
    }
}

#[test]
fn recorded_send_targets_exchange_is_parsed() {
    let discovery = Discovery::new(TAG);
    let (request, text) = discovery.next();
    assert_eq!(text, b"SendTargets=All\0");
    let bhs = request.emit();
    assert_eq!(bhs[..8], [0x04, 0x80, 0, 0, 0, 0, 0, 0x10]);
    assert_eq!(bhs[16..24], [0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff]);
    let records = ask(b"TargetName=iqn.x:disk\0TargetAddress=127.0.0.1:13260,1\0").unwrap();
    let [record] = &records[..] else {
        panic!("{records:?}")
    };
    assert_eq!(record.name, "iqn.x:disk");
    assert_eq!(record.addresses[0].to_string(), "127.0.0.1:13260,1");
}

#[test]
fn target_records_merge_and_skip_unknown_keys() {
    let text =
        b"TargetName=a\0TargetName=b\0TargetAddress=h,1\0TargetAddress=[::1]:5,2\0TargetAlias=x\0\
                 TargetName=a\0TargetAddress=i,1\0TargetAddress=i,1\0X-y=z\0";
    let shown: Vec<String> = ask(text)
        .unwrap()
        .iter()
        .map(|r| {
            format!(
                "{} {:?}",
                r.name,
                r.addresses
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
            )
        })
        .collect();
    assert_eq!(
        shown,
        ["a [\"i:3260,1\"]", "b [\"h:3260,1\", \"[::1]:5,2\"]"]
    );
    assert_eq!(ask(b""), Ok(Vec::new()));
}

#[test]
fn split_answers_give_the_same_records() {
    let text = b"TargetName=iqn.x:disk\0TargetAddress=127.0.0.1:13260,1\0TargetName=iqn.y\0";
    let whole = ask(text).unwrap();
    for size in 1..text.len() {
        let mut discovery = Discovery::new(TAG);
        let pieces: Vec<&[u8]> = text.chunks(size).collect();
        for (at, piece) in pieces.iter().enumerate() {
            let (request, question) = discovery.next();
            assert_eq!(question.is_empty(), at > 0);
            assert_eq!(
                request.ttt,
                if at > 0 { 100 + at as u32 - 1 } else { NO_TAG }
            );
            let found = if at + 1 == pieces.len() {
                discovery.handle_response(&last(), piece)
            } else {
                // With C set, or with neither C nor F: the answer continues either way.
                discovery.handle_response(&response(false, at % 2 == 0, 100 + at as u32), piece)
            };
            match found.unwrap() {
                DiscoveryProgress::Continue => assert!(at + 1 < pieces.len()),
                DiscoveryProgress::Done(records) => assert_eq!(records, whole),
            }
        }
        assert_eq!(
            discovery.handle_response(&last(), b""),
            Err(DiscoveryError::Finished)
        );
    }
}

#[test]
fn malformed_send_targets_answers_are_refused() {
    let rows: [(&[u8], &str); 8] = [
        (b"TargetAddress=h,1\0", "before any target name"),
        (b"TargetName=a\0TargetAddress=h:x\0", "not a valid address"),
        (b"TargetName=\0", "not a valid target name"),
        (b"TargetName=a b\0", "not a valid target name"),
        (b"TargetName=a", "cannot be read"),
        (b"TargetName\0", "cannot be read"),
        (
            b"SendTargets=Reject\0",
            "does not answer SendTargets: Reject",
        ),
        (b"SendTargets=NotUnderstood\0", "NotUnderstood"),
    ];
    for (text, expected) in rows {
        let error = ask(text).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let mut discovery = Discovery::new(TAG);
    let unrelated = TextResponse { itt: 8, ..last() };
    let (expected, got) = (TAG, 8);
    assert_eq!(
        discovery.handle_response(&unrelated, b""),
        Err(DiscoveryError::Task { expected, got })
    );
    let endless = Discovery::new(TAG).handle_response(&response(false, true, NO_TAG), b"");
    assert_eq!(endless, Err(DiscoveryError::NoTag));
}

#[test]
fn discovery_limits_are_enforced() {
    let more = response(false, true, 1);
    let too_much = |found, what| match found {
        Err(DiscoveryError::TooMuch { what: got, .. }) => assert_eq!(got, what),
        other => panic!("{other:?}"),
    };
    let mut discovery = Discovery::new(TAG);
    assert_eq!(
        discovery.handle_response(&more, &vec![b'a'; MAX_RESPONSE_LEN]),
        Ok(DiscoveryProgress::Continue)
    );
    too_much(discovery.handle_response(&more, b"a"), "bytes");
    let mut discovery = Discovery::new(TAG);
    for _ in 0..MAX_RESPONSES {
        assert_eq!(
            discovery.handle_response(&more, b""),
            Ok(DiscoveryProgress::Continue)
        );
    }
    too_much(discovery.handle_response(&more, b""), "responses");
    let targets = |n: usize| {
        (0..n)
            .map(|i| format!("TargetName=t{i}\0"))
            .collect::<String>()
    };
    assert_eq!(
        ask(targets(MAX_TARGETS).as_bytes()).unwrap().len(),
        MAX_TARGETS
    );
    too_much(
        ask(targets(MAX_TARGETS + 1).as_bytes()).map(DiscoveryProgress::Done),
        "targets",
    );
    let portals = |n: usize| {
        (0..n)
            .map(|i| format!("TargetAddress=h,{i}\0"))
            .collect::<String>()
    };
    let with = |n| format!("TargetName=a\0{}", portals(n));
    assert!(ask(with(MAX_PORTALS).as_bytes()).is_ok());
    too_much(
        ask(with(MAX_PORTALS + 1).as_bytes()).map(DiscoveryProgress::Done),
        "portals of a target",
    );
}

proptest! {
    #[test]
    fn random_answers_never_panic(bytes: Vec<u8>, text in "((TargetName|TargetAddress|SendTargets)=[a-z0-9:.,\\[\\]]{0,9}\0){0,9}") {
        for answer in [&bytes[..], text.as_bytes()] {
            match ask(answer) {
                Ok(records) => prop_assert!(records.iter().all(|r| !r.name.is_empty())),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
