//! A queue pair with hands: what is posted leaves at once, on the thread that posted it.
//! It promises that a poster never waits for the connection's lock and that destroying says the last words in the background.
//! It refuses to connect by itself: it is told where to, or handed a request that came.

mod by_hand;
mod manners;
mod moving;
mod parcel;
mod query;

pub use by_hand::Peer;
pub use manners::Manners;
pub use moving::{Departed, Destination, Unmoved};
pub use parcel::{Arriving, Parcel};
pub use query::QueuePairInfo;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_mem::Pd;
use verbena_nic::qp::{Enabled, Limits, PostError, Registration, View};
use verbena_nic::{NewQp, Outbox, Personality, Qp, QpState, QpType, ReceiveWr, SendWr};
use verbena_stream::RnrRetry;
use verbena_wire::ext::RnrTimer;

use crate::connection::{Connection, Done, Options, Slot};
use crate::core::Core;
use crate::error::Error;
use crate::queue::{CompletionQueue, Queue};
use crate::shared_sends::{Sends, SharedSendQueue};
use by_hand::Callable;

/// A queue pair to make.
#[derive(Debug, Clone, Copy)]
pub struct QueuePairOptions {
    /// What its completions call it, if not by its number.
    pub name: Option<u32>,
    /// Its domain.
    pub pd: Pd,
    /// Whose manners it has; the engine's if it does not say.
    pub personality: Option<Personality>,
    /// Reliable or unreliable.
    pub qp_type: QpType,
    /// A shared receive queue of the same domain, instead of its own.
    pub srq: Option<u32>,
    /// Its limits.
    pub limits: Limits,
    /// Whether its requests may register memory (M4).
    pub registration: Registration,
    /// It has a number that peers can call, so that it can be connected by hand; its completions bear it.
    pub callable: bool,
}

