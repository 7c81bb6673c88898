//! Control queue pairs (V5): registrations and the creation, change and removal of queues, queued and executed later, in order.
//! Every request that is executed ends in one completion in the queue's own completion queue, and its result is delivered once. A request that is not executed, because the control queue pair was dropped, ends with an error and no completion.

use core::fmt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use verbena_engine::{CompletionQueue, ControlQueue as EngineControlQueue};
use verbena_mem::{Access, WindowType};
use verbena_nic::{ControlError, Object, QpState};

pub use verbena_nic::ControlOp;

use crate::cq::{BareCq, Cq};
use crate::device::{Device, Inner};
use crate::error::Error;
use crate::handler::Handler;
use crate::mr::{Memory, Mr, Window};
use crate::pd::Pd;
use crate::promise::{Promise, PromiseReceiver};
use crate::qp::{Qp, QpInner, QpOptions};
use crate::registering::Registering;

/// A control queue pair with its own completion queue; made by [`Device::control_queue`].
///
/// A program creates a queue pair with its completion queue and connects it, without a call that does the work itself:
///
/// ```
/// use verbena::low::{QpOptions, QpState, Wc};
/// use verbena::{Access, Device, Status};
/// let device = Device::open()?;
/// let pd = device.pd()?;
/// let control = device.control_queue(16)?;
/// let cq = control.create_cq(1, 64)?;
/// let qp = control.create_qp(2, &pd, &cq, &cq, QpOptions::default())?;
/// control.modify_qp(3, &qp, QpState::Init)?;
/// let (memory, _registering) = control.register(4, &pd, 1 << 20, Access::ALL)?;
///
/// let (mut ids, mut done) = (Vec::new(), [Wc::default(); 4]);
/// while ids.len() < 4 {
///     let n = control.cq().wait(&mut done)?;
///     assert!(done[..n].iter().all(|wc| wc.status == Status::Success));
///     ids.extend(done[..n].iter().map(|wc| wc.id));
/// }
/// assert_eq!(ids, [1, 2, 3, 4]);
/// let (cq, qp) = (cq.wait()?, qp.wait()?);
/// assert_eq!(qp.state(), QpState::Init);
/// # drop((cq, memory));
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct ControlQueue {
    // Dropped first: it waits for the request in progress, which may hold handles of the device.
    queue: EngineControlQueue,
    cq: Cq,
    device: Arc<Inner>,
}

/// The result of a queued request, which later requests of the same control queue pair may name before it is there. With the feature
/// `async` it is a future. Dropping it does not cancel the request; an object that it creates is then destroyed.
///
/// ```
/// let control = verbena::Device::open()?.control_queue(4)?;
/// let cq = control.create_cq(1, 64)?.wait()?;
/// assert_eq!(cq.poll(&mut [verbena::low::Wc::default()]), 0);
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Queued<T> {
    result: PromiseReceiver<T>,
    object: Created,
}

/// What a creation has created, for later requests.
#[derive(Clone)]
enum Created {
    Nothing,
    Cq(Arc<OnceLock<CompletionQueue>>),
    Qp(Arc<OnceLock<Weak<QpInner>>>),
}

impl<T> Queued<T> {
    /// Waits until the request was executed, and returns its result.
    ///
    /// ```
    /// let control = verbena::Device::open()?.control_queue(4)?;
    /// assert!(control.create_cq(1, 64)?.wait().is_ok());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait(self) -> Result<T, Error> {
        self.result.wait()
    }
}

#[cfg(feature = "async")]
impl<T> Future for Queued<T> {
    type Output = Result<T, Error>;

    fn poll(
        self: core::pin::Pin<&mut Self>,
        cx: &mut core::task::Context<'_>,
    ) -> core::task::Poll<Self::Output> {
        self.result.poll(cx.waker())
    }
}

/// A change of a completion queue, for [`ControlQueue::modify_cq`].
///
/// ```
/// use verbena::Device;
/// use verbena::control::CqChange;
/// use verbena::events::HandlerOptions;
/// let device = Device::open()?;
/// let handler = device.set_handler(&HandlerOptions::default())?;
/// let changes = [CqChange::Entries(1024), CqChange::Handler(&handler), CqChange::NoHandler];
/// # let _ = changes;
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub enum CqChange<'a> {
    /// Its capacity; completions in the queue are kept ([`BareCq::resize`](crate::low::BareCq::resize)).
    Entries(usize),
    /// Its completion handler (N4).
    Handler(&'a Handler),
    /// It has no completion handler: its descriptor is notified.
    NoHandler,
}

