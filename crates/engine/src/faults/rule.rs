//! A rule of a fault script: what happens, at which of the things that it counts, to which queue pairs.
//! Its text is its line in a script, and parsing that line gives the same rule. Everything is bounded.

use core::fmt::{self, Display};
use core::time::Duration;

use verbena_nic::Status;
use verbena_nic::qp::RefuseUntil;
use verbena_stream::Time;

use crate::config::units::time as time_text;

/// Queue pairs that one rule can name.
pub const MAX_QPS: usize = 64;
/// The longest time of a fault: half of `dead_after`, by default, so that a peer that is only late does not count as dead.
pub const MAX_TIME: Duration = Duration::from_secs(5);
/// Messages that one fault refuses at most.
pub const MAX_REFUSALS: u32 = 1_000_000;

/// Statuses that a completion can be given, by the names of `ibv_wc_status` without `IBV_WC_`.
pub(super) const STATUSES: &[(&str, Status)] = &[
    ("LOC_LEN_ERR", Status::LocLenErr),
    ("LOC_QP_OP_ERR", Status::LocQpOpErr),
    ("LOC_PROT_ERR", Status::LocProtErr),
    ("WR_FLUSH_ERR", Status::WrFlushErr),
    ("MW_BIND_ERR", Status::MwBindErr),
    ("BAD_RESP_ERR", Status::BadRespErr),
    ("LOC_ACCESS_ERR", Status::LocAccessErr),
    ("REM_INV_REQ_ERR", Status::RemInvReqErr),
    ("REM_ACCESS_ERR", Status::RemAccessErr),
    ("REM_OP_ERR", Status::RemOpErr),
    ("RETRY_EXC_ERR", Status::RetryExcErr),
    ("RNR_RETRY_EXC_ERR", Status::RnrRetryExcErr),
    ("REM_ABORT_ERR", Status::RemAbortErr),
    ("FATAL_ERR", Status::FatalErr),
    ("GENERAL_ERR", Status::GeneralErr),
];

/// Error numbers that a call can be given.
pub(super) const ERRNOS: &[(&str, i32)] = &[
    ("EPERM", libc::EPERM),
    ("EIO", libc::EIO),
    ("EAGAIN", libc::EAGAIN),
    ("ENOMEM", libc::ENOMEM),
    ("EACCES", libc::EACCES),
    ("EFAULT", libc::EFAULT),
    ("EBUSY", libc::EBUSY),
    ("ENODEV", libc::ENODEV),
    ("EINVAL", libc::EINVAL),
    ("ENOSPC", libc::ENOSPC),
    ("EPROTO", libc::EPROTO),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("EADDRINUSE", libc::EADDRINUSE),
    ("EADDRNOTAVAIL", libc::EADDRNOTAVAIL),
    ("ENETDOWN", libc::ENETDOWN),
    ("ENETUNREACH", libc::ENETUNREACH),
    ("ECONNABORTED", libc::ECONNABORTED),
    ("ECONNRESET", libc::ECONNRESET),
    ("ENOBUFS", libc::ENOBUFS),
    ("ETIMEDOUT", libc::ETIMEDOUT),
    ("ECONNREFUSED", libc::ECONNREFUSED),
    ("EHOSTUNREACH", libc::EHOSTUNREACH),
];

/// How long messages are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusals {
    /// So many times.
    Count(u32),
    /// For this time.
    Time(Duration),
}

impl Refusals {
    pub(super) fn from(self, now: Time) -> RefuseUntil {
        match self {
            Refusals::Count(count) => RefuseUntil::Count(count),
            Refusals::Time(time) => RefuseUntil::Time(now + time),
        }
    }
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Posting a send request fails with this error number.
    Post(i32),
    /// Posting a receive fails with this error number.
    PostReceive(i32),
    /// A send request completes with this status instead of being executed.
    Completion(Status),
    /// A receive completes with this status instead of taking its message.
    Receive(Status),
    /// A request to connect fails with this error number.
    Connect(i32),
    /// Registering memory fails with this error number.
    Register(i32),
    /// The queue pair fails.
    Kill,
    /// The connection is reset.
    Reset,
    /// A send request begins so much later, as do those behind it.
    Delay(Duration),
    /// Messages of the peer are refused as if no receive were posted.
    Rnr(Refusals),
    /// The port is down for this time.
    PortDown(Duration),
    /// Registering memory fails with this error number as long as there are so many regions and windows.
    Regions {
        /// How many there may be.
        most: u32,
        /// The error number.
        errno: i32,
    },
}

