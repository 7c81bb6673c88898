//! A queue pair of the low layer, whole or as two halves for two threads.
//! Posted requests are transmitted at once and a list is transmitted together; posting does not allocate. No call blocks: work ends in
//! completion queues, connecting ends in a [`QpConnecting`](crate::low::QpConnecting).

mod channel;
mod connect;
mod migrate;
mod oob;

pub use migrate::MigrateError;
pub use oob::QpEndpoint;

use core::fmt;
use std::sync::Arc;

use verbena_engine::{QpAttr, QueuePair, QueuePairInfo, QueuePairOptions};
use verbena_nic::qp::{Limits, PostRecvError, PostSendError, QpAccessFlags, Registration, View};
use verbena_nic::{Personality, QpState, QpType, ReceiveWr, SendWr};

use crate::cq::BareCq;
use crate::device::{Domain, Inner};
use crate::error::Error;
use crate::pd::Pd;
use crate::setters::setters;
use crate::srq::{Srq, SrqInner};
use crate::ssq::SsqInner;

/// Options of a queue pair.
///
/// ```
/// use verbena::low::{Limits, QpOptions};
/// let options = QpOptions::default().limits(Limits { sends: 1024, ..Limits::default() });
/// # assert_eq!(options.limits.sends, 1024);
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct QpOptions {
    /// Whether it behaves as RoCE or as iWARP; by default as the device does.
    pub personality: Option<Personality>,
    /// Reliable or unreliable.
    pub qp_type: QpType,
    /// Capacities of its queues.
    pub limits: Limits,
    /// Whether its requests may register memory, and what happens if one fails (M4); see [`FastRegMr`](crate::mr::FastRegMr).
    pub registration: Registration,
    /// It gets a number for out-of-band connections; see [`Qp::endpoint`].
    pub oob: bool,
}

setters! { QpOptions:
    qp_type: QpType,
    limits: Limits,
    registration: Registration,
    oob: bool,
    ; personality: Personality,
}

impl Default for QpOptions {
    fn default() -> QpOptions {
        QpOptions {
            personality: None,
            qp_type: QpType::Rc,
            limits: Limits::default(),
            registration: Registration::default(),
            oob: false,
        }
    }
}

impl QpOptions {
    pub(crate) fn engine_options(
        self,
        domain: &Domain,
        stock: Option<&Arc<SrqInner>>,
    ) -> QueuePairOptions {
        QueuePairOptions {
            personality: self.personality,
            qp_type: self.qp_type,
            srq: stock.map(|stock| stock.queue.number()),
            limits: self.limits,
            registration: self.registration,
            oob: self.oob,
            ..QueuePairOptions::new(domain.pd)
        }
    }
}

/// A queue pair; [`low`](crate::low) has a complete example.
///
/// ```
/// use verbena::Device;
/// use verbena::low::{Qp, QpOptions};
/// let device = Device::open()?;
/// let (pd, cq) = (device.pd()?, device.cq(64)?);
/// let qp = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Qp(pub(crate) Arc<QpInner>);

/// The queue pair, and what must outlive it.
pub(crate) struct QpInner {
    pub(crate) qp: QueuePair,
    // Dropped after the queue pair.
    resources: QpResources,
}

/// What a queue pair needs as long as it lives; dropped in this order.
pub(crate) struct QpResources {
    _srq: Option<Arc<SrqInner>>,
    _ssq: Option<Arc<SsqInner>>,
    domain: Arc<Domain>,
    /// Earlier domains of its connection, whose memory it still accesses (V1).
    previous_domains: Vec<Arc<Domain>>,
}

impl QpResources {
    pub(crate) fn new(
        domain: &Arc<Domain>,
        stock: Option<&Arc<SrqInner>>,
        shared: Option<Arc<SsqInner>>,
    ) -> QpResources {
        QpResources {
            _srq: stock.cloned(),
            _ssq: shared,
            domain: domain.clone(),
            previous_domains: Vec::new(),
        }
    }

