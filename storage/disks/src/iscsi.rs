//! An iSCSI queue pair (M12) on a connection: one request carries a SCSI command and its buffers; the adapter transfers the data.
//! Data moves directly between the connection and the buffers. A command ends with its response or with the queue pair. It is the
//! protocol of `verbena-iscsi` on the extension point of [`verbena::ulp`]; login and the meaning of responses are the
//! [session](crate::session)'s.

use core::fmt;
use core::time::Duration;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use verbena::Error;
use verbena::function::Service;
use verbena::low::{BareCq, Limits, OnFailure, Pd, PostRecvError, QpState, RecvWr};
use verbena::ulp::{UlpConnecting, UlpConnection, UlpOptions};
use verbena_iscsi::Qp;
pub use verbena_iscsi::{
    CommandId, CommandState, CommandWr, Counters, Direction, Gap, PduWr, PostError, Terms, View,
};

/// Options of an iSCSI queue pair.
///
/// ```
/// use verbena::low::Limits;
/// use verbena_storage::iscsi::IscsiOptions;
/// let options = IscsiOptions {
///     limits: Limits { sends: 256, receives: 1024, ..Limits::default() },
///     ..IscsiOptions::default()
/// };
/// # assert_eq!(options.limits.sends, 256);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct IscsiOptions {
    /// Capacities of its queues.
    pub limits: Limits,
    /// What happens to the queue pair if a command cannot be executed.
    pub on_failure: OnFailure,
    /// Time limit for a target to accept the connection.
    pub connect_timeout: Duration,
}

