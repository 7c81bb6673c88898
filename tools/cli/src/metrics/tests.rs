//! The text against the grammar of OpenMetrics 1.0, by a parser that accepts nothing else, and what is in it.

use super::*;

/// A family: its type, and its samples by name and labels.
#[derive(Debug, Default, PartialEq)]
struct Family {
    kind: String,
    help: String,
    samples: BTreeMap<String, f64>,
}

fn is_name(text: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    text.starts_with(first) && text.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// The label set at the beginning, and what follows it.
fn labels(text: &str) -> Result<(BTreeMap<String, String>, &str), String> {
    let mut rest = text.strip_prefix('{').ok_or("no {")?;
    let mut found = BTreeMap::new();
    loop {
        let (name, after) = rest.split_once("=\"").ok_or("no label")?;
        if !is_name(name) || name.contains(':') {
            return Err(format!("label name {name:?}"));
        }
        let (mut value, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            match chars.next().ok_or("label value does not end")? {
                (at, '"') => break at + 1,
                (_, '\\') => match chars.next().map(|(_, c)| c) {
                    Some('n') => value.push('\n'),
                    Some(c @ ('\\' | '"')) => value.push(c),
                    other => return Err(format!("escape {other:?}")),
                },
                (_, '\n') => return Err("newline".to_owned()),
                (_, c) => value.push(c),
            }
        };
        if found.insert(name.to_owned(), value).is_some() {
            return Err(format!("label {name} twice"));
        }
        rest = &after[end..];
        match rest.chars().next() {
            Some(',') => rest = &rest[1..],
            Some('}') => return Ok((found, &rest[1..])),
            other => return Err(format!("{other:?} after a label")),
        }
    }
}

/// Parses OpenMetrics text; an error names what breaks the grammar.
fn parse(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("no end")?;
    let (mut families, mut current) = (BTreeMap::<String, Family>::new(), String::new());
    for line in body.split_inclusive('\n') {
        let line = line.strip_suffix('\n').ok_or("line does not end")?;
        if let Some(meta) = line.strip_prefix("# ") {
            let mut words = meta.splitn(3, ' ');
            let (Some(what), Some(name), Some(value)) = (words.next(), words.next(), words.next())
            else {
                return Err(format!("metadata {line:?}"));
            };
            if !is_name(name) {
                return Err(format!("name {name:?}"));
            }
            if name != current {
                if families.contains_key(name) {
                    return Err(format!("{name} is interleaved"));
                }
                current = name.to_owned();
            }
            let family = families.entry(current.clone()).or_default();
            if !family.samples.is_empty() {
                return Err("metadata after samples".to_owned());
            }
            let field = match what {
                "TYPE" if ["counter", "gauge", "info"].contains(&value) => &mut family.kind,
                "HELP" => &mut family.help,
                _ => return Err(format!("metadata {line:?}")),
            };
            if !std::mem::replace(field, value.to_owned()).is_empty() {
                return Err(format!("{what} of {name} twice"));
            }
            continue;
        }
        let at = line.find('{').ok_or("sample without labels")?;
        let family = families
            .get_mut(&current)
            .ok_or("sample without a family")?;
        let suffix = match family.kind.as_str() {
            "counter" => "_total",
            "gauge" => "",
            "info" => "_info",
            _ => return Err(format!("{current} has no type")),
        };
        if line[..at] != format!("{current}{suffix}") {
            return Err(format!("sample {line:?} in family {current}"));
        }
        let (found, rest) = labels(&line[at..])?;
        let value = rest.strip_prefix(' ').ok_or("no value")?;
        let value: f64 = value.parse().map_err(|_| format!("value {value:?}"))?;
        if family.kind == "counter" && (value.is_nan() || value < 0.0) {
            return Err(format!("counter {line:?}"));
        }
        if family.kind == "info" && value != 1.0 {
            return Err(format!("info {line:?}"));
        }
        if family.samples.insert(format!("{found:?}"), value).is_some() {
            return Err(format!("series {found:?} twice"));
        }
    }
    Ok(families)
}

fn object(line: &str) -> Object {
    Object::parse(0, line).unwrap()
}

fn read(pid: u32, program: &str, lines: &[&str]) -> Read {
    Read {
        pid,
        program: program.to_owned(),
        objects: Some(lines.iter().map(|line| object(line)).collect()),
    }
}

fn sum(families: &BTreeMap<String, Family>, name: &str) -> f64 {
    families[name].samples.values().sum()
}

#[test]
fn grammar_parser_refuses_what_is_wrong() {
    assert!(parse("# EOF\n").unwrap().is_empty());
    let good = "# TYPE a counter\n# HELP a text.\na_total{b=\"c\\\"\\\\\\n\"} 1\n# EOF\n";
    assert_eq!(parse(good).unwrap()["a"].samples.len(), 1);
    for wrong in [
        "",
        "# EOF",
        "a_total{b=\"c\"} 1\n# EOF\n",
        "# TYPE a counter\na{b=\"c\"} 1\n# EOF\n",
        "# TYPE a counter\na_total{b=\"c\"} -1\n# EOF\n",
        "# TYPE a counter\na_total{b=\"c\",b=\"d\"} 1\n# EOF\n",
        "# TYPE a counter\na_total{b=\"c\"} 1\na_total{b=\"c\"} 2\n# EOF\n",
        "# TYPE a gauge\n# TYPE b gauge\n# HELP a x\n# EOF\n",
        "# TYPE a gauge\na{b=\"\\x\"} 1\n# EOF\n",
        "# TYPE a gauge\na{1=\"x\"} 1\n# EOF\n",
    ] {
        assert!(parse(wrong).is_err(), "{wrong:?}");
    }
}

const ADAPTER: &str = "adapter name=verbena0 bytes_in=100 bytes_out=200 messages_in=3 messages_out=4 dropped_checksum=5";
const PAIR: &str = "qp number=2 state=Rts path=tcp sends=7 receives=8 bytes_in=100 bytes_out=200 messages_in=3 messages_out=4 rnr_sent=1 retransmitted=9";

#[test]
fn counters_have_the_names_of_node_exporter() {
    let mut collector = Collector::new(10);
    let all = [read(1, "a", &[ADAPTER, PAIR]), read(2, "b", &[ADAPTER])];
    collector.note_totals(&all);
    let families = parse(&collector.write(&all)).unwrap();
    let device = "node_infiniband_port_data_transmitted_bytes";
    assert_eq!(
        families[device].samples.keys().collect::<Vec<_>>(),
        [r#"{"device": "verbena0", "port": "1"}"#]
    );
    assert_eq!(
        (
            sum(&families, device),
            sum(&families, "node_infiniband_port_packets_received")
        ),
        (400.0, 6.0)
    );
    assert_eq!(sum(&families, "node_infiniband_port_errors_received"), 10.0);
    assert_eq!(
        sum(&families, "verbena_queue_pair_retransmitted_segments"),
        9.0
    );
    assert_eq!(sum(&families, "verbena_queue_pair_outstanding_sends"), 7.0);
    assert_eq!(families["node_infiniband"].kind, "info");
}

#[test]
fn totals_of_a_device_outlive_its_processes() {
    let mut collector = Collector::new(10);
    let totals = |collector: &mut Collector, all: &[Read]| {
        collector.note_totals(all);
        sum(
            &parse(&collector.write(all)).unwrap(),
            "node_infiniband_port_data_received_bytes",
        )
    };
    let one = read(1, "a", &[ADAPTER]);
    assert_eq!(totals(&mut collector, &[one]), 100.0);
    assert_eq!(totals(&mut collector, &[]), 100.0);
    let other = read(2, "a", &[ADAPTER]);
    assert_eq!(totals(&mut collector, &[other]), 200.0);
    // One that does not answer for a while.
    let silent = Read {
        objects: None,
        ..read(2, "a", &[])
    };
    assert_eq!(totals(&mut collector, &[silent]), 200.0);
    assert_eq!(totals(&mut collector, &[]), 200.0);
}

#[test]
fn number_of_series_is_bounded() {
    let pairs: Vec<String> = (0..50)
        .map(|n| format!("qp number={n} bytes_in=1 state=S{n} path=P{n}"))
        .collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    let all = [read(1, "a", &pairs)];
    let families = parse(&Collector::new(10).write(&all)).unwrap();
    let bytes = &families["verbena_queue_pair_received_bytes"];
    assert_eq!(
        (bytes.samples.len(), bytes.samples.values().sum::<f64>()),
        (11, 50.0)
    );
    assert_eq!(
        families["verbena_queue_pairs"].samples.len(),
        1,
        "no label values of the process"
    );
}

#[test]
fn hostile_names_are_escaped() {
    for name in ["a\"b", "a\\", "a\\\"} 1", "", "\u{202e}", "é"] {
        let all = [read(1, name, &[ADAPTER, PAIR, PAIR])];
        let mut collector = Collector::new(10);
        collector.note_totals(&all);
        let families = parse(&collector.write(&all)).unwrap();
        assert!(
            families["verbena_process_answers"]
                .samples
                .keys()
                .all(|labels| labels.contains("program"))
        );
    }
    let mut collector = Collector::new(10);
    let all = [read(1, "a", &["adapter name=a\"b\\ bytes_in=1"])];
    collector.note_totals(&all);
    assert!(parse(&collector.write(&all)).is_ok());
}

/// Every metric that the dashboard asks for exists.
#[test]
fn dashboard_uses_metrics_that_exist() {
    let dashboard: serde_json::Value = serde_json::from_str(crate::metrics::DASHBOARD).unwrap();
    let mut collector = Collector::new(10);
    let all = [read(1, "a", &[ADAPTER, PAIR])];
    collector.note_totals(&all);
    let text = collector.write(&all);
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for name in
                words.filter(|word| word.starts_with("verbena_") || word.starts_with("node_"))
            {
                assert!(text.contains(&format!("\n{name}{{")), "{name}");
                asked += 1;
            }
        }
    }
    assert!(asked >= 8, "{asked}");
}
