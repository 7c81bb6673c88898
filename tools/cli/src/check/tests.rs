//! Lines of checked processes, hostile ones among them, and rules.

use super::symbols::Place;
use super::*;

#[test]
fn text_of_a_process_cannot_control_the_terminal() {
    let line = br#"{"type":"begin","program":"a\u001b[31m"}
{"type":"report","number":0,"kind":"x\u0007","hint":false,"what":"y\u202e\u009b","stacks":[{"label":"\u001bc","frames":[{"file":"/dev/\u001b","offset":1}]}]}"#;
    let mut findings = Findings::default();
    let mut rules = Suppressions::default();
    for line in line.split(|byte| *byte == b'\n') {
        findings.add(7, line, &mut rules);
    }
    let text = findings.all[0].text() + &findings.summary(true);
    let controls = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(controls), "{text:?}");
    assert_eq!(findings.lost, 0);
}

#[test]
fn wrong_and_endless_lines_are_counted() {
    let mut findings = Findings::default();
    let mut rules = Suppressions::default();
    for line in [
        &b"{"[..],
        b"null",
        b"\xff\xfe",
        &[b'['; 10_000],
        &vec![b' '; record::LONGEST + 1],
    ] {
        assert_eq!(findings.add(1, line, &mut rules), None);
    }
    assert_eq!(findings.lost, 5);
}

#[test]
fn counts_belong_to_the_latest_program_of_a_process() {
    let mut findings = Findings::default();
    let mut rules = Suppressions::default();
    let report = br#"{"type":"report","number":0,"kind":"x","hint":false,"what":"","stacks":[]}"#;
    let lines: [&[u8]; 5] = [
        br#"{"type":"begin","program":"a"}"#,
        report,
        br#"{"type":"begin","program":"b"}"#,
        report,
        br#"{"type":"count","number":0,"count":12}"#,
    ];
    for line in lines {
        findings.add(1, line, &mut rules);
    }
    let counts: Vec<_> = findings
        .all
        .iter()
        .map(|f| (f.program.as_str(), f.count))
        .collect();
    assert_eq!(counts, [("a", 1), ("b", 12)]);
}

#[test]
fn rules_name_kind_program_and_frames() {
    let finding = |functions: &[&str]| Finding {
        pid: 1,
        program: "server".to_owned(),
        kind: "wrong-state".to_owned(),
        hint: false,
        what: String::new(),
        stacks: vec![Stack {
            label: "posted".to_owned(),
            places: functions
                .iter()
                .map(|function| Place {
                    function: Some((*function).to_owned()),
                    line: None,
                    object: "/bin/server".to_owned(),
                    offset: 0,
                })
                .collect(),
        }],
        count: 1,
        suppressed: None,
        number: 0,
    };
    let rules = |text: &str| {
        let mut rules = Suppressions::default();
        rules.add(text).unwrap();
        rules
    };
    let deep = finding(&["post", "start", "main"]);
    for (text, expected) in [
        ("kind = \"wrong-state\"", true),
        ("kind = \"wrong-*\"\nprogram = \"client\"", false),
        ("frames = [\"fun:post\"]", true),
        ("frames = [\"fun:start\"]", false),
        ("frames = [\"...\", \"fun:st*\", \"fun:main\"]", true),
        ("frames = [\"obj:*/server\"]", true),
        (
            "frames = [\"fun:post\", \"fun:start\", \"fun:main\", \"fun:more\"]",
            false,
        ),
    ] {
        let rules = rules(&format!("[[suppress]]\n{text}\n"));
        assert_eq!(rules.find(&deep).is_some(), expected, "{text}");
    }
    // A generated rule suppresses what it was generated from.
    assert_eq!(rules(&suppress::rule_for(&deep)).find(&deep), Some(0));
    assert_eq!(
        rules(&suppress::rule_for(&deep)).find(&finding(&["other"])),
        None
    );
}
