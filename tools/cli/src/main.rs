//! The `verbena` command: parses arguments, calls the subcommand, and returns its exit code. Every subcommand has `--help`, and a failure
//! is reported in one sentence on standard error.

#![forbid(unsafe_code)]

mod command {
    pub(crate) mod bench;
    pub(crate) mod check;
    pub(crate) mod decode;
    pub(crate) mod demo;
    pub(crate) mod devinfo;
    pub(crate) mod driver;
    pub(crate) mod env;
    pub(crate) mod events;
    pub(crate) mod faults;
    pub(crate) mod generate;
    pub(crate) mod help;
    pub(crate) mod host;
    pub(crate) mod iscsi;
    pub(crate) mod lab;
    pub(crate) mod link;
    pub(crate) mod metrics;
    pub(crate) mod models;
    pub(crate) mod nbd;
    pub(crate) mod pcap;
    pub(crate) mod run;
    pub(crate) mod switch;
    pub(crate) mod top;
    pub(crate) mod trace;
    pub(crate) mod unit;
    pub(crate) mod web;
    pub(crate) mod why;
}

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use command::decode::{EXAMPLE, EXIT_CODES};

const CODES: &str = "\
Exit codes:
  0  done, and nothing was wrong
  1  it failed, or a protocol violation was seen; the message says which
  2  bad usage, or a file that cannot be read";

/// Software RDMA over TCP (iWARP).
#[derive(Parser)]
#[command(name = "verbena", version, after_help = CODES, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the iWARP messages and iSCSI PDUs in a packet capture
    ///
    /// Reads pcap or pcapng, finds MPA streams by their startup frames, follows both directions through
    /// retransmissions and reordering, judges them as their receivers would, and prints one line per RDMAP
    /// message (> from the initiator, < from the responder) and a summary per stream. Connections to port 3260
    /// that begin with an iSCSI login are shown PDU by PDU, digests checked as the login agreed.
    #[command(after_help = EXIT_CODES, after_long_help = format!("{EXAMPLE}\n\n{EXIT_CODES}"))]
    Decode(command::decode::Decode),
    /// Start a program on Verbena instead of a real adapter
    ///
    /// The program loads Verbena's libibverbs and librdmacm instead of the system's, and is otherwise unchanged: signals,
    /// exit code and terminal are its own. Settings that the adapter would reject are reported before it starts.
    #[command(after_help = command::run::EXAMPLE)]
    Run(command::run::Run),
    /// Print what `run` would set, as lines for a shell
    #[command(after_help = command::env::EXAMPLE)]
    Env(command::env::Env),
    /// Measure latency, bandwidth and message rate, next to plain TCP if asked
    ///
    /// Without --server and --client both sides run here, each in a process of its own, over loopback.
    #[command(after_help = command::bench::EXAMPLE)]
    Bench(command::bench::Bench),
    /// Show the adapter: its addresses, limits and settings, and where each setting came from
    Devinfo(command::devinfo::Devinfo),
    /// Show the network interface of each device, as `rdma link` and `ibdev2netdev` do
    ///
    /// `rdma` itself queries the kernel, which has no entries for Verbena's devices.
    #[command(after_help = command::link::EXAMPLE)]
    Link(command::link::LinkArgs),
    /// Show the events of a running process as they happen, or the processes that can be watched
    ///
    /// Completions appear when an armed queue raises an event for them. A process of the same user can be watched from its
    /// first completion queue on, unless its setting `monitor` is off; watching never blocks it.
    #[command(after_help = command::events::EXAMPLE)]
    Events(command::events::Events),
    /// Say why queue pairs failed or wait: first cause, whose fault it is, the numbers, and what to do
    ///
    /// Looks at running programs of this user and at what ended ones left. The programs need no preparation and are not delayed.
    #[command(after_help = command::why::EXAMPLE)]
    Why(command::why::Why),
    /// Make faults happen to a program, to test how it handles them: failing posts and completions, lost connections, delays
    ///
    /// The program sees what it would see of real failures; `verbena why` says which were injected. The same seed gives the same faults.
    #[command(after_help = command::faults::EXAMPLE)]
    Faults(command::faults::FaultArgs),
    /// Check how a program uses verbs: buffers in use, queues, keys, states, objects that are left, events and completions
    ///
    /// The program is unmodified and runs on Verbena as by `verbena run`. Each kind of report has a name, which --explain explains.
    #[command(after_help = command::check::EXAMPLE)]
    Check(command::check::CheckArgs),
    /// Show rates of running processes and their queue pairs, as a live table
    #[command(after_help = command::top::EXAMPLE)]
    Top(command::top::Top),
    /// Capture what crosses the connections of a running program, as pcapng for tshark, Wireshark and `verbena decode`
    ///
    /// Needs no rights to sniff: the adapter of a program of the same user (root: of any) copies its frames. The program needs no
    /// preparation, and does not wait for the capture.
    #[command(after_help = command::pcap::EXAMPLE)]
    Pcap(command::pcap::Pcap),
    /// Record posts, frames, completions and wake-ups of running programs with their times, for Perfetto and chrome://tracing
    ///
    /// Flows lead from a post to its completion, and to its arrival in the other process if that is traced, too. The adapter of a program of
    /// the same user (root: of any) writes the events; the program needs no preparation, and does not wait.
    #[command(after_help = command::trace::EXAMPLE)]
    Trace(Box<command::trace::TraceArgs>),
    /// Give counters of running processes to Prometheus, as OpenMetrics text
    ///
    /// Per device with the names of node_exporter's infiniband collector, per process and queue pair with names of their own.
    #[command(after_help = command::metrics::EXAMPLE)]
    Metrics(command::metrics::Metrics),
    /// Show running programs, their peers and failures, labs and traces in a browser, on a page of this machine
    ///
    /// The page is served on a loopback address to browsers that have the token of its address, works offline, and reads nothing
    /// while no browser shows it.
    #[command(after_help = command::web::EXAMPLE)]
    Web(command::web::WebArgs),
    /// Create a network interface on this machine whose card is in another machine
    ///
    /// The other machine runs `verbena unit`. Frames are written into buffers that each side has offered the other in advance
    /// (push-push messaging), over RDMA or over cells in UDP datagrams or Ethernet frames. When the unit disconnects, the
    /// interface remains, with its link down; the link comes up again when the unit is back.
    #[command(after_help = command::host::EXAMPLE)]
    Host(command::host::HostArgs),
    /// Share this machine's network card with hosts that run `verbena host`
    #[command(after_help = command::unit::EXAMPLE)]
    Unit(command::unit::UnitArgs),
    /// Use disks of iSCSI targets: find, read, write, copy and measure them, or export them as network block devices
    #[command(after_help = command::iscsi::EXAMPLE)]
    Iscsi(Box<command::iscsi::Iscsi>),
    /// Compare pushing packets with pulling them: latency, messages and bytes of each model
    ///
    /// Two adapters of this process exchange packets over loopback, one at a time in alternating directions. Each round runs every model.
    #[command(after_help = command::models::EXAMPLE)]
    Models(command::models::Models),
    /// Run programs on a network of hosts, switches and routers on this machine, without root
    ///
    /// A host is a network namespace with interfaces whose frames pass a network in software: switches, routers, and links with loss,
    /// delay and other faults on command. Programs on the hosts are ordinary ones; `lab run` adds Verbena's libraries.
    #[command(after_help = command::lab::EXAMPLE)]
    Lab(command::lab::LabArgs),
    /// Join interfaces and local sockets by an Ethernet switch in software
    #[command(after_help = command::switch::EXAMPLE)]
    Switch(command::switch::SwitchArgs),
    /// Two processes, every operation once, every byte checked
    Demo(command::demo::Demo),
    /// Show the help of a command, or a page of the manual: settings, wires, programs
    #[command(after_help = command::help::EXAMPLE)]
    Help(command::help::Help),
    /// Write manual pages and completions, for packages
    #[command(hide = true)]
    Generate(command::generate::Generate),
}

