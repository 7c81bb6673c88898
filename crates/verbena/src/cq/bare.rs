//! A completion queue without a descriptor, for programs with their own means of notification.
//! Completions are in order and each arming causes at most one notification. It has no call that waits; the program's [`Notify`] is
//! called instead.

use core::fmt;
use std::sync::Arc;

use verbena_engine::{CompletionQueue, CompletionQueueInfo, Notify, WeakCompletionQueue};
use verbena_nic::{Arm, CqOptions, Timestamp, Wc};

use crate::device::{Device, Inner};
use crate::error::Error;

/// A completion queue without a descriptor; a [`Cq`](crate::low::Cq) adds one.
///
/// ```
/// use std::sync::Arc;
/// let device = verbena::Device::open()?;
/// let cq = device.bare_cq(64)?;
/// cq.set_notify(Some(Arc::new(|| println!("something to poll"))));
/// cq.arm(verbena::low::Arm::Next);
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct BareCq {
    pub(crate) queue: CompletionQueue,
    pub(crate) device: Arc<Inner>,
}

impl Device {
    /// Creates a completion queue that calls the [`Notify`] set by [`listen`](BareCq::set_notify). Fails if the device's limit is reached.
    ///
    /// ```
    /// let cq = verbena::Device::open()?.bare_cq(64)?;
    /// assert_eq!(cq.poll(&mut [verbena::low::Wc::default(); 4]), 0);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn bare_cq(&self, entries: usize) -> Result<BareCq, Error> {
        let queue = self.inner().engine.create_cq(entries)?;
        Ok(BareCq::from_queue(self.inner(), queue))
    }
}

impl Device {
    /// The same with options: timestamps of completions, and what happens to completions for which there is no room.
    ///
    /// ```
    /// use verbena::low::CqOptions;
    /// use verbena::unstable::timestamp;
    /// let options = CqOptions { clock: Some(timestamp), ignore_overrun: true };
    /// let cq = verbena::Device::open()?.bare_cq_with(64, options)?;
    /// assert!(cq.poll_stamped().is_none());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn bare_cq_with(&self, entries: usize, options: CqOptions) -> Result<BareCq, Error> {
        let engine = &self.inner().engine;
        let queue = engine.create_cq_with_options(entries, options)?;
        Ok(BareCq::from_queue(self.inner(), queue))
    }
}

impl BareCq {
    pub(super) fn from_queue(device: &Arc<Inner>, queue: CompletionQueue) -> BareCq {
        BareCq {
            queue,
            device: device.clone(),
        }
    }

    /// Sets the callback for the next completion of the armed queue. It runs on the thread that completes the work, so it must not
    /// block. It replaces the descriptor of a [`Cq`], which is no longer notified.
    ///
    /// [`Cq`]: crate::low::Cq
    ///
    /// ```
    /// # let cq = verbena::Device::open()?.bare_cq(64)?;
    /// cq.set_notify(None);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn set_notify(&self, notify: Option<Arc<dyn Notify>>) {
        self.queue.set_notify(notify);
    }

    /// Its number, as in handlers and events.
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// assert_ne!(device.cq(64)?.number(), device.cq(64)?.number());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn number(&self) -> u32 {
        self.queue.number()
    }

    /// Its capacity, the completions that wait, whether any were lost, the number of queue pairs that complete here, and its handler (N1).
    ///
    /// ```
    /// # let device = verbena::Device::open()?;
    /// let cq = device.cq(64)?;
    /// let info = cq.query()?;
    /// assert_eq!((info.cq.waiting, info.cq.users, info.handler), (0, 0, None));
    /// assert!(info.cq.entries >= 64 && !info.cq.overflowed);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn query(&self) -> Result<CompletionQueueInfo, Error> {
        Ok(self.queue.query()?)
    }

    /// Takes the oldest completions, as many as `out` holds; returns how many.
    ///
    /// ```
    /// # let cq = verbena::Device::open()?.cq(64)?;
    /// let mut completions = [verbena::low::Wc::default(); 16];
    /// for wc in &completions[..cq.poll(&mut completions.clone())] {
    ///     println!("{wc:?}");
    /// }
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn poll(&self, out: &mut [Wc]) -> usize {
        self.queue.poll(out)
    }

    /// Takes the oldest completion, with the time at which the adapter wrote it; zeros if the queue was created without a clock.
    ///
    /// ```
    /// use verbena::low::CqOptions;
    /// use verbena::unstable::timestamp;
    /// let options = CqOptions { clock: Some(timestamp), ..CqOptions::default() };
    /// let cq = verbena::Device::open()?.bare_cq_with(64, options)?;
    /// while let Some((wc, written)) = cq.poll_stamped() {
    ///     println!("request {} was done at {} ns", wc.id, written.realtime);
    /// }
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn poll_stamped(&self) -> Option<(Wc, Timestamp)> {
        self.queue.poll_stamped()
    }

    /// Whether a poll would find something. If the queue is empty, its connections are served first, as a poll does.
    ///
    /// ```
    /// # let cq = verbena::Device::open()?.cq(64)?;
    /// assert!(!cq.peek());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn peek(&self) -> bool {
        self.queue.peek()
    }

    /// Asks for one notification. Poll once more afterwards: completions already in the queue do not notify.
    ///
    /// ```
    /// # let cq = verbena::Device::open()?.cq(64)?;
    /// cq.arm(verbena::low::Arm::Solicited);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn arm(&self, arm: Arm) {
        self.queue.arm(arm);
    }

    /// A handle for threads that sleep on the channel that this queue notifies ([`WeakCompletionQueue::wait`]) and serve the queue meanwhile.
    ///
    /// ```
    /// use verbena::unstable::{Channel, WeakCompletionQueue};
    /// use std::sync::Arc;
    /// let cq = verbena::Device::open()?.bare_cq(64)?;
    /// let channel = Arc::new(Channel::new()?);
    /// cq.set_notify(Some(channel.clone()));
    /// channel.ring();
    /// assert!(WeakCompletionQueue::wait(&channel, || [cq.downgrade()])?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn downgrade(&self) -> WeakCompletionQueue {
        self.queue.downgrade()
    }

    /// Changes the capacity; completions in the queue are kept.
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
