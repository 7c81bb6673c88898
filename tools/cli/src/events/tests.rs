//! Parsing: the system's list of sockets, and lines of every form.

use super::*;

#[test]
fn each_event_socket_is_listed_once() {
    let table = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 30119 @verbena-events/41/1
0000000000000000: 00000002 00000000 00010000 0001 01 30118 @verbena-events/41/0
0000000000000000: 00000003 00000000 00000000 0001 03 30120 @verbena-events/41/0
0000000000000000: 00000002 00000000 00010000 0001 01 30121 @verbena-events/7/0
0000000000000000: 00000002 00000000 00010000 0001 01 30122 verbena-events/8/0
0000000000000000: 00000002 00000000 00010000 0001 01 30123 @verbena-events/x/0
0000000000000000: 00000003 00000000 00000000 0001 03 30124
0000000000000000: 00000003 00000000 00000000 0001 03 30125 @other
";
    let found: Vec<_> = parse_sockets(table, NAME).into_iter().collect();
    assert_eq!(found, [(7, vec![0]), (41, vec![0, 1])]);
}

#[test]
fn lines_are_shown_as_text_and_json() {
    let said = "1700000000.000042 rdma completion cq=3 reason=solicited";
    let line = Line::parse(2, said).unwrap();
    assert_eq!(
        line.to_string(),
        "22:13:20.000042 2   rdma       completion       cq=3 reason=solicited"
    );
    let json = line.json();
    assert_eq!((&json["cq"], &json["adapter"]), (&3.into(), &2.into()));
    assert_eq!(
        (&json["reason"], &json["event"]),
        (&"solicited".into(), &"completion".into())
    );
    assert!(json["time"].as_f64().unwrap() > 1_700_000_000.0);
    // A field does not replace one that every line has.
    let odd = Line::parse(2, "1.000000 a b class=7").unwrap();
    assert_eq!(odd.json()["class"], "a");
}

#[test]
fn malformed_event_lines_are_refused() {
    for text in [
        "",
        "1.000000",
        "1.000000 rdma",
        "now rdma event",
        "1.5 rdma event",
        "1.000000 rdma event nothing",
        "1.000000 rdma \x1b[2J cq=3",
        "1.000000 rdma event cq=\u{fc}",
    ] {
        assert_eq!(Line::parse(0, text), None, "{text}");
    }
}
