//! `verbena iscsi`: disks of iSCSI targets from the command line. A session whose work succeeded is logged out, Ctrl-C ends long work in
//! good order, and a failure is reported in one sentence. Sessions, passes, loads and the NBD export are in the storage crate.

mod export;
mod load;
mod meter;
mod query;
mod secret;
mod size;
mod transfer;
mod url;

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use verbena::function::{LogicalDevice, Service, Services};
use verbena::{Config, Device};
use verbena_storage::session::Options;
use verbena_storage::{Address, Session, Stop, Transport, Unit};

pub(super) use size::{bytes, format_bytes};

pub(crate) const EXAMPLE: &str = "\
Addresses:
  iscsi://[USER%PASSWORD@]HOST[:PORT]/TARGET/LUN[?OPTION=VALUE&...]
  options: header_digest=crc32c|none, data_digest=crc32c|none,
           target_user=NAME and target_password=PASSWORD (the target must authenticate itself, too)
  A password in an address is visible to other users (ps); use --user NAME with --password-file FILE or VERBENA_ISCSI_PASSWORD

Examples:
  verbena iscsi discover iscsi://192.0.2.1
  verbena iscsi inquiry iscsi://192.0.2.1/iqn.2024-01.org.example:disk/1
  verbena iscsi read iscsi://192.0.2.1/iqn.2024-01.org.example:disk/1 --length 1m --output start.img
  verbena iscsi copy disk.img iscsi://192.0.2.1/iqn.2024-01.org.example:disk/1 --verify
  verbena iscsi bench iscsi://192.0.2.1/iqn.2024-01.org.example:disk/1 --rw randread --size 4k
  verbena iscsi nbd iscsi://192.0.2.1/iqn.2024-01.org.example:disk/1 --socket disk.sock";

/// An error for messages.
type BoxError = Box<dyn Error>;

#[derive(Args)]
pub(crate) struct Iscsi {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the targets of a portal and their addresses
    Discover(query::Portal),
    /// List the units of a target
    Luns(query::TargetArgs),
    /// Show the inquiry data of a unit: names, type, serial number, size and limits
    Inquiry(query::TargetArgs),
    /// Show the size of a unit
    Capacity(query::TargetArgs),
    /// Ping a target with NOP-Out, and show the round-trip times
    Ping(query::Ping),
    /// Reset a unit: outstanding commands of all initiators are aborted
    Reset(query::Reset),
    /// Read bytes of a disk into a file or to standard output
    Read(transfer::Read),
    /// Write a file or standard input to a disk; the data is flushed to stable storage before the command ends
    Write(transfer::Write),
    /// Copy a disk to a file, a file to a disk, or a disk to another
    Copy(transfer::Copy),
    /// Measure requests and bytes per second of a disk, and their latency
    Bench(load::Bench),
    /// Export a disk as a network block device on a local socket, for qemu-img, nbdcopy, nbdfuse and others
    Nbd(export::Nbd),
}

/// What every sub-command takes.
#[derive(Args)]
struct Common {
    /// Outstanding commands, at most
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Seconds without an answer, or without a connection, after which a target counts as failed; if not given, 5 for a login
    /// and 30 otherwise
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: Option<u64>,
    /// Microseconds that a thread waiting for a few requests polls before it sleeps: lower latency for more processor time. If not given,
    /// 50 while answers arrive within that time
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u16).range(..=10_000))]
    poll_us: Option<u16>,
    /// Over iSER, close the memory of a command with the first RDMA operation of the target, for targets that use one per command
    #[arg(long)]
    one_touch: bool,
    /// Over iSER, send the first data of a write without a request of the target (InitialR2T=No), if the target agrees
    #[arg(long)]
    unsolicited: bool,
    /// The iSCSI name of the initiator, for the login
    #[arg(long, value_name = "NAME")]
    initiator: Option<String>,
    #[command(flatten)]
    secret: secret::Secret,
}

