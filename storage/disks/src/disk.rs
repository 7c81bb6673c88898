//! A disk for threads and tasks: requests can be made from any thread, and a buffer belongs to its request until that completes. The buffer
//! is returned with the result, and dropping a [`Pending`] does not cancel its request. A thread drives the [`Unit`]; a program with an
//! event loop of its own uses the unit directly and saves the hand-over between threads.

mod buffer;
mod driver;
mod pending;
mod promise;

pub use buffer::Buffer;
pub use pending::Pending;
pub use promise::RequestResult;

use std::sync::Arc;
use std::thread::JoinHandle;

use verbena::Device;

use crate::address::Address;
use crate::blocks::{Blocks, Extent, Geometry, Request};
use crate::error::Error;
use crate::session::Options;
use crate::unit::{Identity, Unit};
use driver::{Job, RequestQueue};

/// A disk of a target.
///
/// ```no_run
/// use verbena_storage::{Disk, session::Options};
/// let device = verbena::Device::open()?;
/// let address = "iscsi://192.0.2.1/iqn.2024-01.org.example:disk/1".parse()?;
/// let disk = Disk::open(&device, &address, Options::default())?;
///
/// let block = disk.geometry().block_size as usize;
/// let mut buffer = disk.buffer(8 * block)?;
/// buffer.write_at(0, b"hello")?;
/// // `wait` blocks a thread; a task awaits instead. Both return the buffer.
/// let (written, buffer) = disk.write(0, buffer).wait();
/// written?;
/// let (read, buffer) = disk.read(0, buffer).wait();
/// read?;
/// assert_eq!(buffer.to_vec(0, 5)?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Disk {
    queue: Arc<RequestQueue>,
    geometry: Geometry,
    identity: Identity,
    driver: Option<JoinHandle<()>>,
}

impl Disk {
    /// Logs in at a target and drives one of its units on a new thread.
    pub fn open(device: &Device, address: &Address, options: Options) -> Result<Disk, Error> {
        Disk::of(Unit::open(device, address, options)?)
    }

    /// Drives an open unit on a new thread.
    pub fn of(unit: Unit) -> Result<Disk, Error> {
        let (geometry, identity) = (unit.geometry(), unit.identity().clone());
        let listener = Arc::new(RequestQueue::new(&unit)?);
        let inside = listener.clone();
        let driver = std::thread::Builder::new()
            .name("verbena-disk".to_owned())
            .spawn(move || driver::drive(unit, &inside))
            .map_err(Error::io("a thread for the disk"))?;
        Ok(Disk {
            queue: listener,
            geometry,
            identity,
            driver: Some(driver),
        })
    }

    /// Its properties.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Its INQUIRY data.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A zeroed buffer for its requests; the length is a multiple of the block size.
    pub fn buffer(&self, len: usize) -> Result<Buffer, Error> {
        let block = self.geometry.block_size;
        if !len.is_multiple_of(block as usize) {
            return Err(Error::Setting(format!(
                "a buffer of {len} bytes is not one of whole blocks of {block}"
            )));
        }
        self.queue.buffer(len)
    }

    /// Reads blocks from `lba` on into a buffer, as many as fit.
    pub fn read(&self, lba: u64, buffer: Buffer) -> Pending {
        let at = self.extent(lba, &buffer);
        let into = buffer.buffer_ref();
        self.begin(at.map(|at| Request::Read { at, into }), buffer)
    }

    /// Writes a buffer to the blocks from `lba` on.
    pub fn write(&self, lba: u64, buffer: Buffer) -> Pending {
        let at = self.extent(lba, &buffer);
        let from = buffer.buffer_ref();
        self.begin(
            at.map(|at| Request::Write {
                at,
                from,
                fua: false,
            }),
            buffer,
        )
    }

    /// Brings all completed writes to stable storage.
    pub fn flush(&self) -> Pending {
        self.begin(Ok(Request::Flush), Buffer::none(&self.queue))
    }

    /// Deallocates these blocks.
    pub fn unmap(&self, at: Extent) -> Pending {
        self.begin(Ok(Request::Unmap(at)), Buffer::none(&self.queue))
    }

    fn extent(&self, lba: u64, buffer: &Buffer) -> Result<Extent, Error> {
        let block = u64::from(self.geometry.block_size);
        let offset = lba.checked_mul(block);
        let found = offset.and_then(|at| self.geometry.extent(at, buffer.len() as u64));
        found.ok_or(Error::Range {
            offset: offset.unwrap_or(u64::MAX),
            len: buffer.len() as u64,
            limit: self.geometry.bytes(),
        })
    }

    fn begin(&self, request: Result<Request, Error>, buffer: Buffer) -> Pending {
        let ticket = self.queue.ticket();
        let (pending, promise) = pending::pair(buffer, &self.queue, ticket);
        match request {
            Ok(request) => self.queue.push(Job {
                ticket,
                request,
                promise,
            }),
            Err(error) => promise.fulfil(Err(error)),
        }
        pending
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(driver) = self.driver.take() {
            // The driver thread ends when outstanding requests have completed. Its panic was reported already.
            let _ = driver.join();
        }
    }
}
