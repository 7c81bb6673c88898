//! A bound address that does not listen yet: the port is known and reserved.
//! Connection attempts to it are refused until [`Berth::listen`].

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
/// let berth = device.berth("127.0.0.1:0")?;
/// println!("will be at {}", berth.local()?);
/// let listener = berth.listen(16)?;
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug)]
pub struct Berth {
    reserved: Reservation,
    device: Device,
}

impl Berth {
    pub(crate) fn new(device: Device, at: SocketAddr) -> Result<Berth, Error> {
        let reserved = device.inner().engine.reserve(at)?;
        Ok(Berth { reserved, device })
    }

    pub(crate) fn shared(device: Device, at: SocketAddr) -> Result<Berth, Error> {
        let reserved = device.inner().engine.reserve_shared(at)?;
        Ok(Berth { reserved, device })
    }

    /// Adopts a listening socket of another process (V1).
    pub(crate) fn adopt(device: Device, fd: OwnedFd) -> Result<Berth, Error> {
        let reserved = device.inner().engine.take_listener(fd)?;
        Ok(Berth { reserved, device })
    }

    /// Its local address.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert_ne!(device.berth("127.0.0.1:0")?.local()?.port(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local(&self) -> Result<SocketAddr, Error> {
        Ok(self.reserved.local()?)
    }

    /// Starts to listen; at most `backlog` requests wait for an answer.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let listener = device.berth("127.0.0.1:0")?.listen(16)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn listen(self, backlog: usize) -> Result<Listener, Error> {
        let listening = self.reserved.listen(backlog)?;
        Ok(Listener::around(self.device, listening))
    }
}

impl Device {
    /// Binds an address to listen at later. Fails if it is already bound, in this process or another.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let berth = device.berth("127.0.0.1:0")?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn berth(&self, at: impl ToSocketAddrs + fmt::Debug) -> Result<Berth, Error> {
        Berth::new(self.clone(), resolve(at)?)
    }

    /// Binds an address to listen at later, shared with others that bind it in the same way: the first one to listen gets it
    /// (`SO_REUSEADDR`).
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let berth = device.berth_shared("127.0.0.1:0")?;
    /// let another = device.berth_shared(berth.local()?)?;
    /// let listener = another.listen(16)?;
    /// assert!(berth.listen(16).is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn berth_shared(&self, at: impl ToSocketAddrs + fmt::Debug) -> Result<Berth, Error> {
        Berth::shared(self.clone(), resolve(at)?)
    }
}
