//! `verbena faults`: starts a program with faults, or shows, sets and removes those of a running one.
//! A wrong script is reported before anything is started or changed. The seed is printed, so that a run can be repeated.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use clap::Args;
use verbena::faults::Script;
use verbena::unstable::MAX_SCRIPT;
use verbena_cli::faults::{Request, ask};

use super::run::{LaunchArgs, USAGE};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena faults 'completion nth=100 status=REM_ACCESS_ERR' -- ib_write_bw -s 64
  verbena faults 'seed=7; post rate=1% errno=ENOMEM; delay every=10 time=2ms' -- PROGRAM
  verbena faults -f FILE.toml -- PROGRAM
  verbena faults 4711 'kill qp=3'        at once, in a running program
  verbena faults 4711 --show             rules, what they counted and how often they fired
  verbena faults 4711 --clear

Rules, with `;` between them:
  post, post-receive     errno=E         posting a send or a receive fails
  completion, receive    status=S        a send or a receive completes with this status of ibv_wc_status
  connect, register      errno=E         connecting or registering memory fails
  regions                most=N          registering fails while there are N regions and windows (errno=ENOMEM)
  kill, reset                            the queue pair fails; its connection is reset
  delay                  time=T          a send begins later, and those behind it
  rnr                    count=N, time=T messages are refused as if no receive were posted
  port-down              time=T          the port goes down, and up after this time
When: nth=N, every=N or rate=P (a fraction or percent, by the seed) of the sends that are posted, or of receives, connects,
registrations; times=N at most; qp=N,… only these queue pairs. kill, reset, rnr and port-down without it: at once.

Exit codes: those of the program, or 0; 1 if the process cannot be reached; 2 for a wrong script.";

#[derive(Args)]
pub(crate) struct FaultArgs {
    #[command(flatten)]
    launch: LaunchArgs,
    /// Read the rules from a TOML file: `seed = 7`, and a table [[fault]] with `kind` and the other keys for each
    #[arg(long, short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Show the rules of a running process, and how often each has fired
    #[arg(long, conflicts_with_all = ["clear", "file"])]
    show: bool,
    /// Remove the rules of a running process
    #[arg(long, conflicts_with = "file")]
    clear: bool,
    /// For a program: the rules. For a running process: its id, and the rules
    #[arg(value_name = "PID|RULES", num_args = 0..=2)]
    words: Vec<String>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// A mistake in the arguments or in a script.
fn wrong(problem: impl core::fmt::Display) -> u8 {
    eprintln!("verbena: {problem}");
    USAGE
}

pub(crate) fn run(args: &FaultArgs) -> u8 {
    if args.program.is_empty() {
        return of_process(args);
    }
    if args.show || args.clear {
        return wrong("--show and --clear are for a running process: verbena faults PID --show");
    }
    match script(args, &args.words) {
        Ok(Some(script)) => start(args, script),
        Ok(None) => wrong("the rules are missing: verbena faults 'RULES' -- PROGRAM"),
        Err(problem) => wrong(problem),
    }
}

/// The script of the file or of the remaining words.
fn script(args: &FaultArgs, words: &[String]) -> Result<Option<Script>, String> {
    match (&args.file, words) {
        (None, []) => Ok(None),
        (None, [text]) => text.parse().map(Some).map_err(|e| format!("{e}")),
        (Some(path), []) => {
            let named = |problem: &dyn core::fmt::Display| format!("{}: {problem}", path.display());
            let mut text = String::new();
            let opened = std::fs::File::open(path);
            let most = MAX_SCRIPT as u64 + 1;
            opened
                .and_then(|file| file.take(most).read_to_string(&mut text))
                .map_err(|error| named(&error))?;
            Script::from_toml(&text).map(Some).map_err(|e| named(&e))
        }
        (Some(_), _) => Err("either rules or --file can be given".to_owned()),
        (None, more) => Err(format!("`{}` is one argument too many", more[1])),
    }
}

fn start(args: &FaultArgs, mut script: Script) -> u8 {
    let seed = match script.seed.map_or_else(random_seed, Ok) {
        Ok(seed) => seed,
        Err(error) => return wrong(error),
    };
    script.seed = Some(seed);
    eprintln!("verbena: faults with seed {seed}");
    let variable = ("VERBENA_FAULTS".into(), script.to_string().into());
    super::run::start(&args.launch, &args.program, vec![variable])
}

fn random_seed() -> io::Result<u64> {
    let mut bytes = [0; 4];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u32::from_ne_bytes(bytes).into())
}

fn of_process(args: &FaultArgs) -> u8 {
    let Some((pid, rest)) = args.words.split_first() else {
        return wrong("a process id, or rules and `-- PROGRAM`, are missing");
    };
    let Ok(pid) = pid.parse() else {
        return wrong(format!(
            "`{pid}` is no process id; rules for a program to start are followed by `-- PROGRAM`"
        ));
    };
    let set = match script(args, rest) {
        Ok(set) => set,
        Err(problem) => return wrong(problem),
    };
    let request = match (&set, args.clear) {
        (Some(_), true) => return wrong("either rules or --clear can be given"),
        (Some(_), false) if args.show => return wrong("either rules or --show can be given"),
        (Some(script), false) => Request::Set(script),
        (None, true) => Request::Clear,
        (None, false) if args.show => Request::Show,
        (None, false) => return wrong("rules, --file, --show or --clear is missing"),
    };
    match ask(pid, request) {
        Ok(adapters) => {
            let printed = print(&adapters, args.clear);
            u8::from(printed.is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe))
        }
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn print(adapters: &[verbena_cli::faults::Faults], cleared: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for faults in adapters {
        let name = match adapters.len() {
            1 => String::new(),
            _ => format!("adapter {}: ", faults.adapter),
        };
        if faults.rules.is_empty() {
            if !cleared {
                writeln!(out, "{name}no faults are set")?;
            }
            continue;
        }
        writeln!(out, "{name}seed {}", faults.seed)?;
        for (at, (rule, seen, fired)) in faults.rules.iter().enumerate() {
            let number = at + 1;
            writeln!(
                out,
                "  rule {number}: {rule}: fired {fired} times of {seen}"
            )?;
        }
    }
    Ok(())
}
