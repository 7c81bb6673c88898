//! The counters of running processes as OpenMetrics text: per device with the names of node_exporter's infiniband collector, and per process and queue
//! pair with names of ours.
//! Totals of a device do not go back when a process ends, as long as one [`Collector`] is used. The number of series is limited: further queue pairs of a
//! process are summed up.

mod http;
mod text;

use std::collections::BTreeMap;

use crate::events::{Error, list, program};
use crate::objects::{Object, objects};
use crate::why::is_stopped;
use text::{Kind, Text};

pub use http::listen;

/// Processes that are shown at most.
pub const MAX_PROCESSES: usize = 256;
/// Ended processes whose totals are remembered one by one before they are added up.
const DEVICES: usize = 1024;

/// A dashboard of Grafana for these metrics.
pub const DASHBOARD: &str = include_str!("../assets/grafana.json");

/// What is counted.
const COUNTED: [(&str, &str, &str); 6] = [
    ("bytes_in", "received_bytes", "Bytes received"),
    ("bytes_out", "sent_bytes", "Bytes sent"),
    ("messages_in", "received_messages", "Messages received"),
    ("messages_out", "sent_messages", "Messages sent"),
    (
        "rnr_sent",
        "receiver_not_ready_sent",
        "Messages of the peer that found no receive",
    ),
    (
        "rnr_received",
        "receiver_not_ready_received",
        "Messages that found no receive at the peer",
    ),
];

/// Totals of a device.
#[derive(Debug, Clone, Copy, Default)]
struct Totals([u64; 8]);

/// The keys of [`Totals`] in the line of an adapter.
const TOTALS: [&str; 8] = [
    "bytes_in",
    "bytes_out",
    "messages_in",
    "messages_out",
    "dropped_malformed",
    "dropped_oversized",
    "dropped_checksum",
    "dropped_no_receiver",
];

impl Totals {
    fn of(adapter: &Object) -> Totals {
        Totals(TOTALS.map(|key| adapter.number(key).unwrap_or(0)))
    }

    fn add(&mut self, other: &Totals) {
        for (sum, one) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(one);
        }
    }
}

/// Reads processes and remembers the totals of those that ended.
#[derive(Debug)]
pub struct Collector {
    /// Queue pairs with series of their own, per process.
    max_pairs: usize,
    /// Of processes that were seen last time: device name and totals of each adapter.
    running: BTreeMap<(u32, u64, u32), (String, Totals)>,
    ended: BTreeMap<String, Totals>,
}

/// What was read of a process.
struct Read {
    pid: u32,
    program: String,
    /// `None` if it does not answer.
    objects: Option<Vec<Object>>,
}

