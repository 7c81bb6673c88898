//! `verbena trace`: arguments, the program that is started for a trace, and what is told on standard error and, with --summary, on standard output.
//! The standard output of a program that is started stays its own.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use verbena_cli::launch::RequestedSettings;
use verbena_cli::trace::output::Output;
use verbena_cli::trace::{MAX_EVENTS, MIN_EVENTS, Plan, Report, Session, TraceFailure};
use verbena_cli::why::Subject;

use super::pcap::{code_of, parse_size};
use super::run::{LaunchArgs, USAGE, start_failure};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena trace 4711 --seconds 5             five seconds of a running program, in trace.json
  verbena trace 4711 4712 -o both.json       two ends of a connection: flows from posts to arrivals
  verbena trace 4711/2 --summary             one queue pair, and its latencies in the terminal; Ctrl-C ends it
  verbena trace -- rping -s -C 10            a program from its start, as by `verbena run`

Open the file at https://ui.perfetto.dev or chrome://tracing: both read it in the browser and send it nowhere. The program needs no
preparation and is never waited for: of events that it writes faster than this command reads them the oldest are lost, and counted.";

/// How long the adapter of a started program waits for the trace.
const WAIT: (&str, &str) = ("capture_wait", "5s");

#[derive(Args)]
pub(crate) struct TraceArgs {
    /// Processes, or one of the queue pairs of a process as PID/QPN
    #[arg(required_unless_present_any = ["program", "attach"], conflicts_with = "program", value_name = "PID[/QPN]")]
    subjects: Vec<Subject>,
    /// The same
    #[arg(long, value_name = "PID", conflicts_with = "program")]
    attach: Vec<u32>,
    /// One queue pair of the process, by its number in the adapter or in completions
    #[arg(long, value_name = "QPN", conflicts_with = "program")]
    qp: Option<u64>,
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "trace.json")]
    out: PathBuf,
    /// End after so many seconds
    #[arg(long, value_name = "N", value_parser = parse_seconds)]
    seconds: Option<f64>,
    /// Bytes of the file at most, with k, M or G; the trace ends there
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_limit)]
    max_size: u64,
    /// Events of a thread that are kept until they are read, 64 bytes each, in memory of the program
    #[arg(long, value_name = "EVENTS", default_value_t = 1 << 15,
          value_parser = clap::value_parser!(u32).range(i64::from(MIN_EVENTS)..=i64::from(MAX_EVENTS)))]
    ring: u32,
    /// Trace adapters that the processes open later, too, and processes that they start, until they end
    #[arg(long)]
    follow: bool,
    /// Print a table of latencies at the end
    #[arg(long)]
    summary: bool,
    #[command(flatten)]
    launch: LaunchArgs,
    /// The program and its arguments, started on Verbena as by `verbena run`
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| *seconds > 0.0 && *seconds <= 1e6);
    seconds.ok_or_else(|| format!("`{text}` is not a number of seconds above 0"))
}

fn parse_limit(text: &str) -> Result<u64, String> {
    let least = 1 << 20;
    let size = parse_size(text)?;
    if size < least {
        return Err(format!("{size} is less than {least}"));
    }
    Ok(size)
}

/// The exit code: that of the program if one was started.
pub(crate) fn run(args: &TraceArgs) -> u8 {
    let plan = match plan(args) {
        Ok(plan) => plan,
        Err(why) => return usage(why),
    };
    let mut output = match Output::create(&args.out, args.max_size) {
        Ok(output) => output,
        Err(error) => return usage(&format!("{}: {error}", args.out.display())),
    };
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = stopped.clone();
    let handler = move || {
        // The second one ends the writing of what was read.
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        return usage(&format!("signals: {error}"));
    }
    match args.program.split_first() {
        Some((program, arguments)) => {
            start(args, plan, (program, arguments), &mut output, &stopped)
        }
        None => attach(args, &plan, &mut output, &stopped),
    }
}

