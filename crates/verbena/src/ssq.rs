//! A shared send queue of the low layer (V6): one queue and one order of requests for many reliable channels.
//! Requests begin and complete in the order in which they were posted. A failed channel flushes only its own requests, and one that
//! makes no progress delays the others no longer than the stall limit. It cannot be destroyed while it has channels.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use verbena_engine::SharedSendQueue;
use verbena_nic::qp::PostSendError;
use verbena_nic::ssq::{ChannelInfo, SsqInfo};
use verbena_nic::{Record, SendWr, SsqLimits};

use crate::cq::BareCq;
use crate::device::Domain;
use crate::error::Error;
use crate::pd::Pd;
use crate::setters::setters;

/// Options of a shared send queue.
///
/// ```
/// let options = verbena::low::SsqOptions::default().requests(1024);
/// # assert_eq!(options.stall, None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SsqOptions {
    /// Outstanding requests, of all channels together.
    pub requests: usize,
    /// Completed requests kept in the history.
    pub history: usize,
    /// How long a channel without progress may delay others before it is failed; by default the setting `send_stall`.
    pub stall: Option<Duration>,
}

setters! { SsqOptions:
    requests: usize,
    history: usize,
    ; stall: Duration,
}

impl Default for SsqOptions {
    fn default() -> SsqOptions {
        let SsqLimits {
            requests, history, ..
        } = SsqLimits::default();
        SsqOptions {
            requests,
            history,
            stall: None,
        }
    }
}

/// A shared send queue; made by [`Pd::ssq`], its channels by [`Qp::with_ssq`](crate::low::Qp::with_ssq).
///
/// ```
/// use verbena::low::{Data, Flags, Qp, QpOptions, QpState, RecvWr, SendOp, SendWr, SsqOptions, Wc};
/// use verbena::{Access, Device};
///
/// let device = Device::open()?;
/// let (pd, sent, got) = (device.pd()?, device.cq(64)?, device.cq(64)?);
/// let memory = pd.memory(4096, Access::ALL)?;
/// let ssq = pd.ssq(&sent, SsqOptions::default())?;
/// let listener = device.listen("127.0.0.1:0")?;
/// let mut channels = Vec::new();
/// let mut subscribers = Vec::new();
/// for _ in 0..3 {
///     let channel = Qp::with_ssq(&ssq, &got, None, QpOptions::default())?;
///     let subscriber = Qp::new(&pd, &got, &got, QpOptions::default())?;
///     subscriber.modify(QpState::Init)?;
///     let place = [memory.sge(0, 64)?];
///     subscriber.post_recv(&[RecvWr { id: 0, scatter: &place }])?;
///     let joining = channel.connect(listener.local_addr()?, b"")?;
///     listener.next().wait()?.accept_on(&subscriber, b"")?.wait()?;
///     joining.wait()?;
///     channels.push(channel);
///     subscribers.push(subscriber);
/// }
/// let op = SendOp::Send { invalidate: None, immediate: None };
/// let news = SendWr { id: 7, op, flags: Flags::SIGNALED, data: Data::Inline(b"news") };
/// ssq.post_each(channels.iter().map(Qp::number), &news)?;
/// let mut order = Vec::new();
/// let mut completions = [Wc::default(); 8];
/// while order.len() < 3 {
///     let n = sent.wait(&mut completions)?;
///     order.extend(completions[..n].iter().map(|wc| wc.qpn));
/// }
/// assert_eq!(order, channels.iter().map(Qp::number).collect::<Vec<_>>());
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Ssq(pub(crate) Arc<SsqInner>);

/// The queue, and what must outlive it.
pub(crate) struct SsqInner {
    pub(crate) queue: SharedSendQueue,
    pub(crate) domain: Arc<Domain>,
}

impl Ssq {
    pub(crate) fn new(pd: &Pd, cq: &BareCq, options: SsqOptions) -> Result<Ssq, Error> {
        let domain = pd.0.clone();
        if !Arc::ptr_eq(&cq.device, &domain.device) {
            return Err(Error::Foreign);
        }
        let engine = &domain.device.engine;
        let limits = SsqLimits {
            requests: options.requests,
            history: options.history,
            stall: options.stall.unwrap_or(engine.config().send_stall),
        };
        let queue = engine.create_ssq(domain.pd, &cq.queue, limits)?;
        Ok(Ssq(Arc::new(SsqInner { queue, domain })))
    }