/// A completion queue, or one that an earlier request of the same control queue pair creates.
pub struct CqRef(CqSource);

enum CqSource {
    Ready(CompletionQueue),
    Created(Created),
}

impl From<&BareCq> for CqRef {
    fn from(cq: &BareCq) -> CqRef {
        CqRef(CqSource::Ready(cq.queue.clone()))
    }
}

impl From<&Cq> for CqRef {
    fn from(cq: &Cq) -> CqRef {
        CqRef(CqSource::Ready(cq.queue.clone()))
    }
}

impl From<&Queued<Cq>> for CqRef {
    fn from(cq: &Queued<Cq>) -> CqRef {
        CqRef(CqSource::Created(cq.object.clone()))
    }
}

impl CqRef {
    /// The queue, when the request that names it is executed.
    fn resolve(self, device: &Arc<Inner>) -> Result<BareCq, Error> {
        let queue = match self.0 {
            CqSource::Ready(queue) => Some(queue),
            CqSource::Created(Created::Cq(slot)) => slot.get().cloned(),
            CqSource::Created(_) => None,
        };
        let device = device.clone();
        let queue = queue.ok_or_else(not_there)?;
        Ok(BareCq { queue, device })
    }
}

/// A queue pair, or one that an earlier request of the same control queue pair creates.
pub struct QpRef(QpSource);

enum QpSource {
    Ready(Weak<QpInner>),
    Created(Created),
}

impl From<&Qp> for QpRef {
    fn from(qp: &Qp) -> QpRef {
        QpRef(QpSource::Ready(Arc::downgrade(&qp.0)))
    }
}

impl From<&Queued<Qp>> for QpRef {
    fn from(qp: &Queued<Qp>) -> QpRef {
        QpRef(QpSource::Created(qp.object.clone()))
    }
}

impl QpRef {
    /// The queue pair, when the request that names it is executed.
    fn resolve(self) -> Result<Arc<QpInner>, Error> {
        let qp = match self.0 {
            QpSource::Ready(qp) => qp.upgrade(),
            QpSource::Created(Created::Qp(slot)) => slot.get().and_then(Weak::upgrade),
            QpSource::Created(_) => None,
        };
        qp.ok_or_else(not_there)
    }
}

/// The object was not created, or was destroyed before.
fn not_there() -> Error {
    verbena_nic::Error::from(ControlError::Failed).into()
}

impl Device {
    /// Creates a control queue pair for `depth` outstanding requests, with a completion queue of as many entries. If more completions
    /// than that are not polled, the control queue pair ends: the program could not know the results any more.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let control = device.control_queue(64)?;
    /// assert_eq!(control.outstanding(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn control_queue(&self, depth: usize) -> Result<ControlQueue, Error> {
        let cq = self.cq(depth)?;
        let queue = self.inner().engine.create_control(Some(&cq.queue), depth)?;
        Ok(ControlQueue {
            queue,
            cq,
            device: self.inner().clone(),
        })
    }
}

