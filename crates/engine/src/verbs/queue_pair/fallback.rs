//! `wire = auto` for connections by address: a peer that refuses the connection over TCP is asked over RoCEv2, as adapters listen there only.
//! The program gets one result. If the peer does not answer over RoCEv2 either, it is the refusal of TCP, at most [`LIMIT`] later.
//! Nothing is allocated or opened for RoCEv2 before a refusal.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use verbena_nic::Personality;
use verbena_sync::locks::Mutex;
use verbena_wire::number::Qpn;

use super::QueuePair;
use super::oob::RoceNumber;
use crate::config::Wire;
use crate::connection::{Connection, Done, Options};
use crate::core::Core;
use crate::error::Error;
use crate::roce::cm::RoceCm;
use crate::roce::may_have_port;

/// How long a peer that has refused over TCP may take to answer over RoCEv2: a request and two repetitions.
const LIMIT: Duration = Duration::from_millis(700);

/// The second attempt.
struct RoceAttempt {
    core: Arc<Core>,
    to: SocketAddr,
    options: Options,
    /// Its number, if it has one for out-of-band connections.
    oob_qpn: Option<Qpn>,
    number: RoceNumber,
}

/// What is told to the program, once: the result, or the error of the first attempt.
type Told = Arc<Mutex<Option<(Done, Error)>>>;

impl QueuePair {
    /// Connects over TCP, and over RoCEv2 if the setting `wire` allows it and TCP is refused.
    pub(super) fn dial(&self, to: SocketAddr, options: Options, done: Done) -> Result<(), Error> {
        let config = &self.core.config;
        let is_roce = self.qp.init().personality == Personality::Roce;
        let by_port = self.core.port.route(options.source, to.ip()).is_some();
        if config.wire_to(to.ip()) != Wire::Auto || !is_roce || by_port {
            return Connection::dial(&self.core, to, options, None, done);
        }
        let attempt = RoceAttempt {
            core: self.core.clone(),
            to,
            options: Options {
                source: options.source,
                ..self.options(&options.private_data)
            },
            oob_qpn: self.oob_qpn(),
            number: self.roce_number.clone(),
        };
        let pending = Arc::new(Mutex::new(Some((attempt, done))));
        let answered = pending.clone();
        let first: Done = Box::new(move |result| {
            let Some((attempt, done)) = answered.lock().take() else {
                return;
            };
            match result {
                Err(error) if is_refusal(&error) => {
                    if let Err((done, error)) = attempt.start(done, error) {
                        done(Err(error));
                    }
                }
                result => done(result),
            }
        });
        let dialled = Connection::dial(&self.core, to, options, None, first);
        let Err(error) = dialled else {
            return Ok(());
        };
        // The system has refused at once.
        let unanswered = pending.lock().take();
        let started = match unanswered {
            Some((attempt, done)) if is_refusal(&error) => attempt.start(done, error),
            Some((_, done)) => Err((done, error)),
            None => return Err(error),
        };
        started.map_err(|(_, error)| error)
    }
}

impl RoceAttempt {
    /// Asks the peer over RoCEv2; gives back what is to be told now if that is not possible.
    fn start(self, done: Done, error: Error) -> Result<(), (Done, Error)> {
        if !may_have_port(self.to.ip()) {
            return Err((done, error));
        }
        let told: Told = Arc::new(Mutex::new(Some((done, error))));
        let answered = told.clone();
        let second: Done = Box::new(move |result| {
            let Some((done, error)) = answered.lock().take() else {
                return;
            };
            done(match result {
                // The first error says more: nothing listens at the port.
                Err(Error::Unreachable { .. } | Error::Timeout { .. }) => Err(error),
                result => result,
            });
        });
        if self.ask(second).is_ok() {
            return Ok(());
        }
        let unanswered = told.lock().take();
        unanswered.map_or(Ok(()), Err)
    }

    fn ask(self, done: Done) -> Result<(), Error> {
        let qpn = match self.oob_qpn {
            Some(number) => number,
            None => self.number.get(&self.core)?,
        };
        RoceCm::connect(&self.core, self.to, self.options, (qpn, LIMIT), done)
    }
}

/// Nothing listens at the port over TCP.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Unreachable { cause, .. } if cause.is_refused())
}
