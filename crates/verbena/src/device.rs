//! The adapter as a program sees it: where memory, queues, connections and listeners come from.
//! It promises that everything made from it keeps it alive, and that an event reaches whoever can act on it.
//! It refuses to be global: two devices share nothing.

mod events;

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::fmt;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use verbena_engine::{AccessList, Config, Engine};
use verbena_mem::Access;
use verbena_nic::{Attributes, Event, Function, Shares};

use crate::connect::{Connecting, Dial};
use crate::cq::Cq;
use crate::endpoint::{Depths, Endpoint};
use crate::error::Error;
use crate::listener::Listener;
use crate::mr::{Buf, Memory};
use crate::pd::Pd;
use crate::registering::Registering;
use crate::shared::Shared;

/// An adapter.
///
/// ```
/// let device = verbena::Device::open()?;
/// println!("{} queue pairs at most", device.attributes().shares.qps);
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Clone)]
pub struct Device {
    /// Where connections and their buffers live, out of reach of the low layer.
    pub(crate) hidden: Arc<Domain>,
}

/// What all handles of a device share.
pub(crate) struct Inner {
    pub(crate) engine: Engine,
    /// Who hears of events, by queue pair.
    connections: Mutex<HashMap<u32, Weak<Shared>>>,
    /// Who hears of all others.
    listener: RwLock<Option<Listen>>,
}

/// Is told of an event.
type Listen = Arc<dyn Fn(Event) + Send + Sync>;

impl Inner {
    pub(crate) fn joined(&self, qp: u32, shared: &Arc<Shared>) {
        self.connections.lock().insert(qp, Arc::downgrade(shared));
    }

    pub(crate) fn parted(&self, qp: u32) {
        self.connections.lock().remove(&qp);
    }

    /// Shows an event to whoever it concerns; false if nobody wants to know.
    fn heard(&self, event: Event) -> bool {
        if self.heard_by_connection(event) {
            return true;
        }
        // Not under the lock: it is the program's.
        let listener = self.listener.read().clone();
        let listens = listener.is_some();
        if let Some(listener) = listener {
            listener(event);
        }
        listens
    }

    /// Shows an event to the connection it is about; false if it is about none.
    fn heard_by_connection(&self, event: Event) -> bool {
        let qp = match event {
            Event::QpRequest { qp }
            | Event::QpAccess { qp }
            | Event::QpFatal { qp }
            | Event::Established { qp }
            | Event::SqDrained { qp }
            | Event::LastWqe { qp }
            | Event::Disconnected { qp } => qp,
            Event::Completion { .. }
            | Event::CqOverflow { .. }
            | Event::SrqLimit { .. }
            | Event::Missed { .. }
            | Event::DeviceFatal => return false,
        };
        let Some(shared) = self.connections.lock().get(&qp).cloned() else {
            return false;
        };
        if let (Some(shared), Event::Disconnected { .. }) = (shared.upgrade(), event) {
            shared.peer_left();
        }
        true
    }
}

impl Inner {
    /// The function; refused in a forked child, where whoever holds a lock or a grant is not there.
    fn function(&self) -> Result<&Function, Error> {
        if self.engine.lives() {
            Ok(self.engine.function())
        } else {
            Err(verbena_engine::Error::Closed.into())
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

/// A protection domain that is freed when nothing in it is left.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) pd: verbena_mem::Pd,
    pub(crate) device: Arc<Inner>,
}

impl Domain {
    fn new(device: Arc<Inner>) -> Result<Arc<Domain>, Error> {
        let pd = device.function()?.allocate_pd()?;
        Ok(Arc::new(Domain { pd, device }))
    }

    /// Where its memory is registered.
    pub(crate) fn function(&self) -> Result<&Function, Error> {
        self.device.function()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // Everything in it kept it alive, so nothing is left.
        if let Ok(function) = self.function() {
            let _ = function.free_pd(self.pd);
        }
    }
}

impl Device {
    /// The adapter, as the environment and the user's file configure it (docs/configuration.md).
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn open() -> Result<Device, Error> {
        Device::with(Config::load().map_err(Error::Config)?)
    }

    /// An adapter with settings of the program's own.
    ///
    /// ```
    /// use verbena::{Config, Device};
    /// let mut config = Config::default();
    /// config.set("crc", "on").map_err(verbena::Error::Config)?;
    /// let device = Device::with(config)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn with(config: Config) -> Result<Device, Error> {
        Device::on(Engine::new(config)?)
    }

    pub(crate) fn on(engine: Engine) -> Result<Device, Error> {
        let device = Arc::new(Inner {
            engine,
            connections: Mutex::default(),
            listener: RwLock::default(),
        });
        let weak = Arc::downgrade(&device);
        device
            .engine
            .watch(move |event| weak.upgrade().is_some_and(|device| device.heard(event)));
        let hidden = Domain::new(device)?;
        Ok(Device { hidden })
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.hidden.device
    }

    /// Its settings.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// for row in device.config().describe() {
    ///     println!("{} = {} ({})", row.key, row.value, row.source);
    /// }
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn config(&self) -> &Config {
        self.inner().engine.config()
    }

    /// What it offers.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert!(device.attributes().pieces >= 16);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn attributes(&self) -> &Attributes {
        self.inner().engine.function().attributes()
    }

