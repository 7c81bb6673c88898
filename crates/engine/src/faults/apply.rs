//! Carries out what fault rules have decided: on queue pairs, connections, the port, and at the calls of a program.
//! Each way is that of a real failure; nothing here holds a lock while it calls the adapter.

use core::time::Duration;
use std::sync::{Arc, Weak};

use verbena_events::eqe::Cause;
use verbena_events::interrupts::Origin;
use verbena_nic::{Outbox, Qp, RegistrationCheck};
use verbena_stream::Time;

use super::rule::{Effect, When};
use super::{FaultCounts, QpNumbers, Script, ScriptError, concerns};
use crate::core::Core;
use crate::engine::Engine;
use crate::error::Error;
use crate::notify::link::PORT;
use crate::notify::monitor::faults::{CLEAR, SET, SHOW};
use crate::poll::shard::{Shard, ShardTask, next_token};
use crate::sys::{self, Ready};

/// How the sentence about a queue pair names the rule.
fn by_rule(what: &str, index: usize) -> String {
    format!("{what} by rule {}", index + 1)
}

impl Core {
    /// Replaces the faults of the adapter; returns the seed. Rules without `nth`, `every` and `rate` take effect at once if queue pairs exist that
    /// they are for.
    pub(crate) fn set_faults(self: &Arc<Core>, script: &Script) -> Result<u64, Error> {
        self.check()?;
        let weak = Arc::downgrade(self);
        let check = move || {
            let core: Arc<Core> = weak.upgrade()?;
            core.faults.on_register(core.function.used().stags)
        };
        self.function
            .set_registration_check(RegistrationCheck(Box::new(check)));
        let seed = self.faults.set(script, sys::random_u64()?);
        self.lifecycle.set_faults(!script.rules.is_empty());
        self.apply_now();
        Ok(seed)
    }

    /// Removes the faults. Those that were decided still happen.
    pub(crate) fn clear_faults(&self) {
        self.lifecycle.set_faults(false);
        self.faults.set(&Script::default(), 0);
    }

    /// Carries out a request of `verbena faults`; the answer, or why it is refused.
    pub(crate) fn control_faults(self: &Arc<Core>, request: &str) -> Result<String, String> {
        if let Some(script) = request.strip_prefix(SET) {
            let script: Script = script.parse().map_err(|e: ScriptError| e.to_string())?;
            self.set_faults(&script).map_err(|e| e.to_string())?;
        } else if request == CLEAR {
            self.clear_faults();
        } else if request != SHOW {
            return Err("the request is not known".to_owned());
        }
        let counts = self.faults.counts();
        let mut text = format!("seed={}\n", counts.seed);
        for one in counts.rules {
            let (seen, fired, rule) = (one.seen, one.fired, one.rule);
            text.push_str(&format!("rule seen={seen} fired={fired} cause={rule}\n"));
        }
        Ok(text)
    }

    fn apply_now(self: &Arc<Core>) {
        for (index, counted) in self.faults.counts().rules.iter().enumerate() {
            if counted.rule.when != When::Now {
                continue;
            }
            let mut fired = 0;
            if let Effect::PortDown(time) = counted.rule.effect {
                // Before there is a queue pair, no program could notice.
                if !self.function.all_qps().is_empty() {
                    self.take_port_down(time);
                    fired = 1;
                }
            } else {
                for qp in self.function.all_qps() {
                    let numbers = (qp.number(), qp.init().wc_qpn);
                    let happens = concerns(&counted.rule, Some(numbers))
                        && self.apply_to(&qp, index, counted.rule.effect);
                    fired += u64::from(happens);
                }
            }
            self.faults.applied(index, &counted.rule, fired);
        }
    }

    fn apply_to(&self, qp: &Qp, index: usize, effect: Effect) -> bool {
        let mut done = false;
        match effect {
            Effect::Kill => done = self.kill_qp(qp, index),
            Effect::Reset => done = self.reset_connection(qp, index),
            Effect::Rnr(refusals) => {
                let until = refusals.from(sys::now());
                self.run_on_qp(qp, |qp, out| done = qp.refuse_messages(until, out));
            }
            _ => {}
        }
        done
    }

    /// The queue pair fails.
    pub(crate) fn kill_qp(&self, qp: &Qp, index: usize) -> bool {
        let mut done = false;
        let why = by_rule("the queue pair was killed", index);
        self.run_on_qp(qp, |qp, out| done = qp.kill(&why, out));
        done
    }

    /// The connection of the queue pair is reset; false if it has none.
    pub(crate) fn reset_connection(&self, qp: &Qp, index: usize) -> bool {
        let mut out = Outbox::new();
        let why = by_rule("the connection was reset", index);
        let is_connected = if let Some(connection) = self.routes.connection_of(qp.number()) {
            qp.blame_injected(&why, &mut out);
            connection.abort(&mut out);
            true
        } else if self.routes.roce_of(qp.number()).is_some() {
            // UDP has no reset: this side ends, and the peer notices by its silence.
            qp.kill(&why, &mut out)
        } else {
            false
        };
        self.deliver(&mut out);
        is_connected
    }

    /// The port goes down, and up again after this time.
    pub(crate) fn take_port_down(self: &Arc<Core>, time: Duration) {
        let up = sys::now() + time;
        let was_down = self.faults.0.lock().port_up.replace(up).is_some();
        let Ok(shard) = self.shards.pick() else {
            return;
        };
        if !was_down {
            self.report_link(false);
        }
        let token = next_token();
        let core = Arc::downgrade(self);
        let timer = Arc::new(PortTimer {
            core,
            shard: shard.clone(),
            token,
        });
        if shard.serve(token, timer).is_ok() {
            shard.set_timer(up, token);
        }
    }

    fn report_link(&self, up: bool) {
        let cause = Cause::Link { port: PORT, up };
        // Fails only when the adapter is down, which was reported.
        let _ = self.notification.inject(cause, Origin::UNSPECIFIED);
    }

    /// An error if a fault is to happen to a request to connect.
    pub(crate) fn check_connect_fault(&self, qp: QpNumbers) -> Result<(), Error> {
        if !self.lifecycle.has_faults() {
            return Ok(());
        }
        let refused = self.faults.on_connect(qp);
        refused.map_or(Ok(()), |errno| Err(Error::Injected { errno }))
    }
}

/// Takes the port up again.
struct PortTimer {
    core: Weak<Core>,
    shard: Arc<Shard>,
    token: u64,
}

impl ShardTask for PortTimer {
    fn ready(self: Arc<Self>, _: Ready) {}

    fn expire(self: Arc<Self>, now: Time) {
        self.shard.forget(self.token);
        let Some(core) = self.core.upgrade() else {
            return;
        };
        // A later fault may have prolonged it; its own timer ends it.
        let ends = core
            .faults
            .0
            .lock()
            .port_up
            .take_if(|up| *up <= now)
            .is_some();
        if ends {
            core.report_link(true);
        }
    }

    fn stop(self: Arc<Self>) {}
}

impl Engine {
    /// Replaces the faults that happen to the program; returns the seed.
    pub fn set_faults(&self, script: &Script) -> Result<u64, Error> {
        self.core.set_faults(script)
    }

    /// Removes the faults. Those that were decided still happen.
    pub fn clear_faults(&self) {
        self.core.clear_faults();
    }

    /// The rules, and what they have counted.
    pub fn faults(&self) -> FaultCounts {
        self.core.faults.counts()
    }
}
