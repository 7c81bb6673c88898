//! Queue pairs on plain TCP connections (M14): work requests, completion queues, registered memory and events, to any TCP program.
//! Nothing is added to the byte stream, so the peer needs no RDMA: a web server, `iperf3`, a database. Sends leave in posting order, and
//! arriving bytes fill the posted receives in order, without a copy. docs/tcp.md has the rules and examples to copy.

use core::time::Duration;
use std::net::{SocketAddr, TcpStream};

use verbena_events::eqe::CHANNELS;
use verbena_nic::profile::Service;
use verbena_nic::qp::{Limits, PostError, PostRecvError, PostSendError};
use verbena_nic::{QpState, ReceiveWr, TcpAttr, TcpQp as NicTcpQp, UlpQp};

use crate::cq::BareCq;
use crate::error::Error;
use crate::pd::Pd;
use crate::setters::setters;
use crate::srq::Srq;
use crate::ulp::{UlpConnecting, UlpConnection, UlpOptions};

pub use verbena_nic::{Acknowledgement, Fill, TcpChannel, TcpSendWr};

/// What carries the bytes of a queue pair without RDMA (M14).
///
/// SCTP has a name so that its refusal has a reason:
///
/// ```
/// use verbena::Device;
/// use verbena::tcp::{ByteTransport, TcpOptions, TcpQp};
/// let device = Device::open()?;
/// let (pd, cq) = (device.pd()?, device.cq(16)?);
/// let options = TcpOptions::default().transport(ByteTransport::Sctp);
/// let to = "127.0.0.1:5201".parse().unwrap();
/// let refused = TcpQp::connect(&pd, (&cq, &cq), to, options).unwrap_err();
/// assert!(refused.to_string().starts_with("SCTP is not available"));
/// # Ok::<(), verbena::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ByteTransport {
    /// TCP.
    #[default]
    Tcp,
    /// SCTP: refused with [`Error::Sctp`].
    Sctp,
}

/// Options of a queue pair on a TCP connection.
///
/// ```
/// use verbena::tcp::{Acknowledgement, Fill, TcpOptions};
/// let options = TcpOptions::default().acknowledgement(Acknowledgement::Delivered).fill(Fill::Whole);
/// # assert!(options.srq.is_none());
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct TcpOptions<'a> {
    /// What carries its bytes.
    pub transport: ByteTransport,
    /// What the success of a send means.
    pub acknowledgement: Acknowledgement,
    /// When a receive is complete.
    pub fill: Fill,
    /// Capacities of its queues.
    pub limits: Limits,
    /// Receives are taken from this queue of the same domain instead of its own.
    pub srq: Option<&'a Srq>,
    /// Raise channel events for its receives (E7), under this channel number.
    pub channel: Option<TcpChannel>,
    /// Time limit for the peer to accept the connection.
    pub connect_timeout: Duration,
}

setters! { TcpOptions<'a>:
    transport: ByteTransport,
    acknowledgement: Acknowledgement,
    fill: Fill,
    limits: Limits,
    connect_timeout: Duration,
    ; srq: &'a Srq,
    channel: TcpChannel,
}

impl Default for TcpOptions<'_> {
    fn default() -> Self {
        let usual = UlpOptions::default();
        TcpOptions {
            transport: ByteTransport::default(),
            acknowledgement: Acknowledgement::default(),
            fill: Fill::default(),
            limits: usual.limits,
            srq: None,
            channel: None,
            connect_timeout: usual.connect_timeout,
        }
    }
}

impl TcpOptions<'_> {
    /// An error if there is no such transport or channel.
    fn check(&self) -> Result<(), Error> {
        if self.transport == ByteTransport::Sctp {
            return Err(Error::Sctp);
        }
        match self.channel {
            Some(TcpChannel { number, .. }) if number >= CHANNELS => Err(Error::Channel { number }),
            _ => Ok(()),
        }
    }

    fn ulp(&self) -> UlpOptions {
        UlpOptions {
            service: Service::Rdma,
            limits: self.limits,
            connect_timeout: self.connect_timeout,
        }
    }
}

