//! Disks of a unit: files, block devices or memory, each with a thread that executes requests in the order in which they come. The unit's
//! loop therefore never waits for storage. Requests were checked before they reach the thread; the rest of a failure is a status.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};

use crate::disk::{
    BLOCK_SIZE, BlockOperation, BlockRequest, BlockStatus, DiskInfo, MAX_DATA, MAX_DISK_NAME,
};

/// Where the blocks of a disk are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// A file or a block device.
    File {
        /// Its path.
        path: PathBuf,
        /// Writes are refused.
        read_only: bool,
    },
    /// Memory, zeroed, which is lost with the unit.
    Memory {
        /// Its size.
        bytes: u64,
    },
}

/// Why a disk cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// An invalid name.
    #[error(
        "`{0}` cannot be the name of a disk: it needs 1 to {MAX_DISK_NAME} bytes without control characters"
    )]
    Name(String),
    /// Two disks with one name.
    #[error("two disks have the name `{0}`: give another by NAME=PATH")]
    Duplicate(String),
    /// Neither a file nor a block device.
    #[error("{}: neither a file nor a block device", .0.display())]
    Kind(PathBuf),
    /// Not whole blocks.
    #[error("disk {name}: {bytes} bytes are no whole blocks of {BLOCK_SIZE}, or none at all")]
    Size {
        /// The disk.
        name: String,
        /// Its size.
        bytes: u64,
    },
    /// The system.
    #[error("{what}: {error}")]
    Io {
        /// The operation.
        what: String,
        /// Its error.
        error: std::io::Error,
    },
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> DiskError {
    let what = what.into();
    move |error| DiskError::Io { what, error }
}

/// A disk that is open and not served yet.
#[derive(Debug)]
pub struct UnitDisk {
    name: String,
    info: DiskInfo,
    file: File,
}

