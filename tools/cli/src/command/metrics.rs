//! `verbena metrics`: OpenMetrics text on standard output, in a file for node_exporter, or over HTTP on a loopback address.
//! The file is replaced at once, so that its reader never sees half of it.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use verbena_cli::events::Error;
use verbena_cli::metrics::{Collector, DASHBOARD, listen};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena metrics                                          once, on standard output
  verbena metrics --listen 127.0.0.1:9400                  for Prometheus, until Ctrl-C
  verbena metrics --textfile /var/lib/node_exporter/verbena.prom --interval 15
  verbena metrics --dashboard > verbena.json               to import into Grafana

Only programs of the same user are read; root's exporter reads root's. Any user of this machine can read a loopback address.";

#[derive(Args)]
pub(crate) struct Metrics {
    /// Serve GET /metrics at this loopback address
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["textfile", "dashboard"])]
    listen: Option<SocketAddr>,
    /// Write to this file for node_exporter's textfile collector, again and again; its name must end in .prom
    #[arg(long, value_name = "FILE", conflicts_with = "dashboard", value_parser = parse_textfile)]
    textfile: Option<PathBuf>,
    /// Seconds between two writes of the file
    #[arg(long, default_value_t = 15, requires = "textfile", value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Write the file once
    #[arg(long, requires = "textfile")]
    once: bool,
    /// Queue pairs of a process with series of their own; further ones are summed up
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    max_queue_pairs: u16,
    /// Print a Grafana dashboard for these metrics
    #[arg(long)]
    dashboard: bool,
}

fn parse_textfile(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(extension) if extension == "prom" => Ok(path),
        _ => Err("node_exporter reads files whose names end in .prom".to_owned()),
    }
}

pub(crate) fn run(args: &Metrics) -> u8 {
    match try_run(args) {
        Ok(()) => 0,
        // The reader closed the pipe.
        Err(error) if is_closed_pipe(&*error) => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn is_closed_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let io = match error.downcast_ref::<Error>() {
        Some(Error::System(io)) => Some(io),
        _ => error.downcast_ref::<io::Error>(),
    };
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn try_run(args: &Metrics) -> Result<(), Box<dyn std::error::Error>> {
    if args.dashboard {
        io::stdout().write_all(DASHBOARD.as_bytes())?;
        return Ok(());
    }
    let mut collector = Collector::new(args.max_queue_pairs.into());
    if let Some(at) = args.listen {
        let server = listen(at, collector)?;
        eprintln!(
            "serving http://{}/metrics; Ctrl-C ends it",
            server.address()?
        );
        server.serve();
    }
    let Some(path) = &args.textfile else {
        io::stdout().write_all(collector.collect()?.as_bytes())?;
        return Ok(());
    };
    loop {
        let text = collector.collect()?;
        replace(path, &text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        if args.once {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(args.interval));
    }
}

/// Replaces the file at once: node_exporter never reads half of it.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // Another name ending, which node_exporter does not read.
    let part = path.with_extension(format!("prom.{}", std::process::id()));
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // It may not have been made.
        let _ = fs::remove_file(&part);
    }
    written
}
