//! The contenders, in one table, and the two commands that run each of them.
//! Each has its own best reasonable settings, the same sizes, and two processes, which are not pinned.
//! A program without a time option gets as many messages as take about the same time.

use super::output::{Format, Run};
use super::series::Measure;
use Measure::{
    Bandwidth, Connections, Idle, Latency, Rate, RoceBandwidth, RoceLatency, ShmBandwidth,
    ShmLatency, ShmRate,
};
use Program::{Fabric, Iperf3, Iperf3Udp, Perftest, PerftestSingle, Ucx, Worker};

/// A program that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    /// `verbena-peers`, with these arguments.
    Worker(Measure, &'static [&'static str]),
    Iperf3,
    /// The same over UDP, as fast as it can.
    Iperf3Udp,
    /// The upper level of UCX over its tcp or its shared memory, by the tests for latency and bandwidth.
    Ucx(&'static str, &'static str),
    Fabric,
    /// perftest on the drop-in libraries, by its verb.
    Perftest(&'static str),
    /// The same for the rate, with each request posted by a call of its own.
    PerftestSingle(&'static str),
}

/// A contender.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    program: Program,
    pub(crate) loopback: bool,
    pub(crate) veth: bool,
    /// Measured at every size.
    pub(crate) first_row: bool,
}

const fn first(name: &'static str, program: Program) -> Contender {
    Contender {
        name,
        program,
        loopback: true,
        veth: true,
        first_row: true,
    }
}

const fn second(name: &'static str, program: Program) -> Contender {
    Contender {
        first_row: false,
        ..first(name, program)
    }
}

const fn loopback_only(name: &'static str, program: Program) -> Contender {
    Contender {
        veth: false,
        ..second(name, program)
    }
}

const fn veth_only(name: &'static str, program: Program) -> Contender {
    Contender {
        loopback: false,
        ..second(name, program)
    }
}

const EVENTS: &[&str] = &["latency", "--op", "send", "--events"];
const CRC: &[&str] = &["stream", "--op", "write", "--fpdu", "large", "--crc", "on"];
const SEND_CRC: &[&str] = &["stream", "--op", "send", "--fpdu", "large", "--crc", "on"];
const MSS: &[&str] = &["stream", "--op", "write", "--fpdu", "mss"];
#[rustfmt::skip]
const MSS_CRC: &[&str] = &["stream", "--op", "write", "--fpdu", "mss", "--crc", "on"];
const WRITE_EVENTS: &[&str] = &["stream", "--op", "write", "--fpdu", "large", "--events"];

const LATENCY_TLS: &[&str] = &["latency", "--op", "send", "--tls"];
const SEND_TLS: &[&str] = &["stream", "--op", "send", "--fpdu", "large", "--tls"];
const WRITE_TLS: &[&str] = &["stream", "--op", "write", "--fpdu", "large", "--tls"];

const SEND_SINGLE: &[&str] = &["stream", "--op", "send", "--list", "1"];
const WRITE_SINGLE: &[&str] = &["stream", "--op", "write", "--list", "1"];

const TCP_SEND_LATENCY: &[&str] = &["latency", "--op", "send", "--wire", "tcp"];
const TCP_WRITE_LATENCY: &[&str] = &["latency", "--op", "write", "--wire", "tcp"];
const TCP_READ_LATENCY: &[&str] = &["latency", "--op", "read", "--wire", "tcp"];
const ROCE_SEND_LATENCY: &[&str] = &["latency", "--op", "send", "--wire", "roce"];
const ROCE_WRITE_LATENCY: &[&str] = &["latency", "--op", "write", "--wire", "roce"];
const ROCE_READ_LATENCY: &[&str] = &["latency", "--op", "read", "--wire", "roce"];
const TCP_SEND: &[&str] = &["stream", "--op", "send", "--wire", "tcp"];
const TCP_WRITE: &[&str] = &["stream", "--op", "write", "--wire", "tcp"];
const TCP_READ: &[&str] = &["stream", "--op", "read", "--wire", "tcp"];
const ROCE_SEND: &[&str] = &["stream", "--op", "send", "--wire", "roce"];
const ROCE_WRITE: &[&str] = &["stream", "--op", "write", "--wire", "roce"];
const ROCE_READ: &[&str] = &["stream", "--op", "read", "--wire", "roce"];

