//! Seeds of the target `login`: the responses of conforming targets, in the input layout of that target.
//! Each is a whole login or discovery; mutation derives others from them.

use verbena_iscsi::login::Secret;
use verbena_iscsi::login::chap::Algorithm;
use verbena_storage_wire::iscsi::text;

use crate::Seed;

const STAY: u8 = 0;
const LEAVE: u8 = 1;
const MORE: u8 = 2;
const MOVED: u8 = 4;

/// Flags, length and pairs of one response.
fn step(flags: u8, pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in pairs {
        text::push(&mut text, key, value);
    }
    raw(flags, &text)
}

fn raw(flags: u8, text: &[u8]) -> Vec<u8> {
    let len = (text.len() as u16).to_be_bytes();
    [&[flags][..], &len, text].concat()
}

fn script(switches: u8, steps: &[Vec<u8>]) -> Vec<u8> {
    [&[switches][..], &steps.concat()].concat()
}

fn keys() -> Vec<u8> {
    let pairs = [
        ("HeaderDigest", "None"),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("MaxBurstLength", "262144"),
        ("FirstBurstLength", "65536"),
        ("MaxRecvDataSegmentLength", "65536"),
        ("DefaultTime2Wait", "2"),
    ];
    step(LEAVE, &pairs)
}

pub(crate) fn logins() -> Vec<Seed> {
    let chosen = step(
        STAY,
        &[("TargetPortalGroupTag", "1"), ("AuthMethod", "CHAP")],
    );
    let challenge = step(
        STAY,
        &[("CHAP_A", "5"), ("CHAP_I", "1"), ("CHAP_C", "0x0102")],
    );
    let proof = Algorithm::Md5.response(0x5a, &Secret::new("theirs"), &[0x5a; 32]);
    let proof = step(LEAVE, &[("CHAP_N", "disk"), ("CHAP_R", &text::hex(&proof))]);
    let accepted = raw(LEAVE, b"");
    let none = step(LEAVE, &[("AuthMethod", "None")]);
    let asks = [
        ("X-any", "1"),
        ("IFMarker", "No"),
        ("TaskReporting", "RFC3720"),
    ];
    let asks = step(STAY, &asks);
    let cut = [
        raw(MORE, b"MaxBurst"),
        raw(STAY, b"Length=512\0"),
        raw(LEAVE, b""),
    ];
    let moved = step(MOVED, &[("TargetAddress", "[::1]:3261")]);
    let iser = [
        ("RDMAExtensions", "Yes"),
        ("MaxOutstandingUnexpectedPDUs", "16"),
    ];
    let digest = [("HeaderDigest", "CRC32C"), ("DataDigest", "None")];
    let list = b"TargetName=iqn.x\0TargetAddress=127.0.0.1:3260,1\0TargetAddress=[::1],2\0";
    let (front, back) = list.split_at(20);
    vec![
        ("one-step", script(0, &[keys()])),
        ("two-steps", script(0x08, &[none.clone(), keys()])),
        (
            "chap",
            script(0x01, &[chosen.clone(), challenge.clone(), accepted, keys()]),
        ),
        (
            "chap-mutual",
            script(0x03, &[chosen, challenge, proof, keys()]),
        ),
        (
            "chap-passed-over",
            script(0x01, &[none, raw(LEAVE, b""), keys()]),
        ),
        ("asked", script(0, &[asks, keys()])),
        ("continued", script(0, &cut)),
        ("moved", script(0, &[moved])),
        ("iser", script(0x04, &[step(LEAVE, &iser)])),
        ("digest-required", script(0x50, &[step(LEAVE, &digest)])),
        ("discovery-session", script(0x20, &[step(LEAVE, &[])])),
        ("search", script(0x80, &[raw(1, list)])),
        (
            "search-continued",
            script(0x80, &[raw(MORE, front), raw(1, back)]),
        ),
    ]
}
