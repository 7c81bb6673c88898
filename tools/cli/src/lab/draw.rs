//! The drawing of a lab: a tree in the terminal, and a picture as SVG. Both show every link once, with what passed over it in each direction
//! between two snapshots.

use core::fmt::Write;
use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use super::plan::Kind;
use super::snapshot::{LinkView, Snapshot, Traffic};
use crate::events::printable;
use crate::plot::escape;

/// What passed in one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Rate {
    bits: f64,
    frames: f64,
}

/// The rates of each link between two snapshots; averages since the start without an earlier one.
fn rates(now: &Snapshot, before: Option<&Snapshot>) -> Vec<[Rate; 2]> {
    let seconds = match before {
        Some(before) => now.age.saturating_sub(before.age),
        None => now.age,
    };
    let seconds = seconds.as_secs_f64().max(1e-6);
    let earlier = |index: usize, direction: usize| {
        let link = before.and_then(|before| before.links.get(index));
        link.map(|link| link.traffic[direction]).unwrap_or_default()
    };
    let links = now.links.iter().enumerate();
    links
        .map(|(index, link)| {
            [0, 1].map(|direction| {
                let (new, old) = (link.traffic[direction], earlier(index, direction));
                Rate {
                    bits: new.bytes.saturating_sub(old.bytes) as f64 * 8.0 / seconds,
                    frames: new.frames.saturating_sub(old.frames) as f64 / seconds,
                }
            })
        })
        .collect()
}

fn bits(rate: Rate) -> String {
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    let found = units.iter().find(|(unit, _)| rate.bits >= *unit);
    match found {
        Some((unit, name)) => format!("{:.1} {name}", rate.bits / unit),
        None => format!("{:.0} bit/s", rate.bits),
    }
}

/// The state of a link in words, empty if it is as usual.
fn state(link: &LinkView) -> String {
    let mut words = Vec::new();
    if !link.up {
        words.push("CUT".to_owned());
    }
    if link.blocked {
        words.push("blocked".to_owned());
    }
    if !link.faults.is_empty() {
        words.push(link.faults.clone());
    }
    let sum = |get: fn(&Traffic) -> u64| link.traffic.iter().map(get).sum::<u64>();
    let counts = [
        ("lost", sum(|t| t.lost)),
        ("overflowed", sum(|t| t.overflowed)),
        ("corrupted", sum(|t| t.corrupted)),
        ("repeated", sum(|t| t.repeated)),
        ("dropped by the cut", sum(|t| t.cut)),
    ];
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        words.push(format!("{count} {name}"));
    }
    words.join(", ")
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Host => "host",
        Kind::Switch => "switch",
        Kind::Router => "router",
    }
}

/// The order of a tree: for each node, the links to the nodes below it. Links outside of the tree are in none.
struct Tree {
    roots: Vec<usize>,
    below: BTreeMap<usize, Vec<(usize, usize)>>,
    others: Vec<usize>,
}

impl Tree {
    fn of(snapshot: &Snapshot) -> Tree {
        let count = snapshot.nodes.len();
        let degree = |node: usize| {
            let links = snapshot.links.iter();
            links.filter(|link| link.ends.contains(&node)).count()
        };
        let mut order: Vec<usize> = (0..count).collect();
        let is_host = |node: usize| snapshot.nodes[node].kind == Kind::Host;
        order.sort_by_key(|node| (is_host(*node), core::cmp::Reverse(degree(*node)), *node));
        let mut seen = vec![false; count];
        let mut used = vec![false; snapshot.links.len()];
        let (mut roots, mut below) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        for root in order {
            if seen[root] {
                continue;
            }
            seen[root] = true;
            roots.push(root);
            let mut queue = VecDeque::from([root]);
            while let Some(node) = queue.pop_front() {
                for (index, link) in snapshot.links.iter().enumerate() {
                    let other = match link.ends {
                        [a, b] if a == node => b,
                        [a, b] if b == node => a,
                        _ => continue,
                    };
                    // A link that is not used is drawn beside the tree.
                    if !seen[other] && link.up && !link.blocked {
                        (seen[other], used[index]) = (true, true);
                        below.entry(node).or_default().push((index, other));
                        queue.push_back(other);
                    }
                }
            }
        }
        let links = 0..snapshot.links.len();
        Tree {
            roots,
            below,
            others: links.filter(|link| !used[*link]).collect(),
        }
    }
}

/// The drawing for a terminal.
pub fn text(now: &Snapshot, before: Option<&Snapshot>) -> String {
    let rates = rates(now, before);
    let tree = Tree::of(now);
    let mut out = format!(
        "lab {}, running for {:.0} s\n",
        now.name,
        now.age.as_secs_f64()
    );
    for root in &tree.roots {
        let node = &now.nodes[*root];
        let _ = writeln!(
            out,
            "{} ({}){}",
            node.name,
            kind(node.kind),
            details(now, *root)
        );
        branches(now, &rates, &tree, *root, "", &mut out);
    }
    if !tree.others.is_empty() {
        out.push_str("further links:\n");
        for index in &tree.others {
            let link = &now.links[*index];
            let [a, b] = link.ends.map(|end| now.nodes[end].name.as_str());
            let _ = writeln!(out, "  {a} ── {b}  {}", line(link, rates[*index], true));
        }
    }
    out
}

