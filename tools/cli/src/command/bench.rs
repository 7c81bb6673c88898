//! `verbena bench`: arguments of the benchmark, and a second process as server if none is given. The server is killed when the benchmark
//! returns. Standard output has the results only; progress and errors go to standard error.

use std::io::{self, BufRead, BufReader, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Args;
use verbena::Config;
use verbena_cli::bench::{
    Case, Error, MAX_OUTSTANDING, MAX_QPS, MAX_THREADS, Metric, Op, Plan, SILENCE_LIMIT, Server,
    plot, print_json, print_text, run as measure,
};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena bench                                   everything, both sides here
  verbena bench --baseline write send --metric bandwidth --size 64k,1m
  verbena bench --qps 16 send --metric rate       over sixteen connections at once
  verbena bench --threads 1,4,8 send              one, four and eight polling threads on each side
  verbena bench --plot send.svg send --metric latency --size 8,64,512,4k,32k,256k
  verbena bench --server 0.0.0.0:7471             on one machine ...
  verbena bench --client 192.0.2.7:7471 --json    ... and on the other";

#[derive(Args)]
pub(crate) struct Bench {
    /// Operations to measure; all if none is given
    ops: Vec<Op>,
    /// Metrics; all that apply if none is given
    #[arg(long, short, value_delimiter = ',')]
    metric: Vec<Metric>,
    /// Bytes per message, with k or m; several with commas
    #[arg(long, short, value_delimiter = ',', value_parser = size)]
    size: Vec<u32>,
    /// Messages per measurement; chosen by size if not given
    #[arg(long, short = 'n')]
    iterations: Option<u32>,
    /// Outstanding messages on each connection, at most 4096
    #[arg(long, default_value_t = 64)]
    depth: u32,
    /// Connections; messages alternate between them or are distributed evenly
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_QPS)))]
    qps: u32,
    /// Polling threads on each side, several numbers with commas; each has --qps connections and a completion queue of its own, and
    /// messages are distributed evenly
    #[arg(long, default_value = "1", value_delimiter = ',', conflicts_with = "baseline", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_THREADS)))]
    threads: Vec<u32>,
    /// The threads of a side poll one completion queue together, and each posts to the connections whose completions it takes; not for latency
    #[arg(long)]
    one_cq: bool,
    /// Latency of writes: detect arrivals by polling memory only, and poll the completion queue once per 16 completions
    #[arg(long)]
    memory: bool,
    /// Runs of each case; the median is reported
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Checksums: auto, on or off
    #[arg(long)]
    crc: Option<String>,
    /// Frames: auto, mss or large
    #[arg(long)]
    fpdu: Option<String>,
    /// Run the same pattern over a plain TCP socket and print the ratio
    #[arg(long)]
    baseline: bool,
    /// Seconds that the peer may be silent before the measurement fails; connecting has the limit `startup_timeout`
    #[arg(long, value_name = "SECONDS", default_value_t = SILENCE_LIMIT.as_secs_f64(), value_parser = seconds)]
    timeout: f64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw the results as SVG into this file: by size, or by threads if only these differ
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    plot: Option<PathBuf>,
    /// Run as a server for clients on other machines, listening on this address
    #[arg(long, value_name = "ADDRESS", conflicts_with = "client")]
    server: Option<String>,
    /// Measure against this server
    #[arg(long, value_name = "ADDRESS")]
    client: Option<String>,
}

pub(crate) fn size(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.to_ascii_lowercase() {
        t if t.ends_with('k') => (t[..t.len() - 1].to_owned(), 1 << 10),
        t if t.ends_with('m') => (t[..t.len() - 1].to_owned(), 1 << 20),
        t => (t, 1),
    };
    let number: u32 = digits
        .parse()
        .map_err(|_| "not a number of bytes".to_owned())?;
    number
        .checked_mul(unit)
        .filter(|n| *n <= 64 << 20)
        .ok_or("at most 64m".to_owned())
}

/// A time limit from a millisecond to a day.
fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    match (0.001..=86_400.0).contains(&number) {
        true => Ok(number),
        false => Err("a time from 0.001 to 86400 seconds".to_owned()),
    }
}

/// A second process of this program as server, killed on drop.
pub(crate) struct ServerProcess {
    child: Child,
    /// Its address.
    pub(crate) addr: SocketAddr,
}

