//! What the page shows, read from running programs, from what ended ones left, and from labs, as JSON.
//! The number of everything in it is limited; what was left out is counted.

use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde_json::{Value, json};

use super::feed::Read;
use super::peers::join;
use crate::lab::control::Client;
use crate::lab::{draw, socket};
use crate::top::{Process, Sampler};
use crate::why::{Subject, explain};

/// Queue pairs that are shown of a process, and of all.
const MAX_PAIRS: usize = 64;
const MAX_ALL_PAIRS: usize = 1024;
/// Characters of an address, a state or a path.
const MAX_TEXT: usize = 96;
/// Failures and waits that are shown.
const MAX_FINDINGS: usize = 128;
/// Labs, and the nodes and links of each.
const MAX_LABS: usize = 8;
const MAX_NODES: usize = 512;
/// Time limit for the answer of a lab.
const LAB_LIMIT: Duration = Duration::from_secs(2);
/// Between two looks when there has been none for a while, for the first rates.
const FIRST_INTERVAL: Duration = Duration::from_millis(250);

/// Running programs, their queue pairs and rates.
#[derive(Debug, Default)]
pub(super) struct Processes(Sampler);

impl Read for Processes {
    fn read(&mut self, fresh: bool) -> Value {
        if fresh {
            self.0 = Sampler::default();
            // What it finds is read again.
            let _ = self.0.sample();
            std::thread::sleep(FIRST_INTERVAL);
        }
        match self.0.sample() {
            Ok(processes) => json!({ "list": list(&processes) }),
            Err(error) => json!({ "error": error.to_string() }),
        }
    }
}

/// Processes as JSON; each queue pair that has its other end on this machine names it.
fn list(processes: &[Process]) -> Vec<Value> {
    let joined = join(processes);
    let mut room = MAX_ALL_PAIRS;
    let mut all = Vec::new();
    for (at, process) in processes.iter().enumerate() {
        let mut order: Vec<usize> = (0..process.pairs.len()).collect();
        // Those that move most, and then by number, so that idle ones stay in their places.
        let moved = |number: &usize| {
            let rates = &process.pairs[*number].rates;
            rates.bytes_in + rates.bytes_out
        };
        if order.len() > MAX_PAIRS.min(room) {
            order.sort_by(|a, b| moved(b).total_cmp(&moved(a)).then(a.cmp(b)));
            order.truncate(MAX_PAIRS.min(room));
            order.sort_unstable();
        }
        room -= order.len();
        let pairs = order.iter().map(|number| {
            let mut pair = process.pairs[*number].json();
            for text in pair
                .as_object_mut()
                .into_iter()
                .flat_map(|o| o.values_mut())
            {
                cut(text);
            }
            if let Some((other, other_pair)) = joined.get(&(at, *number))
                && let Some(process) = processes.get(*other)
                && let Some(found) = process.pairs.get(*other_pair)
            {
                pair["other"] = json!([process.pid, found.adapter, found.number]);
            } else if let Some(silent) = silent_peer(process.pairs[*number].peer_pid, processes) {
                pair["other"] = json!([silent]);
            }
            pair
        });
        let mut shown = process.json_with(&pairs.collect::<Vec<_>>());
        shown["left_out"] = json!(process.pairs.len() - order.len());
        all.push(shown);
    }
    all
}

/// The process at the other end, if it does not tell its own queue pairs.
fn silent_peer(peer: Option<u64>, processes: &[Process]) -> Option<u32> {
    let peer = u32::try_from(peer?).ok()?;
    let found = processes.iter().find(|process| process.pid == peer)?;
    found.is_silent.then_some(peer)
}

/// Shortens a text that is longer than any that an adapter gives.
fn cut(value: &mut Value) {
    if let Value::String(text) = value
        && let Some((end, _)) = text.char_indices().nth(MAX_TEXT)
    {
        text.truncate(end);
        text.push('…');
    }
}

/// Queue pairs that failed or wait.
#[derive(Debug)]
pub(super) struct Findings;

