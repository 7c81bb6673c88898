//! Extended reliable connections (XRC) of the low layer: an initiator names, with each request, a shared receive queue at its target.
//! So one connection reaches any number of receive queues. Domain, queues and queue pairs are of one device; targets and queues keep their
//! domain alive. XRC is an extension of Verbena (docs/extensions.md): both ends must be Verbena.

use core::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use verbena_engine::XrcDomain;
use verbena_nic::qp::{PostError, PostSendError};
use verbena_nic::{QpType, SendWr};
use verbena_wire::Srqn;

use crate::cq::BareCq;
use crate::device::{Device, Domain};
use crate::error::Error;
use crate::pd::Pd;
use crate::qp::{Qp, QpOptions, QpResources};
use crate::srq::{Srq, SrqInner};

/// An XRC domain; made by [`Device::xrcd`]. Requests to one of its targets name its shared receive queues by number.
///
/// ```
/// use verbena::low::{Data, Flags, Qp, QpOptions, QpType, RecvWr, SendOp, SendWr, Wc};
/// use verbena::{Access, Device};
///
/// let device = Device::open()?;
/// let (pd, sent) = (device.pd()?, device.cq(64)?);
/// let memory = pd.memory(4096, Access::ALL)?;
///
/// // The receiving program: two queues, each with its own completions, and one target.
/// let xrcd = device.xrcd()?;
/// let received = [device.cq(64)?, device.cq(64)?];
/// let srqs = [pd.xrc_srq(&xrcd, &received[0], 16, 1)?, pd.xrc_srq(&xrcd, &received[1], 16, 1)?];
/// for (id, srq) in srqs.iter().enumerate() {
///     srq.post(&[RecvWr { id: id as u64, scatter: &[memory.sge(64 * id, 64)?] }])?;
/// }
/// let target = Qp::xrc_target(&xrcd, QpOptions::default())?;
///
/// // The sending program: one initiator, which reaches both queues.
/// let options = QpOptions::default().qp_type(QpType::XrcSend);
/// let initiator = Qp::new(&pd, &sent, &sent, options)?;
/// let listener = device.listen("127.0.0.1:0")?;
/// let joining = initiator.connect(listener.local_addr()?, b"")?;
/// listener.next().wait()?.accept_on(&target, b"")?.wait()?;
/// joining.wait()?;
/// let op = SendOp::Send { invalidate: None, immediate: None };
/// let send = SendWr { id: 7, op, flags: Flags::SIGNALED, data: Data::Inline(b"hello") };
/// for srq in &srqs {
///     initiator.post_send_to(srq.xrc_number().unwrap_or(0), &[send])?;
/// }
///
/// for (id, cq) in received.iter().enumerate() {
///     let mut completions = [Wc::default(); 4];
///     assert_eq!(cq.wait(&mut completions)?, 1);
///     assert_eq!((completions[0].id, completions[0].len), (id as u64, 5));
///     assert_eq!(completions[0].qpn, target.number());
/// }
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Clone)]
pub struct Xrcd {
    engine: XrcDomain,
    /// Its targets are in this domain, in which nothing is registered.
    domain: Arc<Domain>,
}

impl Device {
    /// Creates an XRC domain.
    ///
    /// ```
    /// let xrcd = verbena::Device::open()?.xrcd()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn xrcd(&self) -> Result<Xrcd, Error> {
        let domain = Domain::new(self.inner().clone())?;
        let engine = domain.device.engine.create_xrc_domain(domain.pd)?;
        Ok(Xrcd { engine, domain })
    }
}

/// Whether the XRC domain that a file names may or must be new; for [`Device::xrcd_of_file`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum XrcOpen {
    /// A process must have it.
    Existing,
    /// It is created if no process has it.
    Create,
    /// No process may have it.
    CreateNew,
}

impl Device {
    /// Opens the XRC domain that a file names, for all processes of this user and network namespace that open it. The targets of each reach the shared receive
    /// queues of all: what is for a queue of another process is received there (docs/dropin.md). Keep the file open as long as the domain exists; it is
    /// neither read nor written.
    ///
    /// ```
    /// use verbena::Device;
    /// use verbena::low::XrcOpen;
    /// # let path = std::env::temp_dir().join(format!("xrc-example-{}", std::process::id()));
    /// # let file = std::fs::File::create(&path)?;
    /// # std::fs::remove_file(&path)?;
    /// let device = Device::open()?;
    /// assert!(device.xrcd_of_file(&file, XrcOpen::Existing).is_err());
    /// let xrcd = device.xrcd_of_file(&file, XrcOpen::Create)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn xrcd_of_file(&self, file: &File, open: XrcOpen) -> Result<Xrcd, Error> {
        let how = (open != XrcOpen::Existing, open == XrcOpen::CreateNew);
        let domain = Domain::new(self.inner().clone())?;
        let engine = &domain.device.engine;
        let engine = engine.open_xrc_domain(domain.pd, file.as_fd(), how)?;
        Ok(Xrcd { engine, domain })
    }
}

