//! Out-of-band connections: two programs exchange the names of their queue pairs by their own means (a socket, a file, a terminal).
//! A name is one line of text. The first of the two programs that names its peer waits for the other.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

use verbena_engine::OobPeer;
use verbena_nic::QpState;
use verbena_wire::number::Qpn;

use super::Qp;
use crate::error::Error;

/// Separates address and number in text; no address contains it.
const SEPARATOR: char = '#';

/// What a peer needs to connect to a queue pair; as text `192.0.2.7#5126147`.
///
/// ```
/// use verbena::low::QpEndpoint;
/// let name: QpEndpoint = "192.0.2.7#5126147".parse()?;
/// assert_eq!(name.number, 5_126_147);
/// assert_eq!(name.to_string(), "192.0.2.7#5126147");
/// assert!("192.0.2.7#no".parse::<QpEndpoint>().is_err());
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QpEndpoint {
    /// An address of its adapter.
    pub address: IpAddr,
    /// Its number for out-of-band connections.
    pub number: u32,
}

impl fmt::Display for QpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{SEPARATOR}{}", self.address, self.number)
    }
}

impl FromStr for QpEndpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<QpEndpoint, Error> {
        let wrong = |why| Error::InvalidQpEndpoint {
            // The text comes from outside and may be of any length.
            text: text.chars().take(80).collect(),
            why,
        };
        let (address, number) = text
            .trim()
            .split_once(SEPARATOR)
            .ok_or_else(|| wrong("expected ADDRESS#NUMBER"))?;
        let address = address.parse().map_err(|_| wrong("invalid address"))?;
        let number = number.parse().map_err(|_| wrong("invalid number"))?;
        let name = QpEndpoint { address, number };
        name.qpn()
            .map(|_| name)
            .ok_or_else(|| wrong("numbers have 24 bits"))
    }
}

impl QpEndpoint {
    fn qpn(self) -> Option<Qpn> {
        Qpn::new(self.number)
    }
}

impl Qp {
    /// The name to give to the peer; fails unless it was created [`oob_qpn`](crate::low::QpOptions::oob). It keeps its number when it is
    /// [migrated](Qp::migrate), but peers cannot connect to it any more.
    ///
    /// ```
    /// use verbena::Device;
    /// use verbena::low::{Qp, QpOptions};
    /// let device = Device::open()?;
    /// let cq = device.cq(64)?;
    /// let options = QpOptions::default().oob(true);
    /// let qp = Qp::new(&device.pd()?, &cq, &cq, options)?;
    /// println!("tell the peer: {}", qp.endpoint()?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn endpoint(&self) -> Result<QpEndpoint, Error> {
        let address = self.local_ip()?;
        let number = self.oob_qpn()?.get();
        Ok(QpEndpoint { address, number })
    }

    /// Sets its peer and moves it to `Rtr`. One of the two connects to the other, and the connection is established when both
    /// programs have called this; `modify` to `Rts` lets it send. Requests wait for the peer, at most as long as
    /// [`QpAttr::peer_timeout`](crate::low::QpAttr::peer_timeout) allows.
    ///
    /// ```
    /// use verbena::low::{Data, Flags, Qp, QpOptions, QpState, RecvWr, SendOp, SendWr, Wc};
    /// use verbena::{Config, Device};
    ///
    /// let mut config = Config::default();
    /// config.set("device", "127.0.0.1").map_err(verbena::Error::Config)?;
    /// let device = Device::with(config)?;
    /// let (pd, cq) = (device.pd()?, device.cq(64)?);
    /// let options = QpOptions::default().oob(true);
    /// let a = Qp::new(&pd, &cq, &cq, options)?;
    /// let b = Qp::new(&pd, &cq, &cq, options)?;
    /// // Usually two programs that tell each other.
    /// a.set_peer(b.endpoint()?)?;
    /// b.set_peer(a.endpoint()?)?;
    /// a.modify(QpState::Rts)?;
    ///
    /// b.post_recv(&[RecvWr { id: 1, scatter: &[] }])?;
    /// let op = SendOp::Send { invalidate: None, immediate: None };
    /// let send = SendWr { id: 2, op, flags: Flags::SIGNALED, data: Data::Inline(b"") };
    /// a.post_send(&[send])?;
    /// assert!(cq.wait(&mut [Wc::default(); 4])? > 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_peer(&self, peer: QpEndpoint) -> Result<(), Error> {
        self.set_peer_from(self.local_ip()?, peer)
    }

    /// Like [`set_peer`](Qp::set_peer), if the peer was given another of the [`addresses`](crate::Device::addresses) than that of [`Qp::endpoint`].
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let options = QpOptions::default().oob(true);
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, options)?;
    /// # let theirs = qp.endpoint()?;
    /// let told = device.addresses()?[0];
    /// qp.set_peer_from(told, theirs)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_peer_from(&self, local: IpAddr, peer: QpEndpoint) -> Result<(), Error> {
        self.0.qp.check_oob()?;
        let number = peer.qpn().ok_or_else(|| Error::InvalidQpEndpoint {
            text: peer.to_string(),
            why: "numbers have 24 bits",
        })?;
        if self.0.qp.state() == QpState::Reset {
            self.modify(QpState::Init)?;
        }
        let address = peer.address;
        let peer = OobPeer {
            local,
            address,
            number,
        };
        Ok(self.0.qp.set_peer(peer)?)
    }

    /// The peer's address and port while it is connected.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// assert_eq!(qp.peer_addr(), None);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.qp.peer_addr()
    }

    fn local_ip(&self) -> Result<IpAddr, Error> {
        let all = self.0.resources.domain.device.engine.addresses()?;
        let first = all.first().copied();
        first.ok_or_else(|| verbena_engine::Error::NoDevice.into())
    }

    fn oob_qpn(&self) -> Result<Qpn, Error> {
        let qp = self.number();
        let number = self.0.qp.oob_qpn();
        number.ok_or_else(|| verbena_engine::Error::NoOobNumber { qp }.into())
    }
}
