//! An address that is taken before anybody listens at it: its port is known, and nobody else's.
//! It promises that whoever dials meanwhile is refused. It refuses to listen by itself.

use core::net::SocketAddr;
use std::os::fd::OwnedFd;

use verbena_engine::Reservation;

use super::Listener;
use crate::device::Device;
use crate::error::Error;

/// An address to listen at later; whoever dials it before is refused.
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

    /// A listening socket that another process passed on (V1).
    pub(crate) fn adopt(device: Device, fd: OwnedFd) -> Result<Berth, Error> {
        let reserved = device.inner().engine.take_listener(fd)?;
        Ok(Berth { reserved, device })
    }

    /// Where it is.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert_ne!(device.berth("127.0.0.1:0")?.local()?.port(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local(&self) -> Result<SocketAddr, Error> {
        Ok(self.reserved.local()?)
    }

    /// Listens; at most `backlog` requests wait for an answer.
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