impl QueuePairOptions {
    /// A reliable one in this domain, with the engine's manners and the usual limits.
    pub fn new(pd: Pd) -> QueuePairOptions {
        QueuePairOptions {
            name: None,
            pd,
            personality: None,
            qp_type: QpType::Rc,
            srq: None,
            limits: Limits::default(),
            registration: Registration::default(),
            callable: false,
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct QueuePair {
    core: Arc<Core>,
    qp: Arc<Qp>,
    slot: Arc<Slot>,
    recv: Arc<Queue>,
    /// Kept as long as completions may come.
    _send: Arc<Queue>,
    manners: Arc<Mutex<Manners>>,
    /// If peers can call it.
    callable: Option<Callable>,
}

impl QueuePair {
    pub(crate) fn new(
        core: &Arc<Core>,
        send: &CompletionQueue,
        recv: &CompletionQueue,
        options: QueuePairOptions,
    ) -> Result<QueuePair, Error> {
        core.check_own(send.0.core())?;
        core.check_own(recv.0.core())?;
        QueuePair::make(core, Sends::Own(send), recv, options)
    }

    /// A channel of a shared send queue (V6). Peers cannot call it.
    pub(crate) fn channel(
        core: &Arc<Core>,
        ssq: &SharedSendQueue,
        recv: &CompletionQueue,
        options: QueuePairOptions,
    ) -> Result<QueuePair, Error> {
        core.check_own(recv.0.core())?;
        core.check_own(ssq.core())?;
        let options = QueuePairOptions {
            callable: false,
            ..options
        };
        QueuePair::make(core, Sends::Shared(ssq), recv, options)
    }

    fn make(
        core: &Arc<Core>,
        sends: Sends<'_>,
        recv: &CompletionQueue,
        options: QueuePairOptions,
    ) -> Result<QueuePair, Error> {
        let config = &core.config;
        let callable = options
            .callable
            .then(|| Callable::new(core, options.qp_type));
        let callable = callable.transpose()?;
        let number = callable.as_ref().map(|callable| callable.number.get());
        let new = NewQp {
            name: options.name.or(number),
            pd: options.pd,
            personality: options.personality.unwrap_or(config.personality),
            qp_type: options.qp_type,
            send_cq: sends.queue().cq.number(),
            recv_cq: recv.number(),
            srq: options.srq,
            limits: options.limits,
            transfer: config.transfer(),
            registration: options.registration,
        };
        let qp = match sends {
            Sends::Own(_) => core.function.create_qp(new)?,
            Sends::Shared(ssq) => core.function.create_channel(ssq.number(), new)?,
        };
        let send = sends.queue();
        send.feed(&recv.0.group);
        if let Some(callable) = &callable {
            callable.publish();
        }
        Ok(QueuePair {
            core: core.clone(),
            qp,
            slot: Arc::new(Slot::new(Some(config.dead_after))),
            recv: recv.0.clone(),
            _send: send.clone(),
            manners: Arc::new(Mutex::new(Manners {
                rnr_retry: RnrRetry::Forever,
                rnr_timer: RnrTimer::DEFAULT,
                patience: Some(config.dead_after),
                grace: Duration::ZERO,
                ird: None,
                ord: None,
                traffic_class: None,
                psns: None,
            })),
            callable,
        })
    }

    /// A connection and it are of one function, as an answer (V1).
    pub(crate) fn check_own(&self, connection: &Connection) -> Result<(), Error> {
        self.core.check_own(connection.core())
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.qp.number()
    }

    /// Where it stands.
    pub fn state(&self) -> QpState {
        self.qp.state()
    }

    /// Everything that changes, at one moment.
    pub fn view(&self) -> View {
        self.qp.view()
    }

    /// The peer's address, while it is connected.
    pub fn peer(&self) -> Option<SocketAddr> {
        let connection = self.core.lives().then(|| self.slot.get())??;
        Some(connection.peer())
    }

    /// Changes how it behaves towards its peer.
    pub fn set_manners(&self, change: impl FnOnce(&mut Manners)) {
        if !self.core.lives() {
            return;
        }
        let mut out = Outbox::new();
        {
            let mut manners = self.manners.lock();
            change(&mut manners);
            manners.tell(&self.qp, &self.slot, &mut out);
        }
        self.after(&mut out);
    }

    /// What the peer may do.
    pub fn enable(&self, enabled: Enabled) {
        if self.core.lives() {
            self.act(|qp, out| qp.enable(enabled, out));
        }
    }

    /// Asks for a state; false if it is refused.
    pub fn modify(&self, to: QpState) -> bool {
        if !self.core.lives() {
            return false;
        }
        if let Some(callable) = self.callable.as_ref().filter(|_| to == QpState::Reset)
            && callable.life.begin_anew().is_err()
        {
            // Without a nonce of its own the next life could be taken for this one.
            return false;
        }
        let done = self.act(|qp, out| qp.modify(to, out));
        if done && to == QpState::Reset {
            self.act(|qp, out| self.core.function.empty_channel(qp.number(), out));
        }
        if let Some(connection) = self.slot.get().filter(|_| done && to == QpState::Reset) {
            // Here, not only by whoever is at work with it: nobody may use it any more when the next life begins.
            let mut out = Outbox::new();
            connection.close(Vec::new(), &mut out);
            self.core.deliver(&mut out);
        }
        done
    }

    /// Posts one request; it leaves at once if it can.
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.check()?;
        self.qp.queue_send(wr)?;
        self.kick();
        Ok(())
    }

    /// Posts requests that leave together; the number of those that were posted before one was refused, and why.
    pub fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, PostError)> {
        self.check().map_err(|error| (0, error))?;
        let refused = wrs
            .iter()
            .enumerate()
            .find_map(|(at, wr)| self.qp.queue_send(wr).err().map(|error| (at, error)));
        self.kick();
        refused.map_or(Ok(()), Err)
    }

    /// Posts a receive.
    pub fn post_receive(&self, wr: &ReceiveWr<'_>) -> Result<(), PostError> {
        self.check()?;
        if self.qp.queue_receive(wr)? {
            self.act(Qp::ring);
        }
        Ok(())
    }

    /// Dials, and tells `done` how it ended: with what the peer said.
    pub fn connect(
        &self,
        to: SocketAddr,
        private_data: &[u8],
        done: impl FnOnce(Result<Vec<u8>, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        self.connect_from(None, to, private_data, done)
    }

    /// The same from this address of ours, if one is named.
    pub fn connect_from(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        private_data: &[u8],
        done: impl FnOnce(Result<Vec<u8>, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        self.check_connectable()?;
        from.map_or(Ok(()), |ip| self.core.check_owner((ip, 0).into(), Some(to)))?;
        let options = Options {
            source: from,
            ..self.options(private_data)
        };
        Connection::dial(&self.core, to, options, None, Box::new(done) as Done)
    }

    /// Ends the connection in good order: the peer gets what it was promised and sees the end, and everything of ours that
    /// is not done is flushed. False if there is none.
    pub fn disconnect(&self) -> bool {
        if !self.core.lives() {
            return false;
        }
        let mut out = Outbox::new();
        let connection = self.slot.get();
        let last = self.qp.hang_up(&mut out);
        let was_there = connection.is_some();
        if let (Some(connection), Some(last)) = (connection, last) {
            connection.close(last, &mut out);
            self.core.deliver(&mut out);
        } else {
            self.after(&mut out);
        }
        was_there
    }

    pub(crate) fn check_connectable(&self) -> Result<(), Error> {
        self.core.check()?;
        let state = self.state();
        let fresh = matches!(
            state,
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Rts
        );
        if fresh && self.slot.get().is_none() {
            return Ok(());
        }
        let qp = self.number();
        Err(Error::NotConnectable { qp, state })
    }

    pub(crate) fn options(&self, private_data: &[u8]) -> Options {
        Options {
            qp: self.qp.clone(),
            group: self.recv.group.clone(),
            slot: self.slot.clone(),
            private_data: private_data.to_vec(),
            manners: self.manners.clone(),
            source: None,
            introduction: None,
            proving: None,
        }
    }

    fn check(&self) -> Result<(), PostError> {
        self.core.check_posts().map_err(PostError::State)
    }

    /// A call on the queue pair, what follows from it, and what may be sent after it.
    fn act<R>(&self, call: impl FnOnce(&Qp, &mut Outbox) -> R) -> R {
        let mut out = Outbox::new();
        let result = call(&self.qp, &mut out);
        self.after(&mut out);
        result
    }

    fn after(&self, out: &mut Outbox) {
        if let Some(connection) = self.slot.get() {
            connection.send(out);
            connection.resume(out);
        }
        self.core.deliver(out);
    }

    /// Requests were left: they leave now, or whoever is at work sees to them.
    fn kick(&self) {
        self.recv.group.note_post();
        let mut out = Outbox::new();
        let connection = self.slot.get();
        if let Some(connection) = &connection {
            connection.send(&mut out);
        }
        // Also if the connection ended at this moment: then nobody was told that the peer is missed.
        if !connection.is_some_and(|connection| connection.is_running()) {
            self.qp.ring(&mut out);
            if let Some(callable) = &self.callable {
                callable.life.miss_peer();
            }
        }
        self.core.deliver(&mut out);
        self.recv.group.await_reply();
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if !self.core.lives() {
            return;
        }
        // Nobody may be called who is going.
        drop(self.callable.take());
        let mut out = Outbox::new();
        let last = self.core.function.destroy_qp(self.qp.number(), &mut out);
        // Looked up now and not before: a startup may have ended in between, and none does from here on.
        if let (Some(connection), Ok(last)) = (self.slot.get(), last) {
            connection.close(last, &mut out);
        }
        self.core.deliver(&mut out);
    }
}
