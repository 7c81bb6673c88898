//! `verbena iscsi nbd`: a disk of a target as a network block device. The address is printed when clients can connect, and Ctrl-C flushes
//! the disk and removes the socket. Addresses that other machines can reach are rejected, since NBD has no authentication.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use verbena::Config;
use verbena::access::AccessList;
use verbena_storage::nbd::{Export, ExportAddr, Options};
use verbena_storage::{Address, Blocks};

use super::size::format_bytes;
use super::url::Url;
use super::{BoxError, Common, stop};

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

/// A listening export, with the access lists of the settings.
pub(crate) fn bind(place: &ExportAddr, options: Options, quiet: bool) -> Result<Export, BoxError> {
    let mut export = Export::bind(place, options)?;
    let config = Config::load()?;
    let access = AccessList::new(&config);
    if !quiet {
        access.on_refusal(|refusal| eprintln!("nbd: {refusal}"));
    }
    export.set_access(access);
    Ok(export)
}

pub(super) fn nbd(args: &Nbd) -> Result<(), BoxError> {
    let place = match (&args.socket, args.listen) {
        (Some(path), _) => ExportAddr::Unix(path.clone()),
        (None, Some(address)) => ExportAddr::Tcp(address),
        (None, None) => return Err("--socket or --listen is needed".into()),
    };
    let mut unit = args.common.unit(&args.address)?;
    let stop = stop()?;
    let options = Options {
        name: args.name.clone(),
        read_only: args.read_only,
        idle: Duration::from_secs(args.idle),
    };
    let export = bind(&place, options, args.quiet)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", export.uri()?)?;
    out.flush()?;
    drop(out);
    if !args.quiet {
        let geometry = unit.geometry();
        let how = match args.read_only || geometry.read_only {
            true => ", read-only",
            false => "",
        };
        eprintln!(
            "nbd: {} ({}{how}); Ctrl-C ends it",
            args.address,
            format_bytes(geometry.bytes())
        );
    }
    let counts = export.serve(&mut unit, &stop, &mut |what| {
        if !args.quiet {
            eprintln!("nbd: {what}");
        }
    })?;
    unit.close()?;
    if !args.quiet {
        eprintln!(
            "nbd: {} clients, {} requests ({} refused, {} failed), {} bytes read and {} written",
            counts.clients,
            counts.requests,
            counts.refused,
            counts.failed,
            counts.read,
            counts.written
        );
    }
    Ok(())
}
