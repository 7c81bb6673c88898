//! The targets of the project, each with the result of this run.
//! There is one line per target: the worst ratio that counts, where it was measured, and whether it meets the target.
//! A target that was not measured is not met.

use serde::Serialize;

use super::case::{Topology, shown};
use super::results::Results;
use super::series::Measure::{
    Bandwidth, Connections, Idle, Latency, Rate, RoceBandwidth, RoceLatency, ShmBandwidth,
    ShmLatency, ShmRate,
};
use super::series::{Measure, number};

/// The result for a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Met,
    Missed,
    Unmeasured,
}

/// A target and its measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Target {
    pub(crate) what: &'static str,
    pub(crate) wanted: &'static str,
    pub(crate) measured: String,
    pub(crate) verdict: Verdict,
}

/// A ratio and where it was found.
#[derive(Debug, Clone, PartialEq)]
struct Ratio {
    value: f64,
    at: String,
}

/// The bound of a target.
#[derive(Debug, Clone, Copy)]
enum Bound {
    Least(f64),
    Most(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Bound::Least(least) => value >= least,
            Bound::Most(most) => value <= most,
        }
    }

    /// The ratio that is furthest from meeting the bound.
    fn worst(self, ratios: Vec<Ratio>) -> Option<Ratio> {
        let order = |a: &Ratio, b: &Ratio| a.value.total_cmp(&b.value);
        match self {
            Bound::Least(_) => ratios.into_iter().min_by(order),
            Bound::Most(_) => ratios.into_iter().max_by(order),
        }
    }
}

fn target(what: &'static str, wanted: &'static str, bound: Bound, ratios: Vec<Ratio>) -> Target {
    let all = ratios.len();
    let bad = ratios.iter().filter(|r| !bound.holds(r.value)).count();
    let (measured, verdict) = match bound.worst(ratios) {
        None => ("-".to_owned(), Verdict::Unmeasured),
        Some(Ratio { value, at }) => {
            let verdict = if bad == 0 {
                Verdict::Met
            } else {
                Verdict::Missed
            };
            let others = match (bad, all) {
                (0, _) | (_, 1) => String::new(),
                _ => format!("; {bad} of {all} miss it"),
            };
            (format!("{} ({at}){others}", number(value)), verdict)
        }
    };
    Target {
        what,
        wanted,
        measured,
        verdict,
    }
}

const LOOP: Topology = Topology::Loopback;
const ETHERNET: Topology = Topology::Veth(1500);
const BULK: [u32; 3] = [64 << 10, 1 << 20, 4 << 20];

impl Results {
    /// The value of one contender divided by another's; by the best one's if several are named.
    fn ratio(
        &self,
        (place, measure, size): (Topology, Measure, u32),
        ours: &str,
        theirs: &[&str],
    ) -> Option<Ratio> {
        let value = self.value(place, measure, size, ours)?;
        let others = theirs
            .iter()
            .filter_map(|name| Some((self.value(place, measure, size, name)?, *name)));
        let order = |a: &(f64, &str), b: &(f64, &str)| a.0.total_cmp(&b.0);
        let (other, name) = if measure.is_latency() {
            others.min_by(order)?
        } else {
            others.max_by(order)?
        };
        Some(Ratio {
            value: value / other,
            at: format!("{ours} by {name}, {} B", shown(size)),
        })
    }

    fn bulk(&self, ours: &[&str], theirs: &[&str]) -> Vec<Ratio> {
        let each = |size| {
            ours.iter()
                .filter_map(move |name| self.ratio((LOOP, Bandwidth, size), name, theirs))
        };
        BULK.into_iter().flat_map(each).collect()
    }

    fn shared_bulk(&self, ours: &[&str], theirs: &[&str]) -> Vec<Ratio> {
        let each = |size| {
            ours.iter()
                .filter_map(move |name| self.ratio((LOOP, ShmBandwidth, size), name, theirs))
        };
        [64 << 10, 1 << 20].into_iter().flat_map(each).collect()
    }

