//! A session with a target (RFC 7143): login, keep-alive, and reinstatement after its connection was lost. Every command ends in bounded
//! time. A command that was lost with a connection is repeated if it is idempotent and reported as lost otherwise; success is reported only
//! if the target reported it. A session has no thread: its owner drives it from one loop.
//!
//! | event | reaction |
//! | --- | --- |
//! | unit attention | the command is sent again, up to a limit |
//! | busy, task set full, task aborted | it is sent again after a delay |
//! | a command exceeds its time | it is aborted, and sent again if that is safe; if the target does not abort it, the connection is closed |
//! | a unit is reset | its commands are cancelled, and sent again if that is safe |
//! | the target is silent, violates the protocol or skips a StatSN | the connection is closed |
//! | the target requests a logout | no new commands; outstanding ones may end soon; then logout |
//! | the connection is lost | reconnect; safe commands are sent again, others end as lost |
//! | it cannot be re-established in time | everything ends |

mod abort;
mod answer;
mod dial;
mod discover;
mod iser;
mod link;
mod logout;
mod options;
mod outcome;
mod recover;
mod sleep_poll;
mod task;
mod tcp;

pub use discover::discover;
pub use link::TransferCounters;
pub use options::{Options, Redirects};
pub use outcome::Outcome;
pub use task::Command;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use verbena::low::Pd;
use verbena::{Access, Device, Memory};
use verbena_iscsi::login::LoginOutcome;

use crate::address::{Address, Transport};
use crate::error::Error;
use abort::Abort;
use answer::Control;
use link::{Link, LinkEvent};
use logout::TargetLogout;
use recover::Lost;
use task::{Task, Tasks};

/// Interval at which timeouts are checked.
const TICK: Duration = Duration::from_millis(20);

/// A session.
pub struct Session {
    pd: Pd,
    device: Device,
    address: Address,
    options: Options,
    /// The ISID, the same on every connection of the session.
    isid: [u8; 6],
    link: Option<Box<dyn Link>>,
    settled: LoginOutcome,
    tasks: Tasks,
    /// Tasks to send, in this order.
    ready: VecDeque<u32>,
    /// Tasks to send at a given time.
    later: Vec<(Instant, u32)>,
    events: Vec<LinkEvent>,
    ended: Vec<Ended>,
    control: Control,
    /// The outstanding ABORT TASK request; one at a time.
    abort: Option<Abort>,
    /// The target requested a logout that has not happened yet.
    target_logout: Option<TargetLogout>,
    lost: Option<Lost>,
    /// Earliest time of the next attempt to connect.
    not_before: Option<Instant>,
    /// When this connection was established, or the last one.
    connected_at: Instant,
    /// Consecutive connections that were lost soon after they were established.
    short_connections: u32,
    /// When something was received last.
    last_received: Instant,
    last_tick: Instant,
    /// The id of the next command of the session itself.
    next_own_id: u64,
    /// Bytes moved by earlier links.
    transferred: TransferCounters,
}

/// A command that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The owner's id.
    pub id: u64,
    /// Its result.
    pub outcome: Outcome,
}

/// The source of memory for data of a session's commands.
#[derive(Debug, Clone)]
pub(crate) struct MemorySource(Pd);

impl MemorySource {
    /// Registers `len` bytes. A target has no access to them but by a command, while that is outstanding.
    pub(crate) fn memory(&self, len: usize) -> Result<Memory, Error> {
        let rights = Access::LOCAL_READ | Access::LOCAL_WRITE;
        Ok(self.0.memory(len, rights)?)
    }
}

/// Ids from here on are the session's own.
const FIRST_OWN_ID: u64 = 1 << 63;

impl Session {
    /// Logs in at a target.
    pub fn open(device: &Device, address: &Address, options: Options) -> Result<Session, Error> {
        let target = address.target.clone();
        if target.is_none() {
            return Err(Error::Setting(
                "an address with a target is needed: discover shows what there is".to_owned(),
            ));
        }
        let isid = dial::isid()?;
        let pd = device.pd()?;
        let (link, settled) = dial::log_in(device, &pd, address, &options, isid)?;
        let now = Instant::now();
        Ok(Session {
            pd,
            device: device.clone(),
            address: address.clone(),
            options,
            isid,
            link: Some(link),
            settled,
            tasks: Tasks::default(),
            ready: VecDeque::new(),
            later: Vec::new(),
            events: Vec::new(),
            ended: Vec::new(),
            control: Control::default(),
            abort: None,
            target_logout: None,
            lost: None,
            not_before: None,
            connected_at: now,
            short_connections: 0,
            last_received: now,
            last_tick: now,
            next_own_id: FIRST_OWN_ID,
            transferred: TransferCounters::default(),
        })
    }

    /// Result of the last login.
    pub fn settled(&self) -> &LoginOutcome {
        &self.settled
    }

    /// Most commands outstanding.
    pub fn depth(&self) -> usize {
        self.options.depth
    }

    /// The source of memory for data of its commands.
    pub(crate) fn memory_source(&self) -> MemorySource {
        MemorySource(self.pd.clone())
    }

    /// Most bytes of data of one command, if limited.
    pub(crate) fn max_data(&self) -> Option<u32> {
        let iser = self.address.transport == Transport::Iser;
        iser.then_some(self.options.iser_max_data)
    }

    /// Registered memory for data of its commands.
    pub fn memory(&self, len: usize) -> Result<Memory, Error> {
        self.memory_source().memory(len)
    }

