//! `verbena lab`: arguments of the commands that start, use, show, disturb and end labs. Exit codes of `lab run` are those of the program.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use verbena_cli::lab::control::{self, Client, Reply, Request};
use verbena_cli::lab::error::LabError;
use verbena_cli::lab::order::Order;
use verbena_cli::lab::plan::Plan;
use verbena_cli::lab::socket::SOCKET_VARIABLE;
use verbena_cli::lab::{capture, draw, enter, holder, network, supervisor};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena lab up two-hosts.toml
  verbena lab run a -- rping -s -v &
  verbena lab run b -- rping -c -a 10.0.0.1 -C 10 -v
  verbena lab fault a-s loss=1% delay=5ms
  verbena lab fault a-s cut
  verbena lab show                      a drawing with live traffic
  verbena lab show --svg lab.svg
  verbena lab down

See docs/lab.md for the file.";

#[derive(Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create the hosts, switches, routers and links of a file
    Up(Up),
    /// Run a program on a host, with Verbena's libraries
    ///
    /// The program has the host's network, host name, System V IPC and /dev/shm, and everything else of this machine. Without root it
    /// appears to be root: that is its user namespace, and files that it creates are this user's.
    Run(RunArgs),
    /// Draw the lab, with the traffic of each link
    Show(Show),
    /// Change a link: loss=, repeat=, corrupt=, reorder=, delay=, jitter=, bandwidth=, cut, mend, clear
    Fault(Fault),
    /// Write the frames that pass a link into a pcapng file, until Ctrl-C
    Capture(Capture),
    /// End the programs on the hosts, and remove the lab
    Down(Which),
    #[command(hide = true)]
    Hold,
    #[command(hide = true)]
    Supervise,
}

#[derive(Args)]
struct Which {
    /// The name of the lab, or the path of a control socket; not needed if one lab is running
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
}

impl Which {
    fn client(&self) -> Result<Client, LabError> {
        match self.lab.as_deref() {
            Some(path) if path.contains('/') => Client::at(path.as_ref()),
            name => Client::of_lab(name),
        }
    }
}

#[derive(Args)]
struct Up {
    /// The file
    file: PathBuf,
    /// Stay until Ctrl-C, and end the lab then
    #[arg(long)]
    foreground: bool,
    /// Check the file only
    #[arg(long, conflicts_with = "foreground")]
    check: bool,
}

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    which: Which,
    /// Run it without Verbena's libraries
    #[arg(long)]
    plain: bool,
    /// The host
    host: String,
    #[command(flatten)]
    run: super::run::Run,
}

#[derive(Args)]
struct Show {
    #[command(flatten)]
    which: Which,
    /// Print once, with averages since the start, instead of every second
    #[arg(long)]
    once: bool,
    /// Write a picture of the last second into a file
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    svg: Option<PathBuf>,
    /// Print the counters as JSON
    #[arg(long, conflicts_with_all = ["once", "svg"])]
    json: bool,
}

#[derive(Args)]
struct Fault {
    #[command(flatten)]
    which: Which,
    /// The link: as in the file, or the names of its ends with - between them
    link: String,
    /// What changes
    #[arg(required = true)]
    change: Vec<String>,
}

#[derive(Args)]
struct Capture {
    #[command(flatten)]
    which: Which,
    /// The link
    link: String,
    /// The file
    file: PathBuf,
}

type Failure = Box<dyn std::error::Error>;

