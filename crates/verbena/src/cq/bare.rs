//! A completion queue without a descriptor of its own: for programs that have a way of their own to be told.
//! It promises what every completion queue does: order, and one notification per arming.
//! It refuses to wait; whoever it tells may.

use core::fmt;
use std::sync::Arc;

use verbena_engine::{CompletionQueue, Notify, Watched};
use verbena_nic::{Arm, Wc};

use crate::device::{Device, Inner};
use crate::error::Error;

/// A completion queue without a descriptor; a [`Cq`](crate::Cq) is one with.
///
/// ```
/// use std::sync::Arc;
/// let device = verbena::Device::open()?;
/// let cq = device.bare_cq(64)?;
/// cq.listen(Some(Arc::new(|| println!("something to poll"))));
/// cq.arm(verbena::low::Arm::Next);
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct BareCq {
    pub(crate) queue: CompletionQueue,
    pub(crate) device: Arc<Inner>,
}

impl Device {
    /// A completion queue that tells whoever [`listen`](BareCq::listen)s to it.
    ///
    /// ```
    /// let cq = verbena::Device::open()?.bare_cq(64)?;
    /// assert_eq!(cq.poll(&mut [verbena::low::BLANK; 4]), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn bare_cq(&self, entries: usize) -> Result<BareCq, Error> {
        let queue = self.inner().engine.create_cq(entries)?;
        Ok(BareCq::around(self.inner(), queue))
    }
}

impl BareCq {
    pub(super) fn around(device: &Arc<Inner>, queue: CompletionQueue) -> BareCq {
        BareCq {
            queue,
            device: device.clone(),
        }
    }

    /// Who is told when the armed queue has a completion: on whatever thread noticed, so it must not wait. A [`Cq`]'s
    /// descriptor is told nothing any more.
    ///
    /// [`Cq`]: crate::Cq
    ///
    /// ```
    /// # let cq = verbena::Device::open()?.bare_cq(64)?;
    /// cq.listen(None);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn listen(&self, notify: Option<Arc<dyn Notify>>) {
        self.queue.listen(notify);
    }

    /// Its number, as handlers and events name it.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert_ne!(device.cq(64)?.number(), device.cq(64)?.number());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn number(&self) -> u32 {
        self.queue.number()
    }

    /// Takes the oldest completions, as many as `out` holds; returns how many.
    ///
    /// ```
    /// # let cq = verbena::Device::open()?.cq(64)?;
    /// let mut completions = [verbena::low::BLANK; 16];
    /// for wc in &completions[..cq.poll(&mut completions.clone())] {
    ///     println!("{wc:?}");
    /// }
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn poll(&self, out: &mut [Wc]) -> usize {
        self.queue.poll(out)
    }

    /// Whether a poll would find something; what feeds an empty queue is served as a poll does.
    ///
    /// ```
    /// # let cq = verbena::Device::open()?.cq(64)?;
    /// assert!(!cq.peek());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn peek(&self) -> bool {
        self.queue.peek()
    }

    /// Asks for one notification; poll once more afterwards, since what waits already does not notify.
    ///
    /// ```
    /// # let cq = verbena::Device::open()?.cq(64)?;
    /// cq.arm(verbena::low::Arm::Solicited);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn arm(&self, arm: Arm) {
        self.queue.arm(arm);
    }

    /// This queue, for threads that sleep on the channel that it tells ([`Watched::wait`]) and serve it meanwhile.
    ///
    /// ```
    /// use verbena::low::{Channel, Watched};
    /// use std::sync::Arc;
    /// let cq = verbena::Device::open()?.bare_cq(64)?;
    /// let channel = Arc::new(Channel::new()?);
    /// cq.listen(Some(channel.clone()));
    /// channel.ring();
    /// assert!(Watched::wait(&channel, || [cq.watched()])?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn watched(&self) -> Watched {
        self.queue.watched()
    }

    /// Changes its size; completions that wait stay.
    ///
    /// ```
    /// # let cq = verbena::Device::open()?.cq(64)?;
    /// cq.resize(1024)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn resize(&self, entries: usize) -> Result<(), Error> {
        Ok(self.queue.resize(entries)?)
    }
}

impl fmt::Debug for BareCq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BareCq").field(&self.number()).finish()
    }
}
