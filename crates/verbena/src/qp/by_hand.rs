//! Queue pairs that are connected by hand: two programs tell each other names, by whatever means they have.
//! It promises that a name fits a line of text, and that who names its peer first waits for the other.
//! It refuses to carry names from program to program; that is what the program's own socket, file or screen is for.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

use verbena_engine::Peer;
use verbena_nic::QpState;
use verbena_wire::number::Qpn;

use super::Qp;
use crate::error::Error;

/// What stands between address and number in a line of text; no address has one.
const MARK: char = '#';

/// What a peer must be told of a queue pair to be connected to it: as text `192.0.2.7#5126147`.
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
    /// The number that it can be called by.
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
            // It came from somebody else, and may be of any length.
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
    /// What its peer must be told; an error unless it was made [`callable`](crate::QpOptions::callable).
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

    /// Names its peer and makes it ready to receive. One of the two calls the other, and when both programs have done
    /// this the queue pairs are connected; `modify` to `Rts` lets it send. Requests wait for the peer, but not longer than
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

    /// The same, where the peer was told another of the [`addresses`](crate::Device::addresses) than [`Qp::name`] has.
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

    /// Its peer's address and port, while it is connected.
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
