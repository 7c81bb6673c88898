//! Faults for tests of programs (`verbena faults`): which of them happen, decided from rules, a seed and counts, never from the time.
//! A rule counts posts, connects or registrations of the whole adapter, or of the queue pairs that it names, in the order in which they are
//! made. While no rule is set nothing here is called.

mod apply;
mod rule;
mod script;

use std::sync::Arc;

use verbena_nic::Status;
use verbena_nic::qp::{RefuseUntil, SendFault};
use verbena_stream::Time;
use verbena_sync::locks::Mutex;

use rule::Counts;
pub use rule::{Effect, MAX_QPS, MAX_REFUSALS, MAX_TIME, Rate, Refusals, Rule, When};
pub use script::{MAX_RULES, MAX_SCRIPT, Script, ScriptError};

/// The numbers of a queue pair: in the adapter, and in its completions.
pub(crate) type QpNumbers = (u32, u32);

/// The rules of an adapter, and what they have counted.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    seed: u64,
    rules: Vec<Counted>,
    /// The port is down until then.
    port_up: Option<Time>,
}

#[derive(Debug)]
struct Counted {
    rule: Arc<Rule>,
    seen: u64,
    fired: u64,
    /// It takes effect on the queue pairs that exist, which is not done yet: posts leave it alone until then.
    pending: bool,
}

impl Counted {
    /// Counts one more, and decides whether the fault happens to it.
    fn fires(&mut self, seed: u64, index: usize) -> bool {
        self.seen += 1;
        if self.rule.times.is_some_and(|times| self.fired >= times) {
            return false;
        }
        let fires = match self.rule.when {
            When::Now => self.fired == 0 && !self.pending,
            When::Nth(n) => self.seen == n,
            When::Every(n) => self.seen.is_multiple_of(n),
            When::Rate(rate) => rate.includes(draw(seed, index as u64, self.seen)),
        };
        self.fired += u64::from(fires);
        fires
    }
}

/// Bits that are the same for the same seed, rule and count, and look random otherwise (the finalizer of splitmix64).
fn draw(seed: u64, rule: u64, count: u64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let rule = mix(seed.wrapping_add(rule.wrapping_add(1).wrapping_mul(STEP)));
    mix(rule.wrapping_add(count.wrapping_mul(STEP)))
}

/// What happens to a send request that is being posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SendFaults {
    pub(crate) refuse: Option<i32>,
    pub(crate) fault: Option<SendFault>,
    /// The rule that ends the queue pair, and the one that ends its connection.
    pub(crate) kill: Option<usize>,
    pub(crate) reset: Option<usize>,
    pub(crate) port_down: Option<core::time::Duration>,
}

/// What happens to a receive that is being posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReceiveFaults {
    pub(crate) refuse: Option<i32>,
    pub(crate) status: Option<Status>,
    pub(crate) storm: Option<RefuseUntil>,
}

/// A rule, and what it has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultCount {
    /// The rule.
    pub rule: Arc<Rule>,
    /// What it counted: posts, connects or registrations that it is for.
    pub seen: u64,
    /// Faults that happened.
    pub fired: u64,
}

/// The rules of an adapter and the seed of their fractions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FaultCounts {
    /// The seed.
    pub seed: u64,
    /// The rules, in the order in which they were set.
    pub rules: Vec<FaultCount>,
}

impl Faults {
    /// Calls `each` for every rule that counts this for the queue pair and whose fault happens now.
    fn count(&self, what: Counts, qp: Option<QpNumbers>, mut each: impl FnMut(usize, Effect)) {
        let mut state = self.0.lock();
        let seed = state.seed;
        for (index, counted) in state.rules.iter_mut().enumerate() {
            let rule = &counted.rule;
            let concerns = rule.effect.counts() == what && concerns(rule, qp);
            if concerns && counted.fires(seed, index) {
                each(index, counted.rule.effect);
            }
        }
    }

