//! A completion queue of the low layer: poll into an array, or sleep until there is something to poll.
//! It promises that who arms, polls once more and then sleeps is woken, by its descriptor or by [`Cq::wait`].
//! It refuses to allocate and to interpret completions.

mod bare;

pub use bare::BareCq;

use core::fmt;
use core::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbena_engine::sys::{Beside, Channel};
use verbena_engine::{CompletionQueue, Watched};
use verbena_nic::{Arm, Wc};

use crate::device::Inner;
use crate::error::Error;

/// How long a thread polls before it goes to sleep: about what waking it would take.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

/// A completion queue. Its descriptor is readable when it was armed and has got a completion since.
///
/// ```
/// use verbena::low::{Arm, BLANK};
/// let device = verbena::Device::open()?;
/// let cq = device.cq(64)?;
/// let mut completions = [BLANK; 16];
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
        Cq::around(device, device.engine.create_cq(entries)?)
    }

    pub(crate) fn around(device: &Arc<Inner>, queue: CompletionQueue) -> Result<Cq, Error> {
        let channel = Arc::new(Channel::new()?);
        queue.listen(Some(channel.clone()));
        let bare = BareCq::around(device, queue);
        Ok(Cq { bare, channel })
    }

    /// Takes one notification off the descriptor, waiting for it unless the program made the descriptor non-blocking;
    /// false if it did and there is none.
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

    /// Sleeps until the armed queue tells of a completion, one of the program's own descriptors is ready, or the time is over;
    /// what feeds the queue is served meanwhile. True if it told; the others are marked in any case.
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
        others: &mut [Beside<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, Error> {
        self.bare.device.engine.check_waits()?;
        let cq = || [self.watched()];
        Ok(Watched::wait_beside(&self.channel, cq, others, timeout)?)
    }

    /// Sleeps until there is a completion, one of the program's own descriptors is ready, a signal comes or the time is over; what feeds
    /// the queue is served meanwhile. The queue need not be armed; afterwards it may be. One thread at a time sleeps so: another one that
    /// armed the queue may not be told.
    ///
    /// ```
    /// use std::time::Duration;
    /// let cq = verbena::Device::open()?.cq(64)?;
    /// cq.sleep_until_some(&mut [], Duration::from_millis(1))?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn sleep_until_some(
        &self,
        others: &mut [Beside<'_>],
        timeout: Duration,
    ) -> Result<(), Error> {
        Ok(self.bare.queue.sleep(&self.channel, others, timeout)?)
    }

    /// Takes completions, and waits for one if there is none: polls for a little while, then sleeps.
    ///
    /// ```no_run
    /// # let cq = verbena::Device::open()?.cq(64)?;
    /// let mut completions = [verbena::low::BLANK; 16];
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
            // A notification of an earlier arming may be left: then this is one round more.
            self.take_notification()?;
        }
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