impl Pd {
    /// Creates a shared receive queue of an XRC domain in this protection domain, whose receives complete in `cq`. Initiators name it by its
    /// [`xrc_number`](Srq::xrc_number). It can be destroyed at any time: requests that name it then fail at their initiator, and nothing completes in
    /// `cq` any more.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// # let (pd, cq) = (device.pd()?, device.cq(64)?);
    /// let srq = pd.xrc_srq(&device.xrcd()?, &cq, 1024, 4)?;
    /// println!("name shared receive queue {:?}", srq.xrc_number());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn xrc_srq(
        &self,
        xrcd: &Xrcd,
        cq: &BareCq,
        receives: usize,
        pieces: usize,
    ) -> Result<Srq, Error> {
        let domain = self.0.clone();
        let device = &domain.device;
        if !Arc::ptr_eq(device, &xrcd.domain.device) || !Arc::ptr_eq(device, &cq.device) {
            return Err(Error::Foreign);
        }
        let parts = (domain.pd, &cq.queue);
        let queue = device
            .engine
            .create_xrc_srq(&xrcd.engine, parts, receives, pieces)?;
        Ok(Srq(Arc::new(SrqInner { queue, domain })))
    }
}

impl Srq {
    /// The number by which XRC initiators name it; `None` if it is not one of an XRC domain.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let srq = device.pd()?.srq(16, 1)?;
    /// assert_eq!(srq.xrc_number(), None);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn xrc_number(&self) -> Option<u32> {
        self.0.queue.xrc_number().map(Srqn::get)
    }
}

impl Qp {
    /// Creates a target of an XRC domain: what its initiator sends goes to the shared receive queues that the requests name. It posts nothing
    /// itself; of the options, the limits and the type are not used. What its peer may read and write is the memory of the protection domain of
    /// the queue that the request names.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// let target = Qp::xrc_target(&device.xrcd()?, QpOptions::default())?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn xrc_target(xrcd: &Xrcd, options: QpOptions) -> Result<Qp, Error> {
        let domain = &xrcd.domain;
        let options = options.engine_options(domain, None);
        let engine = &domain.device.engine;
        let qp = engine.create_xrc_target(&xrcd.engine, options)?;
        Ok(QpResources::new(domain, None, None).attach(qp))
    }

    /// Another handle of an XRC target, which is destroyed with the last one; `None` for a queue pair of another type.
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions};
    /// # let device = Device::open()?;
    /// let target = Qp::xrc_target(&device.xrcd()?, QpOptions::default())?;
    /// let same = target.open_target().map(|other| other.number());
    /// assert_eq!(same, Some(target.number()));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn open_target(&self) -> Option<Qp> {
        let is_target = self.0.qp.qp_type() == QpType::XrcRecv;
        is_target.then(|| Qp(self.0.clone()))
    }

    /// Posts requests of an XRC initiator for the peer's shared receive queue with this number; see [`post_send`](Qp::post_send). If the target
    /// has no such queue, the first request fails with [`RemInvReqErr`](crate::Status::RemInvReqErr).
    ///
    /// ```
    /// # use verbena::Device;
    /// # use verbena::low::{Qp, QpOptions, QpType};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let options = QpOptions::default().qp_type(QpType::XrcSend);
    /// let initiator = Qp::new(&device.pd()?, &cq, &cq, options)?;
    /// assert_eq!(initiator.post_send_to(5, &[]), Ok(()));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn post_send_to(&self, srq: u32, wrs: &[SendWr<'_>]) -> Result<(), PostSendError> {
        let Some(srqn) = Srqn::new(srq) else {
            let source = PostError::Xrc;
            return Err(PostSendError { posted: 0, source });
        };
        self.0.qp.post_sends_to(srqn, wrs)
    }
}

/// What the drop-in library needs (`ibv_open_qp`).
impl Xrcd {
    #[doc(hidden)]
    pub fn engine_domain(&self) -> &XrcDomain {
        &self.engine
    }
}

impl fmt::Debug for Xrcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xrcd").finish_non_exhaustive()
    }
}