    pub(crate) fn on_send(&self, qp: QpNumbers, now: Time) -> SendFaults {
        let mut found = SendFaults::default();
        self.count(Counts::Sends, Some(qp), |index, effect| match effect {
            Effect::Post(errno) => _ = found.refuse.get_or_insert(errno),
            // A request that fails is not delayed.
            Effect::Completion(_) if matches!(found.fault, Some(SendFault::Fail(_))) => {}
            Effect::Completion(status) => found.fault = Some(SendFault::Fail(status)),
            Effect::Delay(time) => {
                _ = found.fault.get_or_insert(SendFault::HoldUntil(now + time));
            }
            Effect::Kill => _ = found.kill.get_or_insert(index),
            Effect::Reset => _ = found.reset.get_or_insert(index),
            Effect::PortDown(time) => _ = found.port_down.get_or_insert(time),
            _ => {}
        });
        let up = found
            .port_down
            .map(|time| now + time)
            .or_else(|| self.0.lock().port_up);
        if let Some(up) = up.filter(|up| *up > now) {
            _ = found.fault.get_or_insert(SendFault::HoldUntil(up));
        }
        found
    }

    pub(crate) fn on_receive(&self, qp: Option<QpNumbers>, now: Time) -> ReceiveFaults {
        let mut found = ReceiveFaults::default();
        self.count(Counts::Receives, qp, |_, effect| match effect {
            Effect::PostReceive(errno) => _ = found.refuse.get_or_insert(errno),
            Effect::Receive(status) => _ = found.status.get_or_insert(status),
            Effect::Rnr(refusals) => _ = found.storm.get_or_insert(refusals.from(now)),
            _ => {}
        });
        found
    }

    /// The error number of a request to connect that fails.
    pub(crate) fn on_connect(&self, qp: QpNumbers) -> Option<i32> {
        let mut found = None;
        self.count(Counts::Connects, Some(qp), |_, effect| {
            if let Effect::Connect(errno) = effect {
                _ = found.get_or_insert(errno);
            }
        });
        found
    }

    /// The error number of a registration that fails, if there are so many regions and windows.
    fn on_register(&self, regions: u32) -> Option<i32> {
        let mut state = self.0.lock();
        let seed = state.seed;
        let mut found = None;
        for (index, counted) in state.rules.iter_mut().enumerate() {
            let effect = counted.rule.effect;
            let errno = match effect {
                Effect::Register(errno) if counted.fires(seed, index) => errno,
                Effect::Regions { most, errno } => {
                    counted.seen += 1;
                    if regions < most {
                        continue;
                    }
                    counted.fired += 1;
                    errno
                }
                _ => continue,
            };
            _ = found.get_or_insert(errno);
        }
        found
    }

    /// Whether a fault keeps the port down.
    pub(crate) fn is_port_down(&self, now: Time) -> bool {
        self.0.lock().port_up.is_some_and(|up| now < up)
    }

    /// Replaces the rules; a random seed if the script has none.
    fn set(&self, script: &Script, random: u64) -> u64 {
        let mut state = self.0.lock();
        state.seed = script.seed.unwrap_or(random);
        let counted = |rule: &Rule| Counted {
            rule: Arc::new(rule.clone()),
            seen: 0,
            fired: 0,
            pending: rule.when == When::Now,
        };
        state.rules = script.rules.iter().map(counted).collect();
        state.seed
    }

    /// To how many queue pairs the fault of a rule that takes effect at once has happened; if to none, it happens to the next post.
    fn applied(&self, index: usize, rule: &Arc<Rule>, fired: u64) {
        let mut state = self.0.lock();
        // Other rules may have been set meanwhile.
        let own = state.rules.get_mut(index);
        if let Some(own) = own.filter(|own| Arc::ptr_eq(&own.rule, rule)) {
            own.fired += fired;
            own.pending = false;
        }
    }

    /// The rules and what they have counted.
    pub(crate) fn counts(&self) -> FaultCounts {
        let state = self.0.lock();
        let count = |counted: &Counted| FaultCount {
            rule: counted.rule.clone(),
            seen: counted.seen,
            fired: counted.fired,
        };
        FaultCounts {
            seed: state.seed,
            rules: state.rules.iter().map(count).collect(),
        }
    }
}

fn concerns(rule: &Rule, qp: Option<QpNumbers>) -> bool {
    let named = |(own, wc): QpNumbers| rule.qps.contains(&own) || rule.qps.contains(&wc);
    rule.qps.is_empty() || qp.is_some_and(named)
}

#[cfg(test)]
mod tests;
