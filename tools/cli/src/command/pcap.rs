//! `verbena pcap`: arguments, the program that is started for a capture, and what is told at the end on standard error. Standard output has the capture or
//! nothing, and is not written to if it is a terminal.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use verbena_cli::launch::RequestedSettings;
use verbena_cli::pcap::file::{Output, Target};
use verbena_cli::pcap::{Captured, MAX_RING, MIN_RING, PcapError, Plan, Session};
use verbena_cli::why::Subject;

use super::run::{LaunchArgs, USAGE, start_failure};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena pcap 4711 -o live.pcapng           until Ctrl-C, or until the process ends
  verbena pcap 4711/3 -o - | tshark -r - -Y iwarp_rdma      one queue pair, as it happens
  verbena pcap -o all.pcapng -- rping -s -C 10              a program from its first byte on
  verbena pcap 4711 -o ring.pcapng --max-size 100M --files 5 --snaplen 128
  verbena decode all.pcapng                  what the messages were

Frames are synthetic Ethernet: TCP segments for iWARP, also where shared memory or TLS carries the bytes (as plain text), and UDP
packets for RoCEv2. The program needs no preparation; frames that find no room in the ring are dropped from the capture and counted.";

/// How long the adapter of a started program waits for the capture.
const WAIT: (&str, &str) = ("capture_wait", "5s");
/// The default size of the ring.
const RING: u64 = 16 << 20;
/// Files that are kept at most.
const MAX_FILES: u16 = 10_000;

#[derive(Args)]
pub(crate) struct Pcap {
    /// A process, or one of its queue pairs as PID/QPN
    #[arg(required_unless_present = "program", conflicts_with = "program")]
    subject: Option<Subject>,
    /// The file to write, or - for standard output (the default if that is no terminal)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Capture adapters that the process opens later, too, and processes that it starts, until it ends
    #[arg(long)]
    follow: bool,
    /// Bytes of a file, with k, M or G: the capture ends there, or goes on in the next file with --files
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_size: Option<u64>,
    /// Number the files, and keep so many of the latest
    #[arg(long, value_name = "N", requires = "max_size", requires = "output",
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_FILES)))]
    files: Option<u16>,
    /// Bytes of a frame that are kept
    #[arg(long, value_name = "BYTES", default_value_t = 262_144,
          value_parser = clap::value_parser!(u32).range(64..=262_144))]
    snaplen: u32,
    /// Memory for frames on their way, shared with the program, with k, M or G
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_ring)]
    ring: u64,
    #[command(flatten)]
    launch: LaunchArgs,
    /// The program and its arguments, started on Verbena as by `verbena run`
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'M')) => (&text[..at], 1 << 20),
        Some((at, 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    let size = digits.parse::<u64>().ok();
    let size = size.and_then(|size| size.checked_mul(unit));
    size.filter(|size| *size > 0)
        .ok_or_else(|| format!("`{text}` is not a size in bytes, such as 4096, 64k, 100M or 2G"))
}

fn parse_ring(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    if (MIN_RING..=MAX_RING).contains(&size) {
        Ok(size)
    } else {
        Err(format!("{size} is not between {MIN_RING} and {MAX_RING}"))
    }
}

/// The exit code: that of the program if one was started.
pub(crate) fn run(args: &Pcap) -> u8 {
    let target = match &args.output {
        Some(path) if path != Path::new("-") => Target::File(path.clone()),
        _ if args.files.is_some() => return usage("--files needs the name of a file with -o"),
        _ if io::stdout().is_terminal() => {
            return usage(
                "a capture is binary: name a file with -o, or lead standard output to a program",
            );
        }
        _ => Target::Stdout,
    };
    let limit = args
        .max_size
        .map(|size| (size, args.files.map_or(0, usize::from)));
    let mut output = match Output::open(target.clone(), args.snaplen as usize, limit) {
        Ok(output) => output,
        Err(error) => return usage(&error.to_string()),
    };
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = stopped.clone();
    if let Err(error) = ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)) {
        return usage(&format!("signals: {error}"));
    }
    match args.program.split_first() {
        Some((program, arguments)) => {
            start(args, (program, arguments), &target, &mut output, &stopped)
        }
        None => attach(args, &mut output, &stopped),
    }
}

fn usage(what: &str) -> u8 {
    eprintln!("verbena: {what}");
    USAGE
}

fn plan(args: &Pcap, pid: u32) -> Plan {
    Plan {
        pid,
        qp: args.subject.and_then(|subject| subject.qp),
        follow: args.follow || !args.program.is_empty(),
        snap_len: args.snaplen,
        // At most MAX_RING.
        ring: u32::try_from(args.ring).unwrap_or(RING as u32),
    }
}

fn attach(args: &Pcap, output: &mut Output, stopped: &AtomicBool) -> u8 {
    let Some(pid) = args.subject.and_then(|subject| subject.pid) else {
        return usage("a process or a program is expected");
    };
    let is_there = || Path::new(&format!("/proc/{pid}")).exists();
    let captured = Session::attach(plan(args, pid), output).and_then(|session| {
        let count = session.adapters();
        eprintln!("capturing {count} adapter(s) of process {pid}; Ctrl-C ends it");
        session.run(stopped, is_there)
    });
    report(captured)
}

fn start(
    args: &Pcap,
    (program, arguments): (&OsString, &[OsString]),
    target: &Target,
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
    if *target == Target::Stdout {
        // Standard output is the capture's.
        command.stdout(Stdio::from(io::stderr()));
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return start_failure(program, &error),
    };
    let pid = child.id();
    let is_running = || !matches!(child.try_wait(), Ok(Some(_)) | Err(_));
    let captured = Session::attach(plan(args, pid), output)
        .and_then(|session| session.run(stopped, is_running));
    let told = report(captured);
    match child.wait() {
        Ok(status) if told == 0 => code_of(status),
        _ => told,
    }
}

/// The exit code of a program, as a shell gives it.
pub(super) fn code_of(status: std::process::ExitStatus) -> u8 {
    let by_signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(by_signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn report(captured: Result<Vec<Captured>, PcapError>) -> u8 {
    match captured {
        Ok(all) => {
            for one in &all {
                let (pid, program, totals) = (one.pid, &one.program, one.totals);
                eprintln!(
                    "process {pid} ({program}): {} frames captured, {} dropped because the ring was full",
                    totals.captured, totals.dropped
                );
            }
            if all.is_empty() {
                eprintln!("nothing was captured: no adapter with a completion queue was opened");
            }
            0
        }
        // The reader closed the pipe.
        Err(PcapError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}
