//! Queue pairs of upper-layer protocols (ULPs): a protocol of another crate on a connection, with the adapter's memory, completion queues and threads.
//! The other crate implements [`UlpQp`]: it names the places for the bytes that arrive and the bytes to send, and completes requests.
//! Everything else is the adapter's: the TCP connection, the threads that serve it while the program polls or sleeps, deadlines, shutdown,
//! and the end of the device. iSCSI is such a protocol (the crate `verbena-storage`). docs/upper-protocols.md has the rules, and
//! `crates/verbena/tests/ulp` a complete protocol with messages in registered memory.
//!
//! A protocol that counts the bytes of its peer, to show the shape:
//!
//! ```
//! use std::io::Write;
//! use std::net::TcpListener;
//! use std::sync::Mutex;
//! use verbena::Device;
//! use verbena::low::{QpState, Wc, WcOp};
//! use verbena::ulp::*;
//!
//! /// Completes one receive when the peer has closed the connection, with the number of bytes that came before.
//! #[derive(Debug)]
//! struct Counting {
//!     init: UlpInit,
//!     state: Mutex<(QpState, u32)>,
//! }
//!
//! impl UlpQp for Counting {
//!     fn number(&self) -> u32 {
//!         self.init.number
//!     }
//!
//!     fn state(&self) -> QpState {
//!         self.state.lock().unwrap().0
//!     }
//!
//!     fn handle_connected(&self) {
//!         self.state.lock().unwrap().0 = QpState::Rts;
//!     }
//!
//!     fn receive(&self, carrier: &mut dyn Carrier, _: Time, out: &mut Outbox) -> Receiving {
//!         let mut state = self.state.lock().unwrap();
//!         if state.0 != QpState::Rts {
//!             return Receiving::Ended;
//!         }
//!         let mut stage = [0; 512];
//!         let mut targets = Targets::new();
//!         targets.stage(&mut stage);
//!         match carrier.read(&mut targets) {
//!             IoOutcome::Bytes(n) => {
//!                 state.1 += n as u32;
//!                 Receiving::Some(n)
//!             }
//!             IoOutcome::WouldBlock => Receiving::WouldBlock,
//!             IoOutcome::Eof | IoOutcome::Broken | IoOutcome::Fault => {
//!                 state.0 = QpState::Err;
//!                 let (qpn, len) = (self.init.number, state.1);
//!                 let wc = Wc { qpn, len, op: WcOp::Receive, ..Wc::default() };
//!                 self.init.recv_cq.push(wc, out);
//!                 Receiving::Ended
//!             }
//!         }
//!     }
//!
//!     fn try_transmit(&self, _: &mut dyn Carrier, _: Time, _: &mut Outbox) -> Option<Sending> {
//!         match self.state() {
//!             QpState::Rts => Some(Sending::Idle),
//!             _ => Some(Sending::Ended),
//!         }
//!     }
//!
//!     fn fail(&self, _: &str, _: &mut Outbox) {
//!         self.state.lock().unwrap().0 = QpState::Err;
//!     }
//!
//!     fn retire(&self, _: &mut Outbox) -> bool {
//!         let mut state = self.state.lock().unwrap();
//!         std::mem::replace(&mut state.0, QpState::Reset) != QpState::Reset
//!     }
//!
//!     fn is_busy(&self) -> bool {
//!         false
//!     }
//! }
//!
//! let listener = TcpListener::bind("127.0.0.1:0").unwrap();
//! let device = Device::open()?;
//! let (pd, cq) = (device.pd()?, device.cq(16)?);
//! let to = listener.local_addr().unwrap();
//! let state = Mutex::new((QpState::Reset, 0));
//! let make = |init| Counting { init, state };
//! let qp = UlpConnection::connect(&pd, (&cq, &cq), to, UlpOptions::default(), make)?;
//! let (mut peer, _) = listener.accept().unwrap();
//! peer.write_all(b"twelve bytes").unwrap();
//! drop(peer);
//! let mut completions = [Wc::default(); 4];
//! assert_eq!(cq.wait(&mut completions)?, 1);
//! assert_eq!((completions[0].qpn, completions[0].len), (qp.number(), 12));
//! # Ok::<(), verbena::Error>(())
//! ```

