//! `verbena check`: arguments, the program that is started, and what is told on standard error or in a file while it runs and at its end. Standard output is
//! the program's.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use verbena_cli::check::Findings;
use verbena_cli::check::explain::{KINDS, explanation};
use verbena_cli::check::folder::Folder;
use verbena_cli::check::suppress::{MAX_FILE, Suppressions, rule_for};

use super::run::{LaunchArgs, USAGE, start_failure};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena check -- ./program                         reports on standard error, as they happen
  verbena check --hints --json -o report.jsonl -- ./program
  verbena check --gen-suppressions -- ./program > known.toml 2>&1
  verbena check --suppressions known.toml -- ./program
  verbena check --explain send-buffer-changed        what it means and what to do; without a name: all names

Exit codes: that of --error-exitcode (86) if there were errors that no rule suppresses; otherwise those of the program
(128 and the signal that ended it), or as `verbena run` if it cannot be started.";

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// Explain a kind of report, or list all kinds
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "", exclusive = true)]
    explain: Option<String>,
    /// Rules for reports that are not shown and do not count (docs/check.md); may be repeated
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    /// Report also what programs of rdma-core and perftest do on purpose
    #[arg(long)]
    no_default_suppressions: bool,
    /// Print a rule after each report that would suppress it
    #[arg(long)]
    gen_suppressions: bool,
    /// Show hints, too: what works, and could do with less
    #[arg(long, overrides_with = "no_hints")]
    hints: bool,
    /// Do not show hints (the default)
    #[arg(long)]
    no_hints: bool,
    /// The exit code if there were errors; 0: that of the program
    #[arg(long, value_name = "N", default_value_t = 86)]
    error_exitcode: u8,
    /// One object per line for each report, and one for the summary
    #[arg(long)]
    json: bool,
    /// Write reports into this file instead of standard error
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    launch: LaunchArgs,
    /// The program and its arguments
    #[arg(
        last = true,
        required_unless_present = "explain",
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