/// Addresses and counters of a node.
fn details(snapshot: &Snapshot, node: usize) -> String {
    let node = &snapshot.nodes[node];
    let mut text = String::new();
    for address in &node.addresses {
        let _ = write!(text, " {address}");
    }
    for (name, count) in &node.counters {
        let _ = write!(text, ", {count} {}", name.replace('_', " "));
    }
    text
}

/// Traffic and state of a link. Downwards is from the node above.
fn line(link: &LinkView, rates: [Rate; 2], first_above: bool) -> String {
    let [down, up] = match first_above {
        true => rates,
        false => [rates[1], rates[0]],
    };
    let mut text = format!("{}: ↓ {}  ↑ {}", link.name, bits(down), bits(up));
    let state = state(link);
    if !state.is_empty() {
        let _ = write!(text, "  [{state}]");
    }
    text
}

fn branches(
    snapshot: &Snapshot,
    rates: &[[Rate; 2]],
    tree: &Tree,
    node: usize,
    indent: &str,
    out: &mut String,
) {
    let empty = Vec::new();
    let below = tree.below.get(&node).unwrap_or(&empty);
    for (position, (index, other)) in below.iter().enumerate() {
        let is_last = position + 1 == below.len();
        let (corner, deeper) = if is_last {
            ("└─", "   ")
        } else {
            ("├─", "│  ")
        };
        let link = &snapshot.links[*index];
        let found = &snapshot.nodes[*other];
        let label = line(link, rates[*index], link.ends[0] == node);
        let details = details(snapshot, *other);
        let kind = match found.kind {
            Kind::Host => String::new(),
            other => format!(" ({})", kind(other)),
        };
        let _ = writeln!(
            out,
            "{indent}{corner} {}{kind}{details}  {label}",
            found.name
        );
        branches(
            snapshot,
            rates,
            tree,
            *other,
            &format!("{indent}{deeper}"),
            out,
        );
    }
}

const COLUMN: usize = 170;
const ROW: usize = 150;

/// How many links a node is away from a host: the rows of the picture.
fn levels(snapshot: &Snapshot) -> Vec<usize> {
    let far = snapshot.nodes.len();
    let mut levels: Vec<usize> = snapshot
        .nodes
        .iter()
        .map(|node| if node.kind == Kind::Host { 0 } else { far })
        .collect();
    for _ in 0..far {
        for link in &snapshot.links {
            let [a, b] = link.ends;
            // The snapshot is another process's.
            let (Some(of_a), Some(of_b)) = (levels.get(a).copied(), levels.get(b).copied()) else {
                continue;
            };
            levels[a] = of_a.min(of_b + 1);
            levels[b] = of_b.min(of_a + 1);
        }
    }
    levels
}

/// The lab for a page that draws it: nodes with their rows, links with their counters and states.
pub fn json(now: &Snapshot) -> Value {
    let levels = levels(now);
    let nodes = now.nodes.iter().zip(&levels).map(|(node, level)| {
        let addresses = node.addresses.iter().map(|text| printable(text));
        json!({
            "name": printable(&node.name),
            "kind": kind(node.kind),
            "level": (*level).min(now.nodes.len()),
            "addresses": addresses.collect::<Vec<_>>(),
        })
    });
    // Ends that are no nodes are a mistake of the lab.
    let links = now
        .links
        .iter()
        .filter(|link| link.ends.iter().all(|end| *end < now.nodes.len()));
    let links = links.map(|link| {
        json!({
            "name": printable(&link.name),
            "ends": link.ends,
            "up": link.up,
            "blocked": link.blocked,
            "faulty": !link.faults.is_empty(),
            "state": printable(&state(link)),
            "bytes": link.traffic.map(|traffic| traffic.bytes),
            "frames": link.traffic.map(|traffic| traffic.frames),
        })
    });
    json!({
        "name": printable(&now.name),
        "age": now.age.as_secs_f64(),
        "nodes": nodes.collect::<Vec<_>>(),
        "links": links.collect::<Vec<_>>(),
    })
}

