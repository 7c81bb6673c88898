//! An engine: one function of an adapter with its threads and sockets. Programs create completion queues, queue pairs and listeners here.
//! No thread runs before an object needs one; dropping the engine ends its threads and connections. Objects of one engine
//! cannot be used with another.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use verbena_mem::{Misuse, Pd, Reserved, Tpt};
use verbena_nic::{Event, Function, Ranges, Shares, SsqLimits};
use verbena_wire::Stag;

use crate::accept::listening::{Listening, Reservation};
use crate::config::Config;
use crate::core::Core;
use crate::datagram::packet_handover::PacketHandovers;
use crate::datagram::ud_demux::DatagramDrops;
use crate::datagram::ud_pair::{UdOptions, UdPair};
use crate::error::Error;
use crate::notify::Inbox;
use crate::poll::queue::CompletionQueue;
use crate::roce::cm::RoceCm;
use crate::security::access::AccessList;
use crate::sys::{self, Listener};
use crate::ulp::dial::UlpConnecting;
use crate::ulp::pair::UlpOptions;
use crate::verbs::control::{ControlCallback, ControlQueue};
use crate::verbs::function_handle::FunctionOptions;
use crate::verbs::queue_pair::{QueuePair, QueuePairOptions, XrcDomain};
use crate::verbs::shared_receive_queue::{SharedReceiveQueue, XrcParts};
use crate::verbs::shared_send_queue::SharedSendQueue;
use crate::verbs::xrc::XrcFile;

/// An adapter function with its threads and sockets.
#[derive(Debug)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
}

impl Engine {
    /// A new engine; no thread runs yet.
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

    /// Adds a function to the adapter, with shares of what is left: an engine with threads, queues, memory and numbers of its own
    /// (V1). It is removed, and its shares are free again, when it and all objects made from it are dropped.
    pub fn add_function(&self, options: &FunctionOptions) -> Result<Engine, Error> {
        self.core.check()?;
        let core = self.core.add_function(options)?;
        Ok(Engine { core })
    }

    /// What is left of each resource for further functions (V1).
    pub fn remaining_shares(&self) -> Result<Shares, Error> {
        self.core.check()?;
        Ok(self.core.function_handle.adapter().available_shares())
    }

    /// The ranges of its numbers among the adapter's (V1).
    pub fn ranges(&self) -> Result<Ranges, Error> {
        self.core.check()?;
        let number = self.core.function.number();
        Ok(self.core.function_handle.adapter().ranges(number)?)
    }

    /// False in a forked child of the process that made it: nothing of it may be used there, its function included. True after a
    /// shutdown: objects must still be removed from its tables.
    pub fn is_alive(&self) -> bool {
        self.core.is_alive()
    }

    /// The adapter's own addresses, at which its queue pairs accept out-of-band connections.
    pub fn addresses(&self) -> Result<&[IpAddr], Error> {
        self.core.check()?;
        self.core.local_addresses.all()
    }

    /// Whether the link is up now: an interface that has one of the adapter's addresses is up and has a carrier.
    pub fn is_link_up(&self) -> Result<bool, Error> {
        self.core.check()?;
        self.core.is_link_up()
    }

    /// Which sources may connect and send datagrams, and how many were refused.
    pub fn access_list(&self) -> &AccessList {
        &self.core.security.access
    }

    /// All events apart from completions.
    pub fn events(&self) -> &Inbox {
        &self.core.notification.events
    }

    /// Calls `watcher` first with every event but completions, on the thread that raised it and without any lock; an event for which it
    /// returns true is not put into the inbox.
    pub fn set_event_hook(&self, watcher: impl Fn(Event) -> bool + Send + Sync + 'static) {
        self.core.notification.set_event_hook(Arc::new(watcher));
    }

    /// A shared receive queue for `receives` receives of at most `pieces` pieces; queue pairs made with it keep it alive.
    pub fn create_srq(
        &self,
        pd: Pd,
        receives: usize,
        pieces: usize,
    ) -> Result<SharedReceiveQueue, Error> {
        self.core.check()?;
        SharedReceiveQueue::new(&self.core, pd, receives, pieces)
    }

    /// An XRC domain. Its targets are in `pd`, in which the program registers nothing.
    pub fn create_xrc_domain(&self, pd: Pd) -> Result<XrcDomain, Error> {
        self.core.check()?;
        XrcDomain::new(&self.core, pd)
    }

    /// The XRC domain that a file names, for all processes of this user that open it. The caller keeps the file open meanwhile, so that its inode names no
    /// other one. `create`: it may be new; `exclusive`: it must be.
    pub fn open_xrc_domain(
        &self,
        pd: Pd,
        file: BorrowedFd<'_>,
        (create, exclusive): (bool, bool),
    ) -> Result<XrcDomain, Error> {
        self.core.check()?;
        let file = XrcFile {
            inode: sys::inode_of(file)?,
            create,
            exclusive,
        };
        XrcDomain::of_file(&self.core, pd, file)
    }

    /// A shared receive queue of an XRC domain; its receives complete in `cq`.
    pub fn create_xrc_srq(
        &self,
        domain: &XrcDomain,
        (pd, cq): (Pd, &CompletionQueue),
        receives: usize,
        pieces: usize,
    ) -> Result<SharedReceiveQueue, Error> {
        self.core.check()?;
        let parts = XrcParts {
            domain: domain.clone(),
            cq: cq.clone(),
        };
        SharedReceiveQueue::in_domain(&self.core, parts, pd, receives, pieces)
    }

