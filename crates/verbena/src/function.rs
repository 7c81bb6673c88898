//! Virtual functions (V1): further devices of one adapter, each with its own share of the resources.
//! Objects of one function cannot be used with another. A function is removed and its share freed when its last handle is dropped,
//! not before. Limits and counters of a device are here, too, and the profile that gives an adapter several logical devices
//! (docs/functions.md). Connections move between functions by [`Qp::migrate`](crate::low::Qp::migrate) (docs/migration.md):
//!
//! ```
//! use verbena::Device;
//! use verbena::function::FunctionOptions;
//! use verbena::low::{Qp, QpOptions};
//!
//! let adapter = Device::open()?;
//! let tenant = adapter.function(&FunctionOptions { qps: 4, ..FunctionOptions::default() })?;
//! let listener = adapter.listen("127.0.0.1:0")?;
//! let connecting = adapter.connect(listener.local_addr()?);
//! let cq = adapter.cq(16)?;
//! let qp = Qp::new(&adapter.pd()?, &cq, &cq, QpOptions::default())?;
//! listener.next().wait()?.accept_on(&qp, b"")?.wait()?;
//! let _peer = connecting.wait()?;
//!
//! let (pd, cq) = (tenant.pd()?, tenant.cq(16)?);
//! let qp = qp.migrate(&pd, &cq, &cq, None).map_err(|kept| kept.source)?;
//! assert_eq!(tenant.used().qps, 1);
//! # drop(qp);
//! # Ok::<(), verbena::Error>(())
//! ```

// Of inner crates, deliberately: what devices can do, have and count is plain data.

pub use crate::qp::MigrateError;

pub use verbena_engine::{DatagramDrops, FunctionOptions, PacketHandovers};
pub use verbena_mem::PageQuota;
pub use verbena_nic::profile::{
    DeviceFunction, DeviceProfile, HostMap, LogicalDevice, Owner, ProfileError, Rule, Service,
    Services, Tuple,
};
pub use verbena_nic::{Attributes, FunctionCounters, Object, Ranges, Shares};

use crate::device::Device;
use crate::error::Error;

impl Device {
    /// Creates a virtual function of the adapter: a device with its own memory, queues, numbers and threads.
    ///
    /// It is removed when its last handle (a clone, a connection, a buffer, a queue) is dropped, whether or not this device
    /// still exists. Only the physical function, which [`Device::open`] opens, can create others. Fails if `options` ask for more
    /// than is left; the error has both numbers.
    ///
    /// ```
    /// use verbena::Device;
    /// use verbena::function::FunctionOptions;
    /// let adapter = Device::open()?;
    /// let tenant = adapter.function(&FunctionOptions { qps: 16, ..FunctionOptions::default() })?;
    /// assert_eq!(tenant.attributes().shares.qps, 16);
    ///
    /// // Two functions of one process, over loopback.
    /// let listener = tenant.listen("127.0.0.1:0")?;
    /// let connecting = adapter.connect(listener.local_addr()?);
    /// let (theirs, ours) = (listener.accept().wait()?, connecting.wait()?);
    /// let receiving = theirs.recv(tenant.buffer(64)?);
    /// ours.send(adapter.buffer_from(b"hello")?).wait().0?;
    /// assert_eq!(&receiving.wait().1[..], b"hello");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn function(&self, options: &FunctionOptions) -> Result<Device, Error> {
        Device::from_engine(self.inner().engine.add_function(options)?)
    }

    /// A logical device of the adapter's profile (settings `functions` and `presents`, docs/functions.md): the adapter itself if it is
    /// the first one listed, else a virtual function that this call creates. It offers every service of the logical device, not only
    /// the one asked for; creating a queue pair of another service fails. Fails if there is no such logical device, if it lacks the
    /// service, or if the service is not implemented yet.
    ///
    /// ```
    /// use verbena::function::Service;
    /// use verbena::{Config, Device};
    /// let mut config = Config::default();
    /// config.set("presents", "verbena0=rdma+nic,verbena1=rdma").map_err(verbena::Error::Config)?;
    /// let adapter = Device::with(config)?;
    /// assert_eq!(adapter.logical_device("verbena1", Service::Rdma)?.function_number(), 1);
    /// let refused = adapter.logical_device("verbena0", Service::Nic).unwrap_err();
    /// assert!(refused.to_string().contains("not implemented"));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn logical_device(&self, name: &str, service: Service) -> Result<Device, Error> {
        let refused = |why| Error::Profile(Box::new(why));
        let profile = self.config().device_profile().map_err(refused)?;
        let function = profile.function(name, service).map_err(refused)?;
        if function == 0 {
            return Ok(self.clone());
        }
        self.function(&FunctionOptions {
            name: Some(name.to_owned()),
            ..FunctionOptions::from_config(self.config())
        })
    }

    /// Its function number; 0 is the physical function. Numbers are not reused.
    ///
    /// ```
    /// assert_eq!(verbena::Device::open()?.function_number(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn function_number(&self) -> u32 {
        self.inner().engine.function().number()
    }

    /// Traffic counters since it was opened, including closed connections.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert_eq!(device.counters()?.connections.messages_out, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn counters(&self) -> Result<FunctionCounters, Error> {
        if !self.is_alive() {
            return Err(verbena_engine::Error::Closed.into());
        }
        Ok(self.inner().engine.function().counters())
    }

    /// Datagrams and packets of RoCEv2 that reached no queue pair, by cause (docs/roce.md).
    ///
    /// ```
    /// assert_eq!(verbena::Device::open()?.datagram_drops().checksum, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn datagram_drops(&self) -> DatagramDrops {
        self.inner().engine.datagram_drops()
    }

    /// Packets of RoCEv2 that were handed over between processes of this user, which share UDP port 4791.
    ///
    /// ```
    /// assert_eq!(verbena::Device::open()?.packet_handovers().sent, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn packet_handovers(&self) -> PacketHandovers {
        self.inner().engine.packet_handovers()
    }

    /// What is left for new functions of its adapter, by kind of object.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::function::FunctionOptions;
    /// let adapter = Device::open()?;
    /// let before = adapter.remaining_shares()?.stags;
    /// let tenant = adapter.function(&FunctionOptions::default())?;
    /// assert_eq!(adapter.remaining_shares()?.stags, before - tenant.attributes().shares.stags);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn remaining_shares(&self) -> Result<Shares, Error> {
        Ok(self.inner().engine.remaining_shares()?)
    }

    /// How many pages of its table's capacity for registration by work request (M4, [`Pd::tag`](crate::low::Pd::fast_reg_mr)) are in use; the setting
    /// `max_pages` is the limit. A program that compares the two can avoid posting a registration that fails for lack of pages.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let tag = device.pd()?.fast_reg_mr(16)?;
    /// assert_eq!(device.page_quota()?.used, 16);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn page_quota(&self) -> Result<PageQuota, Error> {
        if !self.is_alive() {
            return Err(verbena_engine::Error::Closed.into());
        }
        Ok(self.inner().engine.function().tpt().page_quota())
    }

    /// The ranges of its numbers in its adapter. STags contain them, so no two functions have the same.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert_eq!(device.ranges()?.stags.start, 1);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn ranges(&self) -> Result<Ranges, Error> {
        Ok(self.inner().engine.ranges()?)
    }
}
