//! Virtual functions (V1): more devices of one adapter, each with a share of everything and a world of its own.
//! It promises that nothing made from one function can be used with another, and that a function's share is free again when the
//! last handle of it is gone. It refuses to take a function away from a program that still uses it.

use verbena_engine::FunctionOptions;
use verbena_mem::Room;
use verbena_nic::profile::Service;
use verbena_nic::{FunctionCounters, Ranges, Shares};

use crate::device::Device;
use crate::error::Error;

impl Device {
    /// One more function of the adapter: a device with memory, queues, numbers and threads of its own.
    ///
    /// It goes when the last handle of it — a clone, a connection, a buffer, a queue — is dropped, whether or not
    /// this device is still there. Only the physical function, which [`Device::open`] opens, can make others. More than
    /// is left is refused, with both numbers.
    ///
    /// ```
    /// use verbena::{Device, FunctionOptions};
    /// let adapter = Device::open()?;
    /// let tenant = adapter.function(&FunctionOptions { qps: 16, ..FunctionOptions::default() })?;
    /// assert_eq!(tenant.attributes().shares.qps, 16);
    ///
    /// // Two functions of one process, over loopback.
    /// let listener = tenant.listen("127.0.0.1:0")?;
    /// let connecting = adapter.connect(listener.local()?);
    /// let (theirs, ours) = (listener.accept().wait()?, connecting.wait()?);
    /// let receiving = theirs.recv(tenant.buffer(64)?);
    /// ours.send(adapter.buffer_from(b"hello")?).wait().0?;
    /// assert_eq!(&receiving.wait().1[..], b"hello");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn function(&self, options: &FunctionOptions) -> Result<Device, Error> {
        Device::on(self.inner().engine.add_function(options)?)
    }

    /// A logical device of the adapter's profile (settings `functions` and `presents`, docs/functions.md): the adapter itself if
    /// that is what it appears as first, else a function of its own, made by this call. It does all that the logical device does, not
    /// only the service that was asked for; queue pairs of others are refused. Services that are not there yet refuse.
    ///
    /// ```
    /// use verbena::low::Service;
    /// use verbena::{Config, Device};
    /// let mut config = Config::default();
    /// config.set("presents", "verbena0=rdma+nic,verbena1=rdma").map_err(verbena::Error::Config)?;
    /// let adapter = Device::with(config)?;
    /// assert_eq!(adapter.logical("verbena1", Service::Rdma)?.function_number(), 1);
    /// let refused = adapter.logical("verbena0", Service::Nic).unwrap_err();
    /// assert!(refused.to_string().contains("not there yet"));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn logical(&self, name: &str, service: Service) -> Result<Device, Error> {
        let refused = |why| Error::Profile(Box::new(why));
        let profile = self.config().device_profile().map_err(refused)?;
        let function = profile.function(name, service).map_err(refused)?;
        if function == 0 {
            return Ok(self.clone());
        }
        self.function(&FunctionOptions {
            name: Some(name.to_owned()),
            ..FunctionOptions::like(self.config())
        })
    }

    /// Which function of its adapter it is; 0 is the physical one. A number never comes again.
    ///
    /// ```
    /// assert_eq!(verbena::Device::open()?.function_number(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn function_number(&self) -> u32 {
        self.inner().engine.function().number()
    }

    /// What went through it since it was opened, connections that are closed by now included.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert_eq!(device.counters()?.connections.messages_out, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn counters(&self) -> Result<FunctionCounters, Error> {
        if !self.lives() {
            return Err(verbena_engine::Error::Closed.into());
        }
        Ok(self.inner().engine.function().counters())
    }

    /// What a function of its adapter can still be promised of each kind.
    ///
    /// ```
    /// # use verbena::{Device, FunctionOptions};
    /// let adapter = Device::open()?;
    /// let before = adapter.left()?.stags;
    /// let tenant = adapter.function(&FunctionOptions::default())?;
    /// assert_eq!(adapter.left()?.stags, before - tenant.attributes().shares.stags);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn left(&self) -> Result<Shares, Error> {
        Ok(self.inner().engine.left()?)
    }

    /// How much of its table's room for registration by work request (M4, [`Pd::tag`](crate::Pd::tag)) is taken, in pages; the
    /// setting `max_pages` is the limit. Whoever keeps count so never posts a registration that finds no room.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let tag = device.pd()?.tag(16)?;
    /// assert_eq!(device.room()?.used, 16);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn room(&self) -> Result<Room, Error> {
        if !self.lives() {
            return Err(verbena_engine::Error::Closed.into());
        }
        Ok(self.inner().engine.function().tpt().room())
    }

    /// Where its numbers lie among those of its adapter; STags bear them, so no two functions have the same.
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