    /// Bytes of data that were moved, by method.
    pub fn transferred(&self) -> TransferCounters {
        let now = self.link.as_ref().map(|link| link.transferred());
        self.transferred.plus(now.unwrap_or_default())
    }

    /// Starts a command, which is sent by the next [`poll`](Session::poll) at the latest; its `id` is returned by `poll`. Ids below 2^63 are
    /// the owner's.
    pub fn start(&mut self, id: u64, command: Command) -> Result<(), Error> {
        if self.tasks.len() >= self.options.depth {
            let depth = self.options.depth;
            return Err(Error::Full { depth });
        }
        if let Some(why) = self.gave_up() {
            return Err(Error::Lost(why.to_owned()));
        }
        let task = self.tasks.add(Task {
            id,
            command,
            deadline: Instant::now() + self.options.command,
            tries: 0,
            losses: 0,
            sent: false,
            cancel_requested: false,
            cancelled: None,
        });
        self.ready.push_back(task);
        self.pump();
        Ok(())
    }

    /// Appends commands that have ended, without waiting.
    pub fn poll(&mut self, ended: &mut Vec<Ended>) {
        self.turn();
        ended.append(&mut self.ended);
    }

    /// Sleeps until a command may have ended, one of `beside` is readable, or the timeout expires.
    pub fn wait(
        &mut self,
        beside: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        if !self.ended.is_empty() {
            return Ok(());
        }
        // Timeouts are checked at short intervals only while there are any.
        let most = if self.tasks.len() > 0 || self.lost.is_some() {
            TICK
        } else {
            self.options.silence
        };
        let timeout = timeout.map_or(most, |timeout| timeout.min(most));
        self.flush();
        match &mut self.link {
            Some(link) => link.sleep(beside, timeout),
            None => self.sleep_unlinked(beside, timeout),
        }
    }

    /// A descriptor that is readable when a command may have ended since the last poll, if there is a connection.
    pub fn arm(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.link.as_mut()?.arm())
    }

    /// Runs one command and waits for its end; others continue meanwhile.
    pub fn run(&mut self, command: Command) -> Result<Outcome, Error> {
        let id = self.next_own_id;
        self.next_own_id = FIRST_OWN_ID | id.wrapping_add(1);
        self.start(id, command)?;
        loop {
            self.turn();
            if let Some(at) = self.ended.iter().position(|one| one.id == id) {
                return Ok(self.ended.swap_remove(at).outcome);
            }
            self.sleep()?;
        }
    }

    /// Sends a NOP-Out and waits for the answer. Returns the round-trip time.
    pub fn ping(&mut self) -> Result<Duration, Error> {
        let begun = Instant::now();
        let tag = self.send_ping()?;
        // A NOP-Out that was lost with its connection has no answer, even if there is a new connection now.
        self.until("answer to a NOP-Out", |session| {
            session.control.ping.is_none()
        })?;
        match self.control.pong == Some(tag) {
            true => Ok(begun.elapsed()),
            false => Err(Error::Lost(
                "while waiting for the answer to a NOP-Out".into(),
            )),
        }
    }

    /// Does everything that can be done without waiting.
    fn turn(&mut self) {
        self.flush();
        let mut news = core::mem::take(&mut self.events);
        let received = self.link.as_mut().is_some_and(|link| link.poll(&mut news));
        let now = Instant::now();
        if received {
            self.last_received = now;
        }
        for one in news.drain(..) {
            self.handle_event(one);
        }
        self.events = news;
        if now.duration_since(self.last_tick) >= TICK {
            self.last_tick = now;
            self.tick(now);
        }
        self.poll_dial();
        self.pump();
        self.flush();
    }

    /// Transmits commands that were queued in the link.
    fn flush(&mut self) {
        if let Some(link) = &mut self.link {
            link.flush();
        }
    }

    /// Passes ready tasks to the link.
    fn pump(&mut self) {
        if self.is_logging_out() {
            return;
        }
        while let (Some(link), Some(number)) = (&mut self.link, self.ready.front().copied()) {
            self.ready.pop_front();
            let Some(task) = self.tasks.get_mut(number) else {
                continue;
            };
            match link.send_command(&task.link_command(number)) {
                Ok(()) => task.sent = true,
                Err(error) => self.finish(number, Outcome::Unsent(error.to_string())),
            }
        }
    }

    fn finish(&mut self, task: u32, outcome: Outcome) {
        self.settle_abort(task);
        if let Some(task) = self.tasks.remove(task) {
            let id = task.id;
            self.ended.push(Ended { id, outcome });
        }
    }

    fn send_pdu(
        &mut self,
        bhs: &verbena_storage_wire::iscsi::Bhs,
        data: &[u8],
    ) -> Result<(), Error> {
        match &mut self.link {
            Some(link) => link.send_pdu(bhs, data),
            None => Err(Error::Lost("there is no connection now".to_owned())),
        }
    }

    fn sleep(&mut self) -> Result<(), Error> {
        self.wait(&[], Some(TICK))
    }

    /// Waits until the condition holds, at most for the time of one step of a login.
    fn until(
        &mut self,
        what: &'static str,
        mut so: impl FnMut(&mut Session) -> bool,
    ) -> Result<(), Error> {
        let end = Instant::now() + self.options.login;
        while !so(self) {
            if let Some(why) = self.gave_up() {
                return Err(Error::Lost(why.to_owned()));
            }
            if Instant::now() > end {
                return Err(Error::Timeout {
                    what,
                    limit: self.options.login,
                });
            }
            self.sleep()?;
            self.turn();
        }
        Ok(())
    }
}

impl core::fmt::Debug for Session {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Session")
            .field("address", &self.address.to_string())
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}
