//! Service ID resolution for datagram queue pairs: a [`SidrListener`] answers requests for the number, Q_Key and address of a queue pair at a
//! UDP port, and [`Device::query_sidr`] sends one. A request is presented once, however often it is retransmitted, and the requester is told
//! the outcome. The program answers every request itself.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use verbena_engine::{SidrCounters, UdEndpoint};

use crate::device::Device;
use crate::error::Error;

/// A UDP port that answers requests for the location of a datagram queue pair.
///
/// ```
/// use std::sync::mpsc;
/// use verbena::Device;
/// use verbena::datagram::UdEndpoint;
/// use verbena::low::Qpn;
///
/// let device = Device::open()?;
/// let listener = device.bind_sidr_listener("127.0.0.1:0".parse().unwrap())?;
/// listener.listen(16, |request| {
///     println!("{} says {:?}", request.peer_addr(), request.private_data());
///     let at = UdEndpoint {
///         number: Qpn::wrapping(0x4e2001),
///         qkey: 0x1234,
///         address: "127.0.0.1".parse().unwrap(),
///     };
///     request.accept(at, b"there").unwrap();
/// })?;
///
/// let (sender, answers) = mpsc::channel();
/// let query = device.query_sidr(None, listener.local_addr(), b"where?", move |answer| sender.send(answer).unwrap())?;
/// let (at, said) = answers.recv().unwrap()?;
/// assert_eq!((at.number.get(), at.qkey, &said[..]), (0x4e2001, 0x1234, &b"there"[..]));
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct SidrListener {
    listener: verbena_engine::SidrListener,
    _device: Device,
}

impl SidrListener {
    pub(crate) fn new(device: Device, at: SocketAddr) -> Result<SidrListener, Error> {
        let sidr = device.inner().engine.bind_sidr_listener(at)?;
        Ok(SidrListener {
            listener: sidr,
            _device: device,
        })
    }

    /// Its local address.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let listener = device.bind_sidr_listener("127.0.0.1:0".parse().unwrap())?;
    /// assert_ne!(listener.local_addr().port(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Starts to accept requests: `callback` is called with each of them, on the thread that received it, and must not block. At most
    /// `backlog` requests are unanswered at a time; more are dropped, and a later retransmission may be accepted.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.bind_sidr_listener("127.0.0.1:0".parse().unwrap())?;
    /// listener.listen(16, |request| request.reject(b"no such service"))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn listen(
        &self,
        backlog: usize,
        callback: impl Fn(SidrRequest) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        Ok(self
            .listener
            .listen(backlog, move |request| callback(SidrRequest(request)))?)
    }

    /// Counters of requests received and dropped.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.bind_sidr_listener("127.0.0.1:0".parse().unwrap())?;
    /// assert_eq!(listener.counters().malformed, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn counters(&self) -> SidrCounters {
        self.listener.counters()
    }
}

impl fmt::Debug for SidrListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SidrListener")
            .field(&self.local_addr())
            .finish()
    }
}

/// A request to be answered. If it is dropped, it is refused. It can be answered after its listener was dropped.
///
/// ```
/// # let device = verbena::Device::open()?;
/// # let listener = device.bind_sidr_listener("127.0.0.1:0".parse().unwrap())?;
/// listener.listen(16, |request| drop(request))?;
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug)]
pub struct SidrRequest(verbena_engine::SidrRequest);