/// The interval of `lab show`.
const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &LabArgs) -> u8 {
    let done = match &args.action {
        Action::Run(args) => return run_program(args),
        Action::Up(args) => up(args),
        Action::Show(args) => show(args),
        Action::Fault(args) => fault(args),
        Action::Capture(args) => write_capture(args),
        Action::Down(which) => down(which),
        Action::Hold => holder::hold().map_err(Into::into),
        Action::Supervise => supervisor::supervise().map_err(Into::into),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn up(args: &Up) -> Result<(), Failure> {
    let shown = args.file.display();
    let file = std::fs::read_to_string(&args.file).map_err(|error| format!("{shown}: {error}"))?;
    let stem = args.file.file_stem().unwrap_or_default();
    let default_name = stem.to_string_lossy().into_owned();
    let plan = Plan::parse(&file, &default_name).map_err(|error| format!("{shown}: {error}"))?;
    let name = plan.name.clone();
    let hosts: Vec<String> = plan.hosts().map(|(_, host)| host.name.clone()).collect();
    // Also tells whether routes are right.
    network::Network::new(plan).map_err(|error| format!("{shown}: {error}"))?;
    if args.check {
        println!("{shown}: lab {name} would have {}", listed(&hosts));
        return Ok(());
    }
    let socket = control::path_of(&name)?;
    if Client::at(&socket).is_ok() {
        return Err(
            format!("lab {name} is running: end it with verbena lab down --lab {name}").into(),
        );
    }
    let order = Order {
        default_name,
        file,
        socket: socket.to_string_lossy().into_owned(),
        tied: args.foreground,
    };
    let (tie, notes) = holder::start(&order)?;
    for note in notes {
        eprintln!("verbena: {note}");
    }
    println!("lab {name} is up: {}", listed(&hosts));
    if args.foreground {
        let (signalled, wait) = std::sync::mpsc::channel();
        ctrlc::set_handler(move || {
            let _ = signalled.send(());
        })?;
        let client = Client::at(&socket)?;
        let ended = std::thread::spawn(move || holder::wait_closed(&tie));
        while !ended.is_finished() {
            if wait.recv_timeout(SECOND / 10).is_ok() {
                end(&client)?;
                break;
            }
        }
    }
    Ok(())
}

/// Names of hosts that fit in a line, or their number.
fn listed(hosts: &[String]) -> String {
    match hosts.len() {
        many @ 13.. => format!("{many} hosts"),
        _ => format!("hosts {}", hosts.join(", ")),
    }
}

fn run_program(args: &RunArgs) -> u8 {
    let entered = args.which.client().and_then(|client| {
        enter::enter(&client, &args.host)?;
        Ok(client.path().to_owned())
    });
    let path = match entered {
        Ok(path) => path,
        Err(error) => {
            eprintln!("verbena: {error}");
            return super::run::USAGE;
        }
    };
    let mut variables: Vec<(OsString, OsString)> = vec![(SOCKET_VARIABLE.into(), path.into())];
    // A setting in a file would let connections between hosts of the lab pass beside its links.
    if std::env::var_os("VERBENA_SAME_HOST").is_none() {
        variables.push(("VERBENA_SAME_HOST".into(), "auto".into()));
    }
    if !args.plain {
        return super::run::run_with(&args.run, variables);
    }
    let Some((program, arguments)) = args.run.program.split_first() else {
        return super::run::USAGE;
    };
    let error = std::process::Command::new(program)
        .args(arguments)
        .envs(variables)
        .exec();
    super::run::start_failure(program, &error)
}

fn show(args: &Show) -> Result<(), Failure> {
    let client = args.which.client()?;
    let mut before = client.snapshot()?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&before)?);
        return Ok(());
    }
    if args.once {
        print!("{}", draw::text(&before, None));
        return Ok(());
    }
    loop {
        std::thread::sleep(SECOND);
        let now = client.snapshot()?;
        if let Some(path) = &args.svg {
            std::fs::write(path, draw::svg(&now, Some(&before)))
                .map_err(|error| format!("{}: {error}", path.display()))?;
            return Ok(());
        }
        let mut out = std::io::stdout();
        if out.is_terminal() {
            // Clears the screen.
            write!(out, "\x1b[H\x1b[2J")?;
        }
        write!(out, "{}", draw::text(&now, Some(&before)))?;
        out.flush()?;
        before = now;
    }
}

fn fault(args: &Fault) -> Result<(), Failure> {
    let client = args.which.client()?;
    let request = Request::Fault {
        link: args.link.clone(),
        change: args.change.join(" "),
    };
    if let (Reply::Done(text), _) = client.ask(&request)? {
        println!("{text}");
    }
    Ok(())
}

fn write_capture(args: &Capture) -> Result<(), Failure> {
    let client = args.which.client()?;
    let frames = capture::write(&client, &args.link, &args.file)?;
    println!("{frames} frames");
    Ok(())
}

fn down(which: &Which) -> Result<(), Failure> {
    end(&which.client()?)
}

fn end(client: &Client) -> Result<(), Failure> {
    let snapshot = client.snapshot()?;
    client.ask(&Request::Down)?;
    holder::wait_ended(&snapshot.processes);
    println!("lab {} is down", snapshot.name);
    Ok(())
}