impl Default for IscsiOptions {
    fn default() -> IscsiOptions {
        IscsiOptions {
            limits: Limits::default(),
            on_failure: OnFailure::Reactive,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

impl IscsiOptions {
    fn ulp(&self) -> UlpOptions {
        UlpOptions::default()
            .service(Service::Iscsi)
            .limits(self.limits)
            .connect_timeout(self.connect_timeout)
    }
}

/// An iSCSI queue pair, connected to a target.
///
/// Every PDU of the target that is not dropped consumes a receive: data PDUs with their header only, others whole. The completion
/// of a response has the id of its command in `Wc::immediate`.
///
/// ```no_run
/// use verbena::low::RecvWr;
/// use verbena::{Access, Device};
/// use verbena_storage::iscsi::{IscsiOptions, IscsiQp};
///
/// let device = Device::open()?;
/// let (pd, cq) = (device.pd()?, device.cq(256)?);
/// let heads = pd.memory(64 * 1024, Access::LOCAL_WRITE)?;
/// let target = "192.0.2.1:3260".parse().unwrap();
/// let qp = IscsiQp::connect(&pd, &cq, &cq, target, IscsiOptions::default())?;
/// qp.post_recv(&[RecvWr { id: 0, scatter: &[heads.sge(0, 1024)?] }])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IscsiQp(UlpConnection<Qp>);

impl IscsiQp {
    /// Connects to a target and waits until it accepts. Sends complete in one queue, receives in the same or another. Fails with
    /// [`Error::Foreign`] if a queue is another device's.
    ///
    /// ```no_run
    /// # use verbena::Device;
    /// # use verbena_storage::iscsi::{IscsiOptions, IscsiQp};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let target = "192.0.2.1:3260".parse().unwrap();
    /// let qp = IscsiQp::connect(&device.pd()?, &cq, &cq, target, IscsiOptions::default())?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn connect(
        pd: &Pd,
        send: &BareCq,
        recv: &BareCq,
        to: SocketAddr,
        options: IscsiOptions,
    ) -> Result<IscsiQp, Error> {
        let make = |init| Qp::new(init, options.on_failure);
        let queues = (send, recv);
        UlpConnection::connect(pd, queues, to, options.ulp(), make).map(IscsiQp)
    }

    /// Connects to a target without waiting.
    ///
    /// ```no_run
    /// # use verbena::Device;
    /// # use verbena_storage::iscsi::{IscsiOptions, IscsiQp};
    /// # let device = Device::open()?;
    /// # let cq = device.cq(64)?;
    /// let target = "192.0.2.1:3260".parse().unwrap();
    /// let dial = IscsiQp::start_connect(&device.pd()?, target, IscsiOptions::default())?;
    /// while !dial.is_connected()? {
    ///     // Something else.
    /// }
    /// let qp = dial.into_qp(&cq, &cq)?;
    /// # Ok::<(), verbena::Error>(())
    /// ```
    pub fn start_connect(
        pd: &Pd,
        to: SocketAddr,
        options: IscsiOptions,
    ) -> Result<IscsiConnecting, Error> {
        Ok(IscsiConnecting {
            attempt: UlpConnecting::new(pd, to, options.ulp())?,
            on_failure: options.on_failure,
        })
    }

    /// Its number, as in completions and events.
    pub fn number(&self) -> u32 {
        self.0.number()
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.0.qp().state()
    }

    /// A consistent snapshot of its state, first cause of failure, counters and outstanding work.
    pub fn view(&self) -> View {
        self.0.qp().view()
    }

    /// Switches to full-feature phase after login, with the negotiated terms.
    pub fn enter_full_feature(&self, terms: Terms) {
        self.0.control(|qp, out| qp.begin(terms, out));
    }

    /// Resumes the send queue after a command that could not be executed; false if it was not stopped.
    pub fn restart_sends(&self) -> bool {
        self.0.qp().restart_sends()
    }

    /// Ends it: outstanding work is flushed and the connection is closed.
    pub fn fail(&self, cause: &str) {
        self.0.fail(cause);
    }

    /// Posts a command; the completion of its response has the id returned.
    pub fn post_command(&self, wr: &CommandWr<'_>) -> Result<CommandId, PostError> {
        let posted = self.0.post(|qp, out| qp.post_command(wr, out));
        posted.map_err(PostError::State)?
    }

    /// Posts a command that is transmitted at the next [`transmit_queued`](IscsiQp::transmit_queued) or earlier, so that several need one system call.
    pub fn queue_command(&self, wr: &CommandWr<'_>) -> Result<CommandId, PostError> {
        let posted = self.0.post_deferred(|qp, out| qp.post_command(wr, out));
        posted.map_err(PostError::State)?
    }

    /// Transmits queued commands.
    pub fn transmit_queued(&self) {
        self.0.transmit();
    }

    /// Cancels a command: when this returns true no byte of its buffers moves any more, its request completes as flushed, and no
    /// response is delivered. False if it has ended. The target is not informed: abort the command there first.
    pub fn cancel(&self, name: CommandId) -> bool {
        let cancelled = self.0.control(|qp, out| qp.cancel(name, out));
        cancelled.unwrap_or(false)
    }

    /// The progress of a command and its identifiers on the wire; `None` if it has ended.
    pub fn command_state(&self, name: CommandId) -> Option<CommandState> {
        self.0.qp().command_state(name)
    }

    /// The CmdSN of the last task management request if it has this tag; commands with a smaller CmdSN precede it.
    pub fn task_request_cmd_sn(&self, itt: u32) -> Option<u32> {
        self.0.qp().task_request_cmd_sn(itt)
    }

    /// Posts any other PDU; the adapter fills in its sequence numbers.
    pub fn post_pdu(&self, wr: &PduWr<'_>) -> Result<(), PostError> {
        let posted = self.0.post(|qp, out| qp.post_pdu(wr, out));
        posted.map_err(PostError::State)?
    }

    /// Posts receives. On error: the number posted before the one that failed, and the reason.
    pub fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostRecvError<PostError>> {
        let posted = self.0.post_recv(|qp, out| {
            for (posted, wr) in wrs.iter().enumerate() {
                qp.post_receive(wr, out)
                    .map_err(|source| PostRecvError { posted, source })?;
            }
            Ok(())
        });
        posted.map_err(|state| PostRecvError {
            posted: 0,
            source: PostError::State(state),
        })?
    }
}

impl fmt::Debug for IscsiQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IscsiQp").field(&self.number()).finish()
    }
}

/// A connection attempt to a target. Its descriptor becomes writable when the attempt has ended.
#[derive(Debug)]
pub struct IscsiConnecting {
    attempt: UlpConnecting,
    on_failure: OnFailure,
}

impl IscsiConnecting {
    /// Whether the target has accepted, without waiting. Fails if it refused or the time limit passed.
    pub fn is_connected(&self) -> Result<bool, Error> {
        self.attempt.is_connected()
    }

    /// Creates the queue pair of an established connection. Sends complete in one queue, receives in the same or another.
    pub fn into_qp(self, send: &BareCq, recv: &BareCq) -> Result<IscsiQp, Error> {
        let make = |init| Qp::new(init, self.on_failure);
        self.attempt.into_qp((send, recv), make).map(IscsiQp)
    }
}

impl AsFd for IscsiConnecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attempt.as_fd()
    }
}
