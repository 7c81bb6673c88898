//! A queue pair of an upper-layer protocol and its connection: what a call on the queue pair leaves to send is sent by the same thread.
//! A thread that polls its completion queue serves the connection; a shard does while none polls. No call blocks on the peer.
//! The requests are the protocol's own: its crate wraps the calls here in methods that post them.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use verbena_mem::Pd;
use verbena_nic::profile::Service;
use verbena_nic::qp::Limits;
use verbena_nic::{NewUlp, Outbox, QpState, UlpInit, UlpQp};

use crate::core::Core;
use crate::error::Error;
use crate::poll::queue::{CompletionQueue, Queue};
use crate::sys::Socket;
use crate::ulp::stream::UlpStream;

/// Attributes of a queue pair of an upper-layer protocol.
#[derive(Debug, Clone, Copy)]
pub struct UlpOptions {
    /// The service that the logical device must have, and whose owner rules apply to the connection (V2, M13).
    pub service: Service,
    /// Its protection domain.
    pub pd: Pd,
    /// The number of the shared receive queue that it takes receives from, if it has none of its own.
    pub srq: Option<u32>,
    /// Its limits.
    pub limits: Limits,
    /// Time limit for the TCP connection to be established.
    pub connect_timeout: Duration,
}

/// A queue pair of an upper-layer protocol and its connection.
#[derive(Debug)]
pub struct UlpPair<Q> {
    core: Arc<Core>,
    qp: Arc<Q>,
    stream: Arc<UlpStream>,
    number: u32,
    /// Held so that the queues outlive the last completion.
    _queues: (Arc<Queue>, Arc<Queue>),
}

impl<Q: UlpQp + 'static> UlpPair<Q> {
    /// A queue pair on an established connection to `to`.
    pub(crate) fn new(
        core: &Arc<Core>,
        (socket, to): (Socket, SocketAddr),
        (send, recv): (&CompletionQueue, &CompletionQueue),
        options: UlpOptions,
        make: impl FnOnce(UlpInit) -> Q,
    ) -> Result<UlpPair<Q>, Error> {
        core.check_own(send.0.core())?;
        core.check_own(recv.0.core())?;
        core.check_service(options.service, socket.local_addr()?, Some(to))?;
        let new = NewUlp {
            service: options.service,
            pd: options.pd,
            send_cq: send.number(),
            recv_cq: recv.number(),
            srq: options.srq,
            limits: options.limits,
        };
        let mut number = 0;
        let qp = core.function.create_ulp(new, |init| {
            number = init.number;
            make(init)
        })?;
        qp.handle_connected();
        send.0.add_send_group(&recv.0.group);
        let stream = UlpStream::open(core, socket, (number, qp.clone()), &recv.0.group);
        let stream = stream.inspect_err(|_| {
            // No other thread has seen the queue pair: destroying it cannot fail.
            let _ = core.function.destroy_ulp(number, &mut Outbox::new());
        })?;
        Ok(UlpPair {
            core: core.clone(),
            qp,
            stream,
            number,
            _queues: (send.0.clone(), recv.0.clone()),
        })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The queue pair, for calls that leave nothing to send, receive or report.
    pub fn qp(&self) -> &Q {
        &self.qp
    }

    /// Makes a call that posts requests, sends what may be sent afterwards, and delivers the events. An error with the state to report,
    /// and no call, if posts are not accepted: `Err` when the adapter ends, `Reset` in a forked child.
    pub fn post<R>(&self, call: impl FnOnce(&Q, &mut Outbox) -> R) -> Result<R, QpState> {
        self.core.check_posts()?;
        Ok(self.act(call))
    }

    /// The same without sending: the requests are sent by the next [`transmit`](UlpPair::transmit), or earlier, so that several leave in
    /// one system call.
    pub fn post_deferred<R>(&self, call: impl FnOnce(&Q, &mut Outbox) -> R) -> Result<R, QpState> {
        self.core.check_posts()?;
        let mut out = Outbox::new();
        let done = call(&self.qp, &mut out);
        self.core.deliver(&mut out);
        Ok(done)
    }

    /// Makes a call that posts receives, and reads on if reading was held for lack of one. An error as in [`post`](UlpPair::post).
    pub fn post_receives<R>(&self, call: impl FnOnce(&Q, &mut Outbox) -> R) -> Result<R, QpState> {
        self.core.check_posts()?;
        let mut out = Outbox::new();
        let done = call(&self.qp, &mut out);
        self.stream.resume(&mut out);
        self.core.deliver(&mut out);
        Ok(done)
    }

    /// Makes a call that is possible while the adapter ends, too, such as ending the queue pair; sends and delivers as
    /// [`post`](UlpPair::post). `None`, and no call, in a forked child.
    pub fn control<R>(&self, call: impl FnOnce(&Q, &mut Outbox) -> R) -> Option<R> {
        self.core.is_alive().then(|| self.act(call))
    }

    /// Sends what was deferred.
    pub fn transmit(&self) {
        self.control(|_, _| ());
    }

    fn act<R>(&self, call: impl FnOnce(&Q, &mut Outbox) -> R) -> R {
        let mut out = Outbox::new();
        let done = call(&self.qp, &mut out);
        self.stream.send(&mut out);
        self.core.deliver(&mut out);
        done
    }
}

impl<Q> Drop for UlpPair<Q> {
    fn drop(&mut self) {
        if !self.core.is_alive() {
            return;
        }
        self.stream.close();
        let mut out = Outbox::new();
        let destroyed = self.core.function.destroy_ulp(self.number, &mut out);
        debug_assert!(destroyed.is_ok(), "it is destroyed once");
        self.core.deliver(&mut out);
    }
}
