//! A target that sends random responses: every login ends, without a panic.

use proptest::prelude::*;

use super::*;

const KEYS: &[&str] = &[
    "AuthMethod",
    "CHAP_A",
    "CHAP_I",
    "CHAP_C",
    "CHAP_N",
    "CHAP_R",
    "HeaderDigest",
    "InitialR2T",
    "MaxBurstLength",
    "MaxRecvDataSegmentLength",
    "RDMAExtensions",
    "TargetAlias",
    "TargetAddress",
    "TaskReporting",
    "MaxOutstandingUnexpectedPDUs",
    "X-any",
];
const VALUES: &[&str] = &[
    "None",
    "CHAP",
    "5",
    "7",
    "0x00",
    "0b",
    "0bAAAA",
    "Yes",
    "No",
    "CRC32C",
    "CRC32C,None",
    "NotUnderstood",
    "Reject",
    "Irrelevant",
    "4096",
    "18446744073709551616",
    "",
    "a,b,c",
];

fn text() -> impl Strategy<Value = Vec<u8>> {
    let pair = (0..KEYS.len(), 0..VALUES.len());
    let pairs = prop::collection::vec(pair, 0..6).prop_map(|pairs| {
        text_of(
            &pairs
                .iter()
                .map(|(k, v)| (KEYS[*k], VALUES[*v]))
                .collect::<Vec<_>>(),
        )
    });
    prop_oneof![4 => pairs, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

fn offers() -> impl Strategy<Value = Offer> {
    (any::<[bool; 4]>(), 0..4usize).prop_map(|([chap, mutual, iser, two_step], wish)| Offer {
        chap: chap.then(|| Chap::new("host", "ours")),
        mutual: (chap && mutual).then(|| Chap::new("disk", "theirs")),
        iser: iser.then(IserOffer::default),
        two_step,
        header_digest: [
            DigestPreference::None,
            DigestPreference::Accepted,
            DigestPreference::Preferred,
            DigestPreference::Required,
        ][if iser { 0 } else { wish }],
        ..offer()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn random_targets_cannot_prolong_a_login(
        offer in offers(),
        script in prop::collection::vec((text(), any::<bool>(), any::<bool>()), 1..80),
    ) {
        let wanted = offer.clone();
        let mut login = login(offer);
        let mut steps = 0;
        for (text, more, agree) in script.iter().cycle() {
            let response = LoginResponse {
                more: *more && !*agree,
                ..if *agree { agreeing(&login) } else { response(&login) }
            };
            steps += 1;
            match login.handle_response(&response, text) {
                Ok(Progress::Continue) => prop_assert!(steps <= MAX_EXCHANGES),
                Ok(Progress::Done(settled)) => {
                    prop_assert!(settled.terms.first_burst <= settled.terms.max_burst);
                    prop_assert!(settled.terms.max_burst <= wanted.max_burst);
                    prop_assert!(wanted.mutual.is_none(), "a proof cannot be guessed");
                    let required = wanted.header_digest == DigestPreference::Required;
                    prop_assert!(settled.terms.header_digest || !required);
                    prop_assert_eq!(settled.iser.is_some(), wanted.iser.is_some());
                    break;
                }
                Ok(Progress::Redirected { .. }) => break,
                Err(error) => {
                    prop_assert!(!error.to_string().contains(char::is_control));
                    break;
                }
            }
        }
    }
}
