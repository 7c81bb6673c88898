//! The parameters of a measurement, which both sides get, and the figures that each side returns. A measurement ends by time and not by
//! count, so that a busy machine makes it less accurate but not longer. Seconds, bytes and messages are plain numbers.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use verbena_cli::bench::{Meter, Op, Throughput, quantile};

/// How long a peer may be silent: longer than `xtask` lets a measurement run.
pub(crate) const SILENCE_LIMIT: Duration = Duration::from_secs(120);

/// Which loop runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// TCP: ping-pong, both sides polling
    Pingpong,
    /// TCP: ping-pong, both sides blocking in `read`
    Blocking,
    /// TCP: a stream of writes of one size, read in pieces of 64 KiB
    Plain,
    /// TCP: frames with heads of 16 bytes, gathered by one call and scattered directly into their buffers
    Framed,
    /// TCP: one write per message, large reads
    Messages,
    /// Two threads of the client that wake each other by futexes
    Futex,
    /// TLS over TCP: ping-pong, both sides polling
    TlsPingpong,
    /// TLS over TCP: a stream of writes of one size, read in pieces of 64 KiB
    TlsPlain,
    /// UDP: ping-pong, both sides polling
    UdpPingpong,
    /// UDP: a stream of bursts, each sent with one call
    UdpStream,
    /// TCP: throughput of many connections
    TcpMany,
    /// Verbena: ping-pong, or RDMA reads
    Latency,
    /// Verbena: many outstanding messages
    Stream,
    /// Verbena: memory and throughput of many connections
    Many,
    /// Verbena: wake-ups of an idle connection
    Idle,
}

/// One measurement, with the same arguments on both sides.
#[derive(Debug, Clone, Args)]
pub(crate) struct Job {
    /// Which loop
    #[arg(value_enum)]
    pub(crate) kind: Kind,
    /// Where the server listens
    #[arg(long)]
    pub(crate) at: SocketAddr,
    /// Bytes per message
    #[arg(long, default_value_t = 8)]
    pub(crate) size: u32,
    /// How long to measure, after a warm-up of a quarter of that time
    #[arg(long, default_value_t = 0.3)]
    pub(crate) seconds: f64,
    /// Operation of the Verbena loops
    #[arg(long, value_enum, default_value = "send")]
    pub(crate) op: Op,
    /// Outstanding messages
    #[arg(long, default_value_t = 64)]
    pub(crate) depth: u32,
    /// Requests that are posted by one call, at most 16
    #[arg(long, default_value_t = 16)]
    pub(crate) list: u32,
    /// Sleep in events instead of polling
    #[arg(long)]
    pub(crate) events: bool,
    /// Poll at a server whose thread is not needed: the target of reads and atomics
    #[arg(long)]
    pub(crate) polled: bool,
    /// Verbena's checksums: auto, on or off
    #[arg(long, default_value = "off")]
    pub(crate) crc: String,
    /// Verbena's frames: auto, mss or large
    #[arg(long, default_value = "auto")]
    pub(crate) fpdu: String,
    /// Verbena's wire: auto, tcp or roce
    #[arg(long, default_value = "auto")]
    pub(crate) wire: String,
    /// Packets of RoCEv2 that Verbena drops on arrival, of a million
    #[arg(long, default_value_t = 0)]
    pub(crate) loss: u32,
    /// Bytes of each datagram of a UDP stream
    #[arg(long, default_value_t = 4096)]
    pub(crate) segment: u32,
    /// Let Verbena use shared memory
    #[arg(long)]
    pub(crate) same_host: bool,
    /// Encrypt what Verbena sends
    #[arg(long)]
    pub(crate) tls: bool,
    /// Connections, for the loops with many
    #[arg(long, default_value_t = 1)]
    pub(crate) connections: usize,
}

impl Job {
    /// Messages in flight on many connections; with few connections at most sixteen on each.
    pub(crate) fn inflight(&self) -> usize {
        (self.depth as usize).min(16 * self.connections)
    }

    /// The measured time.
    pub(crate) fn span(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.001, 60.0))
    }

    /// Counts the messages of a stream.
    pub(crate) fn meter(&self) -> Meter {
        Meter::start(Some(self.span()), self.size.max(1))
    }

    /// Counts the messages of many connections.
    pub(crate) fn meter_for_connections(&self) -> Meter {
        Meter::for_connections(self.span(), self.size.max(1), self.connections)
    }
}

/// The figures of one side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Messages in the measured time.
    pub(crate) messages: u64,
    /// Bytes in the measured time.
    pub(crate) bytes: u64,
    /// The measured time.
    pub(crate) seconds: f64,
    /// The median time of one message (half a round trip, or the round trip of a read), in seconds.
    pub(crate) median: f64,
    /// The 99th percentile of them.
    pub(crate) p99: f64,
    /// Processor time from the start of the connection to its end.
    pub(crate) cpu: f64,
    /// Bytes from the start of the connection to its end.
    pub(crate) carried: u64,
    /// Growth of resident memory by the connections, in bytes.
    pub(crate) grown: u64,
    /// Voluntary context switches of all threads but the counting one.
    pub(crate) wakeups: u64,
}

impl From<Throughput> for Figures {
    fn from(all: Throughput) -> Figures {
        Figures {
            messages: all.messages,
            bytes: all.bytes,
            seconds: all.elapsed.as_secs_f64(),
            carried: all.carried,
            ..Figures::default()
        }
    }
}

/// The figures of a list of times.
pub(crate) fn figures_from_times(mut times: Vec<Duration>, size: u32) -> Figures {
    times.sort_unstable();
    let total: Duration = times.iter().sum();
    Figures {
        messages: times.len() as u64,
        bytes: times.len() as u64 * u64::from(size),
        seconds: total.as_secs_f64(),
        median: quantile(&times, 0.5).as_secs_f64(),
        p99: quantile(&times, 0.99).as_secs_f64(),
        ..Figures::default()
    }
}
