//! The TCP connection of an upper-layer protocol and its queue pair, a member of the group of its receive completion queue.
//! The shard or a polling thread serves it; the queue pair serializes both directions, so bytes move in order. It is closed when the
//! queue pair has ended. A timer of the group's shard runs only for a queue pair that has a deadline.

use core::net::SocketAddr;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use verbena_nic::{Outbox, QpState, Receiving, Sending, UlpQp};
use verbena_stream::Time;
use verbena_sync::locks::{Mutex, RwLock};

use crate::core::Core;
use crate::error::Error;
use crate::notify::packet_addresses::PacketAddresses;
use crate::poll::group::{Group, Member};
use crate::poll::shard::{ShardTask, next_token};
use crate::poll::watch::{Watch, WatchedBy};
use crate::sys::{self, Ready, Socket};

/// Calls of `receive` per turn on a shard, before other members have theirs.
const READS: usize = 16;
/// Calls of `receive` per turn of a polling thread: each is one PDU of data, and the answers leave together.
const POLL_READS: usize = 32;

/// A connection and its queue pair.
pub(crate) struct UlpStream {
    /// For the shard, which keeps what it has a timer for.
    own: Weak<UlpStream>,
    core: Arc<Core>,
    token: u64,
    socket: Socket,
    number: u32,
    pub(crate) qp: Arc<dyn UlpQp>,
    group: Arc<Group>,
    /// The readiness that the group watches the socket for.
    watch: Watch,
    packet: PacketAddresses,
    timer: Mutex<Timer>,
}

/// The timer of a stream.
#[derive(Debug, Default)]
struct Timer {
    /// When it expires, if it is set.
    set: Option<Time>,
    /// The shard knows the stream.
    served: bool,
    /// The stream is closed: the timer is not set any more.
    closed: bool,
}

impl UlpStream {
    /// Adds the stream to the group, which serves it from now on.
    pub(crate) fn open(
        core: &Arc<Core>,
        socket: Socket,
        (number, qp): (u32, Arc<dyn UlpQp>),
        group: &Arc<Group>,
    ) -> Result<Arc<UlpStream>, Error> {
        let stream = Arc::new_cyclic(|own| UlpStream {
            own: own.clone(),
            core: core.clone(),
            token: next_token(),
            socket,
            number,
            qp,
            group: group.clone(),
            watch: Watch::new(WatchedBy::Group),
            packet: PacketAddresses::new(),
            timer: Mutex::default(),
        });
        core.routes.ulps.add(&stream);
        group.join(stream.clone());
        let watched = stream.watch.lock().apply(group, &*stream);
        if let Err(error) = watched {
            stream.close();
            return Err(error.into());
        }
        Ok(stream)
    }

    /// Transmits what may be sent, unless another thread is transmitting: that one will send it.
    pub(crate) fn send(&self, out: &mut Outbox) {
        self.send_at(sys::now(), out);
    }

    fn send_at(&self, now: Time, out: &mut Outbox) {
        self.begin_packet(out);
        self.transmit(now, out);
        out.end_packet();
        self.update_timer();
    }

    /// Events that are added from now on are raised with the addresses of the connection, if events are steered by them (E8).
    #[inline]
    fn begin_packet(&self, out: &mut Outbox) {
        let ends = || {
            Some((
                self.socket.peer_addr().ok()?,
                self.socket.local_addr().ok()?,
            ))
        };
        let steered = self.core.notification.steers_packets();
        self.packet.begin(steered, ends, out);
    }

    fn transmit(&self, now: Time, out: &mut Outbox) {
        loop {
            let sent = self.qp.try_transmit(&mut &self.socket, now, out);
            match sent {
                None => return,
                Some(Sending::Blocked) => {
                    self.watch.want_room(&self.group, self, true);
                    return;
                }
                // Another thread that found no room may have registered write interest before this cleared it: try again.
                Some(Sending::Idle) if self.watch.want_room(&self.group, self, false) => {}
                Some(Sending::Idle) => return,
                Some(Sending::Ended) => return self.close(),
            }
        }
    }

    /// Resumes reading if it was stopped for lack of a receive.
    pub(crate) fn resume(&self, out: &mut Outbox) {
        if self.watch.is_read_disabled() {
            self.turn(out);
        }
    }

    fn read(&self, times: usize, now: Time, out: &mut Outbox) {
        self.begin_packet(out);
        self.read_input(times, now, out);
        out.end_packet();
    }

    fn read_input(&self, times: usize, now: Time, out: &mut Outbox) {
        let mut left = times;
        loop {
            let received = self.qp.receive(&mut &self.socket, now, out);
            let listens = match received {
                Receiving::Some(_) | Receiving::WouldBlock => true,
                Receiving::Held => false,
                Receiving::Ended => return self.close(),
            };
            left = left.saturating_sub(1);
            // A receive posted, or found missing, before the interest was changed was judged by the old interest: read again.
            let is_news = self.watch.want_input(&self.group, self, listens);
            let goes_on = left > 0 && matches!(received, Receiving::Some(_));
            if !goes_on && !is_news {
                return;
            }
        }
    }