    /// What of it is in use.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert_eq!(device.used().qps, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn used(&self) -> Shares {
        self.inner().engine.function().used()
    }

    /// Its own addresses, which queue pairs that are connected by hand have (setting `device`); there is one at least.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// println!("at {}", device.addresses()?[0]);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn addresses(&self) -> Result<&[IpAddr], Error> {
        Ok(self.inner().engine.addresses()?)
    }

    /// False in a forked child of the process that opened it: there every call is refused, and another one can be opened.
    ///
    /// ```
    /// assert!(verbena::Device::open()?.lives());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn lives(&self) -> bool {
        self.inner().engine.lives()
    }

    /// A buffer for operations on connections.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let mut buf = device.buffer(1 << 20)?;
    /// buf.fill_from(b"hello")?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn buffer(&self, capacity: usize) -> Result<Buf, Error> {
        Buf::new(&self.hidden, capacity)
    }

    /// A buffer with these bytes in it.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// assert_eq!(&device.buffer_from(b"hello")?[..], b"hello");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn buffer_from(&self, bytes: &[u8]) -> Result<Buf, Error> {
        let mut buf = self.buffer(bytes.len())?;
        buf.fill_from(bytes)?;
        Ok(buf)
    }

    /// Memory that the peers of connections may reach, within these rights.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let device = Device::open()?;
    /// let memory = device.memory(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn memory(&self, len: usize, access: Access) -> Result<Memory, Error> {
        Memory::new(&self.hidden, len, access)
    }

    /// The same, registered later: peers may be told of it at once, and wait if they come too early (V5).
    ///
    /// ```
    /// verbena::Device::open()?.memory_later(1 << 20, verbena::Access::ALL)?.1.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn memory_later(&self, len: usize, access: Access) -> Result<(Memory, Registering), Error> {
        Memory::later(&self.hidden, len, access)
    }

    /// Connects to whoever listens there.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.connect(listener.local()?);
    /// let theirs = listener.accept().wait()?;
    /// let ours = connecting.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn connect(&self, to: impl ToSocketAddrs + fmt::Debug) -> Connecting {
        self.dial(b"").connect(to)
    }

    /// Prepares to connect, with private data that the listener sees and with other choices.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let listener = device.listen("127.0.0.1:0")?;
    /// let connecting = device.dial(b"it is me").connect(listener.local()?);
    /// let request = listener.next().wait()?;
    /// assert_eq!(request.private_data(), b"it is me");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn dial(&self, private_data: &[u8]) -> Dial {
        Dial::new(self.clone(), private_data)
    }

    /// A connection to be: receives can be begun on it before it is connected or accepted.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let endpoint = device.endpoint(verbena::Depths::default())?;
    /// let first = endpoint.recv(device.buffer(4096)?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn endpoint(&self, depths: Depths) -> Result<Endpoint, Error> {
        Endpoint::new(self, depths)
    }

    /// Listens; port 0 finds a free one.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let listener = device.listen("127.0.0.1:0")?;
    /// println!("at {}", listener.local()?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn listen(&self, at: impl ToSocketAddrs + fmt::Debug) -> Result<Listener, Error> {
        Listener::new(self.clone(), resolve(at)?)
    }

    /// Which sources may reach it (settings `allow` and `deny`), and how many connections and datagrams were refused. It can be
    /// asked about connections of the program's own sockets, too.
    ///
    /// ```
    /// let mut config = verbena::Config::default();
    /// config.set("deny", "192.0.2.0/24")?;
    /// let device = verbena::Device::with(config)?;
    /// device.access().on_refusal(|refusal| eprintln!("{refusal}"));
    /// assert!(!device.access().admits([192, 0, 2, 7].into()));
    /// assert_eq!(device.access().refused(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn access(&self) -> &AccessList {
        self.inner().engine.access()
    }

    /// A protection domain for the low layer.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let pd = device.pd()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn pd(&self) -> Result<Pd, Error> {
        Ok(Pd(Domain::new(self.inner().clone())?))
    }

    /// A completion queue for the low layer.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let cq = device.cq(128)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn cq(&self, entries: usize) -> Result<Cq, Error> {
        Cq::new(self.inner(), entries)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").finish_non_exhaustive()
    }
}

/// The first address of a name.
pub(crate) fn resolve(name: impl ToSocketAddrs + fmt::Debug) -> Result<SocketAddr, Error> {
    let failed = |why: String| Error::Address {
        name: format!("{name:?}"),
        why,
    };
    let mut found = name.to_socket_addrs().map_err(|e| failed(e.to_string()))?;
    found.next().ok_or_else(|| failed("no address".into()))
}