    /// Its number.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let ssq = device.pd()?.ssq(&cq, verbena::low::SsqOptions::default())?;
    /// println!("shared send queue {}", ssq.number());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn number(&self) -> u32 {
        self.0.queue.number()
    }

    /// Posts requests for the channel with this number. On error: the number posted before the one that failed, and the reason.
    ///
    /// A fence waits for earlier requests of the same channel.
    ///
    /// ```
    /// # use verbena::low::{Data, Flags, PostError, PostSendError, SendOp, SendWr};
    /// # let device = verbena::Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let ssq = device.pd()?.ssq(&cq, verbena::low::SsqOptions::default())?;
    /// let op = SendOp::Send { invalidate: None, immediate: None };
    /// let wr = SendWr { id: 1, op, flags: Flags::SIGNALED, data: Data::Inline(b"to whom?") };
    /// assert_eq!(ssq.post(99, &[wr]), Err(PostSendError { posted: 0, source: PostError::Channel(99) }));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn post(&self, channel: u32, wrs: &[SendWr<'_>]) -> Result<(), PostSendError> {
        self.0.queue.post(channel, wrs)
    }

    /// Posts one request for each of several channels, in this order. On error: the number posted before, and the reason.
    ///
    /// ```
    /// # use verbena::low::{Data, Flags, SendOp, SendWr};
    /// # let device = verbena::Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let ssq = device.pd()?.ssq(&cq, verbena::low::SsqOptions::default())?;
    /// let op = SendOp::Send { invalidate: None, immediate: None };
    /// let wr = SendWr { id: 1, op, flags: Flags::NONE, data: Data::Inline(b"to all") };
    /// assert_eq!(ssq.post_each([], &wr), Ok(()));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn post_each(
        &self,
        channels: impl IntoIterator<Item = u32>,
        wr: &SendWr<'_>,
    ) -> Result<(), PostSendError> {
        self.0.queue.post_each(channels, wr)
    }

    /// Accepts no more requests for this channel; posted ones continue.
    ///
    /// ```
    /// # use verbena::low::{Qp, QpOptions, SsqOptions};
    /// # let device = verbena::Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let ssq = device.pd()?.ssq(&cq, SsqOptions::default())?;
    /// let channel = Qp::with_ssq(&ssq, &cq, None, QpOptions::default())?;
    /// ssq.detach(channel.number())?;
    /// assert!(!ssq.query_channel(channel.number())?.open);
    /// ssq.attach(channel.number())?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn detach(&self, channel: u32) -> Result<(), Error> {
        Ok(self.0.queue.open(channel, false)?)
    }

    /// Accepts requests for this channel again. Fails unless it is a channel of this queue; a new channel is attached.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let ssq = device.pd()?.ssq(&cq, verbena::low::SsqOptions::default())?;
    /// assert!(ssq.attach(99).is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn attach(&self, channel: u32) -> Result<(), Error> {
        Ok(self.0.queue.open(channel, true)?)
    }

    /// Its capacity, contents and counters.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let ssq = device.pd()?.ssq(&cq, verbena::low::SsqOptions::default())?;
    /// assert_eq!((ssq.query()?.waiting, ssq.query()?.channels), (0, 0));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn query(&self) -> Result<SsqInfo, Error> {
        Ok(self.0.queue.query()?)
    }

    /// State and counters of one of its channels.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let ssq = device.pd()?.ssq(&cq, verbena::low::SsqOptions::default())?;
    /// assert!(ssq.query_channel(99).is_err());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn query_channel(&self, channel: u32) -> Result<ChannelInfo, Error> {
        Ok(self.0.queue.query_channel(channel)?)
    }

    /// The outcome of its last requests, oldest first; only those of one channel, if given.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let ssq = device.pd()?.ssq(&cq, verbena::low::SsqOptions::default())?;
    /// for record in ssq.history(None)? {
    ///     println!("{} on {}: {:?}", record.id, record.channel, record.outcome);
    /// }
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn history(&self, channel: Option<u32>) -> Result<Vec<Record>, Error> {
        Ok(self.0.queue.history(channel)?)
    }

    /// Destroys it now. Fails, and returns it, while it has channels; if it is dropped instead, it is destroyed after the last of them.
    ///
    /// ```
    /// # use verbena::low::{Qp, QpOptions, SsqOptions};
    /// # let device = verbena::Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let ssq = device.pd()?.ssq(&cq, SsqOptions::default())?;
    /// let channel = Qp::with_ssq(&ssq, &cq, None, QpOptions::default())?;
    /// let (ssq, error) = ssq.destroy().unwrap_err();
    /// assert!(error.to_string().contains("in use by 1"));
    /// drop(channel);
    /// ssq.destroy().map_err(|(_, error)| error)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn destroy(self) -> Result<(), (Ssq, Error)> {
        let refused = self.0.queue.destroy();
        refused.map_err(|error| (self, error.into()))
    }
}

impl Pd {
    /// Creates a shared send queue in this domain that completes in `cq` (V6). [`Ssq`] has a complete example.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let cq = device.cq(64)?;
    /// let ssq = device.pd()?.ssq(&cq, verbena::low::SsqOptions::default())?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn ssq(&self, cq: &BareCq, options: SsqOptions) -> Result<Ssq, Error> {
        Ssq::new(self, cq, options)
    }
}

impl fmt::Debug for Ssq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ssq").field(&self.number()).finish()
    }
}