use core::fmt;
use core::time::Duration;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use verbena_engine::{UlpConnecting as EngineConnecting, UlpOptions as EngineOptions, UlpPair};
use verbena_nic::QpState;
use verbena_nic::profile::Service;
use verbena_nic::qp::Limits;

use crate::cq::BareCq;
use crate::device::{Domain, Inner};
use crate::error::Error;
use crate::pd::Pd;
use crate::setters::setters;
use crate::srq::Srq;

pub use verbena_mem::{Gather, Placement, Refusal, Sources, Targets};
pub use verbena_nic::receive::{PostError as ReceiveQueueError, Receive};
pub use verbena_nic::{
    Carrier, CombiningLock, IoOutcome, MemoryCarrier, Outbox, ReceiveQueue, Receiving, Sending,
    Time, UlpInit, UlpQp,
};

/// Options of a queue pair of an upper-layer protocol.
///
/// ```
/// use verbena::low::Limits;
/// use verbena::ulp::UlpOptions;
/// let options = UlpOptions::default().limits(Limits { sends: 256, receives: 1024, ..Limits::default() });
/// # assert_eq!(options.limits.sends, 256);
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct UlpOptions {
    /// The service that the logical device must have, and whose rules of the setting `owners` apply (docs/functions.md). A protocol
    /// that is no service of its own uses `Rdma`, the default.
    pub service: Service,
    /// Capacities of its queues, passed on in [`UlpInit::limits`]; checked against those of the device.
    pub limits: Limits,
    /// Time limit for the peer to accept the connection.
    pub connect_timeout: Duration,
}

setters! { UlpOptions:
    service: Service,
    limits: Limits,
    connect_timeout: Duration,
}

impl Default for UlpOptions {
    fn default() -> UlpOptions {
        UlpOptions {
            service: Service::Rdma,
            limits: Limits::default(),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

impl UlpOptions {
    fn in_domain(self, pd: &Pd) -> EngineOptions {
        EngineOptions {
            service: self.service,
            pd: pd.0.pd,
            srq: None,
            limits: self.limits,
            connect_timeout: self.connect_timeout,
        }
    }
}

/// A queue pair of an upper-layer protocol and its connection. Dropping it destroys the queue pair and closes the connection.
///
/// A crate with a protocol wraps it in a type whose methods post the protocol's requests with the calls here. The [module](self) has
/// an example.
pub struct UlpConnection<Q> {
    pair: UlpPair<Q>,
    // Dropped after the queue pair.
    _srq: Option<Srq>,
    _domain: Arc<Domain>,
}

impl<Q: UlpQp + 'static> UlpConnection<Q> {
    /// Connects to a peer, waits until it accepts, and creates the queue pair with `make`. Sends complete in the first queue, receives in
    /// the second or the same one. Fails with [`Error::Foreign`] if a queue is another device's.
    pub fn connect(
        pd: &Pd,
        queues: (&BareCq, &BareCq),
        to: SocketAddr,
        options: UlpOptions,
        make: impl FnOnce(UlpInit) -> Q,
    ) -> Result<UlpConnection<Q>, Error> {
        check_same_device(&pd.0.device, queues)?;
        let connecting = UlpConnecting::new(pd, to, options)?;
        connecting.wait()?;
        connecting.into_qp(queues, make)
    }

    /// Its number, as in completions and events.
    pub fn number(&self) -> u32 {
        self.pair.number()
    }

    /// The queue pair, for calls that leave nothing to send, receive or report.
    pub fn qp(&self) -> &Q {
        self.pair.qp()
    }

    /// Makes a call that posts requests, then transmits what it left to send. An error with the state of the queue pair, and no call, if
    /// the device takes no more requests: `Err` if it ends, `Reset` in a forked child.
    pub fn post<R>(&self, call: impl FnOnce(&Q, &mut Outbox) -> R) -> Result<R, QpState> {
        self.pair.post(call)
    }

    /// The same for requests that are transmitted at the next [`transmit`](UlpConnection::transmit) or earlier, so that several need one
    /// system call.
    pub fn post_deferred<R>(&self, call: impl FnOnce(&Q, &mut Outbox) -> R) -> Result<R, QpState> {
        self.pair.post_deferred(call)
    }

    /// Transmits what was deferred.
    pub fn transmit(&self) {
        self.pair.transmit();
    }

    /// Makes a call that posts receives; reading goes on if it was held for lack of one. Errors as in [`post`](UlpConnection::post).
    pub fn post_recv<R>(&self, call: impl FnOnce(&Q, &mut Outbox) -> R) -> Result<R, QpState> {
        self.pair.post_receives(call)
    }

    /// Makes a call that is allowed while the device ends, such as failing the queue pair, then transmits. `None`, and no call, in a
    /// forked child.
    pub fn control<R>(&self, call: impl FnOnce(&Q, &mut Outbox) -> R) -> Option<R> {
        self.pair.control(call)
    }

    /// Ends it: outstanding work is flushed and the connection is closed.
    pub fn fail(&self, cause: &str) {
        self.control(|qp, out| qp.fail(cause, out));
    }
}

impl<Q: fmt::Debug> fmt::Debug for UlpConnection<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UlpConnection").field(&self.pair).finish()
    }
}