impl Common {
    fn options(&self) -> Options {
        let mut options = Options {
            depth: self.depth.into(),
            poll: self.poll_us.map(|us| Duration::from_micros(us.into())),
            iser_one_touch: self.one_touch,
            iser_unsolicited: self.unsolicited,
            redirects: self.secret.redirects(),
            ..Options::default()
        };
        if let Some(name) = &self.initiator {
            options.initiator.clone_from(name);
        }
        if let Some(seconds) = self.timeout {
            let time = Duration::from_secs(seconds);
            options.login = time;
            options.command = time;
            options.reconnect = time;
            options.silence = options.silence.min(time / 2);
        }
        options
    }

    fn session(&self, address: &Address) -> Result<Session, BoxError> {
        let address = self.secret.complete(address)?;
        Ok(Session::open(
            &device(&[&address])?,
            &address,
            self.options(),
        )?)
    }

    fn unit(&self, address: &Address) -> Result<Unit, BoxError> {
        let address = self.secret.complete(address)?;
        Ok(Unit::open(&device(&[&address])?, &address, self.options())?)
    }
}

/// The first of the adapter's logical devices that may be used with all of these targets (V2): iSER is RDMA.
fn device(targets: &[&Address]) -> Result<Device, BoxError> {
    let adapter = Device::with(Config::load()?)?;
    let service = |target: &&Address| match target.transport {
        Transport::Iscsi => Service::Iscsi,
        Transport::Iser => Service::Rdma,
    };
    let wanted: Services = targets.iter().map(service).collect();
    let profile = adapter.config().device_profile()?;
    let fits = |device: &&LogicalDevice| {
        wanted
            .iter()
            .all(|service| device.implemented_services().has(service))
    };
    match (profile.served_devices().find(fits), wanted.iter().next()) {
        (Some(device), Some(service)) => Ok(adapter.logical_device(&device.name, service)?),
        _ => {
            Err(format!("no device of this adapter provides {wanted} (setting `presents`)").into())
        }
    }
}

/// Signals that come within this time after the first count as the same: `timeout` and shells signal the process and then its group.
const SIGNAL_DEBOUNCE: Duration = Duration::from_millis(250);

/// A stop that Ctrl-C and SIGTERM request; the second signal ends the process at once. Created when the disk is open: before that there is
/// nothing to end in order, and the signals have their default action.
pub(super) fn stop() -> Result<Stop, BoxError> {
    let stop = Stop::new()?;
    let wish = stop.clone();
    let mut first: Option<Instant> = None;
    ctrlc::set_handler(move || match first {
        Some(first) if first.elapsed() > SIGNAL_DEBOUNCE => std::process::exit(130),
        Some(_) => {}
        None => {
            first = Some(Instant::now());
            wish.request();
            if io::stderr().is_terminal() {
                eprintln!("\nfinishing outstanding requests; press Ctrl-C again to end at once");
            }
        }
    })?;
    Ok(stop)
}

/// Prints a line. A failed write is an error like any other.
fn show(line: impl core::fmt::Display) -> Result<(), BoxError> {
    writeln!(io::stdout(), "{line}")
        .map_err(|error| format!("cannot write to standard output: {error}").into())
}

pub(crate) fn run(args: &Iscsi) -> u8 {
    let done = match &args.action {
        Action::Discover(args) => query::discover(args),
        Action::Luns(args) => query::luns(args),
        Action::Inquiry(args) => query::inquiry(args),
        Action::Capacity(args) => query::capacity(args),
        Action::Ping(args) => query::ping(args),
        Action::Reset(args) => query::reset(args),
        Action::Read(args) => transfer::read(args),
        Action::Write(args) => transfer::write(args),
        Action::Copy(args) => transfer::copy(args),
        Action::Bench(args) => load::bench(args),
        Action::Nbd(args) => export::nbd(args),
    };
    super::driver::exit_code(done)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        common: Common,
    }

    #[test]
    fn iser_options_are_independent() {
        let options = |words: &[&str]| {
            let line = Line::try_parse_from([&["iscsi"], words].concat()).unwrap();
            let options = line.common.options();
            (options.iser_one_touch, options.iser_unsolicited)
        };
        assert_eq!(options(&[]), (false, false));
        assert_eq!(options(&["--one-touch"]), (true, false));
        assert_eq!(options(&["--unsolicited"]), (false, true));
        assert_eq!(options(&["--unsolicited", "--one-touch"]), (true, true));
    }
}
