//! `verbena switch`: arguments of the software switch. Ctrl-C and SIGTERM end it in order: interfaces and sockets are removed.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clap::Args;
use verbena_cli::lab::switch::{self, MOST_CABLES, SwitchPlan};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena switch --control sw.sock --cable cable.sock        programs connect to cable.sock: one Ethernet frame in each packet
  verbena switch --control sw.sock --tap left --tap right    two new interfaces, joined (as root or in a network namespace)
  verbena lab show --lab ./sw.sock                           its ports and their traffic
  verbena lab fault --lab ./sw.sock cable0 loss=1% delay=5ms

See docs/lab.md.";

#[derive(Args)]
pub(crate) struct SwitchArgs {
    /// The socket for commands, which `verbena lab … --lab PATH` sends
    #[arg(long, value_name = "PATH")]
    control: PathBuf,
    /// A socket for cables (AF_UNIX, SOCK_SEQPACKET); each connection is a port
    #[arg(long, value_name = "PATH")]
    cable: Option<PathBuf>,
    /// The most cables at a time
    #[arg(long, default_value = "16", value_parser = clap::value_parser!(u16).range(1..=MOST_CABLES as i64))]
    cables: u16,
    /// Frames of cables have a virtio-net header of ten bytes before them, so that they may leave work to offloads
    #[arg(long)]
    vnet_header: bool,
    /// A TAP interface to create; may be repeated
    #[arg(long, value_name = "NAME")]
    tap: Vec<String>,
    /// The seed of faults
    #[arg(long, default_value = "0")]
    seed: u64,
}

pub(crate) fn run(args: &SwitchArgs) -> u8 {
    match try_run(args) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn try_run(args: &SwitchArgs) -> Result<(), Box<dyn std::error::Error>> {
    let (mut signal, stop) = UnixStream::pair()?;
    ctrlc::set_handler(move || {
        // The end of the switch has closed the other side.
        let _ = signal.write(&[0]);
    })?;
    let options = SwitchPlan {
        control: args.control.clone(),
        cable: args.cable.clone(),
        cables: if args.cable.is_some() {
            args.cables.into()
        } else {
            0
        },
        headers: args.vnet_header,
        taps: args.tap.clone(),
        seed: args.seed,
    };
    switch::run(&options, stop, || println!("ready"))?;
    Ok(())
}