impl Collector {
    /// Queue pairs beyond the first `max_pairs` of a process are summed up.
    pub fn new(max_pairs: usize) -> Collector {
        Collector {
            max_pairs,
            running: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    /// The metrics of all processes of this user now.
    pub fn collect(&mut self) -> Result<String, Error> {
        let mut read = Vec::new();
        for watchable in list()?.into_iter().take(MAX_PROCESSES) {
            let pid = watchable.pid;
            let found = if is_stopped(pid) {
                Err(Error::Silent { pid })
            } else {
                objects(pid)
            };
            let objects = match found {
                Ok(found) => Some(found),
                Err(Error::Silent { .. }) => None,
                // It ended meanwhile, or belongs to another user.
                Err(_) => continue,
            };
            let program = program(pid).unwrap_or_else(|| "?".to_owned());
            read.push(Read {
                pid,
                program,
                objects,
            });
        }
        self.note_totals(&read);
        Ok(self.write(&read))
    }

    /// Remembers the totals of processes that run, and adds those of processes that do not any more to their devices.
    fn note_totals(&mut self, read: &[Read]) {
        let mut running = BTreeMap::new();
        for process in read {
            let started = verbena::unstable::monitor::files::start_time(process.pid).unwrap_or(0);
            match &process.objects {
                Some(objects) => {
                    for adapter in objects.iter().filter(|object| object.kind == "adapter") {
                        let name = adapter.get("name").unwrap_or("?").to_owned();
                        let key = (process.pid, started, adapter.adapter);
                        running.insert(key, (name, Totals::of(adapter)));
                    }
                }
                // It still counts what it counted.
                None => {
                    let of_it = (process.pid, started, 0)..=(process.pid, started, u32::MAX);
                    let known = self.running.range(of_it);
                    running.extend(known.map(|(key, known)| (*key, known.clone())));
                }
            }
        }
        for (key, (name, totals)) in &self.running {
            if !running.contains_key(key)
                && (self.ended.len() < DEVICES || self.ended.contains_key(name))
            {
                self.ended.entry(name.clone()).or_default().add(totals);
            }
        }
        self.running = running;
    }

    fn write(&self, read: &[Read]) -> String {
        let mut text = Text::default();
        self.write_devices(&mut text);
        write_processes(&mut text, read);
        self.write_pairs(&mut text, read);
        text.finish()
    }

    fn write_devices(&self, text: &mut Text) {
        let mut devices = self.ended.clone();
        for (name, totals) in self.running.values() {
            devices.entry(name.clone()).or_default().add(totals);
        }
        text.family(
            "node_infiniband",
            Kind::Info,
            "Device of this name",
            |samples| {
                for name in devices.keys() {
                    let version = env!("CARGO_PKG_VERSION");
                    samples.add(
                        &[
                            ("device", name),
                            ("firmware_version", version),
                            ("hca_type", "Verbena"),
                        ],
                        1.0,
                    );
                }
            },
        );
        // Packets are messages and datagrams, as in the adapter's sysfs files (docs/dropin.md).
        let families: [(&str, &str, &[usize]); 6] = [
            (
                "port_data_received_bytes",
                "Bytes received by queue pairs of the device",
                &[0],
            ),
            (
                "port_data_transmitted_bytes",
                "Bytes sent by queue pairs of the device",
                &[1],
            ),
            (
                "port_packets_received",
                "Messages and datagrams received",
                &[2],
            ),
            (
                "port_packets_transmitted",
                "Messages and datagrams sent",
                &[3],
            ),
            (
                "port_errors_received",
                "Datagrams and packets that are malformed, too long or have a wrong checksum",
                &[4, 5, 6],
            ),
            (
                "port_discards_received",
                "Datagrams and packets for no queue pair",
                &[7],
            ),
        ];
        for (name, help, of) in families {
            text.family(
                &format!("node_infiniband_{name}"),
                Kind::Counter,
                help,
                |samples| {
                    for (device, totals) in &devices {
                        let sum = of
                            .iter()
                            .map(|at| totals.0[*at])
                            .fold(0, u64::saturating_add);
                        samples.add(&[("device", device), ("port", "1")], sum as f64);
                    }
                },
            );
        }
    }

    fn write_pairs(&self, text: &mut Text, read: &[Read]) {
        let pairs = |process: &Read| -> Vec<Object> {
            let all = process.objects.iter().flatten();
            all.filter(|object| object.kind == "qp").cloned().collect()
        };
        let all: Vec<(&Read, Vec<Object>)> = read.iter().map(|p| (p, pairs(p))).collect();
        let mut counter = |key: &str, name: &str, help: &str, kind: Kind| {
            text.family(
                &format!("verbena_queue_pair_{name}"),
                kind,
                help,
                |samples| {
                    for (process, pairs) in &all {
                        let pid = process.pid.to_string();
                        let value = |qp: &Object| qp.number(key).unwrap_or(0) as f64;
                        let (shown, rest) = pairs.split_at(pairs.len().min(self.max_pairs));
                        for qp in shown {
                            let adapter = qp.adapter.to_string();
                            let labels = [
                                ("pid", pid.as_str()),
                                ("program", &process.program),
                                ("adapter", &adapter),
                                ("queue_pair", qp.get("number").unwrap_or("?")),
                            ];
                            samples.add(&labels, value(qp));
                        }
                        if !rest.is_empty() {
                            let labels = [
                                ("pid", pid.as_str()),
                                ("program", &process.program),
                                ("adapter", "other"),
                                ("queue_pair", "other"),
                            ];
                            samples.add(&labels, rest.iter().map(value).sum());
                        }
                    }
                },
            );
        };
        for (key, name, help) in COUNTED {
            counter(key, name, help, Kind::Counter);
        }
        counter(
            "retransmitted",
            "retransmitted_segments",
            "TCP segments sent again",
            Kind::Counter,
        );
        counter(
            "repeated",
            "repeated_packets",
            "RoCEv2 packets sent again",
            Kind::Counter,
        );
        counter(
            "sends",
            "outstanding_sends",
            "Send requests that have not completed",
            Kind::Gauge,
        );
        counter(
            "receives",
            "posted_receives",
            "Receives that have not completed",
            Kind::Gauge,
        );
    }
}

fn write_processes(text: &mut Text, read: &[Read]) {
    text.family(
        "verbena_process_answers",
        Kind::Gauge,
        "Whether the process answers",
        |samples| {
            for process in read {
                let labels = [
                    ("pid", &*process.pid.to_string()),
                    ("program", &process.program),
                ];
                samples.add(&labels, f64::from(u8::from(process.objects.is_some())));
            }
        },
    );
    text.family(
        "verbena_queue_pairs",
        Kind::Gauge,
        "Queue pairs by state and path",
        |samples| {
            for process in read {
                let mut counts = BTreeMap::<(&str, &str), u64>::new();
                for qp in process
                    .objects
                    .iter()
                    .flatten()
                    .filter(|object| object.kind == "qp")
                {
                    let key = (
                        known(qp.get("state"), &STATES),
                        known(qp.get("path"), &PATHS),
                    );
                    *counts.entry(key).or_default() += 1;
                }
                for ((state, path), count) in counts {
                    let pid = process.pid.to_string();
                    let labels = [
                        ("pid", &*pid),
                        ("program", &process.program),
                        ("state", state),
                        ("path", path),
                    ];
                    samples.add(&labels, count as f64);
                }
            }
        },
    );
}

const STATES: [&str; 9] = [
    "Reset",
    "Init",
    "Rtr",
    "Rts",
    "Sqd",
    "Sqe",
    "Closing",
    "Terminate",
    "Err",
];
const PATHS: [&str; 3] = ["tcp", "shared-memory", "roce"];

/// A word of a list; a process cannot make up label values.
fn known<'a>(word: Option<&str>, list: &[&'a str]) -> &'a str {
    let found = list.iter().find(|known| Some(**known) == word);
    found.copied().unwrap_or("none")
}

#[cfg(test)]
mod tests;