fn main() -> ExitCode {
    let code = match Cli::parse().command {
        Command::Decode(args) => command::decode::run(&args),
        Command::Run(args) => command::run::run(&args),
        Command::Env(args) => command::env::run(&args),
        Command::Bench(args) => command::bench::run(&args),
        Command::Devinfo(args) => command::devinfo::run(&args),
        Command::Link(args) => command::link::run(&args),
        Command::Events(args) => command::events::run(&args),
        Command::Why(args) => command::why::run(&args),
        Command::Faults(args) => command::faults::run(&args),
        Command::Check(args) => command::check::run(&args),
        Command::Top(args) => command::top::run(&args),
        Command::Pcap(args) => command::pcap::run(&args),
        Command::Trace(args) => command::trace::run(&args),
        Command::Metrics(args) => command::metrics::run(&args),
        Command::Web(args) => command::web::run(&args),
        Command::Host(args) => command::host::run(&args),
        Command::Unit(args) => command::unit::run(&args),
        Command::Iscsi(args) => command::iscsi::run(&args),
        Command::Lab(args) => command::lab::run(&args),
        Command::Switch(args) => command::switch::run(&args),
        Command::Models(args) => command::models::run(&args),
        Command::Demo(args) => command::demo::run(&args),
        Command::Help(args) => command::help::run(&args, &Cli::command()),
        Command::Generate(args) => command::generate::run(&args, Cli::command()),
    };
    ExitCode::from(code)
}