fn usage(what: &str) -> u8 {
    eprintln!("verbena: {what}");
    USAGE
}

fn plan(args: &TraceArgs) -> Result<Plan, &'static str> {
    let named = args.subjects.iter().filter_map(|subject| subject.pid);
    let mut pids: Vec<u32> = named.chain(args.attach.iter().copied()).collect();
    pids.sort_unstable();
    pids.dedup();
    let mut qps = args.subjects.iter().filter_map(|subject| subject.qp);
    let qp = qps.next().or(args.qp);
    if qp.is_some() && (pids.len() != 1 || args.subjects.len() + args.attach.len() > 1) {
        return Err("one queue pair of one process can be traced, or all of several processes");
    }
    if qp.is_some() && args.follow {
        return Err("a queue pair is there already: --follow does not go with it");
    }
    Ok(Plan {
        pids,
        qp,
        follow: args.follow || !args.program.is_empty(),
        events: args.ring,
        seconds: args.seconds,
    })
}

/// Shows the progress in one line of a terminal.
fn progress() -> impl FnMut(&str) {
    let is_terminal = io::stderr().is_terminal();
    move |line| {
        if is_terminal {
            eprint!("\r{line}\x1b[K");
            // It is shown with the next one otherwise.
            let _ = io::stderr().flush();
        }
    }
}

fn attach(args: &TraceArgs, plan: &Plan, output: &mut Output, stopped: &AtomicBool) -> u8 {
    let exists = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    let is_there = || plan.pids.iter().any(exists);
    let traced = Session::attach(plan, output).and_then(|session| {
        let count = session.adapters();
        eprintln!(
            "tracing {count} adapter(s) of {} process(es); Ctrl-C ends it",
            plan.pids.len()
        );
        session.run(stopped, is_there, progress())
    });
    report(args, traced)
}

fn start(
    args: &TraceArgs,
    mut plan: Plan,
    (program, arguments): (&OsString, &[OsString]),
    output: &mut Output,
    stopped: &AtomicBool,
) -> u8 {
    let mut settings = RequestedSettings::default();
    settings.add(WAIT.0, WAIT.1);
    let waits = settings.variables(std::env::vars_os());
    let variables = waits.and_then(|waits| Ok((waits, args.launch.variables()?)));
    let (waits, variables) = match variables {
        Ok(variables) => variables,
        Err(error) => return usage(&error.to_string()),
    };
    let mut command = Command::new(program);
    command.args(arguments).envs(waits).envs(variables);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return start_failure(program, &error),
    };
    plan.pids = vec![child.id()];
    let is_running = || !matches!(child.try_wait(), Ok(Some(_)) | Err(_));
    let traced = Session::attach(&plan, output)
        .and_then(|session| session.run(stopped, is_running, progress()));
    let told = report(args, traced);
    match child.wait() {
        Ok(status) if told == 0 => code_of(status),
        _ => told,
    }
}

fn report(args: &TraceArgs, traced: Result<Report, TraceFailure>) -> u8 {
    let report = match traced {
        Ok(report) => report,
        Err(error) => {
            eprintln!("verbena: {error}");
            return 1;
        }
    };
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    for one in &report.traced {
        let (pid, program) = (one.pid, &one.program);
        eprint!(
            "process {pid} ({program}): {} events, {} lost because the rings were full",
            one.events, one.lost
        );
        match one.malformed {
            0 => eprintln!(),
            malformed => eprintln!(", {malformed} that no adapter writes"),
        }
    }
    if report.traced.is_empty() {
        eprintln!("nothing was traced: no adapter with a completion queue was opened");
    }
    if report.is_full {
        eprintln!("the file has reached its limit (--max-size)");
    }
    eprintln!(
        "{}: open it at https://ui.perfetto.dev or chrome://tracing",
        args.out.display()
    );
    if args.summary {
        print!("{}", report.summary.table());
    }
    0
}