/// The picture.
pub fn svg(now: &Snapshot, before: Option<&Snapshot>) -> String {
    let rates = rates(now, before);
    let levels = levels(now);
    let most = levels
        .iter()
        .copied()
        .max()
        .unwrap_or(0)
        .min(now.nodes.len());
    let mut rows: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (node, level) in levels.iter().enumerate() {
        rows.entry((*level).min(most)).or_default().push(node);
    }
    let widest = rows.values().map(Vec::len).max().unwrap_or(1);
    let (width, height) = (widest.max(2) * COLUMN, (rows.len() + 1) * ROW);
    let mut places = vec![(0, 0); now.nodes.len()];
    for (row, (_, nodes)) in rows.iter().rev().enumerate() {
        for (column, node) in nodes.iter().enumerate() {
            let x = (2 * column + 1) * width / (2 * nodes.len());
            places[*node] = (x, (row + 1) * ROW);
        }
    }
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"24\" font-size=\"16\">{}, running for {:.0} s</text>\n",
        escape(&now.name),
        now.age.as_secs_f64()
    );
    for (index, link) in now.links.iter().enumerate() {
        let [(x1, y1), (x2, y2)] = link.ends.map(|end| places[end]);
        let both = rates[index][0].bits + rates[index][1].bits;
        // A pixel for each power of ten above 1 kbit/s.
        let wide = 1.5 + (both / 1e3).max(1.0).log10();
        let (colour, dashes) = match link {
            link if !link.up => ("#c62828", "4 6"),
            link if link.blocked => ("#9e9e9e", "8 5"),
            link if !link.faults.is_empty() => ("#ef6c00", "none"),
            _ => ("#2e7d32", "none"),
        };
        let _ = writeln!(
            out,
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{colour}\" stroke-width=\"{wide:.1}\" stroke-dasharray=\"{dashes}\"><title>{}</title></line>",
            escape(&line(link, rates[index], true))
        );
        let (x, y) = ((x1 + x2) / 2, (y1 + y2) / 2);
        let [there, back] = rates[index].map(bits);
        let state = state(link);
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#37474f\" font-size=\"10\">{}<tspan x=\"{x}\" dy=\"12\">{}</tspan></text>",
            escape(&format!("{there} / {back}")),
            escape(&state)
        );
    }
    for (node, (x, y)) in now.nodes.iter().zip(&places) {
        let colour = match node.kind {
            Kind::Host => "#e3f2fd",
            Kind::Switch => "#e8f5e9",
            Kind::Router => "#fff3e0",
        };
        let (left, top) = (x.saturating_sub(62), y.saturating_sub(22));
        let first = node.addresses.first().map_or("", String::as_str);
        let _ = writeln!(
            out,
            "<rect x=\"{left}\" y=\"{top}\" width=\"124\" height=\"44\" rx=\"6\" fill=\"{colour}\" stroke=\"#455a64\"/>\n\
             <text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{}<tspan x=\"{x}\" dy=\"15\" font-size=\"10\">{}</tspan></text>",
            escape(&node.name),
            escape(match node.kind {
                Kind::Host => first,
                other => kind(other),
            })
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::network::Network;
    use crate::lab::plan::Plan;
    use core::time::Duration;

    const RING: &str = r#"
[hosts.a]
[hosts.b]
[switches.s]
[switches.t]
[[links]]
ends = ["a", "s"]
[[links]]
ends = ["b", "t"]
faults = "loss=1%"
[[links]]
ends = ["s", "t"]
[[links]]
name = "spare"
ends = ["s", "t"]
"#;

    fn snapshot(seconds: u64) -> Snapshot {
        let plan = Plan::parse(RING, "ring").unwrap();
        let network = Network::new(plan).unwrap();
        network.snapshot(Duration::from_secs(seconds), Vec::new())
    }

    #[test]
    fn terminal_shows_every_link_once() {
        let before = snapshot(10);
        let mut now = snapshot(12);
        now.links[0].traffic[0].bytes = 2_500_000;
        let text = text(&now, Some(&before));
        let expected = "lab ring, running for 12 s
s (switch)
├─ a 10.77.0.1/24 fd77::1/64  a-s: ↓ 0 bit/s  ↑ 10.0 Mbit/s
└─ t (switch)  s-t: ↓ 0 bit/s  ↑ 0 bit/s
   └─ b 10.77.0.2/24 fd77::2/64  b-t: ↓ 0 bit/s  ↑ 0 bit/s  [loss=1%]
further links:
  s ── t  spare: ↓ 0 bit/s  ↑ 0 bit/s  [blocked]
";
        assert_eq!(text, expected);
    }

    #[test]
    fn page_gets_nodes_with_rows_and_links_with_states() {
        let mut now = snapshot(12);
        now.links[0].traffic[0].bytes = 2_500_000;
        now.nodes[0].name = "<b>\u{1b}".to_owned();
        let json = json(&now);
        assert_eq!(json["nodes"][0]["name"], "<b>?");
        assert_eq!(
            (&json["nodes"][0]["level"], &json["nodes"][2]["level"]),
            (&0.into(), &1.into())
        );
        assert_eq!(json["links"][0]["bytes"], serde_json::json!([2_500_000, 0]));
        assert_eq!(json["links"][1]["state"], "loss=1%");
        now.links[0].ends = [99, 0];
        assert_eq!(super::json(&now)["links"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn picture_has_every_node_and_link() {
        let now = snapshot(1);
        let svg = svg(&now, None);
        assert_eq!(svg.matches("<line ").count(), 4);
        assert_eq!(svg.matches("rx=\"6\"").count(), 4);
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }
}
