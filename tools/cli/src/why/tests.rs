//! Findings from descriptions of processes: which there are, and what they say.
//! Descriptions are written by hand, hostile ones too.

use super::*;

fn object(line: &str) -> Object {
    Object::parse(0, line).unwrap()
}

fn explained(before: &[&str], after: &[&str]) -> Vec<Finding> {
    let parse = |lines: &[&str]| lines.iter().map(|line| object(line)).collect::<Vec<_>>();
    let mut explained = Explanation::default();
    explained.add_running(1, &parse(before), &parse(after));
    explained.findings
}

#[test]
fn subject_is_a_process_or_a_queue_pair() {
    let subject = |text: &str| text.parse::<Subject>();
    let (pid, qp) = (Some(7), Some(0x1f));
    assert_eq!(subject("7"), Ok(Subject { pid, qp: None }));
    assert_eq!(subject("7/31"), Ok(Subject { pid, qp }));
    assert_eq!(subject("7/0x1f"), Ok(Subject { pid, qp }));
    for wrong in ["", "x", "7/", "/7", "7/x", "-1", "7/8/9"] {
        assert!(subject(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn moving_queue_pair_does_not_wait() {
    let wait = "wait number=2 for=answer request=9 op=Write wr_id=1 length=8";
    let still = "qp number=2 messages_in=5 messages_out=6 bytes_in=7";
    let moved = "qp number=2 messages_in=5 messages_out=7 bytes_in=7";
    assert_eq!(explained(&[still, wait], &[still, wait]).len(), 1);
    assert!(explained(&[still, wait], &[moved, wait]).is_empty());
    assert!(
        explained(&[still], &[still, wait]).is_empty(),
        "it began to"
    );
    let next = "wait number=2 for=answer request=10 op=Write wr_id=1 length=8";
    assert!(explained(&[still, wait], &[still, next]).is_empty());
}

#[test]
fn requested_end_is_no_failure() {
    let failure = |kind: &str| format!("failure number=2 kind={kind} cause=a sentence");
    let of = |kind: &str| explained(&[], &[&failure(kind)]).len();
    assert_eq!(
        (of("requested"), of("peer-gone"), of("unheard-of")),
        (0, 1, 1)
    );
}

#[test]
fn refused_access_names_key_region_and_rights() {
    let failure = "failure number=2 wc_qpn=2 kind=access blame=peer rkey=0x1200 address=0x7f00 length=64 \
                   needs=remote-write region_start=0x7f00 region_length=4096 region_rights=local-write+remote-read \
                   region_pd=1 pd=1 cause=the peer violated the protocol: right not granted";
    let text = explained(&[], &[failure])[0].to_string();
    for part in [
        "cause    the peer violated the protocol: right not granted",
        "64 bytes at 0x7f00 under rkey 0x1200, which needs remote-write",
        "4096 bytes from 0x7f00 in protection domain 1, and grants local-write+remote-read",
        "the region does not grant remote-write",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let other = failure.replace("region_pd=1", "region_pd=9");
    let text = explained(&[], &[&other])[0].to_string();
    assert!(
        text.contains("the region is in protection domain 9 and the queue pair in 1"),
        "{text}"
    );
    let none = failure.split(" region_start").next().unwrap().to_owned() + " cause=x";
    let text = explained(&[], &[&none])[0].to_string();
    assert!(
        text.contains("no valid region or window has this rkey"),
        "{text}"
    );
}

#[test]
fn completions_that_are_not_polled_are_told() {
    let lines = [
        "cq number=1 entries=4 waiting=4 overflowed=false",
        "cq number=3 entries=4 waiting=1 overflowed=false",
        "qp number=2 send_cq=1 recv_cq=3",
        "wait number=2 for=receive",
    ];
    let text = explained(&lines, &lines)[0].to_string();
    assert!(
        text.contains("its send completion queue is full (4 entries)"),
        "{text}"
    );
    assert!(
        text.contains("1 completions in its receive completion queue are not polled"),
        "{text}"
    );
}

#[test]
fn adapter_failure_is_told() {
    let lines = ["adapter name=a failure=thread-shard-panicked"];
    let text = explained(&[], &lines)[0].to_string();
    assert!(text.contains("thread shard panicked"), "{text}");
    assert!(explained(&[], &["adapter name=a failure=none"]).is_empty());
}

#[test]
fn failure_of_a_running_process_is_told_once() {
    let line = "failure number=2 at_ms=5 kind=peer-gone cause=the peer is gone";
    let mut explained = Explanation::default();
    explained.add_running(1, &[], &[object(line)]);
    let mut left = Left {
        pid: 1,
        program: "a".to_owned(),
        runs: true,
        connections: vec![object("connection number=3 peer=192.0.2.1:1")],
        failures: vec![object(line), object("failure number=9 cause=another")],
    };
    explained.add_left(&left, false);
    assert_eq!(
        explained.findings.len(),
        2,
        "of a running process, its connections are no news"
    );
    left.runs = false;
    let mut explained = Explanation::default();
    explained.add_left(&left, false);
    let verdicts: Vec<_> = explained.findings.iter().map(Finding::verdict).collect();
    assert_eq!(
        verdicts,
        [Verdict::Failed, Verdict::Failed, Verdict::Killed]
    );
    left.connections = vec![left.connections[0].clone(); 3];
    for (one_each, count) in [(false, 1), (true, 3)] {
        let mut explained = Explanation::default();
        explained.add_left(&left, one_each);
        let of_kill = explained
            .findings
            .iter()
            .filter(|f| f.verdict() == Verdict::Killed);
        assert_eq!(of_kill.count(), count);
    }
}

/// Whatever a process sends, nothing but text reaches the terminal.
#[test]
fn hostile_values_stay_text() {
    let values = ["", "-1", "99999999999999999999999", "=", "\u{7f}x", "none"];
    for value in values {
        for line in [
            format!(
                "failure number={value} kind={value} at_ms={value} wr_id={value} cause={value}"
            ),
            format!("wait number={value} for={value} peer_pid={value} idle_ms={value}"),
        ] {
            let Some(object) = Object::parse(0, &line) else {
                assert!(value.contains('\u{7f}'));
                continue;
            };
            for verdict in [
                Verdict::Failed,
                Verdict::Waits,
                Verdict::Killed,
                Verdict::Silent,
            ] {
                let finding = Finding::new(verdict, (1, "?"), object.clone(), Vec::new());
                let text = finding.to_string() + &finding.json().to_string();
                assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
            }
        }
    }
}
