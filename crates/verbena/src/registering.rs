//! A registration or the allocation of a window in the background (V5), for a thread that waits or a task that awaits.
//! It delivers the outcome once; dropping it does not cancel the registration. The memory's handle can be used meanwhile: the adapter
//! delays work that needs it.

use std::sync::Arc;

use verbena_engine::{ControlCallback, ControlQueue};
use verbena_mem::{Access, Misuse, Reserved, Tpt, WindowType};
use verbena_wire::{Stag, To};

use crate::device::Domain;
use crate::error::Error;
use crate::promise::{Promise, PromiseReceiver};

/// The outcome of a registration, or of the allocation of a window, in the background. With the feature `async` it is a future.
///
/// ```
/// use verbena::low::{Data, Flags, Qp, QpOptions, SendOp, SendWr, Wc};
/// use verbena::{Access, Device, Status};
/// let device = Device::open()?;
/// let (pd, cq) = (device.pd()?, device.cq(64)?);
/// # let [a, b] = [(), ()].map(|()| Qp::new(&pd, &cq, &cq, QpOptions::default()));
/// # let (a, b) = (a?, b?);
/// # let listener = device.listen("127.0.0.1:0")?;
/// # let joining = a.connect(listener.local_addr()?, b"")?;
/// # listener.next().wait()?.accept_on(&b, b"")?.wait()?;
/// # joining.wait()?;
/// # let theirs = pd.memory(4096, Access::ALL)?;
/// let (memory, registering) = pd.memory_async(64 << 20, Access::ALL)?;
/// memory.write_at(0, b"ahead of time")?;
/// let op = SendOp::Write { remote: theirs.remote_addr(0)?, immediate: None };
/// let pieces = [memory.sge(0, 13)?];
/// let write = SendWr { id: 1, op, flags: Flags::SIGNALED, data: Data::Gather(&pieces) };
/// a.post_send(&[write])?;
/// let mut end = [Wc::default()];
/// cq.wait(&mut end)?;
/// assert_eq!(end[0].status, Status::Success);
/// registering.wait()?;
/// # Ok::<(), verbena::Error>(())
/// ```
#[must_use = "a registration may fail; work on it fails then"]
pub struct Registering(PromiseReceiver<()>);

impl Registering {
    /// Waits for the outcome. Fails if the memory could not be registered.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let (memory, registering) = Device::open()?.pd()?.memory_async(4096, Access::ALL)?;
    /// registering.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait(self) -> Result<(), Error> {
        self.0.wait()
    }

    /// Starts the registration, as a request of a control queue pair with this id if one is given; the STag is known at once.
    pub(crate) fn begin(
        domain: &Arc<Domain>,
        control: Option<(&ControlQueue, u64)>,
        reserve: impl FnOnce(&Arc<Tpt>) -> Result<Reserved, Misuse>,
    ) -> Result<(Stag, Registering), Error> {
        let (promise, answer) = Promise::pair();
        let (pd, callback) = (domain.pd, end(domain, promise));
        let stag = match control {
            Some((control, id)) => control.register(id, pd, reserve, Some(callback))?,
            None => domain.device.engine.register_async(pd, reserve, callback)?,
        };
        Ok((stag, Registering(answer)))
    }

    /// Queues another registration of a region's memory, with this first address and these rights (M5).
    pub(crate) fn share(
        domain: &Arc<Domain>,
        (control, id): (&ControlQueue, u64),
        of: Stag,
        (start, access): (To, Access),
    ) -> Result<(Stag, Registering), Error> {
        let (promise, answer) = Promise::pair();
        let terms = (start, domain.pd, access);
        let stag = control.register_shared(id, of, terms, Some(end(domain, promise)))?;
        Ok((stag, Registering(answer)))
    }

    /// Queues the allocation of a window.
    pub(crate) fn window(
        domain: &Arc<Domain>,
        (control, id): (&ControlQueue, u64),
        ty: WindowType,
    ) -> Result<(Stag, Registering), Error> {
        let (promise, answer) = Promise::pair();
        let stag = control.allocate_window(id, ty, domain.pd, Some(end(domain, promise)))?;
        Ok((stag, Registering(answer)))
    }
}

/// Delivers the outcome of a request. A pending entry belongs to its domain until it is settled, even if its handle was dropped: the domain is
/// kept as long.
fn end(domain: &Arc<Domain>, promise: Promise<()>) -> ControlCallback {
    let kept = domain.clone();
    Box::new(move |outcome: Result<(), verbena_engine::Error>| {
        drop(kept);
        promise.fulfill(outcome.map_err(Error::from));
    })
}

#[cfg(feature = "async")]
impl Future for Registering {
    type Output = Result<(), Error>;

    fn poll(
        self: core::pin::Pin<&mut Self>,
        cx: &mut core::task::Context<'_>,
    ) -> core::task::Poll<Self::Output> {
        self.0.poll(cx.waker())
    }
}

impl core::fmt::Debug for Registering {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Registering").finish_non_exhaustive()
    }
}
