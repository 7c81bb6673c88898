//! A datagram queue pair of the low layer (M14): connectionless, each message in one packet that may be lost.
//! A posted datagram is transmitted at once and completes when it has been transmitted, whether or not it is received. The longest
//! message is [`MAX_DATAGRAM`](crate::datagram::MAX_DATAGRAM) bytes.

use core::fmt;
use core::net::IpAddr;
use std::sync::Arc;

use verbena_engine::{UdOptions as EngineOptions, UdPair};
use verbena_nic::qp::{Limits, PostRecvError, PostSendError};
use verbena_nic::ud::{UdSendWr, UdView};
use verbena_nic::{QpState, ReceiveWr};

use crate::cq::BareCq;
use crate::device::{Domain, Inner};
use crate::error::Error;
use crate::pd::Pd;
use crate::qp::QpEndpoint;
use crate::setters::setters;
use crate::srq::{Srq, SrqInner};

/// Options of a datagram queue pair.
///
/// ```
/// use verbena::datagram::UdOptions;
/// use verbena::low::Limits;
/// let options = UdOptions::default().limits(Limits { receives: 1024, ..Limits::default() });
/// # assert_eq!(options.limits.receives, 1024);
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct UdOptions {
    /// Capacities of its queues.
    pub limits: Limits,
}

setters! { UdOptions:
    limits: Limits,
}

/// A datagram queue pair.
///
/// Every receive begins with 40 bytes that tell the source of the datagram: `Wc::grh` is set, and `Wc::len` includes them.
/// A datagram that finds no receive, a receive that is too small, or another Q_Key is dropped and counted only.
///
/// ```
/// use verbena::datagram::{Destination, UdOptions, UdQp, UdSendWr};
/// use verbena::low::{Data, Flags, QpState, Qpn, RecvWr, Wc, WcOp};
/// use verbena::{Access, Config, Device};
///
/// let mut config = Config::default();
/// config.set("device", "127.0.0.1").map_err(verbena::Error::Config)?;
/// let device = Device::with(config)?;
/// let (pd, cq) = (device.pd()?, device.cq(64)?);
/// let memory = pd.memory(8192, Access::ALL)?;
/// let ud = UdQp::new(&pd, &cq, &cq, UdOptions::default())?;
/// ud.set_qkey(0x1234);
/// for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
///     ud.modify(state)?;
/// }
///
/// ud.post_recv(&[RecvWr { id: 1, scatter: &[memory.sge(0, 4096)?] }])?;
/// let here = ud.endpoint()?;
/// let to = Destination {
///     address: here.address,
///     source: here.address,
///     number: Qpn::wrapping(here.number),
///     qkey: 0x1234,
/// };
/// let send = UdSendWr { id: 2, immediate: Some(7), flags: Flags::SIGNALED, data: Data::Inline(b"to myself"), to };
/// ud.post_send(&[send])?;
///
/// let mut done = 0;
/// while done < 2 {
///     let mut completions = [Wc::default(); 4];
///     let n = cq.wait(&mut completions)?;
///     for wc in completions[..n].iter().filter(|wc| wc.op == WcOp::Receive) {
///         assert_eq!((wc.len, wc.grh.is_some(), wc.src_qp), (40 + 9, true, here.number));
///     }
///     done += n;
/// }
/// let mut got = [0; 9];
/// memory.read_at(40, &mut got)?;
/// assert_eq!(&got, b"to myself");
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct UdQp {
    pair: UdPair,
    // Dropped after the queue pair, in this order.
    _srq: Option<Arc<SrqInner>>,
    _domain: Arc<Domain>,
}

