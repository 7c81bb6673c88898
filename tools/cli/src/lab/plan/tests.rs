//! What a file may say, what is filled in, and how mistakes are reported.

use super::*;

const PAIR: &str = r#"
[hosts.a]
[hosts.b]
[switches.s]
[[links]]
ends = ["a", "s"]
[[links]]
ends = ["b", "s"]
"#;

#[test]
fn hosts_without_addresses_get_them() {
    let plan = Plan::parse(PAIR, "pair").unwrap();
    assert_eq!(plan.name, "pair");
    let texts: Vec<String> = plan
        .links
        .iter()
        .flat_map(|link| link.ends[0].addresses.iter().map(ToString::to_string))
        .collect();
    assert_eq!(
        texts,
        ["10.77.0.1/24", "fd77::1/64", "10.77.0.2/24", "fd77::2/64"]
    );
    assert_eq!(plan.links[1].name, "b-s");
    assert_ne!(plan.links[0].ends[0].mac, plan.links[1].ends[0].mac);
}

#[test]
fn gateway_is_the_router_of_the_network() {
    let text = r#"
[hosts.a]
address = ["10.1.0.1/24", "fd01::1/64"]
[hosts.b]
address = "10.2.0.1/24"
[routers.r]
routes = [{ to = "0.0.0.0/0", via = "10.2.0.9" }]
[[links]]
ends = ["a", "r"]
address = { r = ["10.1.0.254/24", "fd01::254/64"] }
[[links]]
ends = ["b", "r"]
address = { r = "10.2.0.254/24" }
[[events]]
at = "2s"
link = "b-r"
set = "mend"
[[events]]
at = "500ms"
link = "b-r"
set = "cut"
"#;
    let plan = Plan::parse(text, "x").unwrap();
    let gateways = plan.nodes[0].gateways.iter().map(ToString::to_string);
    assert_eq!(gateways.collect::<Vec<_>>(), ["10.1.0.254", "fd01::254"]);
    assert_eq!(plan.nodes[1].gateways.len(), 1);
    assert_eq!(plan.nodes[2].routes.len(), 1);
    let times: Vec<Duration> = plan.events.iter().map(|event| event.at).collect();
    assert_eq!(times, [Duration::from_millis(500), Duration::from_secs(2)]);
}

#[test]
fn mistakes_are_named() {
    let with = |text: &str| format!("{PAIR}\n{text}");
    let table = [
        ("".to_owned(), "a lab needs a host"),
        ("[hosts.a]".to_owned(), "host `a` has no link"),
        (with("[hosts.c]"), "host `c` has no link"),
        (with("[routers.a]"), "two nodes have the name `a`"),
        (with("[hosts.\"a b\"]"), "`a b` is no name"),
        (
            with("[[links]]\nends = [\"a\", \"s\"]"),
            "two links have the name `a-s`",
        ),
        (
            with("[[links]]\nends = [\"a\", \"x\"]"),
            "there is no node `x`",
        ),
        (
            with("[[links]]\nends = [\"a\", \"a\"]"),
            "both ends are `a`",
        ),
        (
            with("[[links]]\nname = \"l\"\nends = [\"a\", \"s\"]\nmtu = 100"),
            "mtu 100",
        ),
        (
            with(
                "[[links]]\nname = \"l\"\nends = [\"a\", \"s\"]\naddress = { s = \"10.0.0.1/8\" }",
            ),
            "has no address",
        ),
        (
            with(
                "[[links]]\nname = \"l\"\nends = [\"a\", \"s\"]\naddress = { b = \"10.0.0.1/8\" }",
            ),
            "`b` is not an end",
        ),
        (
            with("[[links]]\nname = \"l\"\nends = [\"a\", \"s\"]\nvlan = { s = 5000 }"),
            "neither a VLAN",
        ),
        (
            with("[[links]]\nname = \"l\"\nends = [\"a\", \"s\"]\nfaults = \"loss=2\""),
            "link l: `loss=2`",
        ),
        (
            with(
                "[[links]]\nname = \"l\"\nends = [\"a\", \"s\"]\naddress = { a = \"10.77.0.2/24\" }",
            ),
            "two interfaces",
        ),
        (
            with("[[links]]\nname = \"l\"\nends = [\"a\", \"s\"]\nvlan = { s = 5 }"),
            "some of its ports have a VLAN",
        ),
        (
            with("[[events]]\nat = \"soon\"\nlink = \"a-s\"\nset = \"cut\""),
            "`soon` is no time",
        ),
        (
            with("[[events]]\nat = \"1s\"\nlink = \"a-x\"\nset = \"cut\""),
            "links: a-s, b-s",
        ),
        (with("[routers.r]"), "host `a` has no address"),
        (with("[switches.t]\nage = \"old\""), "`old` is no age"),
        (with("[switches.t]\nspeed = 1"), "unknown field"),
        ("hosts = 1".to_owned(), "invalid type"),
    ];
    for (text, said) in table {
        let error = Plan::parse(&text, "x").unwrap_err().to_string();
        assert!(error.contains(said), "{error}\nfor {text}");
    }
}

#[test]
fn sizes_are_limited() {
    let hosts: String = (0..MOST_NODES + 1)
        .map(|n| format!("[hosts.h{n}]\n"))
        .collect();
    let error = Plan::parse(&hosts, "x").unwrap_err().to_string();
    assert!(error.contains("more than 256"), "{error}");
    let long = format!("{PAIR}#{}", "x".repeat(MOST_FILE));
    let error = Plan::parse(&long, "x").unwrap_err().to_string();
    assert!(error.contains("bytes are more than 65536"), "{error}");
    let links: String = (0..9)
        .map(|n| format!("[[links]]\nname = \"l{n}\"\nends = [\"a\", \"s\"]\n"))
        .collect();
    let error = Plan::parse(&format!("{PAIR}{links}"), "x")
        .unwrap_err()
        .to_string();
    assert!(error.contains("has 10 links; the most is 8"), "{error}");
}
