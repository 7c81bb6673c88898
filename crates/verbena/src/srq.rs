//! A shared receive queue of the low layer: one queue of receives for many queue pairs.
//! A posted receive goes to the connection that has waited longest. The queue lives as long as a queue pair uses it and cannot be
//! destroyed before. The limit event is raised once per limit set.

use core::fmt;
use std::sync::Arc;

use verbena_engine::SharedReceiveQueue;
use verbena_nic::qp::PostRecvError;
use verbena_nic::{ReceiveWr, SrqInfo};

use crate::device::Domain;
use crate::error::Error;
use crate::pd::Pd;

/// A shared receive queue; made by [`Pd::srq`], used by [`Qp::with_srq`](crate::low::Qp::with_srq).
///
/// ```
/// use verbena::low::{Data, Flags, Qp, QpOptions, RecvWr, SendOp, SendWr, Wc};
/// use verbena::{Access, Device};
///
/// let device = Device::open()?;
/// let (pd, cq, got) = (device.pd()?, device.cq(64)?, device.cq(64)?);
/// let memory = pd.memory(4096, Access::ALL)?;
/// let srq = pd.srq(128, 1)?;
/// for id in 0..8 {
///     let place = [memory.sge(id as usize * 64, 64)?];
///     srq.post(&[RecvWr { id, scatter: &place }])?;
/// }
/// let listener = device.listen("127.0.0.1:0")?;
/// let mut clients = Vec::new();
/// let mut servers = Vec::new();
/// for _ in 0..3 {
///     let client = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
///     let server = Qp::with_srq(&pd, &got, &got, &srq, QpOptions::default())?;
///     let joining = client.connect(listener.local_addr()?, b"")?;
///     listener.next().wait()?.accept_on(&server, b"")?.wait()?;
///     joining.wait()?;
///     let op = SendOp::Send { invalidate: None, immediate: None };
///     let send = SendWr { id: 0, op, flags: Flags::NONE, data: Data::Inline(b"hello") };
///     client.post_send(&[send])?;
///     clients.push(client);
///     servers.push(server);
/// }
/// let mut completions = [Wc::default(); 8];
/// let mut count = 0;
/// while count < 3 {
///     count += got.wait(&mut completions)?;
/// }
/// assert_eq!(srq.query()?.waiting, 5);
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Srq(pub(crate) Arc<SrqInner>);

/// The queue, and what must outlive it.
pub(crate) struct SrqInner {
    pub(crate) queue: SharedReceiveQueue,
    pub(crate) domain: Arc<Domain>,
}

impl Srq {
    pub(crate) fn new(pd: &Pd, receives: usize, pieces: usize) -> Result<Srq, Error> {
        let domain = pd.0.clone();
        let engine = &domain.device.engine;
        let queue = engine.create_srq(domain.pd, receives, pieces)?;
        Ok(Srq(Arc::new(SrqInner { queue, domain })))
    }

    /// Its number, as in events.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let srq = device.pd()?.srq(16, 1)?;
    /// println!("shared receive queue {}", srq.number());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn number(&self) -> u32 {
        self.0.queue.number()
    }

    /// Posts receives; connections that wait for one continue. On error: the number posted before the one that
    /// failed, and the reason.
    ///
    /// ```
    /// # use verbena::low::{PostError, PostRecvError, RecvWr};
    /// # let device = verbena::Device::open()?;
    /// let srq = device.pd()?.srq(2, 1)?;
    /// let list = [1, 2, 3].map(|id| RecvWr { id, scatter: &[] });
    /// assert_eq!(srq.post(&list), Err(PostRecvError { posted: 2, source: PostError::Full(2) }));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn post(&self, wrs: &[ReceiveWr<'_>]) -> Result<(), PostRecvError> {
        self.0.queue.post(wrs)
    }

    /// Requests one [`Event::SrqLimit`](crate::events::Event::SrqLimit) when fewer receives than this are posted; 0 cancels it. Fails if the limit
    /// exceeds the capacity.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let srq = device.pd()?.srq(16, 1)?;
    /// srq.set_limit(4)?;
    /// assert!(srq.set_limit(17).is_err(), "it never holds that many");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_limit(&self, limit: usize) -> Result<(), Error> {
        Ok(self.0.queue.set_limit(limit)?)
    }

    /// Its capacity and contents.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let srq = device.pd()?.srq(16, 1)?;
    /// assert_eq!((srq.query()?.receives, srq.query()?.waiting), (16, 0));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn query(&self) -> Result<SrqInfo, Error> {
        Ok(self.0.queue.query()?)
    }

    /// Destroys it now. Fails, and returns it, while a queue pair uses it; if it is dropped instead, it is destroyed after the last
    /// of them.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// # let (pd, cq) = (device.pd()?, device.cq(64)?);
    /// let srq = pd.srq(16, 1)?;
    /// let qp = Qp::with_srq(&pd, &cq, &cq, &srq, QpOptions::default())?;
    /// let (srq, error) = srq.destroy().unwrap_err();
    /// assert!(error.to_string().contains("in use by 1"));
    /// drop(qp);
    /// srq.destroy().map_err(|(_, error)| error)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn destroy(self) -> Result<(), (Srq, Error)> {
        let refused = self.0.queue.destroy();
        refused.map_err(|error| (self, error.into()))
    }
}

impl Pd {
    /// Creates a shared receive queue in this domain for `receives` receives of at most `pieces` scatter elements each.
    ///
    /// ```
    /// let srq = verbena::Device::open()?.pd()?.srq(1024, 4)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn srq(&self, receives: usize, pieces: usize) -> Result<Srq, Error> {
        Srq::new(self, receives, pieces)
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Srq").field(&self.number()).finish()
    }
}
