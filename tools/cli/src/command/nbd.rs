//! What every command that serves a disk as a network block device does: it listens with the access lists of the settings, prints the address when
//! clients can connect, and serves them until Ctrl-C. Addresses that other machines can reach are rejected, since NBD has no authentication.

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use verbena::Config;
use verbena::unstable::access::AccessList;
use verbena_storage::nbd::{Counts, Export, ExportAddr, Options};
use verbena_storage::{Blocks, Stop};

use super::iscsi::format_bytes;

/// Where to listen: on a Unix socket, or on a TCP address.
pub(crate) fn place(socket: Option<&Path>, listen: Option<SocketAddr>) -> Option<ExportAddr> {
    match (socket, listen) {
        (Some(path), _) => Some(ExportAddr::Unix(path.to_owned())),
        (None, listen) => listen.map(ExportAddr::Tcp),
    }
}

/// A disk to serve, and how.
pub(crate) struct NbdServer<'a> {
    /// Where it listens.
    pub(crate) place: ExportAddr,
    /// Options of the export.
    pub(crate) options: Options,
    /// The word before each message on standard error.
    pub(crate) label: &'static str,
    /// The disk, in words.
    pub(crate) disk: String,
    /// Print the address and errors only.
    pub(crate) quiet: bool,
    /// Set by Ctrl-C.
    pub(crate) stop: &'a Stop,
}

impl NbdServer<'_> {
    /// Serves clients until Ctrl-C or the loss of the disk.
    pub(crate) fn serve(self, blocks: &mut impl Blocks) -> Result<Counts, Box<dyn Error>> {
        let NbdServer { label, quiet, .. } = self;
        let read_only = self.options.read_only;
        let mut export = Export::bind(&self.place, self.options)?;
        let config = Config::load()?;
        let access = AccessList::new(&config);
        if !quiet {
            access.on_refusal(|refusal| eprintln!("nbd: {refusal}"));
        }
        export.set_access(access);
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", export.uri()?)?;
        out.flush()?;
        drop(out);
        if !quiet {
            let geometry = blocks.geometry();
            let how = match read_only || geometry.read_only {
                true => ", read-only",
                false => "",
            };
            let (disk, size) = (self.disk, format_bytes(geometry.bytes()));
            eprintln!("{label}: {disk} ({size}{how}); Ctrl-C ends it");
        }
        let counts = export.serve(blocks, self.stop, &mut |what| {
            if !quiet {
                eprintln!("{label}: {what}");
            }
        })?;
        Ok(counts)
    }
}
