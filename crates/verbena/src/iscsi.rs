//! An iSCSI queue pair of the low layer (M12): one request carries a SCSI command and its buffers; the adapter transfers the data.
//! Data moves directly between the connection and the buffers. A command ends with its response or with the queue pair. Login and the
//! meaning of responses are left to the user of the queue pair (the crate `verbena-storage`).

use core::fmt;
use core::time::Duration;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use verbena_engine::{IscsiConnecting as EngineDial, IscsiOptions as EngineOptions, IscsiPair};
use verbena_iscsi::{CommandId, CommandState, CommandWr, PduWr, PostError, Terms, View};
use verbena_nic::qp::Limits;
use verbena_nic::qp::PostRecvError;
use verbena_nic::{OnFailure, QpState, ReceiveWr};

use crate::cq::BareCq;
use crate::device::{Domain, Inner};
use crate::error::Error;
use crate::pd::Pd;

/// Options of an iSCSI queue pair.
///
/// ```
/// use verbena::{IscsiOptions, low::Limits};
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

/// An iSCSI queue pair, connected to a target.
///
/// Every PDU of the target that is not dropped consumes a receive: data PDUs with their header only, others whole. The completion
/// of a response has the id of its command in `Wc::immediate`.
///
/// ```no_run
/// use verbena::low::{Wc, RecvWr};
/// use verbena::{Access, Device, IscsiQp, IscsiOptions};
///
/// let device = Device::open()?;
/// let (pd, cq) = (device.pd()?, device.cq(256)?);
/// let heads = pd.memory(64 * 1024, Access::LOCAL_WRITE)?;
/// let target = "192.0.2.1:3260".parse().unwrap();
/// let qp = IscsiQp::connect(&pd, &cq, &cq, target, IscsiOptions::default())?;
/// qp.post_recv(&[RecvWr { id: 0, scatter: &[heads.sge(0, 1024)?] }])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IscsiQp {
    pair: IscsiPair,
    // Dropped after the queue pair.
    _domain: Arc<Domain>,
}

impl IscsiQp {
    /// Connects to a target and waits until it accepts. Sends complete in one queue, receives in the same or another. Fails with
    /// [`Error::Foreign`] if a queue is another device's.
    ///
    /// ```no_run
    /// # use verbena::{Device, IscsiQp, IscsiOptions};
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
        let device = &pd.0.device;
        check_same_device(device, send, recv)?;
        let queues = (&send.queue, &recv.queue);
        let pair = device
            .engine
            .connect_iscsi(to, queues, engine_options(pd, options))?;
        Ok(IscsiQp {
            pair,
            _domain: pd.0.clone(),
        })
    }

    /// Connects to a target without waiting.
    ///
    /// ```no_run
    /// # use verbena::{Device, IscsiQp, IscsiOptions};
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
        let dial = pd.0.device.engine.dial_iscsi(to, options.connect_timeout)?;
        Ok(IscsiConnecting {
            attempt: dial,
            pd: pd.clone(),
            options,
        })
    }

    /// Its number, as in completions and events.
    pub fn number(&self) -> u32 {
        self.pair.number()
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.pair.state()
    }

    /// A consistent snapshot of its state, first cause of failure, counters and outstanding work.
    pub fn view(&self) -> View {
        self.pair.view()
    }

    /// Switches to full-feature phase after login, with the negotiated terms.
    pub fn enter_full_feature(&self, terms: Terms) {
        self.pair.begin(terms);
    }

    /// Resumes the send queue after a command that could not be executed; false if it was not stopped.
    pub fn restart_sends(&self) -> bool {
        self.pair.restart_sends()
    }

    /// Ends it: outstanding work is flushed and the connection is closed.
    pub fn fail(&self, cause: &str) {
        self.pair.fail(cause);
    }

    /// Posts a command; the completion of its response has the id returned.
    pub fn post_command(&self, wr: &CommandWr<'_>) -> Result<CommandId, PostError> {
        self.pair.post_command(wr)
    }

    /// Posts a command that is transmitted at the next [`send`](IscsiQp::transmit_queued) or earlier, so that several need one system call.
    pub fn queue_command(&self, wr: &CommandWr<'_>) -> Result<CommandId, PostError> {
        self.pair.queue_command(wr)
    }

    /// Transmits queued commands.
    pub fn transmit_queued(&self) {
        self.pair.send();
    }

    /// Cancels a command: when this returns true no byte of its buffers moves any more, its request completes as flushed, and no
    /// response is delivered. False if it has ended. The target is not informed: abort the command there first.
    pub fn cancel(&self, name: CommandId) -> bool {
        self.pair.cancel(name)
    }

    /// The progress of a command and its identifiers on the wire; `None` if it has ended.
    pub fn command_state(&self, name: CommandId) -> Option<CommandState> {
        self.pair.command_state(name)
    }

    /// The CmdSN of the last task management request if it has this tag; commands with a smaller CmdSN precede it.
    pub fn task_request_cmd_sn(&self, itt: u32) -> Option<u32> {
        self.pair.task_request_cmd_sn(itt)
    }

    /// Posts any other PDU; the adapter fills in its sequence numbers.
    pub fn post_pdu(&self, wr: &PduWr<'_>) -> Result<(), PostError> {
        self.pair.post_pdu(wr)
    }

    /// Posts receives. On error: the number posted before the one that failed, and the reason.
    pub fn post_recv(&self, wrs: &[ReceiveWr<'_>]) -> Result<(), PostRecvError<PostError>> {
        self.pair.post_receives(wrs)
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
    attempt: EngineDial,
    pd: Pd,
    options: IscsiOptions,
}

impl IscsiConnecting {
    /// Whether the target has accepted, without waiting. Fails if it refused or the time limit passed.
    pub fn is_connected(&self) -> Result<bool, Error> {
        Ok(self.attempt.is_connected()?)
    }

    /// Creates the queue pair of an established connection. Sends complete in one queue, receives in the same or another.
    pub fn into_qp(self, send: &BareCq, recv: &BareCq) -> Result<IscsiQp, Error> {
        check_same_device(&self.pd.0.device, send, recv)?;
        let options = engine_options(&self.pd, self.options);
        let pair = self.attempt.pair((&send.queue, &recv.queue), options)?;
        Ok(IscsiQp {
            pair,
            _domain: self.pd.0.clone(),
        })
    }
}

impl AsFd for IscsiConnecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attempt.as_fd()
    }
}

fn check_same_device(device: &Arc<Inner>, send: &BareCq, recv: &BareCq) -> Result<(), Error> {
    let same = |other: &Arc<Inner>| Arc::ptr_eq(other, device);
    match same(&send.device) && same(&recv.device) {
        true => Ok(()),
        false => Err(Error::Foreign),
    }
}

fn engine_options(pd: &Pd, options: IscsiOptions) -> EngineOptions {
    EngineOptions {
        pd: pd.0.pd,
        limits: options.limits,
        on_failure: options.on_failure,
        connect_timeout: options.connect_timeout,
    }
}