impl ControlQueue {
    /// Its number, as in its completions.
    ///
    /// ```
    /// let control = verbena::Device::open()?.control_queue(4)?;
    /// println!("control queue pair {}", control.number());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn number(&self) -> u32 {
        self.queue.number()
    }

    /// Requests that have not been executed.
    ///
    /// ```
    /// let control = verbena::Device::open()?.control_queue(4)?;
    /// control.create_cq(1, 64)?.wait()?;
    /// assert_eq!(control.outstanding(), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn outstanding(&self) -> usize {
        self.queue.outstanding()
    }

    /// The completion queue of its requests: [`WcOp::Control`](crate::low::WcOp::Control), in the order in which they were posted.
    ///
    /// ```
    /// let control = verbena::Device::open()?.control_queue(4)?;
    /// control.create_cq(7, 64)?.wait()?;
    /// let mut done = [verbena::low::Wc::default()];
    /// control.cq().wait(&mut done)?;
    /// assert_eq!((done[0].id, done[0].qpn), (7, control.number()));
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn cq(&self) -> &Cq {
        &self.cq
    }

    /// Queues the creation of a completion queue.
    ///
    /// ```
    /// let control = verbena::Device::open()?.control_queue(4)?;
    /// let cq = control.create_cq(1, 64)?.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn create_cq(&self, id: u64, entries: usize) -> Result<Queued<Cq>, Error> {
        let slot = Arc::new(OnceLock::new());
        let (device, created) = (self.device.clone(), slot.clone());
        let object = Created::Cq(slot);
        self.post(id, ControlOp::CreateCq, object, move || {
            let cq = Cq::new(&device, entries)?;
            // Set once: a request is executed once.
            let _ = created.set(cq.queue.clone());
            Ok(cq)
        })
    }

    /// Queues a change of a completion queue, which an earlier request of this control queue pair may create. It fails, and the queue stays as it
    /// is, if the size is not possible, the handler was cleared before the request is executed, or the queue was not created.
    ///
    /// ```
    /// use verbena::Device;
    /// use verbena::control::CqChange;
    /// use verbena::events::HandlerOptions;
    /// let device = Device::open()?;
    /// let handler = device.set_handler(&HandlerOptions::new(|_| ()))?;
    /// let control = device.control_queue(4)?;
    /// let cq = control.create_cq(1, 64)?;
    /// control.modify_cq(2, &cq, CqChange::Entries(1024))?;
    /// control.modify_cq(3, &cq, CqChange::Handler(&handler))?.wait()?;
    /// let info = cq.wait()?.query()?;
    /// assert!(info.cq.entries >= 1024 && info.handler.is_some());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn modify_cq(
        &self,
        id: u64,
        cq: impl Into<CqRef>,
        change: CqChange<'_>,
    ) -> Result<Queued<()>, Error> {
        let (cq, device) = (cq.into(), self.device.clone());
        let handler = match change {
            CqChange::Handler(handler) => Some(handler.reference(&self.device)?),
            CqChange::Entries(_) | CqChange::NoHandler => None,
        };
        let entries = match change {
            CqChange::Entries(entries) => Some(entries),
            CqChange::Handler(_) | CqChange::NoHandler => None,
        };
        self.post(id, ControlOp::ModifyCq, Created::Nothing, move || {
            let queue = cq.resolve(&device)?.queue;
            device.engine.check_queue(&queue)?;
            match (entries, handler) {
                (Some(entries), _) => queue.resize(entries)?,
                (None, Some(handler)) => queue.set_handler_ref(&handler)?,
                (None, None) => queue.set_handler(None)?,
            }
            Ok(())
        })
    }

    /// Queues the creation of a queue pair. Its completion queues exist, or earlier requests of this control queue pair create them.
    ///
    /// ```
    /// use verbena::Device;
    /// use verbena::low::QpOptions;
    /// let device = Device::open()?;
    /// let (pd, sent) = (device.pd()?, device.cq(64)?);
    /// let control = device.control_queue(4)?;
    /// let received = control.create_cq(1, 64)?;
    /// let qp = control.create_qp(2, &pd, &sent, &received, QpOptions::default())?;
    /// assert!(qp.wait()?.number() > 1);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn create_qp(
        &self,
        id: u64,
        pd: &Pd,
        send: impl Into<CqRef>,
        recv: impl Into<CqRef>,
        options: QpOptions,
    ) -> Result<Queued<Qp>, Error> {
        if !Arc::ptr_eq(&pd.0.device, &self.device) {
            return Err(Error::Foreign);
        }
        let (pd, send, recv) = (pd.clone(), send.into(), recv.into());
        let slot = Arc::new(OnceLock::new());
        let created = slot.clone();
        let object = Created::Qp(slot);
        self.post(id, ControlOp::CreateQp, object, move || {
            let device = &pd.0.device;
            let (send, recv) = (send.resolve(device)?, recv.resolve(device)?);
            let qp = Qp::new(&pd, &send, &recv, options)?;
            // Set once: a request is executed once.
            let _ = created.set(Arc::downgrade(&qp.0));
            Ok(qp)
        })
    }

    /// Queues a transition of a queue pair, which an earlier request of this control queue pair may create. It fails if the transition
    /// is not allowed when it is executed, or the queue pair is gone by then.
    ///
    /// ```
    /// use verbena::Device;
    /// use verbena::low::{Qp, QpOptions, QpState};
    /// let device = Device::open()?;
    /// let (pd, cq) = (device.pd()?, device.cq(64)?);
    /// let control = device.control_queue(4)?;
    /// let qp = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
    /// control.modify_qp(1, &qp, QpState::Init)?.wait()?;
    /// assert_eq!(qp.state(), QpState::Init);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn modify_qp(
        &self,
        id: u64,
        qp: impl Into<QpRef>,
        to: QpState,
    ) -> Result<Queued<()>, Error> {
        let qp = qp.into();
        self.post(id, ControlOp::ModifyQp, Created::Nothing, move || {
            Ok(qp.resolve()?.qp.modify(to)?)
        })
    }

    /// Queues the destruction of a queue pair. Returns it if the request cannot be queued.
    ///
    /// ```
    /// use verbena::Device;
    /// use verbena::low::{Qp, QpOptions};
    /// let device = Device::open()?;
    /// let (pd, cq) = (device.pd()?, device.cq(64)?);
    /// let control = device.control_queue(4)?;
    /// let qp = Qp::new(&pd, &cq, &cq, QpOptions::default())?;
    /// control.destroy_qp(1, qp).map_err(|(_, error)| error)?.wait()?;
    /// assert_eq!(device.used().qps, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn destroy_qp(&self, id: u64, qp: Qp) -> Result<Queued<()>, (Qp, Error)> {
        self.post_removal(id, ControlOp::DestroyQp, qp, |qp| {
            drop(qp);
            Ok(())
        })
    }

    /// Queues the destruction of a completion queue. If queue pairs use it when the request is executed, the request fails, and the
    /// queue is destroyed after the last of them. Returns it if the request cannot be queued.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let control = device.control_queue(4)?;
    /// let cq = device.cq(64)?;
    /// control.destroy_cq(1, cq).map_err(|(_, error)| error)?.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn destroy_cq(&self, id: u64, cq: Cq) -> Result<Queued<()>, (Cq, Error)> {
        self.post_removal(id, ControlOp::DestroyCq, cq, |cq| {
            let (object, number) = (Object::Cq, cq.number());
            let users = cq.device.engine.function().query_cq(number)?.users;
            if users == 0 {
                return Ok(());
            }
            Err(in_use(object, number, users))
        })
    }

    /// Allocates memory and queues its registration. The memory can be used at once, as with [`Pd::memory_async`]: work that needs it
    /// waits until the request was executed.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let device = Device::open()?;
    /// let control = device.control_queue(4)?;
    /// let (memory, registering) = control.register(1, &device.pd()?, 1 << 20, Access::ALL)?;
    /// memory.write_at(0, b"at once")?;
    /// registering.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn register(
        &self,
        id: u64,
        pd: &Pd,
        len: usize,
        access: Access,
    ) -> Result<(Memory, Registering), Error> {
        Memory::new_queued(&pd.0, len, access, self.queue_for(pd, id)?)
    }

    /// Queues another registration of memory, with a domain and rights of its own, as [`Memory::share`] makes it. The registration of the memory itself
    /// may be queued; if it was deregistered when the request is executed, the request fails.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let device = Device::open()?;
    /// let (owner, reader, control) = (device.pd()?, device.pd()?, device.control_queue(4)?);
    /// let (memory, _) = control.register(1, &owner, 1 << 20, Access::LOCAL_WRITE)?;
    /// let (view, registering) = control.share(2, &memory, &reader, Access::REMOTE_READ)?;
    /// registering.wait()?;
    /// memory.write_at(0, b"one copy")?;
    /// assert_eq!(view.get::<[u8; 8]>(0)?, *b"one copy");
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn share(
        &self,
        id: u64,
        memory: &Memory,
        pd: &Pd,
        access: Access,
    ) -> Result<(Memory, Registering), Error> {
        memory.share_queued(&pd.0, access, self.queue_for(pd, id)?)
    }

    /// Queues the allocation of a window. Requests that bind it can be made and posted at once: they wait until it was allocated.
    ///
    /// ```
    /// use verbena::Device;
    /// use verbena::mr::WindowType;
    /// let device = Device::open()?;
    /// let (pd, control) = (device.pd()?, device.control_queue(4)?);
    /// let (window, allocating) = control.allocate_window(1, &pd, WindowType::TwoB)?;
    /// allocating.wait()?;
    /// control.deallocate_window(2, window).map_err(|(_, error)| error)?.wait()?;
    /// assert_eq!(device.used().stags, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn allocate_window(
        &self,
        id: u64,
        pd: &Pd,
        ty: WindowType,
    ) -> Result<(Window, Registering), Error> {
        Window::new_queued(pd, ty, self.queue_for(pd, id)?)
    }

    /// Queues the deallocation of a window, bound or not. Returns it if the request cannot be queued.
    ///
    /// ```
    /// use verbena::Device;
    /// use verbena::mr::WindowType;
    /// let device = Device::open()?;
    /// let window = device.pd()?.window(WindowType::One)?;
    /// let control = device.control_queue(4)?;
    /// control.deallocate_window(1, window).map_err(|(_, error)| error)?.wait()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn deallocate_window(
        &self,
        id: u64,
        window: Window,
    ) -> Result<Queued<()>, (Window, Error)> {
        self.post_removal(id, ControlOp::Deregister, window, |window| {
            drop(window);
            Ok(())
        })
    }

    /// Queues the deregistration of memory of the program, which may be freed after the request was executed; windows that are bound to it are
    /// deallocated. Returns it if the request cannot be queued. [`register_mr`](ControlQueue::register_mr) has an example.
    pub fn deregister_mr(&self, id: u64, mr: Mr) -> Result<Queued<()>, (Mr, Error)> {
        self.post_removal(id, ControlOp::Deregister, mr, |mr| {
            drop(mr);
            Ok(())
        })
    }

    /// For a request with this id on an object of this domain.
    pub(crate) fn queue_for(&self, pd: &Pd, id: u64) -> Result<(&EngineControlQueue, u64), Error> {
        if !Arc::ptr_eq(&pd.0.device, &self.device) {
            return Err(Error::Foreign);
        }
        Ok((&self.queue, id))
    }

    /// Queues the deregistration of memory, which is then freed. Fails, and returns it, if there are other handles of it or the
    /// request cannot be queued. Memory whose registration is queued may be deregistered.
    ///
    /// ```
    /// use verbena::{Access, Device};
    /// let device = Device::open()?;
    /// let control = device.control_queue(4)?;
    /// let (memory, _) = control.register(1, &device.pd()?, 4096, Access::ALL)?;
    /// control.deregister(2, memory).map_err(|(_, error)| error)?.wait()?;
    /// assert_eq!(device.used().stags, 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn deregister(&self, id: u64, memory: Memory) -> Result<Queued<()>, (Memory, Error)> {
        let others = memory.other_handles();
        if others > 0 {
            let number = memory.remote().remote_addr().stag.get();
            let error = in_use(Object::Stag, number, others);
            return Err((memory, error));
        }
        self.post_removal(id, ControlOp::Deregister, memory, |memory| {
            drop(memory);
            Ok(())
        })
    }

    /// Queues a request that takes an object; returns the object if it cannot be queued.
    fn post_removal<T: Send + 'static>(
        &self,
        id: u64,
        op: ControlOp,
        object: T,
        remove: impl FnOnce(T) -> Result<(), Error> + Send + 'static,
    ) -> Result<Queued<()>, (T, Error)> {
        let kept = Arc::new(Mutex::new(Some(object)));
        let taken = kept.clone();
        let posted = self.post(id, op, Created::Nothing, move || {
            let object = taken.lock().take();
            object.map_or_else(|| Err(not_there()), remove)
        });
        let error = match posted {
            Ok(queued) => return Ok(queued),
            Err(error) => error,
        };
        let object = kept.lock().take();
        match object {
            Some(object) => Err((object, error)),
            // Not reached: a request that was not queued does not take the object.
            None => Ok(Queued {
                result: Promise::pair().1,
                object: Created::Nothing,
            }),
        }
    }

    fn post<T: Send + 'static>(
        &self,
        id: u64,
        op: ControlOp,
        object: Created,
        execute: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<Queued<T>, Error> {
        let (promise, result) = Promise::pair();
        let executed = Arc::new(Mutex::new(None));
        let outcome = executed.clone();
        let task = move || {
            let outcome = execute();
            let done = outcome.is_ok();
            *executed.lock() = Some(outcome);
            done
        };
        // Called when the request is over and no lock is held: the thread or task that waits may drop the control queue pair.
        let callback = move |ended: Result<(), verbena_engine::Error>| {
            let outcome = outcome.lock().take();
            let closed = || Err(ended.err().unwrap_or(verbena_engine::Error::Closed).into());
            promise.fulfill(outcome.unwrap_or_else(closed));
        };
        let (task, callback) = (Box::new(task), Box::new(callback));
        self.queue.run(id, op, task, Some(callback))?;
        Ok(Queued { result, object })
    }
}

fn in_use(object: Object, number: u32, users: u32) -> Error {
    let error = verbena_nic::Error::InUse {
        object,
        number,
        users,
    };
    error.into()
}

impl fmt::Debug for ControlQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ControlQueue").field(&self.number()).finish()
    }
}

macro_rules! impl_debug {
    ($($name:ty)*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}
impl_debug!(CqRef QpRef);

impl<T> fmt::Debug for Queued<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queued").finish_non_exhaustive()
    }
}
