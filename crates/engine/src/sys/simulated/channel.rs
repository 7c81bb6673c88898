//! The simulated eventfd of a completion or event channel: one ring is one event.
//! It always blocks, as a channel does whose descriptor the program left alone.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use verbena_sync::thread::thread_local;

use super::Result;
use super::simulated::{Descriptor, Event, Object, World, block, point, wake, with};

/// A channel's descriptor.
#[derive(Debug)]
pub struct Channel {
    fd: Descriptor,
    /// Distinguishes it from other channels.
    id: u64,
}

/// A duplicate of a channel's descriptor, which stays valid when the channel is closed.
#[derive(Debug)]
pub struct ChannelDup {
    fd: Descriptor,
    id: u64,
}

impl ChannelDup {
    /// Whether it belongs to this channel.
    pub fn is_of(&self, channel: &Channel) -> bool {
        self.id == channel.id
    }
}

impl AsFd for ChannelDup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

thread_local! {
    /// The channel whose rings this thread catches, and how many it has caught.
    static CAUGHT: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

/// Takes one ring, if there is one.
fn take_one(world: &mut World, fd: RawFd) -> bool {
    match world.event(fd) {
        Some(event) if event.count > 0 => {
            event.count -= 1;
            true
        }
        _ => false,
    }
}

impl Channel {
    /// A channel without rings.
    pub fn new() -> Result<Channel> {
        // The numbers only have to differ, so they go on from run to run.
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let fd = Descriptor::new(Object::Event(Event::default()))?;
        Ok(Channel { fd, id })
    }

    /// Duplicates the descriptor.
    pub fn duplicate(&self) -> Result<ChannelDup> {
        let (fd, id) = (self.fd.duplicate()?, self.id);
        Ok(ChannelDup { fd, id })
    }

    /// Runs `work` and returns whether this thread rang the channel meanwhile: one ring counts as taken.
    pub fn catch_rings(&self, work: impl FnOnce()) -> bool {
        CAUGHT.with(|caught| caught.set((self.id, 0)));
        work();
        let (_, rings) = CAUGHT.with(|caught| caught.replace((0, 0)));
        for _ in 1..rings {
            self.ring();
        }
        rings > 0
    }

    fn is_caught(&self) -> bool {
        let count = |catches: &Cell<(u64, u32)>| match catches.get() {
            (id, rings) if id == self.id => {
                catches.set((id, rings + 1));
                true
            }
            _ => false,
        };
        CAUGHT.try_with(count).unwrap_or(false)
    }

    fn add(&self, rings: u64) {
        point();
        with(|world| {
            if let Some(event) = world.event(self.fd.raw()) {
                event.count = event.count.saturating_add(rings);
            }
        });
        wake();
    }

    /// Adds a ring.
    pub fn ring(&self) {
        if !self.is_caught() {
            self.add(1);
        }
    }

    /// Ends every wait from now on, by more rings than can be taken.
    pub fn ring_forever(&self) {
        self.add(u64::MAX / 4);
    }

    /// Waits for a ring and takes it.
    pub fn take(&self) -> Result<bool> {
        let fd = self.fd.raw();
        loop {
            block("read of a channel", None, move |world| {
                world.state(fd).readable
            });
            if with(|world| take_one(world, fd)) {
                return Ok(true);
            }
        }
    }

    /// Whether taking blocks.
    pub fn is_blocking(&self) -> bool {
        true
    }

    /// Waits until there is a ring, or one of these descriptors is readable; true in the first case.
    pub fn wait_with_fds(&self, others: &[RawFd]) -> Result<bool> {
        let (own, others) = (self.fd.raw(), others.to_vec());
        block("poll of a channel", None, move |world| {
            let mut all = others.iter().chain([&own]);
            all.any(|fd| world.state(*fd).readable)
        });
        Ok(with(|world| world.state(own).readable))
    }

    /// Takes one ring if there is one.
    pub fn try_take(&self) -> bool {
        point();
        with(|world| take_one(world, self.fd.raw()))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
