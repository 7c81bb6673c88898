//! Entries of simulated pollers: added, armed, removed, and reported.
//! A one-shot entry is disarmed when it is reported; closing the last descriptor of an object removes its entries.

use std::os::fd::RawFd;

use rustix::io::Errno;

use super::world::{Object, State, Watch, World};
use crate::sys::{Interest, Ready};

impl World {
    fn poller(&mut self, fd: RawFd) -> Result<&mut Vec<Watch>, Errno> {
        let id = self.id(fd).ok_or(Errno::BADF)?;
        match self.objects.get_mut(&id).map(|entry| &mut entry.object) {
            Some(Object::Poller(watches)) => Ok(watches),
            _ => Err(Errno::INVAL),
        }
    }

    pub(in crate::sys) fn add_watch(
        &mut self,
        poller: RawFd,
        fd: RawFd,
        token: u64,
        interest: Interest,
    ) -> Result<(), Errno> {
        let object = self.id(fd).ok_or(Errno::BADF)?;
        let watches = self.poller(poller)?;
        if watches.iter().any(|w| w.fd == fd && w.object == object) {
            return Err(Errno::EXIST);
        }
        watches.push(Watch {
            fd,
            object,
            token,
            interest,
            armed: true,
        });
        Ok(())
    }

    pub(in crate::sys) fn change_watch(
        &mut self,
        poller: RawFd,
        fd: RawFd,
        token: u64,
        interest: Interest,
    ) -> Result<(), Errno> {
        let object = self.id(fd).ok_or(Errno::BADF)?;
        let watches = self.poller(poller)?;
        let found = watches
            .iter_mut()
            .find(|w| w.fd == fd && w.object == object);
        let watch = found.ok_or(Errno::NOENT)?;
        (watch.token, watch.interest, watch.armed) = (token, interest, true);
        Ok(())
    }

    pub(in crate::sys) fn remove_watch(&mut self, poller: RawFd, fd: RawFd) -> Result<(), Errno> {
        let object = self.id(fd).ok_or(Errno::BADF)?;
        let watches = self.poller(poller)?;
        let before = watches.len();
        watches.retain(|w| w.fd != fd || w.object != object);
        if watches.len() == before {
            return Err(Errno::NOENT);
        }
        Ok(())
    }

    /// What a poller would report of this descriptor now.
    pub(super) fn watch_state(&self, watch: &Watch) -> Option<State> {
        if !watch.armed {
            return None;
        }
        let state = self.object_state(watch.object);
        let ready = State {
            readable: state.hangup || state.readable && watch.interest.read,
            writable: state.hangup || state.writable && watch.interest.write,
            hangup: state.hangup,
        };
        (ready.readable || ready.writable).then_some(ready)
    }

    /// Reports at most `limit` ready entries, and disarms the one-shot ones among them.
    pub(in crate::sys) fn take_ready(&mut self, poller: RawFd, limit: usize) -> Vec<Ready> {
        let random = self.random() as usize;
        let Ok(watches) = self.poller(poller) else {
            return Vec::new();
        };
        let mut watches = core::mem::take(watches);
        let mut ready = Vec::new();
        let count = watches.len();
        for at in 0..count {
            let watch = &mut watches[(at + random % count) % count];
            if ready.len() == limit {
                break;
            }
            if let Some(state) = self.watch_state(watch) {
                watch.armed = !watch.interest.oneshot;
                ready.push(Ready {
                    token: watch.token,
                    readable: state.readable,
                    writable: state.writable,
                    hangup: state.hangup,
                });
            }
        }
        if let Ok(place) = self.poller(poller) {
            *place = watches;
        }
        ready
    }
}
