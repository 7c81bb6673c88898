//! A session with a target (RFC 7143): logged in, kept alive, and taken up again when its connection is lost.
//! It promises that every command ends in bounded time, that what was lost with a connection is repeated if that is safe and reported if
//! not, and that nothing is acknowledged which the target did not. It refuses threads: whoever owns it drives it from one loop.
//!
//! | happens | then |
//! | --- | --- |
//! | unit attention | the command is sent again, a few times |
//! | busy, task set full | it is sent again after a while |
//! | a command takes too long | it is aborted, and sent again if that is safe; if the target does not abort it, the connection is given up |
//! | a unit is reset | what was under way there is taken back, and sent again if that is safe |
//! | the target is silent, breaks a rule or skips a status | the connection is given up |
//! | the target asks us to go | nothing new is begun, what is under way may end soon, and we log out |
//! | the connection is lost | dialled again; safe commands are sent again, others end as lost |
//! | it does not come back in time | everything ends |

mod abort;
mod answer;
mod dial;
mod discover;
mod doze;
mod iser;
mod leave;
mod link;
mod options;
mod outcome;
mod recover;
mod task;
mod tcp;

pub use discover::discover;
pub use link::Moved;
pub use options::{Options, Redirects};
pub use outcome::Outcome;
pub use task::Command;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use verbena::{Access, Device, Memory, Pd};
use verbena_iscsi::login::Settled;

use crate::address::{Address, Transport};
use crate::error::Error;
use abort::Abort;
use answer::Control;
use leave::Going;
use link::{Link, News};
use recover::Lost;
use task::{Task, Tasks};

/// How often what depends on time is looked at.
const TICK: Duration = Duration::from_millis(20);

/// A session.
pub struct Session {
    pd: Pd,
    device: Device,
    address: Address,
    options: Options,
    /// Names the session on our side, on every connection of it.
    isid: [u8; 6],
    link: Option<Box<dyn Link>>,
    settled: Settled,
    tasks: Tasks,
    /// To be sent, in this order.
    ready: VecDeque<u32>,
    /// To be sent when their time has come.
    later: Vec<(Instant, u32)>,
    news: Vec<News>,
    ended: Vec<Ended>,
    control: Control,
    /// The one request to abort that the target has not answered.
    abort: Option<Abort>,
    /// The target asked us to go, and we have not gone.
    going: Option<Going>,
    lost: Option<Lost>,
    /// The target is not dialled again sooner.
    not_before: Option<Instant>,
    /// When this connection was made, or the last one.
    since: Instant,
    /// Connections in a row that were lost as soon as they were made.
    fleeting: u32,
    /// When something came last.
    heard: Instant,
    ticked: Instant,
    /// Numbers of commands that the session itself waits for.
    own: u64,
    /// Bytes that earlier links moved.
    moved: Moved,
}

/// A command that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The owner's number.
    pub id: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// Where memory for data of a session's commands comes from.
#[derive(Debug, Clone)]
pub(crate) struct Ground(Pd);

impl Ground {
    /// So many bytes.
    pub(crate) fn memory(&self, len: usize) -> Result<Memory, Error> {
        let local = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let remote = Access::REMOTE_READ | Access::REMOTE_WRITE;
        Ok(self.0.memory(len, local | remote)?)
    }
}

