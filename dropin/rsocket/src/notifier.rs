//! How a thread waits for sockets: a descriptor of its own that every socket it watches signals. A thread that watches, arms, checks the
//! sockets and then waits misses no event; an old signal only costs one more check. An alarm belongs to one thread, and a forked child
//! gets a new one.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use verbena::unstable::Channel;

use crate::error::Error;

/// A thread's descriptor to wait on; readable when a socket that it watches may have changed.
#[derive(Debug, Clone)]
pub struct Notifier(Arc<Channel>);

thread_local! {
    /// With its process: a forked child must not consume its parent's signals.
    static CURRENT: RefCell<Option<(u32, Notifier)>> = const { RefCell::new(None) };
}

impl Notifier {
    pub(crate) fn new() -> Result<Notifier, Error> {
        let channel = Channel::new().map_err(verbena::Error::from)?;
        Ok(Notifier(Arc::new(channel)))
    }

    pub(crate) fn notify(&self) {
        self.0.ring();
    }

    /// The calling thread's alarm.
    pub fn current() -> Result<Notifier, Error> {
        let process = std::process::id();
        let mine = CURRENT
            .try_with(|mine| mine.borrow().clone())
            .ok()
            .flatten();
        if let Some((of, alarm)) = mine
            && of == process
        {
            return Ok(alarm);
        }
        let alarm = Notifier::new()?;
        // Thread-local storage is gone while the thread exits; the alarm then serves a single wait.
        let _ = CURRENT.try_with(|mine| mine.replace(Some((process, alarm.clone()))));
        Ok(alarm)
    }

    /// Clears earlier signals; check the sockets afterwards.
    pub fn clear(&self) {
        while self.0.try_take() {}
    }

    /// Waits for a signal. Without a deadline it blocks in a function of the C library, in which a signal may restart it and the thread
    /// may be cancelled, so no lock may be held. [`Error::WouldBlock`] when the deadline has passed.
    pub fn wait(&self, until: Option<Instant>) -> Result<(), Error> {
        let Some(until) = until else {
            return match self.0.take() {
                Ok(_) => Ok(()),
                Err(error) if error.code() == Errno::INTR.raw_os_error() => Err(Error::Interrupted),
                Err(error) => Err(verbena::Error::from(error).into()),
            };
        };
        let left = until.saturating_duration_since(Instant::now());
        match poll(
            &mut [PollFd::new(&self.0, PollFlags::IN)],
            Some(&timespec(left)),
        ) {
            Ok(0) => Err(Error::WouldBlock),
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Interrupted),
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The alarms that watch a socket.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<Vec<Arc<Channel>>>);

impl Waiters {
    /// Signals all of them. Does not block.
    pub(crate) fn notify(&self) {
        for channel in self.0.lock().iter() {
            channel.ring();
        }
    }

    pub(crate) fn add(self: &Arc<Waiters>, alarm: &Notifier) -> Watch {
        self.0.lock().push(alarm.0.clone());
        Watch {
            waiters: self.clone(),
            channel: alarm.0.clone(),
        }
    }
}

/// A socket signals an alarm as long as this lives.
#[derive(Debug)]
pub struct Watch {
    waiters: Arc<Waiters>,
    channel: Arc<Channel>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = self.waiters.0.lock();
        if let Some(at) = all.iter().position(|one| Arc::ptr_eq(one, &self.channel)) {
            all.swap_remove(at);
        }
    }
}