    /// Sets the timer for the queue pair's deadline, unless it expires before.
    fn update_timer(&self) {
        let Some(when) = self.qp.deadline() else {
            return;
        };
        let mut timer = self.timer.lock();
        if timer.closed || timer.set.is_some_and(|set| set <= when) {
            return;
        }
        let shard = self.group.shard();
        if !timer.served {
            let Some(own) = self.own.upgrade() else {
                return;
            };
            // Fails only when the shard has ended, and the engine with it: no timer is needed any more.
            if shard.serve(self.token, own).is_err() {
                return;
            }
            timer.served = true;
        }
        if let Some(later) = timer.set.replace(when) {
            shard.cancel_timer(later, self.token);
        }
        shard.set_timer(when, self.token);
    }

    /// Cancels the timer, for good.
    fn stop_timer(&self) {
        let mut timer = self.timer.lock();
        timer.closed = true;
        let (set, served) = (timer.set.take(), core::mem::take(&mut timer.served));
        drop(timer);
        if let Some(when) = set {
            self.group.shard().cancel_timer(when, self.token);
        }
        if served {
            self.group.shard().forget(self.token);
        }
    }

    /// Our address and the peer's.
    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        (self.socket.local_addr().ok(), self.socket.peer_addr().ok())
    }

    /// Leaves the group and shuts down the sending direction; without effect if closed already.
    pub(crate) fn close(&self) {
        let mut watch = self.watch.lock();
        if core::mem::replace(&mut watch.watched_by, WatchedBy::None) == WatchedBy::None {
            return;
        }
        self.group.leave(self);
        drop(watch);
        self.stop_timer();
        self.core.routes.ulps.remove(self.number);
        // The connection may have failed already.
        let _ = self.socket.shutdown_write();
    }
}

impl Member for UlpStream {
    fn token(&self) -> u64 {
        self.token
    }

    fn sockets(&self) -> (&Socket, Option<&Socket>) {
        (&self.socket, None)
    }

    fn turn(&self, out: &mut Outbox) {
        let now = sys::now();
        self.read(READS, now, out);
        self.send_at(now, out);
    }

    fn poll_turn(&self, now: Time, out: &mut Outbox) -> bool {
        self.read(POLL_READS, now, out);
        self.send_at(now, out);
        false
    }

    fn send_deferred(&self, _: bool, _: &mut Outbox) {}

    fn can_coalesce(&self) -> bool {
        self.qp.can_coalesce()
    }

    fn awaits_several(&self) -> bool {
        self.qp.awaits_several()
    }

    fn begin_coalescing(&self, out: &mut Outbox) -> bool {
        let gathers = self.qp.raise_low_water(&mut &self.socket, out);
        self.send(out);
        gathers
    }

    fn end_coalescing(&self, out: &mut Outbox) {
        self.qp.restore_low_water(&mut &self.socket, out);
        self.send(out);
    }
}

impl ShardTask for UlpStream {
    /// Its socket is watched by the group.
    fn ready(self: Arc<Self>, _: Ready) {}

    fn expire(self: Arc<Self>, now: Time) {
        {
            let mut timer = self.timer.lock();
            // A timer that was replaced may expire although it was cancelled; then the other one is still set.
            if timer.set.is_some_and(|set| set <= now) {
                timer.set = None;
            }
        }
        let mut out = Outbox::new();
        if self.qp.deadline().is_some_and(|when| when <= now) {
            self.qp.handle_timeout(now, &mut out);
        }
        self.send_at(now, &mut out);
        self.core.deliver(&mut out);
    }

    fn stop(self: Arc<Self>) {}
}

impl core::fmt::Debug for UlpStream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("UlpStream")
            .field("qp", &self.number)
            .finish_non_exhaustive()
    }
}

/// All open streams of an engine, by queue pair number.
#[derive(Debug, Default)]
pub(crate) struct UlpStreams(RwLock<HashMap<u32, Weak<UlpStream>>>);

impl UlpStreams {
    fn add(&self, stream: &Arc<UlpStream>) {
        let weak = Arc::downgrade(stream);
        self.0.write().insert(stream.number, weak);
    }

    fn remove(&self, number: u32) {
        self.0.write().remove(&number);
    }

    /// Serves the queue pair of this number, which waited for memory to be resident (V5).
    pub(crate) fn resume(&self, number: u32, out: &mut Outbox) {
        if let Some(stream) = self.get(number) {
            // A turn and not only a send: the memory may be that of a receive.
            stream.turn(out);
        }
    }

    /// The stream of the queue pair of this number, while it is open.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<UlpStream>> {
        self.0.read().get(&number).and_then(Weak::upgrade)
    }

    /// All open streams.
    pub(crate) fn all(&self) -> Vec<Arc<UlpStream>> {
        self.0.read().values().filter_map(Weak::upgrade).collect()
    }

    /// Closes the streams whose queue pair has ended.
    pub(crate) fn sweep(&self, out: &mut Outbox) {
        for stream in self.all() {
            if stream.qp.state() == QpState::Err {
                stream.send(out);
            }
        }
    }
}