impl UnitDisk {
    /// Opens it.
    pub fn open(name: &str, backing: &Backing) -> Result<UnitDisk, DiskError> {
        let named = (1..=MAX_DISK_NAME).contains(&name.len());
        if !named || name.chars().any(char::is_control) {
            return Err(DiskError::Name(name.escape_default().to_string()));
        }
        let (file, read_only) = match backing {
            Backing::File { path, read_only } => (open_file(path, *read_only)?, *read_only),
            Backing::Memory { bytes } => (memory_file(name, *bytes)?, false),
        };
        // The metadata of a block device have no size.
        let bytes = seek(&file, SeekFrom::End(0));
        let bytes = bytes.map_err(|errno| io(format!("the size of disk {name}"))(errno.into()))?;
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_SIZE.into()) {
            let name = name.to_owned();
            return Err(DiskError::Size { name, bytes });
        }
        Ok(UnitDisk {
            name: name.to_owned(),
            info: DiskInfo {
                block_size: BLOCK_SIZE,
                read_only,
                blocks: bytes / u64::from(BLOCK_SIZE),
                max_data: MAX_DATA,
            },
            file,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its properties.
    pub fn info(&self) -> DiskInfo {
        self.info
    }

    /// Starts its thread.
    pub(super) fn start(self) -> Result<DiskWorker, DiskError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = eventfd(0, flags).map_err(|errno| io("an event descriptor")(errno.into()))?;
        let event = Arc::new(event);
        let (jobs, queue) = channel();
        let (replies, done) = channel();
        let (file, signal) = (self.file, Arc::clone(&event));
        let thread = std::thread::Builder::new().name("unit-disk".to_owned());
        let thread = thread.spawn(move || execute_all(&file, &queue, &replies, &signal));
        Ok(DiskWorker {
            name: self.name,
            info: self.info,
            jobs: Some(jobs),
            done,
            event,
            thread: Some(thread.map_err(io("a thread for a disk"))?),
            outstanding: 0,
            unread: 0,
            requests: 0,
            failed: 0,
        })
    }
}

fn open_file(path: &Path, read_only: bool) -> Result<File, DiskError> {
    let at = || path.display().to_string();
    let file = File::options().read(true).write(!read_only).open(path);
    let file = file.map_err(io(at()))?;
    let kind = file.metadata().map_err(io(at()))?.file_type();
    match kind.is_file() || kind.is_block_device() {
        true => Ok(file),
        false => Err(DiskError::Kind(path.to_owned())),
    }
}

fn memory_file(name: &str, bytes: u64) -> Result<File, DiskError> {
    let what = || format!("memory for disk {name}");
    let memory = memfd_create("verbena-disk", MemfdFlags::CLOEXEC);
    let file = File::from(memory.map_err(|errno| io(what())(errno.into()))?);
    file.set_len(bytes).map_err(io(what()))?;
    Ok(file)
}

/// A request for the thread of a disk.
#[derive(Debug)]
pub(super) struct BlockJob {
    /// The number of the host.
    pub(super) host: u64,
    pub(super) request: BlockRequest,
    pub(super) data: Vec<u8>,
}

/// The result of a request.
#[derive(Debug)]
pub(super) struct BlockDone {
    /// The number of the host.
    pub(super) host: u64,
    pub(super) context: u64,
    pub(super) status: BlockStatus,
    /// What was read.
    pub(super) data: Vec<u8>,
}

/// A disk that is served. Dropping it waits until the requests that it has are executed.
#[derive(Debug)]
pub(super) struct DiskWorker {
    pub(super) name: String,
    pub(super) info: DiskInfo,
    /// `None` when it ends.
    jobs: Option<Sender<BlockJob>>,
    done: Receiver<BlockDone>,
    event: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// Requests without a result, and results whose event was not read yet.
    outstanding: u64,
    unread: u64,
    /// Requests executed, and those of them that failed.
    pub(super) requests: u64,
    pub(super) failed: u64,
}

impl DiskWorker {
    /// Hands a request to the thread; false if that has ended.
    pub(super) fn submit(&mut self, job: BlockJob) -> bool {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job).is_ok());
        self.outstanding += u64::from(sent == Some(true));
        sent == Some(true)
    }

    /// The next result.
    pub(super) fn next_done(&mut self) -> Option<BlockDone> {
        if self.outstanding == 0 && self.unread == 0 {
            return None;
        }
        let done = match self.done.try_recv() {
            Ok(done) => done,
            Err(_) => {
                let mut count = [0; 8];
                // Fails if the counter is 0. A result that comes after the read sets it again.
                if rustix::io::read(&self.event, &mut count) == Ok(8) {
                    self.unread = self.unread.wrapping_sub(u64::from_ne_bytes(count));
                }
                self.done.try_recv().ok()?
            }
        };
        self.outstanding -= 1;
        // The event of a result is set after the result is sent, so it may be read before or after it.
        self.unread = self.unread.wrapping_add(1);
        self.requests += 1;
        self.failed += u64::from(done.status != BlockStatus::Ok);
        Some(done)
    }
}

impl AsFd for DiskWorker {
    /// Readable when there are results.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for DiskWorker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported already.
            let _ = thread.join();
        }
    }
}

fn execute_all(
    file: &File,
    jobs: &Receiver<BlockJob>,
    replies: &Sender<BlockDone>,
    event: &OwnedFd,
) {
    while let Ok(job) = jobs.recv() {
        let done = execute(file, job);
        if replies.send(done).is_err() {
            break;
        }
        // Fails only when the counter is at its maximum, and then the descriptor is readable as well.
        let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
    }
}

fn execute(file: &File, job: BlockJob) -> BlockDone {
    let BlockJob {
        host,
        request,
        mut data,
    } = job;
    let offset = request.offset;
    let result = match request.operation {
        BlockOperation::Read => {
            data.resize(request.len as usize, 0);
            file.read_exact_at(&mut data, offset)
        }
        BlockOperation::Write { fua } => {
            let written = file.write_all_at(&data, offset);
            data.clear();
            written.and_then(|()| if fua { file.sync_data() } else { Ok(()) })
        }
        BlockOperation::Flush => file.sync_data(),
    };
    let status = match result {
        Ok(()) => BlockStatus::Ok,
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => BlockStatus::NoSpace,
        Err(_) => BlockStatus::Io,
    };
    if status != BlockStatus::Ok {
        data.clear();
    }
    BlockDone {
        host,
        context: request.context,
        status,
        data,
    }
}

#[cfg(test)]
mod tests;