/// A queue pair on a TCP connection. Dropping it closes the connection and discards its completions.
///
/// A request to a server, and the reply in registered memory:
///
/// ```
/// use std::io::{Read, Write};
/// use verbena::low::{Data, Flags, RecvWr, Wc};
/// use verbena::tcp::{TcpOptions, TcpQp, TcpSendWr};
/// use verbena::{Access, Device};
///
/// let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
/// let to = listener.local_addr().unwrap();
/// let server = std::thread::spawn(move || {
///     let (mut client, _) = listener.accept().unwrap();
///     client.read_exact(&mut [0; 4]).unwrap();
///     client.write_all(b"pong").unwrap();
/// });
///
/// let device = Device::open()?;
/// let (pd, cq) = (device.pd()?, device.cq(16)?);
/// let memory = pd.memory(4096, Access::ALL)?;
/// let qp = TcpQp::connect(&pd, (&cq, &cq), to, TcpOptions::default())?;
/// let place = [memory.sge(0, 64)?];
/// qp.post_recv(&[RecvWr { id: 1, scatter: &place }])?;
/// let flags = Flags::NONE;
/// qp.post_send(&[TcpSendWr { id: 2, flags, data: Data::Inline(b"ping") }])?;
/// let mut completions = [Wc::default(); 4];
/// assert_eq!(cq.wait(&mut completions)?, 1);
/// assert_eq!((completions[0].id, completions[0].len), (1, 4));
/// let mut reply = [0; 4];
/// memory.read_at(0, &mut reply)?;
/// assert_eq!(&reply, b"pong");
/// # server.join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TcpQp(UlpConnection<NicTcpQp>);

impl TcpQp {
    /// Connects to a TCP server and waits until it accepts. Sends complete in the first queue, receives in the second or the same one.
    pub fn connect(
        pd: &Pd,
        queues: (&BareCq, &BareCq),
        to: SocketAddr,
        options: TcpOptions<'_>,
    ) -> Result<TcpQp, Error> {
        options.check()?;
        let connecting = UlpConnecting::new(pd, to, options.ulp())?;
        connecting.wait()?;
        TcpQp::new(connecting, queues, options)
    }

    /// Takes over a connection that the program has established itself, for example one that it accepted. Nothing may have been read
    /// ahead by a buffer around it.
    pub fn from_stream(
        pd: &Pd,
        queues: (&BareCq, &BareCq),
        stream: TcpStream,
        options: TcpOptions<'_>,
    ) -> Result<TcpQp, Error> {
        options.check()?;
        let connecting = UlpConnecting::from_stream(pd, stream, options.ulp())?;
        TcpQp::new(connecting, queues, options)
    }

    fn new(
        mut connecting: UlpConnecting,
        queues: (&BareCq, &BareCq),
        options: TcpOptions<'_>,
    ) -> Result<TcpQp, Error> {
        if let Some(srq) = options.srq {
            connecting = connecting.with_srq(srq);
        }
        let attr = TcpAttr {
            acknowledgement: options.acknowledgement,
            fill: options.fill,
            channel: options.channel,
        };
        let make = |init| NicTcpQp::new(init, attr);
        connecting.into_qp(queues, make).map(TcpQp)
    }

    /// Its number, as in completions and events.
    pub fn number(&self) -> u32 {
        self.0.number()
    }

    /// Its state: `Rts`, or `Err` after a failure.
    pub fn state(&self) -> QpState {
        self.0.qp().state()
    }

    /// Why it is in the error state.
    pub fn cause(&self) -> Option<String> {
        self.0.qp().cause()
    }

    /// The peer has closed its direction: no more bytes arrive, and receives are flushed. Sends go on.
    pub fn is_at_end(&self) -> bool {
        self.0.qp().is_at_end()
    }

    /// Sends and receives posted to this queue pair and not completed.
    pub fn outstanding(&self) -> (usize, usize) {
        self.0.qp().outstanding()
    }

    /// Posts sends, which are transmitted together.
    pub fn post_send(&self, wrs: &[TcpSendWr<'_>]) -> Result<(), PostSendError> {
        let mut posted = 0;
        let each = |qp: &NicTcpQp, out: &mut _| {
            wrs.iter().try_for_each(|wr| {
                qp.post_send(wr, out)?;
                posted += 1;
                Ok(())
            })
        };
        let done = self.0.post(each).map_err(PostError::State);
        done.flatten()
            .map_err(|source| PostSendError { posted, source })
    }

    /// Posts receives.
    pub fn post_recv(&self, wrs: &[ReceiveWr<'_>]) -> Result<(), PostRecvError> {
        let mut posted = 0;
        let each = |qp: &NicTcpQp, out: &mut _| {
            wrs.iter().try_for_each(|wr| {
                qp.post_receive(wr, out)?;
                posted += 1;
                Ok(())
            })
        };
        let done = self.0.post_recv(each).map_err(PostError::State);
        done.flatten()
            .map_err(|source| PostRecvError { posted, source })
    }

    /// Ends the sending direction behind the sends posted so far; bytes of the peer still arrive. Later sends fail.
    pub fn finish(&self) -> Result<(), PostError> {
        let done = self.0.post(|qp, _| qp.finish());
        done.map_err(PostError::State).flatten()
    }

    /// Moves it to the error state: outstanding requests are flushed and the connection is closed.
    pub fn fail(&self, cause: &str) {
        self.0.fail(cause);
    }
}
