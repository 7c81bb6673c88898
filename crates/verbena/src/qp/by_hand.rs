//! Out-of-band connections: two programs exchange the names of their queue pairs by their own means (a socket, a file, a terminal).
//! A name is one line of text. The first of the two programs that names its peer waits for the other.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

use verbena_engine::Peer;
use verbena_nic::QpState;
use verbena_wire::number::Qpn;

use super::Qp;
use crate::error::Error;

/// Separates address and number in text; no address contains it.
const MARK: char = '#';

/// What a peer needs to connect to a queue pair; as text `192.0.2.7#5126147`.
///
/// ```
/// use verbena::Name;
/// let name: Name = "192.0.2.7#5126147".parse()?;
/// assert_eq!(name.number, 5_126_147);
/// assert_eq!(name.to_string(), "192.0.2.7#5126147");
/// assert!("192.0.2.7#no".parse::<Name>().is_err());
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    /// An address of its adapter.
    pub address: IpAddr,
    /// Its number for out-of-band connections.
    pub number: u32,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{MARK}{}", self.address, self.number)
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Name, Error> {
        let wrong = |why| Error::Name {
            // The text comes from outside and may be of any length.
            text: text.chars().take(80).collect(),
            why,
        };
        let (address, number) = text
            .trim()
            .split_once(MARK)
            .ok_or_else(|| wrong("wanted is ADDRESS#NUMBER"))?;
        let address = address.parse().map_err(|_| wrong("the address is none"))?;
        let number = number.parse().map_err(|_| wrong("the number is none"))?;
        let name = Name { address, number };
        name.qpn()
            .map(|_| name)
            .ok_or_else(|| wrong("numbers have 24 bits"))
    }
}

impl Name {
    fn qpn(self) -> Option<Qpn> {
        Qpn::new(self.number)
    }
}

impl Qp {
    /// The name to give to the peer; fails unless it was created [`callable`](crate::QpOptions::callable).
    ///
    /// ```
    /// use verbena::{Device, Qp, QpOptions};
    /// let device = Device::open()?;
    /// let cq = device.cq(64)?;
    /// let options = QpOptions { callable: true, ..QpOptions::default() };
    /// let qp = Qp::new(&device.pd()?, &cq, &cq, options)?;
    /// println!("tell the peer: {}", qp.name()?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn name(&self) -> Result<Name, Error> {
        let address = self.address()?;
        let number = self.called()?.get();
        Ok(Name { address, number })
    }

    /// Sets its peer and moves it to `Rtr`. One of the two connects to the other, and the connection is established when both
    /// programs have called this; `modify` to `Rts` lets it send. Requests wait for the peer, at most as long as
    /// [`Manners::patience`](crate::low::Manners::patience) allows.
    ///
    /// ```
    /// use verbena::low::{BLANK, Data, Flags, QpState, RecvWr, SendOp, SendWr};
    /// use verbena::{Config, Device, Qp, QpOptions};
    ///
    /// let mut config = Config::default();
    /// config.set("device", "127.0.0.1").map_err(verbena::Error::Config)?;
    /// let device = Device::with(config)?;
    /// let (pd, cq) = (device.pd()?, device.cq(64)?);
    /// let options = QpOptions { callable: true, ..QpOptions::default() };
    /// let a = Qp::new(&pd, &cq, &cq, options)?;
    /// let b = Qp::new(&pd, &cq, &cq, options)?;
    /// // Usually two programs that tell each other.
    /// a.expect(b.name()?)?;
    /// b.expect(a.name()?)?;
    /// a.modify(QpState::Rts);
    ///
    /// b.post_recv(&[RecvWr { id: 1, scatter: &[] }]).map_err(|(_, e)| e)?;
    /// let op = SendOp::Send { invalidate: None, immediate: None };
    /// let send = SendWr { id: 2, op, flags: Flags::SIGNALED, data: Data::Inline(b"") };
    /// a.post_send(&[send]).map_err(|(_, e)| e)?;
    /// assert!(cq.wait(&mut [BLANK; 4])? > 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn expect(&self, peer: Name) -> Result<(), Error> {
        self.expect_at(self.address()?, peer)
    }

    /// Like [`expect`](Qp::expect), if the peer was given another of the [`addresses`](crate::Device::addresses) than that of [`Qp::name`].
    ///
    /// ```
    /// # use verbena::{Device, Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let options = QpOptions { callable: true, ..QpOptions::default() };
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, options)?;
    /// # let theirs = qp.name()?;
    /// let told = device.addresses()?[0];
    /// qp.expect_at(told, theirs)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn expect_at(&self, local: IpAddr, peer: Name) -> Result<(), Error> {
        self.called()?;
        let number = peer.qpn().ok_or_else(|| Error::Name {
            text: peer.to_string(),
            why: "numbers have 24 bits",
        })?;
        if self.0.qp.state() == QpState::Reset {
            self.modify(QpState::Init);
        }
        let address = peer.address;
        let peer = Peer {
            local,
            address,
            number,
        };
        Ok(self.0.qp.expect(peer)?)
    }

    /// The peer's address and port while it is connected.
    ///
    /// ```
    /// # use verbena::{Device, Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// assert_eq!(qp.peer(), None);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn peer(&self) -> Option<SocketAddr> {
        self.0.qp.peer()
    }

    fn address(&self) -> Result<IpAddr, Error> {
        let all = self.0.held.domain.device.engine.addresses()?;
        let first = all.first().copied();
        first.ok_or(Error::Engine(verbena_engine::Error::NoDevice))
    }

    fn called(&self) -> Result<Qpn, Error> {
        let qp = self.number();
        let number = self.0.qp.callable();
        number.ok_or(Error::Engine(verbena_engine::Error::NotCallable { qp }))
    }
}