const SHM_SEND_LATENCY: &[&str] = &["latency", "--op", "send", "--same-host"];
const SHM_SEND_EVENTS: &[&str] = &["latency", "--op", "send", "--same-host", "--events"];
const SHM_WRITE_LATENCY: &[&str] = &["latency", "--op", "write", "--same-host"];
const SHM_READ_LATENCY: &[&str] = &["latency", "--op", "read", "--same-host"];
const SHM_ATOMIC_LATENCY: &[&str] = &["latency", "--op", "atomic", "--same-host"];
const SHM_READ_POLLED: &[&str] = &["latency", "--op", "read", "--same-host", "--polled"];
const SHM_ATOMIC_POLLED: &[&str] = &["latency", "--op", "atomic", "--same-host", "--polled"];
const SHM_SEND: &[&str] = &["stream", "--op", "send", "--same-host"];
const SHM_WRITE: &[&str] = &["stream", "--op", "write", "--same-host"];
const SHM_READ: &[&str] = &["stream", "--op", "read", "--same-host"];
#[rustfmt::skip]
const ROCE_WRITE_LOSS_1000: &[&str] = &["stream", "--op", "write", "--wire", "roce", "--loss", "1000"];
#[rustfmt::skip]
const ROCE_WRITE_LOSS_10000: &[&str] = &["stream", "--op", "write", "--wire", "roce", "--loss", "10000"];