impl ServerProcess {
    /// Starts this program with other arguments, and reads the address from the first line it prints.
    pub(crate) fn start(args: &[String]) -> io::Result<ServerProcess> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        match line.trim().parse() {
            Ok(at) => Ok(ServerProcess { child, addr: at }),
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(io::Error::other(
                    "the server process did not print its address",
                ))
            }
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn run(args: &Bench) -> u8 {
    match try_run(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn try_run(args: &Bench) -> Result<(), Box<dyn std::error::Error>> {
    let threads = args.threads.iter().max().copied().unwrap_or(1);
    let qps = args.qps.saturating_mul(threads);
    let under_way = qps.saturating_mul(args.depth.clamp(1, 4096));
    if qps > MAX_QPS {
        return Err(format!(
            "{qps} connections of all threads together; at most {MAX_QPS} are possible"
        )
        .into());
    }
    if under_way > MAX_OUTSTANDING {
        let depth = args.depth;
        return Err(format!(
            "{qps} connections with {depth} outstanding messages each; at most {MAX_OUTSTANDING} together"
        )
        .into());
    }
    let (config, limit) = (config(args)?, Duration::from_secs_f64(args.timeout));
    if let Some(at) = &args.server {
        return serve(config, resolve(at)?, limit);
    }
    let partner = match &args.client {
        Some(_) => None,
        None => Some(ServerProcess::start(&server_args(args))?),
    };
    let server = match (&partner, &args.client) {
        (Some(partner), _) => partner.addr,
        (None, Some(at)) => resolve(at)?,
        (None, None) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
    };
    let plan = Plan {
        cases: cases(args),
        baseline: args.baseline,
        rounds: args.rounds,
        limit,
    };
    let (total, mut done, mut last) = (plan.cases.len(), 0, None);
    let outcomes = measure(config, server, &plan, |outcome| {
        done += 1;
        if args.json {
            if io::stderr().is_terminal() {
                eprintln!("{done} of {total} measured");
            }
        } else {
            let kind = (outcome.case.op, outcome.case.metric, outcome.case.threads);
            // A closed output is detected by the next print.
            let _ = print_text(&mut io::stdout().lock(), outcome, last != Some(kind));
            last = Some(kind);
        }
    })?;
    if args.json {
        print_json(&mut io::stdout().lock(), &outcomes)?;
    }
    if let Some(file) = &args.plot {
        std::fs::write(file, plot(&outcomes))
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    Ok(())
}

fn serve(
    config: Config,
    at: SocketAddr,
    limit: Duration,
) -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::bind(config, at, limit)?;
    println!("{}", server.local_addr()?);
    let never: Result<(), Error> = server.run(|complaint| eprintln!("verbena: {complaint}"));
    Ok(never?)
}

fn resolve(text: &str) -> io::Result<SocketAddr> {
    let mut found = text.to_socket_addrs()?;
    found
        .next()
        .ok_or_else(|| io::Error::other(format!("{text} has no address")))
}

pub(crate) fn config(args: &Bench) -> Result<Config, Box<dyn std::error::Error>> {
    let mut config = Config::load()?;
    for (key, value) in [("crc", &args.crc), ("fpdu", &args.fpdu)] {
        if let Some(value) = value {
            config.set(key, value)?;
        }
    }
    Ok(config)
}

fn server_args(args: &Bench) -> Vec<String> {
    let mut list = vec![
        "bench".to_owned(),
        "--server".to_owned(),
        "127.0.0.1:0".to_owned(),
        format!("--timeout={}", args.timeout),
    ];
    for (name, value) in [("--crc", &args.crc), ("--fpdu", &args.fpdu)] {
        if let Some(value) = value {
            list.extend([name.to_owned(), value.clone()]);
        }
    }
    list
}

fn cases(args: &Bench) -> Vec<Case> {
    let all = [Op::Send, Op::Write, Op::Read, Op::Atomic];
    let ops = if args.ops.is_empty() {
        &all[..]
    } else {
        &args.ops
    };
    let mut cases = Vec::new();
    for &op in ops {
        for metric in [Metric::Latency, Metric::Bandwidth, Metric::Rate] {
            let asked = args.metric.is_empty() || args.metric.contains(&metric);
            if !asked || (args.one_cq && metric == Metric::Latency) {
                continue;
            }
            for size in sizes(args, op, metric) {
                let count = args.iterations.unwrap_or(iterations(metric, size)).max(1);
                cases.extend(args.threads.iter().map(|&threads| Case {
                    op,
                    metric,
                    size,
                    count,
                    depth: args.depth.clamp(1, 4096),
                    qps: args.qps,
                    threads,
                    one_cq: args.one_cq,
                    poll_memory: args.memory && op == Op::Write && metric == Metric::Latency,
                }));
            }
        }
    }
    cases
}

fn sizes(args: &Bench, op: Op, metric: Metric) -> Vec<u32> {
    match (op, metric) {
        // Atomics are eight bytes, so bandwidth is not measured.
        (Op::Atomic, Metric::Bandwidth) => Vec::new(),
        (Op::Atomic, _) => vec![8],
        _ if !args.size.is_empty() => args.size.clone(),
        (_, Metric::Latency) => vec![8, 4096],
        (_, Metric::Bandwidth) => vec![64 << 10, 1 << 20],
        (_, Metric::Rate) => vec![64],
    }
}

/// A sufficient number that takes about a second.
fn iterations(metric: Metric, size: u32) -> u32 {
    match metric {
        Metric::Latency => 5000,
        Metric::Rate => 200_000,
        Metric::Bandwidth => ((1_u64 << 30) / u64::from(size.max(1))).clamp(64, 200_000) as u32,
    }
}
