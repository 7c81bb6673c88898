//! Service ID resolution for datagram queue pairs: a [`Desk`] answers requests for the number, Q_Key and address of a queue pair at a
//! UDP port, and [`Device::ask`] sends one. A request is presented once, however often it is retransmitted, and the requester is told
//! the outcome. The program answers every request itself.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use verbena_engine::{DeskCounts, Whereabouts};

use crate::device::Device;
use crate::error::Error;

/// A UDP port that answers requests for the location of a datagram queue pair.
///
/// ```
/// use std::sync::mpsc;
/// use verbena::low::Qpn;
/// use verbena::{Device, Whereabouts};
///
/// let device = Device::open()?;
/// let desk = device.desk("127.0.0.1:0".parse().unwrap())?;
/// desk.open(16, |question| {
///     println!("{} says {:?}", question.peer(), question.private_data());
///     let at = Whereabouts {
///         number: Qpn::wrapping(0x4e2001),
///         qkey: 0x1234,
///         address: "127.0.0.1".parse().unwrap(),
///     };
///     question.accept(at, b"there").unwrap();
/// })?;
///
/// let (told, answers) = mpsc::channel();
/// let asking = device.ask(None, desk.local(), b"where?", move |answer| told.send(answer).unwrap())?;
/// let (at, said) = answers.recv().unwrap()?;
/// assert_eq!((at.number.get(), at.qkey, &said[..]), (0x4e2001, 0x1234, &b"there"[..]));
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Desk {
    desk: verbena_engine::Desk,
    _device: Device,
}

impl Desk {
    pub(crate) fn new(device: Device, at: SocketAddr) -> Result<Desk, Error> {
        let desk = device.inner().engine.desk(at)?;
        Ok(Desk {
            desk,
            _device: device,
        })
    }

    /// Its local address.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let desk = device.desk("127.0.0.1:0".parse().unwrap())?;
    /// assert_ne!(desk.local().port(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local(&self) -> SocketAddr {
        self.desk.local()
    }

    /// Starts to accept requests: `told` is called with each of them, on the thread that received it, and must not block. At most
    /// `backlog` requests are unanswered at a time; more are dropped, and a later retransmission may be accepted.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let desk = device.desk("127.0.0.1:0".parse().unwrap())?;
    /// desk.open(16, |question| question.refuse(b"no such service"))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn open(
        &self,
        backlog: usize,
        told: impl Fn(Question) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        Ok(self
            .desk
            .open(backlog, move |question| told(Question(question)))?)
    }

    /// Counters of requests received and dropped.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let desk = device.desk("127.0.0.1:0".parse().unwrap())?;
    /// assert_eq!(desk.counts().malformed, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn counts(&self) -> DeskCounts {
        self.desk.counts()
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Desk").field(&self.local()).finish()
    }
}

/// A request to be answered. If it is dropped, it is refused. It can be answered after its desk was dropped.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let desk = device.desk("127.0.0.1:0".parse().unwrap())?;
/// desk.open(16, |question| drop(question))?;
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug)]
pub struct Question(verbena_engine::Question);

impl Question {
    /// The requester's address.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let desk = device.desk("127.0.0.1:0".parse().unwrap())?;
    /// desk.open(16, |question| println!("{}", question.peer()))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn peer(&self) -> SocketAddr {
        self.0.peer()
    }

    /// The address of the desk that received it.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let desk = device.desk("127.0.0.1:0".parse().unwrap())?;
    /// desk.open(16, |question| println!("at {}", question.local()))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local(&self) -> SocketAddr {
        self.0.local()
    }

    /// The private data of the request.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let desk = device.desk("127.0.0.1:0".parse().unwrap())?;
    /// desk.open(16, |question| println!("{:?}", question.private_data()))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn private_data(&self) -> &[u8] {
        self.0.private_data()
    }

    /// Answers with the location of the queue pair. If the private data is too long, fails, and the request is refused.
    ///
    /// ```
    /// # use verbena::{Whereabouts, low::Qpn};
    /// # let device = verbena::Device::open()?;
    /// # let desk = device.desk("127.0.0.1:0".parse().unwrap())?;
    /// # let address = device.addresses()?[0];
    /// desk.open(16, move |question| {
    ///     let at = Whereabouts { number: Qpn::wrapping(7), qkey: 1, address };
    ///     question.accept(at, b"").unwrap();
    /// })?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn accept(self, at: Whereabouts, private_data: &[u8]) -> Result<(), Error> {
        Ok(self.0.accept(at, private_data)?)
    }

    /// Refuses, with private data that the requester can read; it is truncated to what fits.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let desk = device.desk("127.0.0.1:0".parse().unwrap())?;
    /// desk.open(16, |question| question.refuse(b"not today"))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn refuse(self, private_data: &[u8]) {
        self.0.refuse(private_data);
    }
}

/// A request under way. Dropping it cancels it, and the callback is not called.
///
/// ```
/// # let device = verbena::Device::open()?;
/// let asking = device.ask(None, "127.0.0.1:9".parse().unwrap(), b"", |answer| println!("{answer:?}"))?;
/// drop(asking);
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Asking {
    asking: verbena_engine::Asking,
    _device: Device,
}

impl Asking {
    pub(crate) fn new(
        device: Device,
        from: Option<IpAddr>,
        to: SocketAddr,
        private_data: &[u8],
        done: impl FnOnce(Result<(Whereabouts, Vec<u8>), Error>) + Send + 'static,
    ) -> Result<Asking, Error> {
        let told =
            move |answer: Result<_, verbena_engine::Error>| done(answer.map_err(Error::from));
        let asking = device.inner().engine.ask(from, to, private_data, told)?;
        Ok(Asking {
            asking,
            _device: device,
        })
    }

    /// The address the request is sent from.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let here = "127.0.0.1".parse().unwrap();
    /// let asking = device.ask(Some(here), "127.0.0.1:9".parse().unwrap(), b"", |_| ())?;
    /// assert_eq!(asking.local().ip(), here);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local(&self) -> SocketAddr {
        self.asking.local()
    }

    /// Whether it has ended; the callback may still be about to run.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let asking = device.ask(None, "127.0.0.1:9".parse().unwrap(), b"", |_| ())?;
    /// println!("{}", asking.is_over());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn is_over(&self) -> bool {
        self.asking.is_over()
    }
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asking").field(&self.local()).finish()
    }
}

impl Device {
    /// Binds a desk to this address; it accepts requests after [`Desk::open`]. Port 0 picks a free port.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let desk = device.desk("127.0.0.1:0".parse().unwrap())?;
    /// println!("ask at {}", desk.local());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn desk(&self, at: SocketAddr) -> Result<Desk, Error> {
        Desk::new(self.clone(), at)
    }

    /// Asks the desk at `to` for the location of a datagram queue pair, from the given address or the one that the route selects. `done` is
    /// called with the answer, on the thread that received it, and must not block. An unanswered request is repeated for some seconds.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let asking = device.ask(None, "127.0.0.1:9".parse().unwrap(), b"where?", |answer| match answer {
    ///     Ok((at, said)) => println!("queue pair {:#x} at {}: {said:?}", at.number.get(), at.address),
    ///     Err(error) => println!("{error}"),
    /// })?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn ask(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        private_data: &[u8],
        done: impl FnOnce(Result<(Whereabouts, Vec<u8>), Error>) + Send + 'static,
    ) -> Result<Asking, Error> {
        Asking::new(self.clone(), from, to, private_data, done)
    }
}