impl UdQp {
    /// Creates a datagram queue pair; its sends complete in one queue, its receives in the same or another.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::datagram::{UdOptions, UdQp};
    /// # let device = Device::open()?;
    /// let (sent, received) = (device.cq(64)?, device.cq(64)?);
    /// let ud = UdQp::new(&device.pd()?, &sent, &received, UdOptions::default())?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn new(pd: &Pd, send: &BareCq, recv: &BareCq, options: UdOptions) -> Result<UdQp, Error> {
        UdQp::make(pd, send, recv, None, options)
    }

    /// Like [`new`](UdQp::new), with receives from a shared receive queue of the same domain.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::datagram::{UdOptions, UdQp};
    /// # let device = Device::open()?;
    /// # let (pd, cq) = (device.pd()?, device.cq(64)?);
    /// let srq = pd.srq(1024, 4)?;
    /// let ud = UdQp::with_srq(&pd, &cq, &cq, &srq, UdOptions::default())?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn with_srq(
        pd: &Pd,
        send: &BareCq,
        recv: &BareCq,
        srq: &Srq,
        options: UdOptions,
    ) -> Result<UdQp, Error> {
        UdQp::make(pd, send, recv, Some(&srq.0), options)
    }

    fn make(
        pd: &Pd,
        send: &BareCq,
        recv: &BareCq,
        stock: Option<&Arc<SrqInner>>,
        options: UdOptions,
    ) -> Result<UdQp, Error> {
        let device = &pd.0.device;
        let same = |other: &Arc<Inner>| Arc::ptr_eq(other, device);
        let shared = stock.is_none_or(|stock| same(&stock.domain.device));
        if !same(&send.device) || !same(&recv.device) || !shared {
            return Err(Error::Foreign);
        }
        let options = EngineOptions {
            srq: stock.map(|stock| stock.queue.number()),
            limits: options.limits,
            ..EngineOptions::new(pd.0.pd)
        };
        let pair = device.engine.create_ud(&send.queue, &recv.queue, options)?;
        Ok(UdQp {
            pair,
            _srq: stock.cloned(),
            _domain: pd.0.clone(),
        })
    }

    /// The number that others send to, as in completions; it has 24 bits.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::datagram::{UdOptions, UdQp};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let ud = UdQp::new(&device.pd()?, &cq, &cq, UdOptions::default())?;
    /// assert!(ud.number() < 1 << 24);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn number(&self) -> u32 {
        self.pair.number().get()
    }

    /// Its number in events, unique among all queue pairs of the device, connected ones included.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::datagram::{UdOptions, UdQp};
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let (pd, cq) = (device.pd()?, device.cq(64)?);
    /// let ud = UdQp::new(&pd, &cq, &cq, UdOptions::default())?;
    /// let qp = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
    /// assert_ne!(ud.event_number(), qp.number());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn event_number(&self) -> u32 {
        self.pair.event_number()
    }

    /// The name to give to senders.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::datagram::{UdOptions, UdQp};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let ud = UdQp::new(&device.pd()?, &cq, &cq, UdOptions::default())?;
    /// println!("send to {}", ud.endpoint()?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn endpoint(&self) -> Result<QpEndpoint, Error> {
        let address = self.pair.address()?;
        let number = self.number();
        Ok(QpEndpoint { address, number })
    }

    /// A consistent snapshot of its state, Q_Key, first cause of failure, counters and outstanding work.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::datagram::{UdOptions, UdQp};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let ud = UdQp::new(&device.pd()?, &cq, &cq, UdOptions::default())?;
    /// assert_eq!(ud.view().counters.received, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn view(&self) -> UdView {
        self.pair.view()
    }

    /// Sets the Q_Key that datagrams for it must carry from now on.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::datagram::{UdOptions, UdQp};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let ud = UdQp::new(&device.pd()?, &cq, &cq, UdOptions::default())?;
    /// ud.set_qkey(0x1111_1111);
    /// assert_eq!(ud.view().qkey, 0x1111_1111);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_qkey(&self, qkey: u32) {
        self.pair.set_qkey(qkey);
    }

    /// Requests a transition to this state. If it is not allowed, nothing changes, and the error says which ones are. A send that fails
    /// here moves it to `Sqe`; `Rts` resumes it.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::datagram::{UdOptions, UdQp};
    /// # use verbena::low::QpState;
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let ud = UdQp::new(&device.pd()?, &cq, &cq, UdOptions::default())?;
    /// ud.modify(QpState::Init)?;
    /// assert!(ud.modify(QpState::Rts).is_err(), "Rtr comes first");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn modify(&self, to: QpState) -> Result<(), Error> {
        Ok(self.pair.modify(to)?)
    }

    /// Posts datagrams that are transmitted together. On error: the number posted before the one that failed, and the reason.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::datagram::{UdOptions, UdQp};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let ud = UdQp::new(&device.pd()?, &cq, &cq, UdOptions::default())?;
    /// assert_eq!(ud.post_send(&[]), Ok(()));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn post_send(&self, wrs: &[UdSendWr<'_>]) -> Result<(), PostSendError> {
        self.pair.post_sends(wrs)
    }

    /// Posts receives. On error: the number posted before the one that failed, and the reason.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::datagram::{UdOptions, UdQp};
    /// # use verbena::low::{QpState, RecvWr};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let ud = UdQp::new(&device.pd()?, &cq, &cq, UdOptions::default())?;
    /// ud.modify(QpState::Init)?;
    /// assert_eq!(ud.post_recv(&[RecvWr { id: 1, scatter: &[] }]), Ok(()));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn post_recv(&self, wrs: &[ReceiveWr<'_>]) -> Result<(), PostRecvError> {
        wrs.iter().enumerate().try_for_each(|(at, wr)| {
            let posted = self.pair.post_receive(wr);
            posted.map_err(|source| PostRecvError { posted: at, source })
        })
    }

    /// Attaches it to a multicast group: it receives every datagram to the group with its Q_Key, except its own. All
    /// devices on the network use one port for that (setting `multicast_port`).
    ///
    /// ```
    /// # use verbena::datagram::{UdOptions, UdQp};
    /// # use verbena::{Config, Device};
    /// # let mut config = Config::default();
    /// # config.set("device", "127.0.0.1").map_err(verbena::Error::Config)?;
    /// # let device = Device::with(config)?;
    /// # let cq = device.cq(64)?;
    /// # let ud = UdQp::new(&device.pd()?, &cq, &cq, UdOptions::default())?;
    /// let group = "239.255.7.7".parse()?;
    /// ud.attach(group)?;
    /// assert!(ud.detach(group));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attach(&self, group: IpAddr) -> Result<(), Error> {
        Ok(self.pair.attach(group)?)
    }

    /// Detaches it from a multicast group; false if it was not attached.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::datagram::{UdOptions, UdQp};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let ud = UdQp::new(&device.pd()?, &cq, &cq, UdOptions::default())?;
    /// assert!(!ud.detach("239.255.7.7".parse().unwrap()));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn detach(&self, group: IpAddr) -> bool {
        self.pair.detach(group)
    }
}

impl fmt::Debug for UdQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UdQp").field(&self.number()).finish()
    }
}