    pub(crate) fn attach(self, qp: QueuePair) -> Qp {
        Qp(Arc::new(QpInner {
            qp,
            resources: self,
        }))
    }
}

impl Qp {
    /// Creates a queue pair; its sends complete in one queue, its receives in the same or another. Fails with [`Error::Foreign`] if a
    /// queue is another device's.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// let (sent, received) = (device.cq(64)?, device.cq(64)?);
    /// let qp = Qp::new(&device.pd()?, &sent, &received, QpOptions::default())?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn new(pd: &Pd, send: &BareCq, recv: &BareCq, options: QpOptions) -> Result<Qp, Error> {
        Qp::make(pd, send, recv, None, options)
    }

    /// Like [`new`](Qp::new), with receives from a shared receive queue of the same domain.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let (pd, cq) = (device.pd()?, device.cq(64)?);
    /// let srq = pd.srq(1024, 4)?;
    /// let qp = Qp::with_srq(&pd, &cq, &cq, &srq, QpOptions::default())?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn with_srq(
        pd: &Pd,
        send: &BareCq,
        recv: &BareCq,
        srq: &Srq,
        options: QpOptions,
    ) -> Result<Qp, Error> {
        Qp::make(pd, send, recv, Some(&srq.0), options)
    }

    fn make(
        pd: &Pd,
        send: &BareCq,
        recv: &BareCq,
        stock: Option<&Arc<SrqInner>>,
        options: QpOptions,
    ) -> Result<Qp, Error> {
        let device = &pd.0.device;
        let same = |other: &Arc<Inner>| Arc::ptr_eq(other, device);
        let shared = stock.is_none_or(|stock| same(&stock.domain.device));
        if !same(&send.device) || !same(&recv.device) || !shared {
            return Err(Error::Foreign);
        }
        let options = options.engine_options(&pd.0, stock);
        let qp = device.engine.create_qp(&send.queue, &recv.queue, options)?;
        Ok(QpResources::new(&pd.0, stock, None).attach(qp))
    }

    /// Its number, as in completions.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// assert!(qp.number() > 1);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn number(&self) -> u32 {
        self.0.qp.number()
    }

    /// A consistent snapshot of its state, first cause of failure, counters and outstanding work.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// assert_eq!(qp.view().cause, None);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn view(&self) -> View {
        self.0.qp.view()
    }

    /// Everything about it (N1): its parts (domain, both completion queues, shared receive queue, capacities), the handlers of its
    /// completion queues, its state, outstanding work, first cause of failure and counters, its timeouts, and both addresses while it
    /// is connected.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let pd = device.pd()?;
    /// let (sent, received) = (device.cq(64)?, device.cq(64)?);
    /// let qp = Qp::new(&pd, &sent, &received, QpOptions::default())?;
    /// let info = qp.query()?;
    /// let parts = info.qp.init_attr;
    /// assert_eq!((parts.send_cq, parts.recv_cq), (sent.number(), received.number()));
    /// assert_eq!((parts.limits.sends, info.qp.view.sends), (128, 0));
    /// assert_eq!((info.recv_handler, info.peer_addr), (None, None));
    /// println!("a peer may be silent for {:?}", info.attr.peer_timeout);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn query(&self) -> Result<QueuePairInfo, Error> {
        Ok(self.0.qp.query()?)
    }

    /// Its state.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions, QpState};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// assert_eq!(qp.state(), QpState::Reset);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn state(&self) -> QpState {
        self.0.qp.state()
    }

    /// Requests a transition to this state. If it is not allowed, nothing changes, and the error says which ones are.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions, QpState};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// qp.modify(QpState::Init)?; // receives may be posted before it is connected
    /// let refused = qp.modify(QpState::Sqd).unwrap_err().to_string();
    /// assert!(refused.ends_with("is Init and cannot become Sqd: it can become Reset, Init, Rtr, Err"));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn modify(&self, to: QpState) -> Result<(), Error> {
        Ok(self.0.qp.modify(to)?)
    }

    /// Sets which operations the peer may perform.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpAccessFlags, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// qp.set_access_flags(QpAccessFlags { write: false, ..QpAccessFlags::default() });
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_access_flags(&self, enabled: QpAccessFlags) {
        self.0.qp.set_access_flags(enabled);
    }

    /// Changes its attributes for the next connection: timeouts, retries, read depths.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions, RnrRetry};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// qp.set_attr(|attr| attr.rnr_retry = RnrRetry::Forever);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_attr(&self, change: impl FnOnce(&mut QpAttr)) {
        self.0.qp.set_attr(change);
    }

    /// Posts requests that are transmitted together. On error: the number posted before the one that failed, and the reason.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// assert_eq!(qp.post_send(&[]), Ok(()));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn post_send(&self, wrs: &[SendWr<'_>]) -> Result<(), PostSendError> {
        self.0.qp.post_sends(wrs)
    }

    /// Posts receives. On error: the number posted before the one that failed, and the reason.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions, QpState, RecvWr};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// qp.modify(QpState::Init)?;
    /// assert_eq!(qp.post_recv(&[RecvWr { id: 1, scatter: &[] }]), Ok(()));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn post_recv(&self, wrs: &[ReceiveWr<'_>]) -> Result<(), PostRecvError> {
        self.0.post_recv(wrs)
    }

    /// Splits it into two halves for two threads. The queue pair is destroyed when both are dropped.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
    /// let (sender, receiver) = qp.split();
    /// std::thread::spawn(move || drop(receiver));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn split(self) -> (QpSender, QpReceiver) {
        (QpSender(self.0.clone()), QpReceiver(self.0))
    }
}

