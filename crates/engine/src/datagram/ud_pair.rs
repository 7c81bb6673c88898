//! A datagram queue pair: a posted datagram is sent at once, by the posting thread.
//! Its number receives datagrams from its creation on. No call blocks: a datagram that finds the socket full is sent when there is room.
//! Destroying it is safe at any time.

use core::net::IpAddr;
use std::sync::Arc;

use verbena_mem::Pd;
use verbena_nic::qp::PostSendError;
use verbena_nic::qp::{Limits, PostError};
use verbena_nic::ud::{UdSendWr, UdView};
use verbena_nic::{NewUd, Outbox, QpState, ReceiveWr};
use verbena_sync::locks::Mutex;
use verbena_wire::number::Qpn;

use crate::core::Core;
use crate::datagram::ud_demux::UdMember;
use crate::error::Error;
use crate::lifecycle::Gate;
use crate::poll::queue::{CompletionQueue, Queue};
use crate::sys;

/// Attributes of a datagram queue pair.
#[derive(Debug, Clone, Copy)]
pub struct UdOptions {
    /// Its protection domain.
    pub pd: Pd,
    /// A shared receive queue of the same domain, instead of an own one.
    pub srq: Option<u32>,
    /// Its limits.
    pub limits: Limits,
}

impl UdOptions {
    /// One in this domain, with default limits.
    pub fn new(pd: Pd) -> UdOptions {
        UdOptions {
            pd,
            srq: None,
            limits: Limits::default(),
        }
    }
}

/// A datagram queue pair.
#[derive(Debug)]
pub struct UdPair {
    core: Arc<Core>,
    pub(crate) member: Arc<UdMember>,
    recv: Arc<Queue>,
    /// Held so that the queue outlives the last completion.
    _send: Arc<Queue>,
    /// Multicast groups that it is attached to.
    groups: Mutex<Vec<IpAddr>>,
}

impl UdPair {
    pub(crate) fn new(
        core: &Arc<Core>,
        send: &CompletionQueue,
        recv: &CompletionQueue,
        options: UdOptions,
    ) -> Result<UdPair, Error> {
        core.check_own(send.0.core())?;
        core.check_own(recv.0.core())?;
        if core.security.tls.is_some() {
            return Err(Error::NoDatagrams);
        }
        let qpn = core.oob.qpn_allocator.allocate(core)?;
        let pair = Self::register(core, send, recv, options, qpn);
        let pair = pair.inspect_err(|_| {
            let rests = core.config.reuse_delay;
            core.oob.qpn_allocator.release(qpn, rests);
        })?;
        send.0.add_send_group(&recv.0.group);
        for udp_port in pair.udp_ports.iter().chain(pair.roce_ports.iter()) {
            recv.0.group.add_udp_port(udp_port);
        }
        core.routes.ud_demux.add(&pair);
        Ok(UdPair {
            core: core.clone(),
            member: pair,
            recv: recv.0.clone(),
            _send: send.0.clone(),
            groups: Mutex::default(),
        })
    }

    fn register(
        core: &Arc<Core>,
        send: &CompletionQueue,
        recv: &CompletionQueue,
        options: UdOptions,
        qpn: Qpn,
    ) -> Result<Arc<UdMember>, Error> {
        let all = core.oob.qpn_allocator.udp_ports(qpn).ok_or(Error::Closed)?;
        // V2: the sockets at addresses that a rule gives to another device are not read.
        let udp_ports = core.retain_owned(&all, |port| port.local_addr())?;
        for udp_port in &udp_ports {
            udp_port.serve()?;
        }
        let roce_ports = if core.config.uses_roce() {
            core.roce_ports.at_all(core)?
        } else {
            Arc::default()
        };
        let qp = core.function.create_ud(NewUd {
            qpn,
            pd: options.pd,
            send_cq: send.number(),
            recv_cq: recv.number(),
            srq: options.srq,
            limits: options.limits,
        })?;
        Ok(Arc::new(UdMember {
            qp,
            udp_ports: udp_ports.into(),
            roce_ports,
            config: core.config.clone(),
        }))
    }

    /// The number that peers send to, which is in its completions.
    pub fn number(&self) -> Qpn {
        self.member.qp.qpn()
    }

    /// An address at which datagrams for it arrive.
    pub fn address(&self) -> Result<IpAddr, Error> {
        let first = self.member.udp_ports.first();
        first.map(|port| port.ip()).ok_or(Error::NoDevice)
    }

    /// The number in its events, unique in the adapter.
    pub fn event_number(&self) -> u32 {
        self.member.qp.number()
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.member.qp.state()
    }

    /// A consistent snapshot of its state and counters.
    pub fn view(&self) -> UdView {
        self.member.qp.view()
    }

