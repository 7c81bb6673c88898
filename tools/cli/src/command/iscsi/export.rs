//! `verbena iscsi nbd`: a disk of a target as a network block device. Ctrl-C flushes the disk and removes the socket.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use verbena_storage::Address;
use verbena_storage::nbd::Options;

use super::url::Url;
use super::{BoxError, Common, stop};
use crate::command::nbd::{self, NbdServer};

#[derive(Args)]
pub(super) struct Nbd {
    /// The disk
    #[arg(value_name = "URL", value_parser = Url::<Address>::new())]
    address: Address,
    /// The Unix socket on which to listen for clients
    #[arg(long, value_name = "PATH", required_unless_present = "listen")]
    socket: Option<PathBuf>,
    /// Listen on this TCP address instead
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "socket")]
    listen: Option<SocketAddr>,
    /// The export name that clients may request; the empty name always works
    #[arg(long, default_value = "")]
    name: String,
    /// Refuse writes, even if the disk does not
    #[arg(long)]
    read_only: bool,
    /// Seconds after which a client that stalls in the middle of a request, or reads no replies, is disconnected; an idle client is
    /// disconnected after that time if another waits for its slot
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    idle: u64,
    /// Print the address and errors only
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn nbd(args: &Nbd) -> Result<(), BoxError> {
    let place = nbd::place(args.socket.as_deref(), args.listen);
    let place = place.ok_or("--socket or --listen is needed")?;
    let mut unit = args.common.unit(&args.address)?;
    let server = NbdServer {
        place,
        options: Options {
            name: args.name.clone(),
            read_only: args.read_only,
            idle: Duration::from_secs(args.idle),
        },
        label: "nbd",
        disk: args.address.to_string(),
        quiet: args.quiet,
        stop: &stop()?,
    };
    let counts = server.serve(&mut unit)?;
    unit.close()?;
    if !args.quiet {
        eprintln!("nbd: {counts}");
    }
    Ok(())
}