impl QpInner {
    /// Its device.
    pub(crate) fn device(&self) -> &Arc<Inner> {
        &self.resources.domain.device
    }

    fn post_recv(&self, wrs: &[ReceiveWr<'_>]) -> Result<(), PostRecvError> {
        wrs.iter().enumerate().try_for_each(|(at, wr)| {
            let posted = self.qp.post_receive(wr);
            posted.map_err(|source| PostRecvError { posted: at, source })
        })
    }
}

/// The sending half of a queue pair.
///
/// ```
/// # use verbena::Device;
/// # use verbena::low::{Qp, QpOptions};
/// # let device = Device::open()?;
/// # let cq = device.cq(64)?;
/// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
/// let (mut sender, _receiver) = qp.split();
/// sender.post(&[])?;
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct QpSender(Arc<QpInner>);

impl QpSender {
    /// Posts requests that are transmitted together; see [`Qp::post_send`].
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let (mut sender, _r) = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?.split();
    /// assert_eq!(sender.post(&[]), Ok(()));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn post(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostSendError> {
        self.0.qp.post_sends(wrs)
    }

    /// A snapshot of its state; see [`Qp::view`].
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let (sender, _r) = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?.split();
    /// assert_eq!(sender.view().sends, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn view(&self) -> View {
        self.0.qp.view()
    }
}

/// The receiving half of a queue pair.
///
/// ```
/// # use verbena::Device;
/// # use verbena::low::{Qp, QpOptions};
/// # let device = Device::open()?;
/// # let cq = device.cq(64)?;
/// # let qp = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?;
/// let (_sender, mut receiver) = qp.split();
/// receiver.post(&[])?;
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct QpReceiver(Arc<QpInner>);

impl QpReceiver {
    /// Posts receives; see [`Qp::post_recv`].
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// # let (_s, mut receiver) = Qp::new(&device.pd()?, &cq, &cq, QpOptions::default())?.split();
    /// assert_eq!(receiver.post(&[]), Ok(()));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn post(&mut self, wrs: &[ReceiveWr<'_>]) -> Result<(), PostRecvError> {
        self.0.post_recv(wrs)
    }
}

macro_rules! impl_debug {
    ($($name:ident)*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.0.qp.number()).finish()
            }
        }
    )*};
}
impl_debug!(Qp QpSender QpReceiver);