/// All contenders. `verbena-…` is the Rust API, `dropin-…` perftest on the drop-in libraries.
pub(crate) const CONTENDERS: &[Contender] = &[
    first("tcp-polling", Worker(Latency, &["pingpong"])),
    first("tcp-blocking", Worker(Latency, &["blocking"])),
    first("tcp-plain", Worker(Bandwidth, &["plain"])),
    first("tcp-framed", Worker(Bandwidth, &["framed"])),
    first("tcp-messages", Worker(Rate, &["messages"])),
    second("iperf3", Iperf3),
    first("ucx", Ucx("tag_lat", "tag_bw")),
    loopback_only("ucx-put", Ucx("ucp_put_lat", "ucp_put_bw")),
    first("libfabric", Fabric),
    first(
        "verbena-send",
        Worker(Latency, &["latency", "--op", "send"]),
    ),
    first(
        "verbena-write",
        Worker(Latency, &["latency", "--op", "write"]),
    ),
    first(
        "verbena-read",
        Worker(Latency, &["latency", "--op", "read"]),
    ),
    second("verbena-send-events", Worker(Latency, EVENTS)),
    loopback_only("tls-polling", Worker(Latency, &["tls-pingpong"])),
    loopback_only("verbena-send-tls", Worker(Latency, LATENCY_TLS)),
    first(
        "verbena-send",
        Worker(Bandwidth, &["stream", "--op", "send", "--fpdu", "large"]),
    ),
    first(
        "verbena-write",
        Worker(Bandwidth, &["stream", "--op", "write", "--fpdu", "large"]),
    ),
    first(
        "verbena-read",
        Worker(Bandwidth, &["stream", "--op", "read", "--fpdu", "large"]),
    ),
    second("verbena-write-events", Worker(Bandwidth, WRITE_EVENTS)),
    loopback_only("verbena-send-crc", Worker(Bandwidth, SEND_CRC)),
    second("verbena-write-crc", Worker(Bandwidth, CRC)),
    loopback_only("tls-plain", Worker(Bandwidth, &["tls-plain"])),
    loopback_only("verbena-send-tls", Worker(Bandwidth, SEND_TLS)),
    loopback_only("verbena-write-tls", Worker(Bandwidth, WRITE_TLS)),
    veth_only("verbena-write-mss", Worker(Bandwidth, MSS)),
    veth_only("verbena-write-mss-crc", Worker(Bandwidth, MSS_CRC)),
    first("verbena-send", Worker(Rate, &["stream", "--op", "send"])),
    first("verbena-write", Worker(Rate, &["stream", "--op", "write"])),
    first("verbena-send-single", Worker(Rate, SEND_SINGLE)),
    first("verbena-write-single", Worker(Rate, WRITE_SINGLE)),
    loopback_only("tcp-many", Worker(Connections, &["tcp-many"])),
    loopback_only("verbena-write", Worker(Connections, &["many"])),
    loopback_only("verbena", Worker(Idle, &["idle"])),
    loopback_only("verbena-shm", Worker(Idle, &["idle", "--same-host"])),
    second("udp-polling", Worker(RoceLatency, &["udp-pingpong"])),
    second("tcp-send", Worker(RoceLatency, TCP_SEND_LATENCY)),
    second("roce-send", Worker(RoceLatency, ROCE_SEND_LATENCY)),
    second("tcp-write", Worker(RoceLatency, TCP_WRITE_LATENCY)),
    second("roce-write", Worker(RoceLatency, ROCE_WRITE_LATENCY)),
    second("tcp-read", Worker(RoceLatency, TCP_READ_LATENCY)),
    second("roce-read", Worker(RoceLatency, ROCE_READ_LATENCY)),
    second("udp-segments", Worker(RoceBandwidth, &["udp-stream"])),
    second("iperf3-udp", Iperf3Udp),
    second("tcp-send", Worker(RoceBandwidth, TCP_SEND)),
    second("roce-send", Worker(RoceBandwidth, ROCE_SEND)),
    second("tcp-write", Worker(RoceBandwidth, TCP_WRITE)),
    second("roce-write", Worker(RoceBandwidth, ROCE_WRITE)),
    second("tcp-read", Worker(RoceBandwidth, TCP_READ)),
    second("roce-read", Worker(RoceBandwidth, ROCE_READ)),
    second(
        "roce-write-0.1%-loss",
        Worker(RoceBandwidth, ROCE_WRITE_LOSS_1000),
    ),
    second(
        "roce-write-1%-loss",
        Worker(RoceBandwidth, ROCE_WRITE_LOSS_10000),
    ),
    loopback_only("futex", Worker(ShmLatency, &["futex"])),
    loopback_only("verbena-send", Worker(ShmLatency, SHM_SEND_LATENCY)),
    loopback_only("verbena-send-events", Worker(ShmLatency, SHM_SEND_EVENTS)),
    loopback_only("verbena-write", Worker(ShmLatency, SHM_WRITE_LATENCY)),
    loopback_only("verbena-read", Worker(ShmLatency, SHM_READ_LATENCY)),
    loopback_only("verbena-read-polled", Worker(ShmLatency, SHM_READ_POLLED)),
    loopback_only("verbena-atomic", Worker(ShmLatency, SHM_ATOMIC_LATENCY)),
    loopback_only(
        "verbena-atomic-polled",
        Worker(ShmLatency, SHM_ATOMIC_POLLED),
    ),
    loopback_only("verbena-send", Worker(ShmBandwidth, SHM_SEND)),
    loopback_only("verbena-write", Worker(ShmBandwidth, SHM_WRITE)),
    loopback_only("verbena-read", Worker(ShmBandwidth, SHM_READ)),
    loopback_only("verbena-send", Worker(ShmRate, SHM_SEND)),
    loopback_only("verbena-write", Worker(ShmRate, SHM_WRITE)),
    second("dropin-send", Perftest("send")),
    second("dropin-write", Perftest("write")),
    second("dropin-read", Perftest("read")),
    loopback_only("dropin-send-single", PerftestSingle("send")),
    loopback_only("dropin-write-single", PerftestSingle("write")),
];

/// The programs that must be installed, with their Debian packages.
pub(crate) const PROGRAMS: &[(&str, &str)] = &[
    ("iperf3", "iperf3"),
    ("ucx_perftest", "ucx-utils"),
    ("fi_pingpong", "libfabric-bin"),
    ("ib_send_lat", "perftest"),
    ("setpriv", "util-linux"),
    ("ip", "iproute2"),
];

/// Bytes of an atomic operation.
const ATOMIC: u32 = 8;
/// Outstanding messages when the rate is measured.
const RATE_DEPTH: u32 = 128;
/// Requests that our own loops post by one call.
const LIST: u32 = 16;
/// Bytes of a message when many connections are measured.
const CONNECTIONS_SIZE: u32 = 64 << 10;
/// Seconds without traffic.
const IDLE: f64 = 2.0;