impl SidrRequest {
    /// The requester's address.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.bind_sidr_listener("127.0.0.1:0".parse().unwrap())?;
    /// listener.listen(16, |request| println!("{}", request.peer_addr()))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn peer_addr(&self) -> SocketAddr {
        self.0.peer_addr()
    }

    /// The address of the listener that received it.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.bind_sidr_listener("127.0.0.1:0".parse().unwrap())?;
    /// listener.listen(16, |request| println!("at {}", request.local_addr()))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// The private data of the request.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.bind_sidr_listener("127.0.0.1:0".parse().unwrap())?;
    /// listener.listen(16, |request| println!("{:?}", request.private_data()))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn private_data(&self) -> &[u8] {
        self.0.private_data()
    }

    /// Answers with the location of the queue pair. If the private data is too long, fails, and the request is refused.
    ///
    /// ```
    /// # use verbena::datagram::UdEndpoint;
    /// # use verbena::low::Qpn;
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.bind_sidr_listener("127.0.0.1:0".parse().unwrap())?;
    /// # let address = device.addresses()?[0];
    /// listener.listen(16, move |request| {
    ///     let at = UdEndpoint { number: Qpn::wrapping(7), qkey: 1, address };
    ///     request.accept(at, b"").unwrap();
    /// })?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn accept(self, at: UdEndpoint, private_data: &[u8]) -> Result<(), Error> {
        Ok(self.0.accept(at, private_data)?)
    }

    /// Refuses, with private data that the requester can read; it is truncated to what fits.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let listener = device.bind_sidr_listener("127.0.0.1:0".parse().unwrap())?;
    /// listener.listen(16, |request| request.reject(b"not today"))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn reject(self, private_data: &[u8]) {
        self.0.reject(private_data);
    }
}

/// A request under way. Dropping it cancels it, and the callback is not called.
///
/// ```
/// # let device = verbena::Device::open()?;
/// let query = device.query_sidr(None, "127.0.0.1:9".parse().unwrap(), b"", |answer| println!("{answer:?}"))?;
/// drop(query);
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct SidrQuery {
    query: verbena_engine::SidrQuery,
    _device: Device,
}

impl SidrQuery {
    pub(crate) fn new(
        device: Device,
        from: Option<IpAddr>,
        to: SocketAddr,
        private_data: &[u8],
        done: impl FnOnce(Result<(UdEndpoint, Vec<u8>), Error>) + Send + 'static,
    ) -> Result<SidrQuery, Error> {
        let report =
            move |answer: Result<_, verbena_engine::Error>| done(answer.map_err(Error::from));
        let started = device
            .inner()
            .engine
            .query_sidr(from, to, private_data, report)?;
        Ok(SidrQuery {
            query: started,
            _device: device,
        })
    }

    /// The address the request is sent from.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let here = "127.0.0.1".parse().unwrap();
    /// let query = device.query_sidr(Some(here), "127.0.0.1:9".parse().unwrap(), b"", |_| ())?;
    /// assert_eq!(query.local_addr().ip(), here);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn local_addr(&self) -> SocketAddr {
        self.query.local_addr()
    }

    /// Whether it has ended; the callback may still be about to run.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let query = device.query_sidr(None, "127.0.0.1:9".parse().unwrap(), b"", |_| ())?;
    /// println!("{}", query.is_finished());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.query.is_finished()
    }
}

impl fmt::Debug for SidrQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SidrQuery")
            .field(&self.local_addr())
            .finish()
    }
}

impl Device {
    /// Binds a listener to this address; it accepts requests after [`SidrListener::listen`]. Port 0 picks a free port.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let listener = device.bind_sidr_listener("127.0.0.1:0".parse().unwrap())?;
    /// println!("ask at {}", listener.local_addr());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn bind_sidr_listener(&self, at: SocketAddr) -> Result<SidrListener, Error> {
        SidrListener::new(self.clone(), at)
    }

    /// Asks the listener at `to` for the location of a datagram queue pair, from the given address or the one that the route selects. `done` is
    /// called with the answer, on the thread that received it, and must not block. An unanswered request is repeated for some seconds.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let query = device.query_sidr(None, "127.0.0.1:9".parse().unwrap(), b"where?", |answer| match answer {
    ///     Ok((at, said)) => println!("queue pair {:#x} at {}: {said:?}", at.number.get(), at.address),
    ///     Err(error) => println!("{error}"),
    /// })?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn query_sidr(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        private_data: &[u8],
        done: impl FnOnce(Result<(UdEndpoint, Vec<u8>), Error>) + Send + 'static,
    ) -> Result<SidrQuery, Error> {
        SidrQuery::new(self.clone(), from, to, private_data, done)
    }
}
