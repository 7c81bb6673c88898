//! An engine: one adapter with hands. Programs make completion queues, queue pairs and listeners here.
//! It promises that nothing runs before something is made, and that closing it ends all of its threads and connections.
//! It refuses to be two: everything made by one engine belongs to it.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use verbena_mem::{Misuse, Pd, Reserved, Tpt};
use verbena_nic::{Event, Function, Ranges, Shares, SsqLimits};
use verbena_stream::Time;
use verbena_wire::Stag;

use crate::access::AccessList;
use crate::config::Config;
use crate::control::{ControlQueue, Told};
use crate::core::Core;
use crate::error::Error;
use crate::handler::HandlerId;
use crate::iscsi_dial::IscsiDial;
use crate::iscsi_pair::{IscsiOptions, IscsiPair};
use crate::listening::{Listening, Reservation};
use crate::notice::Inbox;
use crate::queue::CompletionQueue;
use crate::queue_pair::{QueuePair, QueuePairOptions};
use crate::residents::DatagramDrops;
use crate::seat::FunctionOptions;
use crate::shared_queue::SharedReceiveQueue;
use crate::shared_sends::SharedSendQueue;
use crate::sys::Listener;
use crate::ud_pair::{UdOptions, UdPair};

/// An adapter with hands.
#[derive(Debug)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
}

impl Engine {
    /// A fresh one; no thread runs yet.
    pub fn new(config: Config) -> Result<Engine, Error> {
        let core = Core::new(config)?;
        Ok(Engine { core })
    }

    /// Its settings.
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// The function whose objects it serves: domains, memory, shared receive queues.
    pub fn function(&self) -> &Arc<Function> {
        &self.core.function
    }

    /// One more function of its adapter, with shares of what is left: an engine that has threads, queues, memory and numbers of
    /// its own (V1). It is removed, and its shares are free again, when it and everything made of it are dropped.
    pub fn add_function(&self, options: &FunctionOptions) -> Result<Engine, Error> {
        self.core.check()?;
        let core = self.core.beside(options)?;
        Ok(Engine { core })
    }

    /// What a function can still be promised of each kind (V1).
    pub fn left(&self) -> Result<Shares, Error> {
        self.core.check()?;
        Ok(self.core.seat.adapter().left())
    }

    /// Where its numbers lie among the adapter's (V1).
    pub fn ranges(&self) -> Result<Ranges, Error> {
        self.core.check()?;
        let number = self.core.function.number();
        Ok(self.core.seat.adapter().ranges(number)?)
    }

    /// False in a forked child of the process that made it: nothing of it may be touched there, its function included.
    /// An engine that was shut down lives: what is in its tables must be taken out of them as ever.
    pub fn lives(&self) -> bool {
        self.core.lives()
    }

    /// The adapter's own addresses, which its callable queue pairs have.
    pub fn addresses(&self) -> Result<&[IpAddr], Error> {
        self.core.check()?;
        self.core.addresses()
    }

    /// Which sources may connect and send datagrams, and how many were refused.
    pub fn access(&self) -> &AccessList {
        &self.core.access
    }

    /// Everything that happens apart from completions.
    pub fn events(&self) -> &Inbox {
        &self.core.events
    }

    /// Shows every event but completions to `watcher` first, on whatever thread noticed and without any lock; what it
    /// answers with true is not put into the inbox.
    pub fn watch(&self, watcher: impl Fn(Event) -> bool + Send + Sync + 'static) {
        self.core.watch(Arc::new(watcher));
    }

    /// A completion queue.
    pub fn create_cq(&self, entries: usize) -> Result<CompletionQueue, Error> {
        self.core.check()?;
        CompletionQueue::new(&self.core, entries, None)
    }

    /// A completion queue whose completions this handler is told of (N4).
    pub fn create_cq_with(
        &self,
        entries: usize,
        handler: HandlerId,
    ) -> Result<CompletionQueue, Error> {
        self.core.check()?;
        CompletionQueue::new(&self.core, entries, Some(handler))
    }

    /// A shared receive queue for `receives` receives of at most `pieces` pieces; whoever makes queue pairs on it keeps it.
    pub fn create_srq(
        &self,
        pd: Pd,
        receives: usize,
        pieces: usize,
    ) -> Result<SharedReceiveQueue, Error> {
        self.core.check()?;
        SharedReceiveQueue::new(&self.core, pd, receives, pieces)
    }

    /// A shared send queue that completes in `cq` (V6); whoever makes channels of it keeps it.
    pub fn create_ssq(
        &self,
        pd: Pd,
        cq: &CompletionQueue,
        limits: SsqLimits,
    ) -> Result<SharedSendQueue, Error> {
        self.core.check()?;
        SharedSendQueue::new(&self.core, pd, cq, limits)
    }

