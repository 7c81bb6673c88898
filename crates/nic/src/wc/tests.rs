//! Tests of completions: every cause in a peer's Terminate has its status.

use verbena_wire::rdmap::LlpError;

use super::*;

#[test]
fn every_cause_has_a_status() {
    let mut lines = String::new();
    let rdmap = RdmapError::ALL.map(Cause::Rdmap);
    let ddp = DdpError::ALL.map(Cause::Ddp);
    let llp = LlpError::ALL.map(Cause::Llp);
    for cause in rdmap.into_iter().chain(ddp).chain(llp) {
        lines += &format!("{cause} => {:?}\n", status_of(cause));
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn failures_and_solicited_messages_are_urgent() {
    let wc = |status, solicited| Wc {
        id: 1,
        qpn: 1,
        status,
        op: WcOp::Receive,
        solicited,
        ..Wc::default()
    };
    assert!(!wc(Status::Success, false).is_urgent());
    assert!(wc(Status::Success, true).is_urgent());
    assert!(wc(Status::WrFlushErr, false).is_urgent());
}

#[test]
fn completion_struct_is_40_bytes() {
    assert_eq!(size_of::<Wc>(), 40);
}