/// Where and how it runs.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) address: String,
    pub(crate) port: u16,
    pub(crate) loopback: bool,
    /// `verbena-peers`.
    pub(crate) worker: String,
    /// The folder with the drop-in libraries.
    pub(crate) libraries: String,
    /// How long our own loops measure.
    pub(crate) seconds: f64,
    /// Bytes of the longest UDP datagram without fragments, and of the datagrams of a burst.
    pub(crate) datagram: u32,
    pub(crate) segment: u32,
}

/// Two commands, and how their output is read.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) server: Vec<String>,
    pub(crate) caller: Vec<String>,
    pub(crate) env: Vec<(&'static str, String)>,
    pub(crate) run: Run,
}

impl Contender {
    pub(crate) fn measures(&self, measure: Measure, size: u32) -> bool {
        let bulk = size >= 64 << 10;
        match self.program {
            Worker(own, words) => {
                let special = matches!(self.name, "verbena-write-events" | "verbena-send-crc");
                let special = special || words.contains(&"--crc");
                let special = special || (own == Bandwidth && self.name.contains("tls"));
                let fits = !words.contains(&"atomic") || size == ATOMIC;
                own == measure && (!special || bulk) && fits
            }
            Iperf3 => measure == Bandwidth && bulk && size <= 1 << 20,
            Iperf3Udp => measure == RoceBandwidth,
            Ucx(..) | Fabric => {
                measure.is_shared_memory() || matches!(measure, Latency | Bandwidth | Rate)
            }
            PerftestSingle(_) => measure == Rate,
            Perftest(verb) => match measure {
                Latency | ShmLatency => size <= 4 << 10,
                Bandwidth | ShmBandwidth => bulk,
                Rate | ShmRate => verb != "read",
                _ => false,
            },
        }
    }