    /// A queue pair in `Reset` whose sends come from a shared send queue (V6). Nobody can call it.
    pub fn create_channel(
        &self,
        ssq: &SharedSendQueue,
        recv: &CompletionQueue,
        options: QueuePairOptions,
    ) -> Result<QueuePair, Error> {
        self.core.check()?;
        QueuePair::channel(&self.core, ssq, recv, options)
    }

    /// A queue pair in `Reset`.
    pub fn create_qp(
        &self,
        send: &CompletionQueue,
        recv: &CompletionQueue,
        options: QueuePairOptions,
    ) -> Result<QueuePair, Error> {
        self.core.check()?;
        QueuePair::new(&self.core, send, recv, options)
    }

    /// A datagram queue pair in `Reset` (M14).
    pub fn create_ud(
        &self,
        send: &CompletionQueue,
        recv: &CompletionQueue,
        options: UdOptions,
    ) -> Result<UdPair, Error> {
        self.core.check()?;
        UdPair::new(&self.core, send, recv, options)
    }

    /// An iSCSI queue pair, connected to the target at this address (M12). It waits until the target answers.
    pub fn connect_iscsi(
        &self,
        to: SocketAddr,
        queues: (&CompletionQueue, &CompletionQueue),
        options: IscsiOptions,
    ) -> Result<IscsiPair, Error> {
        let dial = self.dial_iscsi(to, options.patience)?;
        dial.wait()?;
        dial.pair(queues, options)
    }

    /// Dials a target without waiting for it (M12): a queue pair is made of it once it has answered.
    pub fn dial_iscsi(&self, to: SocketAddr, patience: Duration) -> Result<IscsiDial, Error> {
        self.core.check()?;
        IscsiDial::new(&self.core, to, patience)
    }

    /// Datagrams that came for this adapter and reached no queue pair, by cause.
    pub fn datagram_drops(&self) -> DatagramDrops {
        self.core.residents.drops()
    }

    /// A control queue pair for `depth` requests, which complete in `cq` if one is named (V5).
    pub fn create_control(
        &self,
        cq: Option<&CompletionQueue>,
        depth: usize,
    ) -> Result<ControlQueue, Error> {
        self.core.check()?;
        ControlQueue::new(&self.core, cq, depth)
    }

    /// Registers memory later, behind all that was asked for so before; its STag can be used at once (V5). `told` learns
    /// how it ended, on the control thread and without any lock.
    pub fn register_later(
        &self,
        pd: Pd,
        reserve: impl FnOnce(&Arc<Tpt>) -> Result<Reserved, Misuse>,
        told: Told,
    ) -> Result<Stag, Error> {
        self.core.check()?;
        let control = self.core.controls.common(&self.core)?;
        control.register(0, pd, reserve, Some(told))
    }

    /// Listens; at most `backlog` requests wait for an answer.
    pub fn listen(&self, at: SocketAddr, backlog: usize) -> Result<Listening, Error> {
        self.core.check()?;
        self.reserve(at)?.listen(backlog)
    }

    /// A listening socket of another process, to go on listening at (V1).
    pub fn take_listener(&self, fd: OwnedFd) -> Result<Reservation, Error> {
        self.core.check()?;
        Reservation::new(&self.core, Listener::adopt(fd)?)
    }

    /// Takes an address to listen at later; port 0 finds a free one. Whoever dials it before is refused.
    /// A second reservation of the same address fails with `EADDRINUSE`.
    pub fn reserve(&self, at: SocketAddr) -> Result<Reservation, Error> {
        self.reserve_by(at, Listener::reserve_exclusive)
    }

    /// The same, of an address that may be reserved by several as long as none of them listens.
    pub fn reserve_shared(&self, at: SocketAddr) -> Result<Reservation, Error> {
        self.reserve_by(at, |at| Listener::reserve(at, true))
    }

    fn reserve_by(
        &self,
        at: SocketAddr,
        bind: impl FnOnce(SocketAddr) -> crate::sys::Result<Listener>,
    ) -> Result<Reservation, Error> {
        self.core.check()?;
        self.core.check_owner(at, None)?;
        let at = self.core.bindable(at)?;
        let reserved = Reservation::new(&self.core, bind(at)?)?;
        // The system may have found the port.
        self.core.check_owner(reserved.local()?, None)?;
        Ok(reserved)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.core.lives() {
            self.core.controls.stop(&self.core);
            self.core.shards.stop();
            // As at a shutdown: nothing is held any more, and nobody is left to come back to it.
            self.core.tick(Time::MAX);
            self.core.stations.stop(self.core.config.linger);
            self.core.numbers.close();
            self.core.residents.close();
        }
    }
}
