//! `verbena env`: what `verbena run` would add to a program's environment, as lines for a shell. `eval $(verbena env)` works with and
//! without quotes. Only variables that change are printed.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use verbena_cli::launch::shell::{self, line};

use super::run::LaunchArgs;

pub(crate) const EXAMPLE: &str = "\
Examples:
  eval $(verbena env)                          every program of this shell from now on
  verbena env --shell fish | source
  eval `verbena env --shell csh`";

/// The supported shells.
#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Sh,
    Fish,
    Csh,
}

#[derive(Args)]
pub(crate) struct Env {
    #[command(flatten)]
    launch: LaunchArgs,
    /// The shell whose syntax to print
    #[arg(long, value_enum, default_value = "sh")]
    shell: Shell,
}

pub(crate) fn run(args: &Env) -> u8 {
    let variables = match args.launch.variables() {
        Ok(variables) => variables,
        Err(error) => {
            eprintln!("verbena: {error}");
            return 2;
        }
    };
    let shell = match args.shell {
        Shell::Sh => shell::Shell::Sh,
        Shell::Fish => shell::Shell::Fish,
        Shell::Csh => shell::Shell::Csh,
    };
    let lines = variables.iter().map(|(n, v)| line(shell, n, v) + "\n");
    let text: String = lines.collect();
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => 0,
        // The reader closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}