pub(crate) fn run(args: &CheckArgs) -> u8 {
    if let Some(name) = &args.explain {
        return explain(name);
    }
    let rules = match rules(args) {
        Ok(rules) => rules,
        Err(problem) => return wrong(&problem),
    };
    let mut output: Box<dyn Write> = match &args.output {
        None => Box::new(io::stderr()),
        Some(path) => match File::create(path) {
            Ok(file) => Box::new(file),
            Err(error) => return wrong(&format!("{}: {error}", path.display())),
        },
    };
    match checked(args, rules, &mut *output) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn wrong(problem: &str) -> u8 {
    eprintln!("verbena: {problem}");
    USAGE
}

fn explain(name: &str) -> u8 {
    let text = if name.is_empty() {
        let line = |(name, text): &(&str, &str)| {
            format!("{name:24} {}\n", text.lines().next().unwrap_or(""))
        };
        KINDS.iter().map(line).collect()
    } else {
        match explanation(name) {
            Some(text) => format!("{name}\n\n{text}"),
            None => {
                return wrong(&format!(
                    "there is no kind of report `{name}`; `verbena check --explain` lists them"
                ));
            }
        }
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => 1,
        _ => 0,
    }
}

fn rules(args: &CheckArgs) -> Result<Suppressions, String> {
    let mut rules = match args.no_default_suppressions {
        true => Suppressions::default(),
        false => Suppressions::default_rules(),
    };
    for path in &args.suppressions {
        let named = |problem: &dyn core::fmt::Display| format!("{}: {problem}", path.display());
        let text = read_bounded(path).map_err(|error| named(&error))?;
        rules.add(&text).map_err(|problem| named(&problem))?;
    }
    Ok(rules)
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

/// Tells the libraries of memory that the program gives back.
const UNMAP: &str = "libverbena-unmap.so";

/// The process that signals to this one are passed to; 0 if there is none.
static CHILD: AtomicU32 = AtomicU32::new(0);

/// A signal came before there was one.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// A signal came. From the terminal the program has got it, too.
fn pass_on() {
    let is_ours = |group: rustix::io::Result<Pid>| {
        group.is_ok_and(|group| group == rustix::process::getpgrp())
    };
    let in_foreground = is_ours(rustix::termios::tcgetpgrp(io::stdin()))
        || is_ours(rustix::termios::tcgetpgrp(io::stdout()))
        || is_ours(rustix::termios::tcgetpgrp(io::stderr()));
    if !in_foreground {
        STOPPED.store(true, Ordering::SeqCst);
        stop_child();
    }
}

fn stop_child() {
    let child = i32::try_from(CHILD.load(Ordering::SeqCst)).ok();
    if let Some(child) = child.and_then(Pid::from_raw) {
        let _ = kill_process(child, Signal::TERM);
    }
}

fn checked(args: &CheckArgs, mut rules: Suppressions, output: &mut dyn Write) -> io::Result<u8> {
    let variables = match args.launch.variables_with(UNMAP) {
        Ok(variables) => variables,
        Err(error) => return Ok(wrong(&error.to_string())),
    };
    let Some((program, arguments)) = args.program.split_first() else {
        return Ok(USAGE);
    };
    let mut folder = Folder::create()?;
    ctrlc::set_handler(pass_on).map_err(io::Error::other)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(variables)
        .env("VERBENA_CHECK", folder.path());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(start_failure(program, &error)),
    };
    CHILD.store(child.id(), Ordering::SeqCst);
    if STOPPED.load(Ordering::SeqCst) {
        stop_child();
    }
    let mut findings = Findings::default();
    let mut printer = Printer { args, output };
    let ended = watch(&child, &mut folder, &mut findings, &mut rules, &mut printer);
    // Its number is not another process's before it is waited for.
    CHILD.store(0, Ordering::SeqCst);
    let status = child.wait()?;
    ended?;
    printer.print_new(&mut folder, &mut findings, &mut rules)?;
    printer.end(&findings)?;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    let failed = args.error_exitcode != 0 && findings.errors().next().is_some();
    Ok(if failed { args.error_exitcode } else { code })
}

/// Prints what the program and its children report, until it ends.
fn watch(
    child: &Child,
    folder: &mut Folder,
    findings: &mut Findings,
    rules: &mut Suppressions,
    printer: &mut Printer<'_>,
) -> io::Result<()> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    loop {
        let ended = {
            let mut fds = [
                PollFd::new(&process, PollFlags::IN),
                PollFd::from_borrowed_fd(folder.changes().as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled?,
            };
            !fds[0].revents().is_empty()
        };
        folder.clear_changes();
        printer.print_new(folder, findings, rules)?;
        if ended {
            return Ok(());
        }
    }
}

/// Writes reports as the arguments say.
struct Printer<'a> {
    args: &'a CheckArgs,
    output: &'a mut dyn Write,
}

impl Printer<'_> {
    /// What is new since the last time.
    fn print_new(
        &mut self,
        folder: &mut Folder,
        findings: &mut Findings,
        rules: &mut Suppressions,
    ) -> io::Result<()> {
        for at in folder.read(findings, rules)? {
            let finding = &findings.all[at];
            if finding.suppressed.is_some() || (finding.hint && !self.args.hints) {
                continue;
            }
            // Objects are written at the end, when it is known how often each happened.
            if !self.args.json {
                write!(self.output, "verbena check: {}", finding.text())?;
                if self.args.gen_suppressions {
                    self.output.write_all(rule_for(finding).as_bytes())?;
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, findings: &Findings) -> io::Result<()> {
        if !self.args.json {
            let summary = findings.summary(self.args.hints);
            return self.output.write_all(summary.as_bytes());
        }
        let shown = |finding: &&verbena_cli::check::Finding| !finding.hint || self.args.hints;
        for finding in findings.all.iter().filter(shown) {
            let mut object = finding.json();
            if self.args.gen_suppressions {
                object["suppression"] = rule_for(finding).into();
            }
            writeln!(self.output, "{object}")?;
        }
        writeln!(self.output, "{}", findings.summary_json())
    }
}
