//! A bound address that does not listen yet: the port is known and reserved.
//! Connection attempts to it are refused until [`BoundListener::listen`].

use core::fmt;
use core::net::SocketAddr;
use std::net::ToSocketAddrs;
use std::os::fd::OwnedFd;

use verbena_engine::Reservation;

use super::Listener;
use crate::device::{Device, resolve};
use crate::error::Error;

/// A bound address to listen at later; connection attempts are refused until then.
///
/// ```
/// # let device = verbena::Device::open()?;
/// let bound = device.bind("127.0.0.1:0")?;
/// println!("will be at {}", bound.local_addr()?);
/// let listener = bound.listen(16)?;
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug)]
pub struct BoundListener {
    reserved: Reservation,
    device: Device,
}

impl BoundListener {
    pub(crate) fn new(device: Device, at: SocketAddr) -> Result<BoundListener, Error> {
        let reserved = device.inner().engine.reserve(at)?;
        Ok(BoundListener { reserved, device })
    }

    pub(crate) fn new_reuse_addr(device: Device, at: SocketAddr) -> Result<BoundListener, Error> {
        let reserved = device.inner().engine.reserve_shared(at)?;
        Ok(BoundListener { reserved, device })
    }

    /// Adopts a listening socket of another process (V1).
    pub(crate) fn adopt(device: Device, fd: OwnedFd) -> Result<BoundListener, Error> {
        let reserved = device.inner().engine.take_listener(fd)?;
        Ok(BoundListener { reserved, device })
    }

    /// Its local address.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert_ne!(device.bind("127.0.0.1:0")?.local_addr()?.port(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        Ok(self.reserved.local_addr()?)
    }

    /// Starts to listen; at most `backlog` requests wait for an answer.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let listener = device.bind("127.0.0.1:0")?.listen(16)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn listen(self, backlog: usize) -> Result<Listener, Error> {
        let listening = self.reserved.listen(backlog)?;
        Ok(Listener::from_listening(self.device, listening))
    }
}

impl Device {
    /// Binds an address to listen at later. Fails if it is already bound, in this process or another.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let bound = device.bind("127.0.0.1:0")?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn bind(&self, at: impl ToSocketAddrs + fmt::Debug) -> Result<BoundListener, Error> {
        BoundListener::new(self.clone(), resolve(at)?)
    }

    /// Binds an address to listen at later, shared with others that bind it in the same way: the first one to listen gets it
    /// (`SO_REUSEADDR`).
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let bound = device.bind_reuse_addr("127.0.0.1:0")?;
    /// let another = device.bind_reuse_addr(bound.local_addr()?)?;
    /// let listener = another.listen(16)?;
    /// assert!(bound.listen(16).is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn bind_reuse_addr(
        &self,
        at: impl ToSocketAddrs + fmt::Debug,
    ) -> Result<BoundListener, Error> {
        BoundListener::new_reuse_addr(self.clone(), resolve(at)?)
    }
}
