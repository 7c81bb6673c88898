//! `verbena why`: arguments, and findings on standard output; what was looked at without a finding is told on standard error.
//! A finding is no error: the exit code is 0.

use std::io::{self, Write};

use clap::Args;
use verbena_cli::events::Error;
use verbena_cli::why::{Subject, explain};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena why              every queue pair of this user that failed or waits, also of programs that ended today
  verbena why 4711         those of one process
  verbena why 4711/3       one queue pair, by its number in the adapter or in completions
  verbena why --json | jq 'select(.fault | contains(\"peer\"))'

A queue pair waits if it has something outstanding and nothing moved while it was looked at (a quarter of a second).
What ended programs left is in $XDG_RUNTIME_DIR/verbena, /run/verbena or /tmp/verbena-UID, for a day.";

#[derive(Args)]
pub(crate) struct Why {
    /// A process, or one of its queue pairs as PID/QPN; without it, all processes of this user
    subject: Option<Subject>,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Why) -> u8 {
    match show(args) {
        Ok(()) => 0,
        // The reader closed the pipe.
        Err(Error::System(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn show(args: &Why) -> Result<(), Error> {
    let explained = explain(args.subject.unwrap_or_default())?;
    let mut out = io::stdout().lock();
    for (at, finding) in explained.findings.iter().enumerate() {
        if args.json {
            writeln!(out, "{}", finding.json())?;
        } else {
            let gap = if at == 0 { "" } else { "\n" };
            write!(out, "{gap}{finding}")?;
        }
    }
    if explained.findings.is_empty() {
        for (pid, program, pairs) in &explained.looked_at {
            eprintln!("process {pid} ({program}): none of its {pairs} queue pairs failed or waits");
        }
        if explained.looked_at.is_empty() {
            eprintln!("no program of this user has or had a queue pair that failed or waits");
        }
    }
    Ok(())
}
