//! A completion queue of the low layer: poll into an array, or sleep until there is something to poll.
//! It promises that who arms, polls once more and then sleeps is woken, by its descriptor or by [`Cq::wait`].
//! It refuses to allocate and to interpret completions.

use core::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbena_engine::CompletionQueue;
use verbena_engine::sys::Channel;
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
    pub(crate) queue: CompletionQueue,
    channel: Arc<Channel>,
    pub(crate) device: Arc<Inner>,
}

impl Cq {
    pub(crate) fn new(device: &Arc<Inner>, entries: usize) -> Result<Cq, Error> {
        Cq::around(device, device.engine.create_cq(entries)?)
    }

    pub(crate) fn around(device: &Arc<Inner>, queue: CompletionQueue) -> Result<Cq, Error> {
        let channel = Arc::new(Channel::new()?);
        queue.listen(Some(channel.clone()));
        Ok(Cq {
            queue,
            channel,
            device: device.clone(),
        })
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
        Ok(self.channel.take()?)
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
            self.channel.take()?;
        }
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

impl AsFd for Cq {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cq").field(&self.queue.number()).finish()
    }
}