    /// At every size up to 4 KiB.
    fn short_latency(&self, ours: &[&str], theirs: &[&str]) -> Vec<Ratio> {
        let sizes = self.sizes(LOOP, Latency).into_iter();
        let each = |size| {
            ours.iter()
                .filter_map(move |name| self.ratio((LOOP, Latency, size), name, theirs))
        };
        sizes
            .filter(|size| *size <= 4 << 10)
            .flat_map(each)
            .collect()
    }

    /// The time of an operation by the round trip of the other, whose half was measured.
    fn by_round_trip(&self, measure: Measure, ours: &str, theirs: &str) -> Option<Ratio> {
        let half = self.ratio((LOOP, measure, 8), ours, &[theirs])?;
        Some(Ratio {
            value: half.value / 2.0,
            at: half.at,
        })
    }

    fn cpu(&self, ours: &str, theirs: &[&str]) -> Vec<Ratio> {
        let cpu = |size, name| self.series(LOOP, Bandwidth, size, name)?.cpu();
        let ratio = |size| {
            let best = theirs.iter().filter_map(|name| cpu(size, name));
            let value = cpu(size, ours)? / best.min_by(f64::total_cmp)?;
            let at = format!("{ours}, {} B", shown(size));
            Some(Ratio { value, at })
        };
        BULK.into_iter().filter_map(ratio).collect()
    }

    /// The factor by which it is ahead: below one is behind, for every measure.
    fn ahead(&self) -> Vec<Ratio> {
        let mut ratios = Vec::new();
        let over_tcp = |(_, measure): &(_, Measure)| !measure.is_shared_memory();
        for (place, measure) in self.kinds().into_iter().filter(over_tcp) {
            for size in self.sizes(place, measure) {
                let at = (place, measure, size);
                let ratio = self.ratio(at, "verbena-send", &["ucx", "libfabric"]);
                ratios.extend(ratio.map(|ratio| Ratio {
                    value: match measure {
                        Latency => 1.0 / ratio.value,
                        _ => ratio.value,
                    },
                    at: format!("{} {}, {}", place.name(), measure.name(), ratio.at),
                }));
            }
        }
        ratios
    }

    /// The factor by which the drop-in is worse, in shared memory or elsewhere: above one is worse.
    fn dropin(&self, shared: bool) -> Vec<Ratio> {
        let mut ratios = Vec::new();
        let kinds = self.kinds().into_iter();
        for (place, measure) in kinds.filter(|(_, m)| m.is_shared_memory() == shared) {
            for size in self.sizes(place, measure) {
                for (dropin, own) in [
                    ("dropin-send", "verbena-send"),
                    ("dropin-write", "verbena-write"),
                    ("dropin-read", "verbena-read"),
                    ("dropin-send-single", "verbena-send-single"),
                    ("dropin-write-single", "verbena-write-single"),
                ] {
                    let ratio = self.ratio((place, measure, size), dropin, &[own]);
                    ratios.extend(ratio.map(|ratio| Ratio {
                        value: match measure {
                            m if m.is_latency() => ratio.value,
                            _ => 1.0 / ratio.value,
                        },
                        at: format!("{} {}, {}", place.name(), measure.name(), ratio.at),
                    }));
                }
            }
        }
        ratios
    }

    fn veth_ratio(&self, ours: &str, theirs: &str) -> Vec<Ratio> {
        let sizes = self.sizes(ETHERNET, Bandwidth).into_iter();
        let ratio = |size| self.ratio((ETHERNET, Bandwidth, size), ours, &[theirs]);
        sizes.filter_map(ratio).collect()
    }

    fn many(&self) -> Vec<Ratio> {
        let value = |size, who| self.value(LOOP, Connections, size, who);
        let ratio = |who| Some(value(10_000, who)? / value(100, who)?);
        let raw = ratio("tcp-many").map_or(String::new(), |raw| format!("; raw TCP's is {raw:.2}"));
        let ratio = ratio("verbena-write").map(|value| Ratio {
            value,
            at: format!("throughput of 10,000 by that of 100{raw}"),
        });
        ratio.into_iter().collect()
    }

