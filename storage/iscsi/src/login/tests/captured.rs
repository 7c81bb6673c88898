//! A login into a real target (tgt): headers and the first text as recorded, the second text made from the keys that it answers.

use verbena_storage_wire::iscsi::Bhs;

use super::*;

fn bhs(hex: &str) -> Bhs {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    let mut bhs = [0; 48];
    for (byte, pair) in bhs.iter_mut().zip(digits.chunks(2)) {
        *byte = (pair[0] << 4 | pair[1]) as u8;
    }
    bhs
}

const SECURITY: &str =
    "23810000 00000027 80aabbcc00010000 00000001 00000000 00000000 00000001 00000002";
const OPERATIONAL: &str =
    "23870000 000000fd 80aabbcc00010300 00000001 00000000 00000001 00000001 00000002";
/// Not recorded: one answer to each offered key.
const KEYS: &[(&str, &str)] = &[
    ("HeaderDigest", "None"),
    ("DataDigest", "None"),
    ("InitialR2T", "No"),
    ("ImmediateData", "Yes"),
    ("MaxBurstLength", "262144"),
    ("FirstBurstLength", "65536"),
    ("MaxOutstandingR2T", "1"),
    ("MaxConnections", "1"),
    ("ErrorRecoveryLevel", "0"),
    ("DefaultTime2Wait", "2"),
    ("DefaultTime2Retain", "0"),
    ("DataPDUInOrder", "Yes"),
    ("DataSequenceInOrder", "Yes"),
];

#[test]
fn recorded_login_into_tgt_succeeds() {
    let mut login = login(Offer {
        two_step: true,
        ..offer()
    });
    let (request, text) = login.next();
    let sent = LoginRequest {
        cmd_sn: 1,
        ..request
    }
    .emit();
    let mut seen = bhs("43810000 00000078 80aabbcc00010000 00000001 00000000 00000001 00000000");
    seen[7] = text.len() as u8;
    assert_eq!(sent, seen, "as seen, but for the length of the names");
    let response = LoginResponse::parse(&bhs(SECURITY)).unwrap();
    let data = b"TargetPortalGroupTag=1\0AuthMethod=None\0";
    assert_eq!(data.len(), response.data_len as usize);
    assert_eq!(
        login.handle_response(&response, data),
        Ok(Progress::Continue)
    );
    let (request, text) = login.next();
    assert_eq!(request.emit()[..2], [0x43, 0x87]);
    let expected = "DefaultTime2Wait=2 DefaultTime2Retain=0 ";
    assert!(line(&text).contains(expected), "{}", line(&text));
    let response = LoginResponse::parse(&bhs(OPERATIONAL)).unwrap();
    let Ok(Progress::Done(settled)) = login.handle_response(&response, &text_of(KEYS)) else {
        panic!("not done");
    };
    assert_eq!((settled.tsih, settled.portal_group), (0x300, Some(1)));
    // The target does not declare a value that equals the default.
    assert_eq!(settled.terms.max_send, 8192);
    let end = login.handle_response(&response, b"");
    assert_eq!(end, Err(LoginError::Finished));
}
