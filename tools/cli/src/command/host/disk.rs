//! `verbena host --disk`: a disk of a unit as a network block device. The address is printed when clients can connect; when the unit is lost,
//! requests in progress fail and the command ends. Payload is copied once, between the registered memory of the link and that of clients.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use verbena::{Access, Device, Memory};
use verbena_split::carrier::open;
use verbena_split::disk::{BlockOperation, BlockRequest, BlockStatus};
use verbena_split::lane::Lane;
use verbena_split::remote_disk::{
    BlockFailure, FinishedRequest, RemoteDisk, RemoteDiskOptions, SubmitError,
};
use verbena_storage::nbd::Options;
use verbena_storage::{Blocks, BufferRef, Done, Error, Extent, Failure, Geometry, Request};

use super::HostArgs;
use crate::command::driver;
use crate::command::iscsi::stop;
use crate::command::nbd::{self, NbdServer};

/// Options of a disk.
#[derive(Args)]
pub(super) struct DiskArgs {
    /// A disk of the unit, offered on this host as a network block device, instead of an interface
    #[arg(long, value_name = "NAME", requires = "nbd")]
    pub(super) disk: Option<String>,
    /// The Unix socket on which to listen for NBD clients
    #[arg(long, value_name = "PATH", group = "nbd", conflicts_with = "tap")]
    nbd_socket: Option<PathBuf>,
    /// Listen for NBD clients on this TCP address instead
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        group = "nbd",
        conflicts_with = "tap"
    )]
    nbd_listen: Option<SocketAddr>,
    /// Refuse writes of NBD clients, even if the disk does not
    #[arg(long, conflicts_with = "tap")]
    read_only: bool,
}

/// A disk of a unit with memory of an adapter, as an export needs it.
struct SplitDisk {
    remote: RemoteDisk,
    device: Device,
    /// Where the data of each read goes.
    reads: HashMap<u64, BufferRef>,
    scratch: Vec<u8>,
    finished: Vec<FinishedRequest>,
}

/// Serves the disk until Ctrl-C or the loss of the unit.
pub(super) fn serve(args: &HostArgs, disk: &str) -> Result<(), Box<dyn std::error::Error>> {
    let Some(unit) = &args.connect else {
        return Err("--connect is needed".into());
    };
    let place = nbd::place(args.disk.nbd_socket.as_deref(), args.disk.nbd_listen);
    let place = place.ok_or("--nbd-socket or --nbd-listen is needed")?;
    let (kinds, indication) = super::channel_options(args, unit)?;
    // The first queue of the unit serves its disks.
    let lane = Lane::new(0, args.queues)?;
    let unit = unit.of_queue(lane)?;
    let options = RemoteDiskOptions {
        name: args.name.clone().unwrap_or_else(driver::host_name),
        lane,
        arrangement: args.arrangement,
        kinds,
        indication,
        elements: args.elements,
        patience: Duration::from_secs(args.patience),
        ..RemoteDiskOptions::new(disk)
    };
    let events = driver::ChannelEvents::open(args.channel_events)?;
    let carrier = events.of(open::dial(&unit, args.cell)?);
    let remote = RemoteDisk::open(carrier, &options).map_err(|error| format!("{unit}: {error}"))?;
    let mut blocks = SplitDisk {
        remote,
        device: Device::open()?,
        reads: HashMap::new(),
        scratch: Vec::new(),
        finished: Vec::new(),
    };
    let name = match disk {
        "" => "the disk".to_owned(),
        name => format!("disk {name}"),
    };
    let server = NbdServer {
        place,
        options: Options {
            read_only: args.disk.read_only,
            ..Options::default()
        },
        label: "host",
        disk: format!("{name} of {unit}"),
        quiet: args.quiet,
        stop: &stop()?,
    };
    let served = server.serve(&mut blocks);
    let in_order = blocks.remote.close();
    let counts = served?;
    if !args.quiet {
        let how = match in_order {
            true => "in good order",
            false => "without confirmation",
        };
        eprintln!("host: disconnected {how}; {counts}");
    }
    Ok(())
}

impl SplitDisk {
    fn request(&self, id: u64, operation: BlockOperation, at: Extent) -> BlockRequest {
        let block = self.remote.info().block_size;
        BlockRequest {
            context: id,
            operation,
            offset: at.lba.saturating_mul(block.into()),
            len: at.blocks.saturating_mul(block),
        }
    }
}

impl Blocks for SplitDisk {
    fn geometry(&self) -> Geometry {
        let info = self.remote.info();
        Geometry {
            blocks: info.blocks,
            block_size: info.block_size,
            read_only: info.read_only,
            can_unmap: false,
            can_zero: false,
            optimal: info.max_data,
            maximal: info.max_data,
            max_bulk_blocks: 1,
        }
    }

    fn memory(&mut self, len: usize) -> Result<Memory, Error> {
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        Ok(self.device.memory(len, access)?)
    }

    fn submit(&mut self, id: u64, request: Request) -> Result<(), Error> {
        let none = Extent { lba: 0, blocks: 0 };
        self.scratch.clear();
        let (what, into) = match request {
            Request::Read { at, into } => (self.request(id, BlockOperation::Read, at), Some(into)),
            Request::Write { at, from, fua } => {
                let write = self.request(id, BlockOperation::Write { fua }, at);
                self.scratch.resize(write.data_len(), 0);
                from.memory.read_at(from.offset, &mut self.scratch)?;
                (write, None)
            }
            Request::Flush => (self.request(id, BlockOperation::Flush, none), None),
            Request::Unmap(_) | Request::Zero(_) => {
                let what = "disks of units have neither unmap nor zero";
                return Err(Error::Setting(what.to_owned()));
            }
        };
        match self.remote.submit(what, &self.scratch) {
            Ok(()) => {
                self.reads.extend(into.map(|into| (id, into)));
                Ok(())
            }
            Err(SubmitError::Full(depth)) => Err(Error::Full { depth }),
            Err(SubmitError::Lost(why)) => Err(Error::Lost(why)),
            Err(error) => Err(Error::Setting(error.to_string())),
        }
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> Result<(), Error> {
        let polled = self.remote.poll(&mut self.finished);
        polled.map_err(|error| Error::Lost(error.to_string()))?;
        for FinishedRequest { context, result } in self.finished.drain(..) {
            let into = self.reads.remove(&context);
            let result = match result {
                Ok(data) => {
                    if let Some(into) = into {
                        into.memory.write_at(into.offset, &data)?;
                    }
                    Ok(())
                }
                Err(failure) => Err(reason(failure)),
            };
            done.push(Done {
                id: context,
                result,
            });
        }
        Ok(())
    }

    fn wait(&mut self, beside: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<(), Error> {
        let waited = self.remote.wait(beside, timeout);
        waited.map_err(|error| Error::Lost(error.to_string()))
    }

    fn depth(&self) -> usize {
        self.remote.depth()
    }
}

fn reason(failure: BlockFailure) -> Failure {
    match failure {
        BlockFailure::Lost(why) => Failure::Lost(why),
        BlockFailure::Status(BlockStatus::ReadOnly) => Failure::ReadOnly,
        BlockFailure::Status(BlockStatus::NoSpace) => Failure::NoSpace,
        BlockFailure::Status(status @ (BlockStatus::Invalid | BlockStatus::Ok)) => {
            Failure::Refused(status.to_string())
        }
        BlockFailure::Status(BlockStatus::Io) => Failure::Medium(BlockStatus::Io.to_string()),
    }
}