impl Read for Findings {
    fn read(&mut self, _: bool) -> Value {
        let explained = match explain(Subject::default()) {
            Ok(explained) => explained,
            Err(error) => return json!({ "error": error.to_string() }),
        };
        let all = &explained.findings;
        let shown = all.iter().take(MAX_FINDINGS).map(|finding| {
            let mut json = finding.json();
            let rows: Vec<_> = finding.rows();
            let known = |key: &str| json.get_mut(key).map(Value::take).unwrap_or_default();
            let [pid, program, verdict, adapter, number, at] =
                ["pid", "program", "verdict", "adapter", "number", "at_ms"].map(known);
            json!({
                "heading": finding.heading(),
                "rows": rows,
                "pid": pid,
                "program": program,
                "verdict": verdict,
                "adapter": adapter,
                "number": number,
                "at_ms": at,
            })
        });
        let shown: Vec<_> = shown.collect();
        json!({ "list": shown, "left_out": all.len().saturating_sub(MAX_FINDINGS) })
    }
}

/// Labs of this user that run.
#[derive(Debug)]
pub(super) struct Labs;

impl Read for Labs {
    fn read(&mut self, _: bool) -> Value {
        let paths = match socket::all() {
            Ok(paths) => paths,
            Err(error) => return json!({ "error": error.to_string() }),
        };
        let mut labs = Vec::new();
        for path in paths {
            // One that is gone leaves a socket without a listener.
            let Ok(client) = Client::at(&path) else {
                continue;
            };
            if labs.len() == MAX_LABS {
                break;
            }
            let limited = set_socket_timeout(&client, Timeout::Recv, Some(LAB_LIMIT));
            labs.push(match limited {
                Err(error) => json!({ "error": error.to_string() }),
                Ok(()) => match client.snapshot() {
                    Ok(lab) if lab.nodes.len() + lab.links.len() > 2 * MAX_NODES => json!({
                        "name": lab.name,
                        "error": format!("{} nodes are too many to be drawn", lab.nodes.len()),
                    }),
                    Ok(lab) => draw::json(&lab),
                    Err(error) => json!({ "error": error.to_string() }),
                },
            });
        }
        json!({ "list": labs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::{Pair, Rates};

    #[test]
    fn busiest_queue_pairs_are_shown_and_others_counted() {
        let pair = |number: u64, bytes_out: f64| Pair {
            number,
            local: format!("127.0.0.1:{number}"),
            peer: format!("127.0.0.1:{}", number ^ 1),
            state: "é".repeat(1000),
            rates: Rates {
                bytes_out,
                ..Rates::default()
            },
            ..Pair::default()
        };
        let count = 2 * MAX_PAIRS as u64;
        let process = Process {
            pid: 7,
            program: "<script>".to_owned(),
            is_silent: false,
            wakeups: 0.0,
            pairs: (0..count).map(|n| pair(n, n as f64)).collect(),
        };
        let shown = list(&[process]);
        let pairs = shown[0]["queue_pairs"].as_array().unwrap();
        assert_eq!(
            (pairs.len(), &shown[0]["left_out"]),
            (MAX_PAIRS, &json!(MAX_PAIRS))
        );
        assert_eq!(pairs[0]["number"], json!(count / 2));
        assert_eq!(pairs[0]["other"], json!([7, 0, count / 2 + 1]));
        assert_eq!(shown[0]["program"], "<script>");
        let state = pairs[0]["state"].as_str().unwrap();
        assert_eq!(state.chars().count(), MAX_TEXT + 1);
    }

    #[test]
    fn peer_that_does_not_answer_is_joined_as_a_process() {
        let process = |pid, is_silent, pairs| Process {
            pid,
            program: "p".to_owned(),
            is_silent,
            wakeups: 0.0,
            pairs,
        };
        let pair = |peer_pid| Pair {
            peer_pid: Some(peer_pid),
            ..Pair::default()
        };
        let shown = list(&[
            process(7, false, vec![pair(8), pair(9), pair(10)]),
            process(8, true, Vec::new()),
            process(9, false, Vec::new()),
        ]);
        let other = |at: usize| shown[0]["queue_pairs"][at].get("other").cloned();
        assert_eq!(
            (other(0), other(1), other(2)),
            (Some(json!([8])), None, None)
        );
    }

    #[test]
    fn all_processes_share_the_limit() {
        let process = |pid| Process {
            pid,
            program: "p".to_owned(),
            is_silent: false,
            wakeups: 0.0,
            pairs: vec![Pair::default(); 100],
        };
        let processes: Vec<_> = (0..256).map(process).collect();
        let shown = list(&processes);
        let pairs = |p: &Value| p["queue_pairs"].as_array().unwrap().len();
        assert_eq!(shown.len(), 256);
        assert_eq!(shown.iter().map(pairs).sum::<usize>(), MAX_ALL_PAIRS);
    }
}