    /// The program it needs, among those that may be missing.
    pub(crate) fn needs(&self) -> &'static str {
        match self.program {
            Worker(..) => "",
            Iperf3 | Iperf3Udp => "iperf3",
            Ucx(..) => "ucx_perftest",
            Fabric => "fi_pingpong",
            Perftest(_) | PerftestSingle(_) => "ib_send_lat",
        }
    }

    pub(crate) fn commands(&self, measure: Measure, size: u32, at: &Setting) -> Commands {
        let port = at.port.to_string();
        let count = count(measure, size, at.seconds).to_string();
        let bytes = size.to_string();
        let depth = depth(measure, size).to_string();
        let mut env = Vec::new();
        let (format, server, caller) = match self.program {
            Worker(_, words) => {
                let words = self.worker(words, measure, size, at);
                let side = |word: &str| {
                    let head = [at.worker.clone(), word.to_owned()];
                    head.into_iter().chain(words.iter().cloned()).collect()
                };
                (Format::Worker, side("serve"), side("call"))
            }
            Iperf3Udp => {
                let seconds = at.seconds.ceil().to_string();
                let bytes = at.datagram.to_string();
                let caller = [
                    "iperf3",
                    "-c",
                    &at.address,
                    "-p",
                    &port,
                    "-J",
                    "-u",
                    "-b",
                    "0",
                ];
                let caller = [&caller[..], &["-t", &seconds, "-l", &bytes]].concat();
                let server = ["iperf3", "-s", "-1", "-p", &port];
                (Format::Iperf3, owned(&server), owned(&caller))
            }
            Iperf3 => {
                let seconds = at.seconds.ceil().to_string();
                let caller = [
                    "iperf3",
                    "-c",
                    &at.address,
                    "-p",
                    &port,
                    "-J",
                    "-t",
                    &seconds,
                    "-l",
                    &bytes,
                ];
                let server = ["iperf3", "-s", "-1", "-p", &port];
                (Format::Iperf3, owned(&server), owned(&caller))
            }
            Ucx(latency, bandwidth) => {
                if measure.is_shared_memory() {
                    env.push(("UCX_TLS", "sm".to_owned()));
                } else {
                    env.push(("UCX_TLS", "tcp".to_owned()));
                    if at.loopback {
                        env.push(("UCX_NET_DEVICES", "lo".to_owned()));
                    }
                }
                let test = if measure.is_latency() {
                    latency
                } else {
                    bandwidth
                };
                let server = ["ucx_perftest", "-p", &port];
                let caller = [
                    "ucx_perftest",
                    "-p",
                    &port,
                    "-t",
                    test,
                    "-s",
                    &bytes,
                    "-n",
                    &count,
                    "-w",
                    "100",
                    "-f",
                    &at.address,
                ];
                (Format::Ucx, owned(&server), owned(&caller))
            }
            Fabric => {
                // It has a ping-pong only, for every measure.
                let count = self::count(Latency, size, at.seconds).to_string();
                let (provider, endpoint) = if measure.is_shared_memory() {
                    ("shm", "rdm")
                } else {
                    ("tcp", "msg")
                };
                let both = [
                    "fi_pingpong",
                    "-p",
                    provider,
                    "-e",
                    endpoint,
                    "-I",
                    &count,
                    "-S",
                    &bytes,
                ];
                let server = [&both[..], &["-B", &port]].concat();
                let caller = [&both[..], &["-P", &port, &at.address]].concat();
                (Format::Fabric, owned(&server), owned(&caller))
            }
            Perftest(verb) | PerftestSingle(verb) => {
                env.push(("LD_LIBRARY_PATH", at.libraries.clone()));
                env.push(("VERBENA_CRC", "off".to_owned()));
                let same_host = if measure.is_shared_memory() {
                    "auto"
                } else {
                    "off"
                };
                env.push(("VERBENA_SAME_HOST", same_host.to_owned()));
                let kind = if measure.is_latency() { "lat" } else { "bw" };
                let program = format!("ib_{verb}_{kind}");
                // -F: do not fail on variable processor frequencies.
                let mut both = owned(&[&program, "-F", "-p", &port, "-s", &bytes, "-n", &count]);
                if !measure.is_latency() {
                    both.extend(owned(&["-t", &depth]));
                }
                if measure.is_rate() && self.program == Perftest(verb) {
                    // As many requests in one call as our own loops post.
                    both.extend(owned(&["-l", &LIST.to_string()]));
                }
                let caller = both.iter().cloned().chain([at.address.clone()]).collect();
                let format = if measure.is_latency() {
                    Format::PerftestLatency
                } else {
                    Format::PerftestBandwidth
                };
                (format, both, caller)
            }
        };
        Commands {
            server,
            caller,
            env,
            run: Run {
                format,
                measure,
                size,
            },
        }
    }

    fn worker(&self, words: &[&str], measure: Measure, size: u32, at: &Setting) -> Vec<String> {
        let mut all = owned(words);
        let (bytes, connections, seconds) = match measure {
            Connections => (CONNECTIONS_SIZE, size, at.seconds),
            Idle => (64, size, IDLE),
            _ => (size, 1, at.seconds),
        };
        all.extend([
            "--at".to_owned(),
            format!("{}:{}", at.address, at.port),
            format!("--size={bytes}"),
            format!("--seconds={seconds}"),
            format!("--depth={}", depth(measure, bytes)),
            format!("--connections={connections}"),
            format!("--segment={}", at.segment),
        ]);
        all
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Outstanding messages: 8 MiB of them, within limits.
fn depth(measure: Measure, size: u32) -> u32 {
    match measure {
        Rate | ShmRate => RATE_DEPTH,
        _ => ((8 << 20) / size.max(1)).clamp(8, 64),
    }
}

/// About as many messages as a contender of medium speed sends in the time.
fn count(measure: Measure, size: u32, seconds: f64) -> u32 {
    // A message takes 5 µs and a nanosecond for three bytes; with several outstanding, 1 µs and the same.
    let each = 5e-6 + f64::from(size) / 3e9;
    let (each, most) = match measure {
        // Where polling threads share a processor, each message takes a time slice: more would take minutes.
        m if m.is_latency() => (each, 5_000.0),
        _ => (each.min(1e-6 + f64::from(size) / 3e9), 200_000.0),
    };
    // perftest takes whole lists only.
    let count = (seconds / each).clamp(64.0, most) as u32;
    count - count % LIST
}

#[cfg(test)]
mod tests;