    /// An XRC target in `Reset`; domain and completion queues of the options are those of the XRC domain.
    pub fn create_xrc_target(
        &self,
        domain: &XrcDomain,
        options: QueuePairOptions,
    ) -> Result<QueuePair, Error> {
        self.core.check()?;
        QueuePair::xrc_target(&self.core, domain, options)
    }

    /// A shared send queue that completes in `cq` (V6); channels made with it keep it alive.
    pub fn create_ssq(
        &self,
        pd: Pd,
        cq: &CompletionQueue,
        limits: SsqLimits,
    ) -> Result<SharedSendQueue, Error> {
        self.core.check()?;
        SharedSendQueue::new(&self.core, pd, cq, limits)
    }

    /// A queue pair in `Reset` whose sends come from a shared send queue (V6). It has no out-of-band connections.
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

    /// Connects to the peer of an upper-layer protocol without blocking: a queue pair is made from the result once TCP is connected
    /// (docs/upper-protocols.md).
    pub fn connect_ulp(&self, to: SocketAddr, options: UlpOptions) -> Result<UlpConnecting, Error> {
        self.core.check()?;
        UlpConnecting::new(&self.core, to, options)
    }

    /// The same on a connection that the program has established itself, such as one that it accepted.
    pub fn adopt_ulp(&self, stream: OwnedFd, options: UlpOptions) -> Result<UlpConnecting, Error> {
        self.core.check()?;
        UlpConnecting::adopt(&self.core, stream, options)
    }

    /// Datagrams for this adapter that reached no queue pair, by cause.
    pub fn datagram_drops(&self) -> DatagramDrops {
        self.core.routes.ud_demux.drops()
    }

    /// Packets of RoCEv2 that were handed over between processes of this user, which share UDP port 4791.
    pub fn packet_handovers(&self) -> PacketHandovers {
        self.core.roce_ports.handover.counters()
    }

    /// The local address of the port of the setting `port` from which a peer is reached; `None` if the kernel reaches it.
    pub fn port_route(&self, peer: IpAddr) -> Option<IpAddr> {
        self.core.port.route(None, peer)
    }

    /// Calls `observer` with the sentence why RoCEv2 cannot be used, once for each, as when another user's process or the kernel has UDP port 4791
    /// of an address. The call that needed it fails with the same sentence, or the listener goes on with TCP alone. Called on the thread that
    /// tried; it must neither block nor call the engine. A later observer replaces this one.
    pub fn on_roce_unavailable(&self, observer: impl Fn(&str) + Send + Sync + 'static) {
        self.core.roce_ports.on_unavailable(observer);
    }

    /// Waits until the peers have confirmed the end of all connections over RoCEv2 that were ended here, at most for this time; false if some
    /// have not. A process that ends does not repeat messages that were lost.
    pub fn wait_disconnected(&self, limit: Duration) -> bool {
        RoceCm::wait_disconnected(&self.core, limit)
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

    /// An error if the completion queue belongs to another function (V1).
    pub fn check_queue(&self, queue: &CompletionQueue) -> Result<(), Error> {
        self.core.check_own(queue.0.core())
    }

    /// Registers memory asynchronously, after all earlier such requests; its STag can be used at once (V5). `told` is called with
    /// the result, on the control thread and without any lock.
    pub fn register_async(
        &self,
        pd: Pd,
        reserve: impl FnOnce(&Arc<Tpt>) -> Result<Reserved, Misuse>,
        callback: ControlCallback,
    ) -> Result<Stag, Error> {
        self.core.check()?;
        let control = self.core.control_thread.common(&self.core)?;
        control.register(0, pd, reserve, Some(callback))
    }

    /// Listens; at most `backlog` requests wait for the program.
    pub fn listen(&self, at: SocketAddr, backlog: usize) -> Result<Listening, Error> {
        self.core.check()?;
        self.reserve(at)?.listen(backlog)
    }

    /// Takes over a listening socket of another process (V1).
    pub fn take_listener(&self, fd: OwnedFd) -> Result<Reservation, Error> {
        self.core.check()?;
        Reservation::new(&self.core, Listener::adopt(fd)?)
    }

    /// Binds an address to listen at later; port 0 selects a free port. Connections are refused until then.
    /// A second reservation of the same address fails with `EADDRINUSE`.
    pub fn reserve(&self, at: SocketAddr) -> Result<Reservation, Error> {
        self.reserve_by(at, Listener::reserve_exclusive)
    }

    /// The same for an address that may be reserved several times as long as none of them listens.
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
        let listener = if self.core.port.has_address(at.ip()) {
            // The kernel need not have the address; its port is reserved there all the same.
            Listener::reserve_foreign(at)?
        } else {
            bind(self.core.local_addresses.to_bind(at)?)?
        };
        let reserved = Reservation::new(&self.core, listener)?;
        // The system may have selected the port.
        self.core.check_owner(reserved.local_addr()?, None)?;
        Ok(reserved)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.core.is_alive() {
            self.core.control_thread.stop(&self.core);
            self.core.shards.stop();
            self.core.port.drain(self.core.config.linger);
            // As at a shutdown: all held notifications are delivered now.
            self.core.notification.end_ticks();
            self.core
                .notification
                .handler_threads
                .stop(self.core.config.linger);
            self.core.oob.qpn_allocator.close();
            self.core.routes.ud_demux.close();
            self.core.roce_ports.close();
        }
    }
}
