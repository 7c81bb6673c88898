//! Targets of other processes that this one has opened, and those of this one that others have (`ibv_open_qp`).
//! The process of the connection keeps the target as long as another one has it open; when that process ends, the target ends with it. The state is asked
//! for each time.

use core::fmt;
use core::time::Duration;

use verbena_nic::QpState;
use verbena_sync::locks::{Mutex, RwLock};

use crate::error::Error;
use crate::sys::{self, Interest, PacketChannel, Poller};

/// How long another process may take to answer.
const OPEN_WAIT: Duration = Duration::from_secs(10);

/// Bytes of a request and of an answer: a kind, a state, two zeros, and the number of the target.
pub(super) const OPEN_LEN: usize = 8;
const OPEN: u8 = 64;
const QUERY: u8 = 65;
const STATE: u8 = 66;
/// There is no such target.
const NONE: u8 = 0xff;

const STATES: [QpState; 9] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Sqe,
    QpState::Err,
    QpState::Closing,
    QpState::Terminate,
];

/// A target of this process that another one has open; it exists at least until this is dropped.
pub trait TargetHandle: Send {
    /// Its state.
    fn state(&self) -> QpState;
}

/// Finds targets of this process by the number that peers know.
pub(super) type FindTarget = dyn Fn(u32) -> Option<Box<dyn TargetHandle>> + Send + Sync;

/// The targets of a domain that other processes may open: none until a function that finds them is set.
#[derive(Default)]
pub(super) struct Targets(RwLock<Option<Box<FindTarget>>>);

impl Targets {
    pub(super) fn set(&self, find: Box<FindTarget>) {
        *self.0.write() = Some(find);
    }

    pub(super) fn open(&self, number: u32) -> Option<Box<dyn TargetHandle>> {
        self.0.read().as_ref()?(number)
    }
}

/// The number of the target that a record asks to open; none if it only asks for the state.
pub(super) fn open_request(record: &[u8]) -> Option<u32> {
    let bytes: &[u8; OPEN_LEN] = record.try_into().ok()?;
    let [kind, _, _, _, number @ ..] = *bytes;
    (kind == OPEN).then(|| u32::from_le_bytes(number))
}

fn record(kind: u8, state: u8, number: u32) -> [u8; OPEN_LEN] {
    let [a, b, c, d] = number.to_le_bytes();
    [kind, state, 0, 0, a, b, c, d]
}

/// The answer to either.
pub(super) fn target_state(target: Option<&dyn TargetHandle>) -> [u8; OPEN_LEN] {
    let state = target.map(TargetHandle::state);
    let code = STATES.iter().position(|one| Some(*one) == state);
    record(STATE, code.map_or(NONE, |code| code as u8), 0)
}

/// A target of another process that this one has opened. It is released when this is dropped.
pub struct TargetElsewhere {
    number: u32,
    /// Locked while an answer is waited for.
    channel: Mutex<PacketChannel>,
}

impl TargetElsewhere {
    /// Opens the target with this number in the process behind the channel, if it has it.
    pub(super) fn open(channel: PacketChannel, number: u32) -> Option<TargetElsewhere> {
        let target = TargetElsewhere {
            number,
            channel: Mutex::new(channel),
        };
        target.ask(OPEN).ok().flatten()?;
        Some(target)
    }

    /// The number that peers know.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its state; `Err` if its process has ended or does not answer.
    pub fn state(&self) -> QpState {
        self.ask(QUERY).ok().flatten().unwrap_or(QpState::Err)
    }

    fn ask(&self, kind: u8) -> Result<Option<QpState>, Error> {
        let channel = self.channel.lock();
        // There is room: no other question is on its way.
        if !channel.send(&record(kind, 0, self.number), &[])? {
            return Ok(None);
        }
        let poller = Poller::new()?;
        poller.add(&*channel, 1, Interest::READ)?;
        let end = sys::now() + OPEN_WAIT;
        let (mut ready, mut room) = (Vec::new(), [0; OPEN_LEN]);
        loop {
            if let Some(answer) = channel.receive(&mut room)? {
                let [STATE, code, ..] = *answer else {
                    return Ok(None);
                };
                return Ok(STATES.get(usize::from(code)).copied());
            }
            let left = end.since(sys::now());
            if left.is_zero() {
                return Ok(None);
            }
            poller.wait(&mut ready, Some(left))?;
        }
    }
}

impl fmt::Debug for TargetElsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetElsewhere")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(QpState);

    impl TargetHandle for Fixed {
        fn state(&self) -> QpState {
            self.0
        }
    }

    #[test]
    fn records_name_targets_and_states() {
        let open = record(OPEN, 0, 0x00ab_cdef);
        assert_eq!(open_request(&open), Some(0x00ab_cdef));
        assert_eq!(open_request(&record(QUERY, 0, 5)), None);
        assert_eq!(open_request(&open[..7]), None);
        for (code, state) in STATES.into_iter().enumerate() {
            let answer = target_state(Some(&Fixed(state)));
            assert_eq!(answer[..2], [STATE, code as u8]);
        }
        assert_eq!(target_state(None)[1], NONE);
    }
}
