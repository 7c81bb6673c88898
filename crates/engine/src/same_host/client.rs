//! The initiator's local connection: connects to the peer's socket, sends an offer with the rings, and waits for the answer.
//! All of it happens on one shard, and ends within the time limit. If the peer's backlog is full, it tries again.

use core::time::Duration;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use verbena_mem::Mapping;
use verbena_ring::{Layout, RingMemory};
use verbena_stream::Time;
use verbena_sync::locks::Mutex;

use super::message::{Kind, LEN, Message};
use super::{
    Folder, NoRings, RingEnds, RingWaiter, Token, can_read, probe_word, rings_in, send, socket_name,
};
use crate::core::Core;
use crate::error::Error;
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Doorbell, Interest, PacketChannel, Ready};

/// The first interval between two attempts to connect; each further one is twice as long.
const RETRY: Duration = Duration::from_millis(1);

/// An offer that is being made.
pub(super) struct Offering {
    shard: Arc<Shard>,
    token: u64,
    own: Token,
    peer: Token,
    layout: Layout,
    /// Where the peer's socket is if its abstract name is in another network namespace.
    folder: Folder,
    waiter: Weak<dyn RingWaiter>,
    deadline: Time,
    state: Mutex<State>,
}

enum State {
    /// Not connected; the next interval after an attempt that fails.
    Connecting(Duration),
    /// Waits for the answer.
    Offered(Offered),
    Done,
}

struct Offered {
    channel: PacketChannel,
    rings: (RingMemory, RingMemory),
    doorbell: Doorbell,
    peer_pid: Option<u32>,
}

impl Offering {
    pub(super) fn start(
        core: &Core,
        (own, peer): (Token, Token),
        (layout, folder): (Layout, Folder),
        waiter: Weak<dyn RingWaiter>,
        limit: Duration,
    ) -> Result<(), Error> {
        let shard = core.shards.pick()?;
        let now = sys::now();
        let offering = Arc::new(Offering {
            shard: shard.clone(),
            token: next_token(),
            own,
            peer,
            layout,
            folder,
            waiter,
            deadline: now + limit,
            state: Mutex::new(State::Connecting(RETRY)),
        });
        shard.serve(offering.token, offering.clone())?;
        shard.set_timer(offering.deadline, offering.token);
        // The first attempt is the shard's, as everything else.
        shard.set_timer(now, offering.token);
        Ok(())
    }

    /// Connects to the abstract name, or to the file of this name.
    fn channel(&self) -> sys::Result<PacketChannel> {
        let name = socket_name(self.peer.socket);
        match (PacketChannel::connect(&name), &self.folder) {
            (Err(error), Some(Ok(folder))) if error.is_refused() => folder.connect(&name),
            (connected, _) => connected,
        }
    }

    /// Connects and sends the offer. None: the backlog is full, and a timer is set.
    fn attempt(&self, retry: Duration, now: Time) -> Result<Option<Offered>, NoRings> {
        let channel = match self.channel() {
            Ok(channel) => channel,
            Err(error) if error.code() == libc::EAGAIN => {
                self.shard.set_timer(now + retry, self.token);
                return Ok(None);
            }
            Err(error) => {
                let folder = self
                    .folder
                    .as_ref()
                    .and_then(|folder| folder.as_ref().err());
                return Err(
                    folder.map_or(NoRings::Unreachable(error), |error| NoRings::Folder(*error))
                );
            }
        };
        let peer_pid = channel.peer_process();
        let mapping = Mapping::new(self.layout.pair_len())?;
        let doorbell = Doorbell::new()?;
        let offer = Message {
            kind: Kind::Offer(self.layout.capacity() as u64),
            secret: self.peer.secret,
            probe: probe_word(),
        };
        let fds = [mapping.fd(), doorbell.as_fd()];
        send(&channel, &offer, &fds)?;
        let rings = rings_in(mapping, self.layout)?;
        Ok(Some(Offered {
            channel,
            rings,
            doorbell,
            peer_pid,
        }))
    }