    fn memory(&self) -> Vec<Ratio> {
        let series = self.series(LOOP, Connections, 10_000, "verbena-write");
        let bytes = series.and_then(super::series::Series::memory);
        let ratio = bytes.map(|value| Ratio {
            value,
            at: "bytes each at 10,000".to_owned(),
        });
        ratio.into_iter().collect()
    }
}

const TCP: &[&str] = &["tcp-plain", "tcp-framed"];
const UDP: &[&str] = &["udp-segments", "iperf3-udp"];

const SHM: &[&str] = &["ucx", "ucx-put", "libfabric"];

/// Every target in the order of the table in docs/performance/peers.md: those of connections over TCP, of RoCEv2, and of shared memory.
pub(crate) fn judge(results: &Results) -> Vec<Target> {
    let one = |at, ours, theirs: &[&str]| -> Vec<Ratio> {
        results.ratio(at, ours, theirs).into_iter().collect()
    };
    let small = (LOOP, Latency, 8);
    let rate = (LOOP, Rate, 64);
    let mut peers = one(rate, "verbena-send", &["ucx"]);
    peers.extend(one(rate, "verbena-send", &["libfabric"]));
    let idle = |who| -> Vec<Ratio> {
        let at = "wake-ups of both sides in 2 s".to_owned();
        let value = results.value(LOOP, Idle, 1, who);
        let ratio = value.map(|value| Ratio { value, at });
        ratio.into_iter().collect()
    };
    let round_trip = |measure, ours: &[&str], theirs| -> Vec<Ratio> {
        let each = |name: &&str| results.by_round_trip(measure, name, theirs);
        ours.iter().filter_map(each).collect()
    };
    let roce_small = (LOOP, RoceLatency, 8);
    let mut roce_latency = one(roce_small, "roce-send", &["udp-polling"]);
    roce_latency.extend(one(roce_small, "roce-write", &["udp-polling"]));
    let roce_bulk = (LOOP, RoceBandwidth, 64 << 10);
    let mut roce_bandwidth = one(roce_bulk, "roce-send", UDP);
    roce_bandwidth.extend(one(roce_bulk, "roce-write", UDP));
    let shm_small = (LOOP, ShmLatency, 8);
    let mut shm_latency = one(shm_small, "verbena-send", SHM);
    shm_latency.extend(one(shm_small, "verbena-write", SHM));
    let shm_bandwidth = results.shared_bulk(&["verbena-send", "verbena-write"], SHM);
    let mut asleep = one(shm_small, "verbena-read", &["futex"]);
    asleep.extend(one(shm_small, "verbena-atomic", &["futex"]));
    let (least, most) = (Bound::Least, Bound::Most);
    vec![
        target(
            "write and send bandwidth, 64 KiB and above, no CRC, by the best raw TCP pattern",
            "≥ 0.95",
            least(0.95),
            results.bulk(&["verbena-write", "verbena-send"], TCP),
        ),
        target(
            "the same with CRC",
            "≥ 0.75",
            least(0.75),
            results.bulk(&["verbena-write-crc", "verbena-send-crc"], TCP),
        ),
        target(
            "half a round trip, 8 B to 4 KiB, both polling",
            "≤ 1.1 × raw TCP",
            most(1.1),
            results.short_latency(&["verbena-send", "verbena-write"], &["tcp-polling"]),
        ),
        target(
            "half a round trip, 8 B, both waiting for events (time, not instructions)",
            "≤ 1.3 × blocking raw TCP",
            most(1.3),
            one(small, "verbena-send-events", &["tcp-blocking"]),
        ),
        target(
            "a read of 8 B from a program that sleeps, by a round trip of polling TCP",
            "≤ 1.3 ×",
            most(1.3),
            round_trip(Latency, &["verbena-read"], "tcp-polling"),
        ),
        target(
            "message rate, 64 B sends, depth 128, one QP, by one write per message",
            "≥ 2 ×",
            least(2.0),
            one(rate, "verbena-send", &["tcp-messages"]),
        ),
        target(
            "the same by UCX tcp and libfabric tcp",
            "≥ 5 ×",
            least(5.0),
            peers,
        ),
        target(
            "veth, MTU 1500: write bandwidth by iperf3, large frames",
            "≥ 0.8",
            least(0.8),
            results.veth_ratio("verbena-write", "iperf3"),
        ),
        target(
            "veth, MTU 1500: the same with MSS-sized frames",
            "≥ 0.7",
            least(0.7),
            results.veth_ratio("verbena-write-mss", "iperf3"),
        ),
        target(
            "veth, MTU 1500: the same with MSS-sized frames and CRC",
            "≥ 0.4",
            least(0.4),
            results.veth_ratio("verbena-write-mss-crc", "iperf3"),
        ),
        target(
            "veth, MTU 1500: reads by writes",
            "≥ 0.9",
            least(0.9),
            results.veth_ratio("verbena-read", "verbena-write"),
        ),
        target(
            "every size and measure: times ahead of UCX tcp and libfabric tcp",
            "> 1",
            least(1.0),
            results.ahead(),
        ),
        target(
            "drop-in (perftest) by the Rust API: times worse",
            "≤ 1.1",
            most(1.1),
            results.dropin(false),
        ),
        target(
            "processor time per GB, bulk write waiting for events, by raw TCP",
            "≤ 1.1 ×",
            most(1.1),
            results.cpu("verbena-write-events", TCP),
        ),
        target("idle", "no wake-ups", most(0.0), idle("verbena")),
        target(
            "10,000 connections: throughput by that of 100",
            "≥ 0.85",
            least(0.85),
            results.many(),
        ),
        target(
            "10,000 connections: memory each",
            "≤ 8192 B",
            most(8192.0),
            results.memory(),
        ),
        target(
            "RoCEv2: send and write bandwidth, 64 KiB, by the best UDP loop",
            "≥ 0.7",
            least(0.7),
            roce_bandwidth,
        ),
        target(
            "RoCEv2: half a round trip, 8 B, both polling",
            "≤ 1.15 × UDP",
            most(1.15),
            roce_latency,
        ),
        target(
            "shared memory: half a round trip, 8 B, both polling, by UCX and libfabric",
            "≤ 1.2 ×",
            most(1.2),
            shm_latency,
        ),
        target(
            "shared memory: half a round trip, 8 B, both asleep, by two threads that wake each other",
            "≤ 1.2 ×",
            most(1.2),
            one(shm_small, "verbena-send-events", &["futex"]),
        ),
        target(
            "shared memory: send and write bandwidth, 64 KiB and 1 MiB, by UCX and libfabric",
            "> 1",
            least(1.0),
            shm_bandwidth,
        ),
        target(
            "shared memory: message rate, 64 B sends, by UCX and libfabric",
            "> 1",
            least(1.0),
            one((LOOP, ShmRate, 64), "verbena-send", SHM),
        ),
        target(
            "shared memory: a read and an atomic, 8 B, of a target that polls, by a round trip of sends",
            "≤ 1.2 ×",
            most(1.2),
            round_trip(
                ShmLatency,
                &["verbena-read-polled", "verbena-atomic-polled"],
                "verbena-send",
            ),
        ),
        target(
            "shared memory: a read and an atomic, 8 B, of a target that sleeps, by a wake-up of `futex`",
            "≤ 1.3 ×",
            most(1.3),
            asleep,
        ),
        target(
            "shared memory: drop-in (perftest) by the Rust API: times worse",
            "≤ 1.15",
            most(1.15),
            results.dropin(true),
        ),
        target(
            "shared memory: idle",
            "no wake-ups",
            most(0.0),
            idle("verbena-shm"),
        ),
    ]
}

#[cfg(test)]
mod tests;