/// A connection attempt. Its descriptor becomes writable when the attempt has ended.
///
/// ```no_run
/// # use verbena::Device;
/// # use verbena::ulp::{UlpConnecting, UlpOptions};
/// let pd = Device::open()?.pd()?;
/// let to = "192.0.2.1:7".parse().unwrap();
/// let connecting = UlpConnecting::new(&pd, to, UlpOptions::default())?;
/// while !connecting.is_connected()? {
///     // Something else; then `into_qp`.
/// }
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug)]
pub struct UlpConnecting {
    attempt: EngineConnecting,
    pd: Pd,
    srq: Option<Srq>,
}

impl UlpConnecting {
    /// Connects to a peer without waiting.
    pub fn new(pd: &Pd, to: SocketAddr, options: UlpOptions) -> Result<UlpConnecting, Error> {
        let attempt = pd.0.device.engine.connect_ulp(to, options.in_domain(pd))?;
        let (pd, srq) = (pd.clone(), None);
        Ok(UlpConnecting { attempt, pd, srq })
    }

    /// Takes a connection over that the program has established itself, for example one that it accepted.
    pub fn from_stream(
        pd: &Pd,
        stream: TcpStream,
        options: UlpOptions,
    ) -> Result<UlpConnecting, Error> {
        let engine = &pd.0.device.engine;
        let attempt = engine.adopt_ulp(stream.into(), options.in_domain(pd))?;
        let (pd, srq) = (pd.clone(), None);
        Ok(UlpConnecting { attempt, pd, srq })
    }

    /// The queue pair takes its receives from this queue ([`UlpInit::srq`]), which has to be of the same domain.
    pub fn with_srq(mut self, srq: &Srq) -> UlpConnecting {
        self.attempt.set_srq(srq.number());
        self.srq = Some(Srq(srq.0.clone()));
        self
    }

    /// Waits until the peer has accepted.
    pub fn wait(&self) -> Result<(), Error> {
        Ok(self.attempt.wait()?)
    }

    /// Whether the peer has accepted, without waiting. Fails if it refused or the time limit passed.
    pub fn is_connected(&self) -> Result<bool, Error> {
        Ok(self.attempt.is_connected()?)
    }

    /// Creates the queue pair of an established connection with `make`. Sends complete in the first queue, receives in the second or the
    /// same one.
    pub fn into_qp<Q: UlpQp + 'static>(
        self,
        queues: (&BareCq, &BareCq),
        make: impl FnOnce(UlpInit) -> Q,
    ) -> Result<UlpConnection<Q>, Error> {
        check_same_device(&self.pd.0.device, queues)?;
        if let Some(srq) = &self.srq
            && !Arc::ptr_eq(&srq.0.domain.device, &self.pd.0.device)
        {
            return Err(Error::Foreign);
        }
        let (send, recv) = queues;
        let pair = self.attempt.into_pair((&send.queue, &recv.queue), make)?;
        Ok(UlpConnection {
            pair,
            _srq: self.srq,
            _domain: self.pd.0.clone(),
        })
    }
}

impl AsFd for UlpConnecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attempt.as_fd()
    }
}

fn check_same_device(device: &Arc<Inner>, (send, recv): (&BareCq, &BareCq)) -> Result<(), Error> {
    let same = |other: &Arc<Inner>| Arc::ptr_eq(other, device);
    match same(&send.device) && same(&recv.device) {
        true => Ok(()),
        false => Err(Error::Foreign),
    }
}