/// What a rule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    Sends,
    Receives,
    Connects,
    Registrations,
}

impl Effect {
    /// The word that begins its rule.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Effect::Post(_) => "post",
            Effect::PostReceive(_) => "post-receive",
            Effect::Completion(_) => "completion",
            Effect::Receive(_) => "receive",
            Effect::Connect(_) => "connect",
            Effect::Register(_) => "register",
            Effect::Kill => "kill",
            Effect::Reset => "reset",
            Effect::Delay(_) => "delay",
            Effect::Rnr(_) => "rnr",
            Effect::PortDown(_) => "port-down",
            Effect::Regions { .. } => "regions",
        }
    }

    pub(super) fn counts(&self) -> Counts {
        match self {
            Effect::Post(_)
            | Effect::Completion(_)
            | Effect::Kill
            | Effect::Reset
            | Effect::Delay(_)
            | Effect::PortDown(_) => Counts::Sends,
            Effect::PostReceive(_) | Effect::Receive(_) | Effect::Rnr(_) => Counts::Receives,
            Effect::Connect(_) => Counts::Connects,
            Effect::Register(_) | Effect::Regions { .. } => Counts::Registrations,
        }
    }
}

/// At which of the things that a rule counts, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At once, or at the first one if there is no queue pair yet.
    Now,
    /// At this one.
    Nth(u64),
    /// At each multiple of this.
    Every(u64),
    /// At this fraction of them, chosen by the seed.
    Rate(Rate),
}

/// A fraction above 0 and up to 1, in parts of a million.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(u32);

impl Rate {
    const ONE: u32 = 1_000_000;

    /// This fraction, rounded to a millionth; `None` if it is below that or above 1.
    pub fn new(fraction: f64) -> Option<Rate> {
        let parts = (fraction * f64::from(Rate::ONE)).round();
        let fits = parts >= 1.0 && parts <= f64::from(Rate::ONE);
        fits.then_some(Rate(parts as u32))
    }

    /// Whether it includes a number that is drawn from all of 64 bits.
    pub(super) fn includes(self, drawn: u64) -> bool {
        drawn % u64::from(Rate::ONE) < self.0.into()
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What happens.
    pub effect: Effect,
    /// When.
    pub when: When,
    /// How often at most; `None` for without limit.
    pub times: Option<u64>,
    /// The queue pairs that it is for, by their numbers in the adapter or in completions; none for all.
    pub qps: Vec<u32>,
}

/// The name of a value in a list.
fn name_of<T: PartialEq + Copy>(all: &[(&'static str, T)], value: T) -> &'static str {
    let found = all.iter().find(|(_, one)| *one == value);
    found.map_or("?", |(name, _)| name)
}

impl Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.effect.name())?;
        let when = match self.effect {
            // It depends on how many regions there are, not on a count.
            Effect::Regions { .. } => When::Now,
            _ => self.when,
        };
        match when {
            When::Now => {}
            When::Nth(n) => write!(f, " nth={n}")?,
            When::Every(n) => write!(f, " every={n}")?,
            When::Rate(Rate(parts)) => {
                let parts = format!("{:06}", parts % Rate::ONE);
                let whole = u32::from(when == When::Rate(Rate(Rate::ONE)));
                let digits = parts.trim_end_matches('0');
                let point = if digits.is_empty() { "" } else { "." };
                write!(f, " rate={whole}{point}{digits}")?;
            }
        }
        match self.effect {
            Effect::Post(errno)
            | Effect::PostReceive(errno)
            | Effect::Connect(errno)
            | Effect::Register(errno) => write!(f, " errno={}", name_of(ERRNOS, errno))?,
            Effect::Completion(status) | Effect::Receive(status) => {
                write!(f, " status={}", name_of(STATUSES, status))?;
            }
            Effect::Delay(time) | Effect::PortDown(time) | Effect::Rnr(Refusals::Time(time)) => {
                write!(f, " time={}", time_text(time))?;
            }
            Effect::Rnr(Refusals::Count(count)) => write!(f, " count={count}")?,
            Effect::Regions { most, errno } => {
                write!(f, " most={most} errno={}", name_of(ERRNOS, errno))?;
            }
            Effect::Kill | Effect::Reset => {}
        }
        if let Some(times) = self.times {
            write!(f, " times={times}")?;
        }
        for (at, qp) in self.qps.iter().enumerate() {
            let before = if at == 0 { " qp=" } else { "," };
            write!(f, "{before}{qp}")?;
        }
        Ok(())
    }
}
