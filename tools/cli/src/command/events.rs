//! `verbena events`: arguments of watching, one line per event. Lines are written whole and at once, and standard output has nothing else.
//! Without a process, those that can be watched are listed.

use std::io::{self, Write};

use clap::Args;
use serde_json::json;
use verbena_cli::events::{Error, Watchable, counters, list, watch};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena events                   which processes can be watched
  verbena events 4711              its events, until it ends or Ctrl-C
  verbena events --counters 4711   interrupts, events and register accesses so far, per vector
  verbena events --json 4711 | jq 'select(.event == \"srq_limit\")'

A line is: time of day (UTC), adapter of the process, class, event, and the numbers of the objects concerned.
`monitor missed count=N` means that N events were lost because they were not read fast enough.";

#[derive(Args)]
pub(crate) struct Events {
    /// The process; without one, those that can be watched are listed
    pid: Option<u32>,
    /// Print how often each interrupt vector was used so far, and at which cost, and end
    #[arg(long, requires = "pid")]
    counters: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Events) -> u8 {
    let done = match args.pid {
        Some(pid) if args.counters => show_counters(pid, args.json),
        Some(pid) => show(pid, args.json),
        None => overview(args.json),
    };
    match done {
        Ok(()) => 0,
        // The reader closed the pipe.
        Err(Error::System(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn show(pid: u32, json: bool) -> Result<(), Error> {
    let begun = |process: &Watchable| {
        let (program, count) = (&process.program, process.adapters.len());
        eprintln!("watching {count} adapter(s) of process {pid} ({program}); Ctrl-C ends it");
    };
    let mut out = io::stdout().lock();
    watch(pid, begun, |line| {
        let line = if json {
            format!("{}\n", line.json())
        } else {
            format!("{line}\n")
        };
        // The whole line in one write, and at once.
        out.write_all(line.as_bytes())?;
        out.flush()
    })?;
    eprintln!("process {pid} has ended, or closed its adapters");
    Ok(())
}

fn show_counters(pid: u32, json: bool) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    for line in counters(pid)? {
        if json {
            writeln!(out, "{}", line.json())?;
        } else {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

fn overview(json: bool) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    let all = list()?;
    if !json && all.is_empty() {
        eprintln!("no process can be watched");
    }
    for process in all {
        let Watchable {
            pid,
            program,
            adapters,
        } = process;
        if json {
            let object = json!({"pid": pid, "program": program, "adapters": adapters});
            writeln!(out, "{object}")?;
        } else {
            writeln!(
                out,
                "{pid:>8}  {program:<16}  {} adapter(s)",
                adapters.len()
            )?;
        }
    }
    Ok(())
}
