//! A completion queue of the low layer: poll into an array, or sleep until there is something to poll.
//! A thread that arms the queue, polls once more and then sleeps is woken, by the descriptor or in [`Cq::wait`].
//! Polling does not allocate and does not interpret completions.

mod bare;

pub use bare::BareCq;

use core::fmt;
use core::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbena_engine::sys::{Channel, WaitFd};
use verbena_engine::{CompletionQueue, WeakCompletionQueue};
use verbena_nic::{Arm, Wc};

use crate::device::{Device, Inner};
use crate::error::Error;

/// How long a thread polls before it sleeps: about as long as waking it would take.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

/// A completion queue with a descriptor, which is readable when the queue was armed and has received a completion since.
///
/// ```
/// use verbena::low::{Arm, Wc};
/// let device = verbena::Device::open()?;
/// let cq = device.cq(64)?;
/// let mut completions = [Wc::default(); 16];
/// assert_eq!(cq.poll(&mut completions), 0);
/// cq.arm(Arm::Next);
/// # Ok::<(), verbena::Error>(())
/// ```
pub struct Cq {
    bare: BareCq,
    channel: Arc<Channel>,
}

impl Cq {
    pub(crate) fn new(device: &Arc<Inner>, entries: usize) -> Result<Cq, Error> {
        Cq::from_queue(device, device.engine.create_cq(entries)?)
    }

    pub(crate) fn from_queue(device: &Arc<Inner>, queue: CompletionQueue) -> Result<Cq, Error> {
        let channel = Arc::new(Channel::new()?);
        queue.set_notify(Some(channel.clone()));
        let bare = BareCq::from_queue(device, queue);
        Ok(Cq { bare, channel })
    }

    /// Consumes one notification from the descriptor. Blocks until there is one; if the program made the descriptor non-blocking,
    /// returns false instead.
    ///
    /// ```no_run
    /// # let cq = verbena::Device::open()?.cq(64)?;
    /// cq.arm(verbena::low::Arm::Next);
    /// cq.take_notification()?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn take_notification(&self) -> Result<bool, Error> {
        self.bare.device.engine.check_waits()?;
        Ok(self.bare.queue.wait(&self.channel)?)
    }

    /// Sleeps until the armed queue notifies, one of the program's own descriptors is ready, or the timeout passes; the connections
    /// that complete in this queue are served meanwhile. Returns true if the queue notified; `others` is updated in any case.
    ///
    /// ```
    /// use std::time::Duration;
    /// let cq = verbena::Device::open()?.cq(64)?;
    /// cq.arm(verbena::low::Arm::Next);
    /// assert!(cq.peek() || !cq.sleep(&mut [], Some(Duration::from_millis(1)))?);
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn sleep(
        &self,
        others: &mut [WaitFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, Error> {
        self.bare.device.engine.check_waits()?;
        let cq = || [self.downgrade()];
        Ok(WeakCompletionQueue::wait_with_fds(
            &self.channel,
            cq,
            others,
            timeout,
        )?)
    }

    /// Sleeps until there is a completion, one of the program's own descriptors is ready, a signal arrives or the timeout passes; the
    /// connections that complete in this queue are served meanwhile. The queue need not be armed; afterwards it may be. Only one thread at
    /// a time may sleep here: another thread that armed the queue may miss its notification.
    ///
    /// ```
    /// use std::time::Duration;
    /// let cq = verbena::Device::open()?.cq(64)?;
    /// cq.sleep_until_completion(&mut [], Duration::from_millis(1))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn sleep_until_completion(
        &self,
        others: &mut [WaitFd<'_>],
        timeout: Duration,
    ) -> Result<(), Error> {
        Ok(self.bare.queue.sleep(&self.channel, others, timeout)?)
    }

    /// Polls completions, and waits for one if there is none: polls for 50 µs, then sleeps.
    ///
    /// ```no_run
    /// # let cq = verbena::Device::open()?.cq(64)?;
    /// let mut completions = [verbena::low::Wc::default(); 16];
    /// let n = cq.wait(&mut completions)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn wait(&self, out: &mut [Wc]) -> Result<usize, Error> {
        let end = Instant::now() + SPIN;
        while Instant::now() < end {
            let n = self.poll(out);
            if n > 0 || out.is_empty() {
                return Ok(n);
            }
            core::hint::spin_loop();
        }
        loop {
            self.arm(Arm::Next);
            let n = self.poll(out);
            if n > 0 {
                return Ok(n);
            }
            // A notification of an earlier arming may be left over: it costs one more iteration.
            self.take_notification()?;
        }
    }
}

impl Device {
    /// Creates a completion queue for the low layer.
    ///
    /// ```
    /// let device = verbena::Device::open()?;
    /// let cq = device.cq(128)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn cq(&self, entries: usize) -> Result<Cq, Error> {
        Cq::new(self.inner(), entries)
    }

    /// One of the completion queues that the device has from its initialization on (setting `initial_cqs`); `None` beyond the last of
    /// them. It is not destroyed with this handle, and keeps completions that are not polled. The handle that was created last has the
    /// notifications.
    ///
    /// ```
    /// let mut config = verbena::Config::default();
    /// config.set("initial_cqs", "2").map_err(verbena::Error::Config)?;
    /// let device = verbena::Device::with(config)?;
    /// assert_eq!(device.used().cqs, 2);
    /// let cq = device.initial_cq(1)?.expect("the second one");
    /// assert!(device.initial_cq(2)?.is_none());
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn initial_cq(&self, index: usize) -> Result<Option<Cq>, Error> {
        let queue = self.inner().initial_cq(index).cloned();
        let cq = queue.map(|queue| Cq::from_queue(self.inner(), queue));
        cq.transpose()
    }
}

impl Deref for Cq {
    type Target = BareCq;

    fn deref(&self) -> &BareCq {
        &self.bare
    }
}

impl AsFd for Cq {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cq").field(&self.number()).finish()
    }
}