    /// Sets the Q_Key that received datagrams must carry.
    pub fn set_qkey(&self, qkey: u32) {
        if self.core.is_alive() {
            self.member.qp.set_qkey(qkey);
        }
    }

    /// Moves it to a state (`ibv_modify_qp`). The error of a transition that is not allowed says which ones are.
    pub fn modify(&self, to: QpState) -> Result<(), Error> {
        if !self.core.is_alive() {
            return Err(Error::Closed);
        }
        let mut out = Outbox::new();
        let done = self.member.qp.modify(to, &mut out);
        // Requests posted in SQD are sent now.
        self.member.send(&mut out);
        self.core.deliver(&mut out);
        done.map_err(|refused| {
            let (qp, from) = (self.member.qp.qpn().get(), refused.from);
            Error::transition(qp, from, to, |event| from.next_ud(event))
        })
    }

    /// Posts datagrams that are sent together. On error: how many were posted before the one that failed, and its error.
    pub fn post_sends(&self, wrs: &[UdSendWr<'_>]) -> Result<(), PostSendError> {
        let gate = self.check();
        let faulty = gate.map_err(|source| PostSendError { posted: 0, source })? == Gate::Faults;
        let mut out = Outbox::new();
        let refused = wrs.iter().enumerate().find_map(|(at, wr)| {
            let refused = if faulty { self.refuse_send() } else { Ok(()) };
            let posted = refused.and_then(|()| self.member.qp.queue_send(wr, &mut out));
            posted
                .err()
                .map(|source| PostSendError { posted: at, source })
        });
        self.member.send(&mut out);
        self.core.deliver(&mut out);
        refused.map_or(Ok(()), Err)
    }

    /// Posts a receive: 40 bytes for the GRH, then the longest message it shall take.
    pub fn post_receive(&self, wr: &ReceiveWr<'_>) -> Result<(), PostError> {
        self.check()?;
        let mut out = Outbox::new();
        let posted = self.member.qp.post_receive(wr, &mut out);
        self.core.deliver(&mut out);
        posted
    }

    /// Attaches it to a multicast group: it receives every datagram sent there with its Q_Key, except its own.
    /// Attaching twice has the effect of once.
    pub fn attach(&self, group: IpAddr) -> Result<(), Error> {
        self.core.check()?;
        let group = group.to_canonical();
        if !group.is_multicast() {
            return Err(Error::NotMulticast { address: group });
        }
        let mut groups = self.groups.lock();
        let members = &self.core.routes.ud_demux;
        if let Some(udp_port) = members.attach(&self.core, &self.member, group)? {
            self.recv.group.add_udp_port(&udp_port);
            groups.push(group);
        }
        Ok(())
    }

    /// Detaches it from a multicast group; false if it was not attached.
    pub fn detach(&self, group: IpAddr) -> bool {
        self.core.is_alive() && self.leave(&mut self.groups.lock(), group.to_canonical())
    }

    fn leave(&self, groups: &mut Vec<IpAddr>, group: IpAddr) -> bool {
        groups.retain(|one| *one != group);
        let udp_port = self.core.routes.ud_demux.detach(&self.member, group);
        if let Some(udp_port) = &udp_port {
            self.recv.group.udp_ports.leave(udp_port);
        }
        udp_port.is_some()
    }

    fn check(&self) -> Result<Gate, PostError> {
        self.core.check_posts().map_err(PostError::State)
    }

    /// Whether a fault refuses a datagram; no other fault happens to one.
    #[cold]
    fn refuse_send(&self) -> Result<(), PostError> {
        let number = self.member.qp.qpn().get();
        let found = self.core.faults.on_send((number, number), sys::now());
        found
            .refuse
            .map_or(Ok(()), |errno| Err(PostError::Injected(errno)))
    }
}

impl Drop for UdPair {
    fn drop(&mut self) {
        if !self.core.is_alive() {
            return;
        }
        let number = self.number();
        let groups = core::mem::take(&mut *self.groups.lock());
        for group in groups {
            self.leave(&mut Vec::new(), group);
        }
        self.core.routes.ud_demux.remove(number);
        let ports = self.member.udp_ports.iter();
        for udp_port in ports.chain(self.member.roce_ports.iter()) {
            self.recv.group.udp_ports.leave(udp_port);
        }
        // A thread that holds a datagram for it finds it retired.
        let destroyed = self.core.function.destroy_ud(self.member.qp.number());
        debug_assert!(destroyed.is_ok(), "it is destroyed once");
        let rests = self.core.config.reuse_delay;
        self.core.oob.qpn_allocator.release(number, rests);
    }
}