/// Numbers from here on are the session's own.
const OWN: u64 = 1 << 63;

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
            news: Vec::new(),
            ended: Vec::new(),
            control: Control::default(),
            abort: None,
            going: None,
            lost: None,
            not_before: None,
            since: now,
            fleeting: 0,
            heard: now,
            ticked: now,
            own: OWN,
            moved: Moved::default(),
        })
    }

    /// What was agreed on at the last login.
    pub fn settled(&self) -> &Settled {
        &self.settled
    }

    /// Commands that may be under way at once.
    pub fn depth(&self) -> usize {
        self.options.depth
    }

    /// Where memory for data of its commands comes from.
    pub(crate) fn ground(&self) -> Ground {
        Ground(self.pd.clone())
    }

    /// Most bytes of data that one command may have, if that is limited.
    pub(crate) fn longest(&self) -> Option<u32> {
        let iser = self.address.transport == Transport::Iser;
        iser.then_some(self.options.iser_longest)
    }

    /// Memory for data of its commands.
    pub fn memory(&self, len: usize) -> Result<Memory, Error> {
        self.ground().memory(len)
    }

    /// Bytes of data that were moved, and how.
    pub fn moved(&self) -> Moved {
        let now = self.link.as_ref().map(|link| link.moved());
        self.moved.and(now.unwrap_or_default())
    }

    /// Starts a command; `id` comes back in [`poll`](Session::poll), with which it leaves at the latest. Numbers below 2^63 are the
    /// owner's.
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
            unwanted: false,
            taken_back: None,
        });
        self.ready.push_back(task);
        self.pump();
        Ok(())
    }

    /// Adds what has ended, without waiting.
    pub fn poll(&mut self, ended: &mut Vec<Ended>) {
        self.turn();
        ended.append(&mut self.ended);
    }

    /// Sleeps until something may have ended, one of `beside` is readable, or the time is over.
    pub fn wait(
        &mut self,
        beside: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        if !self.ended.is_empty() {
            return Ok(());
        }
        // Times are looked at when there is something to wait for.
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

    /// A descriptor that is readable when something may have ended since the last poll, if there is a connection.
    pub fn arm(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.link.as_mut()?.arm())
    }

    /// Carries out one command and waits for its end; others go on meanwhile.
    pub fn run(&mut self, command: Command) -> Result<Outcome, Error> {
        let id = self.own;
        self.own = OWN | id.wrapping_add(1);
        self.start(id, command)?;
        loop {
            self.turn();
            if let Some(at) = self.ended.iter().position(|one| one.id == id) {
                return Ok(self.ended.swap_remove(at).outcome);
            }
            self.sleep()?;
        }
    }

    /// Asks the target for a sign of life and waits for it; how long that took.
    pub fn ping(&mut self) -> Result<Duration, Error> {
        let begun = Instant::now();
        let tag = self.send_ping()?;
        // One that was lost with its connection has no answer, even if there is another connection now.
        self.until("sign of life", |session| session.control.ping.is_none())?;
        match self.control.pong == Some(tag) {
            true => Ok(begun.elapsed()),
            false => Err(Error::Lost("while it was asked for a sign of life".into())),
        }
    }

    /// Everything that can be done now.
    fn turn(&mut self) {
        self.flush();
        let mut news = core::mem::take(&mut self.news);
        let heard = self.link.as_mut().is_some_and(|link| link.poll(&mut news));
        let now = Instant::now();
        if heard {
            self.heard = now;
        }
        for one in news.drain(..) {
            self.take(one);
        }
        self.news = news;
        if now.duration_since(self.ticked) >= TICK {
            self.ticked = now;
            self.tick(now);
        }
        self.go_on_dialling();
        self.pump();
        self.flush();
    }

    /// Has what was started leave.
    fn flush(&mut self) {
        if let Some(link) = &mut self.link {
            link.flush();
        }
    }

    /// Sends what is ready.
    fn pump(&mut self) {
        if self.is_going() {
            return;
        }
        while let (Some(link), Some(number)) = (&mut self.link, self.ready.front().copied()) {
            self.ready.pop_front();
            let Some(task) = self.tasks.get_mut(number) else {
                continue;
            };
            match link.order(&task.order(number)) {
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

    fn say(&mut self, bhs: &verbena_wire::iscsi::Bhs, data: &[u8]) -> Result<(), Error> {
        match &mut self.link {
            Some(link) => link.say(bhs, data),
            None => Err(Error::Lost("there is no connection now".to_owned())),
        }
    }

    fn sleep(&mut self) -> Result<(), Error> {
        self.wait(&[], Some(TICK))
    }

    /// Waits until this is so, as long as a step of a login may take.
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
                return Err(Error::Silent {
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