    /// Reads the answer; none if there is none yet.
    fn answer(&self, offered: &Offered) -> Result<Option<(Doorbell, bool)>, NoRings> {
        let mut bytes = [0; LEN];
        let received = offered.channel.receive_with_fds(&mut bytes);
        let mut fds = match received {
            Ok(Some(fds)) => fds,
            Ok(None) => return Ok(None),
            Err(error) if error.code() == libc::EMSGSIZE => return Err(NoRings::Malformed),
            Err(_) => return Err(NoRings::Closed),
        };
        let answer = Message::parse(&bytes).ok_or(NoRings::Malformed)?;
        let doorbell = fds.pop().filter(|_| fds.is_empty());
        let (Kind::Answer, Some(doorbell)) = (answer.kind, doorbell) else {
            return Err(NoRings::Malformed);
        };
        // One comparison of two words: its time does not depend on how many bits are right.
        if answer.secret != self.own.secret {
            return Err(NoRings::WrongSecret);
        }
        let doorbell = Doorbell::adopt(doorbell)?;
        Ok(Some((doorbell, can_read(offered.peer_pid, answer.probe))))
    }

    /// Nothing is served any more; true for the first call.
    fn end(&self) -> Option<State> {
        let state = core::mem::replace(&mut *self.state.lock(), State::Done);
        if let State::Done = state {
            return None;
        }
        if let State::Offered(offered) = &state {
            self.shard.unwatch(&offered.channel);
        }
        self.shard.cancel_timer(self.deadline, self.token);
        self.shard.forget(self.token);
        Some(state)
    }

    fn fail(&self, why: NoRings) {
        let Some(state) = self.end() else {
            return;
        };
        if let State::Offered(offered) = state {
            // The peer may have taken them.
            offered.rings.0.into_producer().close();
        }
        if let Some(waiter) = self.waiter.upgrade() {
            waiter.rings_failed(why);
        }
    }

    fn connect(&self, now: Time) {
        let mut state = self.state.lock();
        let State::Connecting(retry) = *state else {
            return;
        };
        *state = State::Connecting(retry * 2);
        let made = self.attempt(retry, now);
        match made {
            Ok(None) => {}
            Ok(Some(offered)) => {
                let watched = self
                    .shard
                    .watch(&offered.channel, self.token, Interest::READ);
                *state = State::Offered(offered);
                drop(state);
                if let Err(error) = watched {
                    self.fail(error.into());
                }
            }
            Err(why) => {
                drop(state);
                self.fail(why);
            }
        }
    }
}

impl ShardTask for Offering {
    fn ready(self: Arc<Self>, _: Ready) {
        let state = self.state.lock();
        let State::Offered(offered) = &*state else {
            return;
        };
        let answer = self.answer(offered);
        drop(state);
        match answer {
            Ok(None) => {}
            Err(why) => self.fail(why),
            Ok(Some((doorbell_out, reads_peer))) => {
                if let Some(State::Offered(offered)) = self.end()
                    && let Some(waiter) = self.waiter.upgrade()
                {
                    let (tx, rx) = offered.rings;
                    waiter.rings_ready(RingEnds {
                        tx: tx.into_producer(),
                        rx: rx.into_consumer(),
                        doorbell_in: offered.doorbell,
                        doorbell_out,
                        peer_pid: offered.peer_pid,
                        reads_peer,
                    });
                }
            }
        }
    }

    fn expire(self: Arc<Self>, now: Time) {
        // The first attempt is made even if the shard was late.
        let first = matches!(*self.state.lock(), State::Connecting(RETRY));
        if now >= self.deadline && !first {
            self.fail(NoRings::TimedOut);
        } else {
            self.connect(now);
        }
    }

    fn stop(self: Arc<Self>) {
        self.fail(NoRings::Stopped);
    }
}
