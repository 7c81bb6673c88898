//! An iSCSI queue pair and its connection: a posted request is transmitted at once, by the thread that posts it.
//! A thread that polls its completion queue serves the connection; a shard does while none polls. No call blocks on the target.
//! Sessions and login are the caller's.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use verbena_iscsi::{CommandId, CommandState, CommandWr, PduWr, PostError, Qp, Terms, View};
use verbena_mem::Pd;
use verbena_nic::profile::Service;
use verbena_nic::qp::Limits;
use verbena_nic::qp::PostRecvError;
use verbena_nic::{NewUlp, OnFailure, Outbox, QpState, ReceiveWr};

use crate::core::Core;
use crate::error::Error;
use crate::iscsi::stream::IscsiStream;
use crate::poll::queue::{CompletionQueue, Queue};
use crate::sys::Socket;

/// Attributes of an iSCSI queue pair.
#[derive(Debug, Clone, Copy)]
pub struct IscsiOptions {
    /// Its protection domain.
    pub pd: Pd,
    /// Its limits.
    pub limits: Limits,
    /// What a command that cannot be executed does to the queue pair: options 1 and 2 of M12.
    pub on_failure: OnFailure,
    /// Time limit for the TCP connection to be established.
    pub connect_timeout: Duration,
}

/// An iSCSI queue pair and its connection.
#[derive(Debug)]
pub struct IscsiPair {
    core: Arc<Core>,
    stream: Arc<IscsiStream>,
    /// Held so that the queues outlive the last completion.
    _queues: (Arc<Queue>, Arc<Queue>),
}

impl IscsiPair {
    /// A queue pair on an established connection to `to`.
    pub(crate) fn new(
        core: &Arc<Core>,
        socket: Socket,
        to: SocketAddr,
        (send, recv): (&CompletionQueue, &CompletionQueue),
        options: IscsiOptions,
    ) -> Result<IscsiPair, Error> {
        core.check_own(send.0.core())?;
        core.check_own(recv.0.core())?;
        core.check_service(Service::Iscsi, socket.local_addr()?, Some(to))?;
        let new = NewUlp {
            service: Service::Iscsi,
            pd: options.pd,
            send_cq: send.number(),
            recv_cq: recv.number(),
            limits: options.limits,
        };
        let make = |init| Qp::new(init, options.on_failure);
        let qp = core.function.create_ulp(new, make)?;
        qp.attach();
        send.0.add_send_group(&recv.0.group);
        let stream = IscsiStream::open(core, socket, qp.clone(), &recv.0.group);
        let stream = stream.inspect_err(|_| {
            // No other thread has seen the queue pair: destroying it cannot fail.
            let _ = core.function.destroy_ulp(qp.number());
        })?;
        Ok(IscsiPair {
            core: core.clone(),
            stream,
            _queues: (send.0.clone(), recv.0.clone()),
        })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.stream.qp.number()
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.stream.qp.state()
    }

    /// A consistent snapshot of its state and counters.
    pub fn view(&self) -> View {
        self.stream.qp.view()
    }

    /// Login is complete: from now on the queue pair is in iSCSI full feature phase, with these negotiated terms.
    pub fn begin(&self, terms: Terms) {
        self.act(|qp, out| qp.begin(terms, out));
    }

    /// Option 1 of M12: the send queue continues after a command that could not be executed. False if it had not stopped.
    pub fn restart_sends(&self) -> bool {
        self.stream.qp.restart_sends()
    }

    /// Moves it to the error state: outstanding requests are flushed, and the connection is closed.
    pub fn fail(&self, cause: &str) {
        self.act(|qp, out| qp.fail(cause, out));
    }

    /// Posts a command; returns the id that its completion will carry.
    pub fn post_command(&self, wr: &CommandWr<'_>) -> Result<CommandId, PostError> {
        self.check()?;
        self.act(|qp, out| qp.post_command(wr, out))
    }

    /// Posts a command that is transmitted by the next [`send`](IscsiPair::send), or earlier: several leave in one system call.
    pub fn queue_command(&self, wr: &CommandWr<'_>) -> Result<CommandId, PostError> {
        self.check()?;
        let mut out = Outbox::new();
        let posted = self.stream.qp.post_command(wr, &mut out);
        self.core.deliver(&mut out);
        posted
    }

    /// Transmits what was queued.
    pub fn send(&self) {
        if self.core.is_alive() {
            self.act(|_, _| ());
        }
    }

    /// Withdraws a command: when this returns true its buffers are not accessed any more, and its request completes as flushed.
    /// False if it has completed.
    pub fn cancel(&self, name: CommandId) -> bool {
        self.core.is_alive() && self.act(|qp, out| qp.cancel(name, out))
    }

    /// How far a command has got, and its initiator task tag; none if it has completed.
    pub fn command_state(&self, name: CommandId) -> Option<CommandState> {
        self.stream.qp.command_state(name)
    }

    /// The CmdSN of the last task management request, if it has this tag: commands with a smaller CmdSN precede it.
    pub fn task_request_cmd_sn(&self, itt: u32) -> Option<u32> {
        self.stream.qp.task_request_cmd_sn(itt)
    }

    /// Posts any other PDU.
    pub fn post_pdu(&self, wr: &PduWr<'_>) -> Result<(), PostError> {
        self.check()?;
        self.act(|qp, out| qp.post_pdu(wr, out))
    }

    /// Posts receives. On error: how many were posted before the one that failed, and its error.
    pub fn post_receives(&self, wrs: &[ReceiveWr<'_>]) -> Result<(), PostRecvError<PostError>> {
        self.check()
            .map_err(|source| PostRecvError { posted: 0, source })?;
        let mut out = Outbox::new();
        let refused = wrs.iter().enumerate().find_map(|(at, wr)| {
            let posted = self.stream.qp.post_receive(wr, &mut out);
            posted
                .err()
                .map(|source| PostRecvError { posted: at, source })
        });
        self.stream.resume(&mut out);
        self.core.deliver(&mut out);
        refused.map_or(Ok(()), Err)
    }

    /// Makes a call on the queue pair, transmits what may be sent afterwards, and delivers the events.
    fn act<R>(&self, call: impl FnOnce(&Qp, &mut Outbox) -> R) -> R {
        let mut out = Outbox::new();
        let done = call(&self.stream.qp, &mut out);
        self.stream.send(&mut out);
        self.core.deliver(&mut out);
        done
    }

    fn check(&self) -> Result<(), PostError> {
        self.core.check_posts().map_err(PostError::State)
    }
}

impl Drop for IscsiPair {
    fn drop(&mut self) {
        if !self.core.is_alive() {
            return;
        }
        self.stream.close();
        let destroyed = self.core.function.destroy_ulp(self.number());
        debug_assert!(destroyed.is_ok(), "it is destroyed once");
    }
}
