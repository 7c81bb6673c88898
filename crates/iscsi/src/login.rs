//! The initiator's side of the login phase (RFC 7143 §6): produces requests, consumes responses, and ends with the negotiated
//! parameters. A login ends after at most [`MAX_EXCHANGES`] exchanges and [`MAX_TEXT`] bytes of text. There is no I/O and no clock
//! here; the caller fills in sequence numbers and supplies randomness.
//!
//! Call [`Login::next`], send the request, pass the response to [`Login::take`]; repeat while it returns [`Progress::Again`].
//!
//! Reading order: [`offer`] (what is requested) → `state` (the transitions) → `rules` and `bargain` (the keys) → [`chap`] (authentication)
//! → `talk` (text that spans PDUs) → [`error`]; [`discovery`] and [`portal`] for SendTargets.

pub mod chap;
pub mod discovery;
pub mod error;
pub mod offer;
pub mod portal;

mod bargain;
mod rules;
mod settled;
mod state;
mod talk;

pub use bargain::IserTerms;
pub use chap::{CHALLENGE_LEN, Chap, ChapError, Secret};
pub use discovery::{Discovery, DiscoveryError, Found, TargetRecord};
pub use error::{Blame, LoginError};
pub use offer::{DigestWish, IserOffer, Offer, Purpose};
pub use portal::Portal;
pub use settled::{Progress, Proof, Settled};
pub use talk::{MAX_EXCHANGES, MAX_TEXT};

use std::collections::HashSet;

use verbena_wire::iscsi::{LoginRequest, LoginResponse, LoginStatus, Stage, text};

use bargain::{Bargain, Reply};
use chap::{Exchange, Said};
use error::clip;
use rules::{Key, is_refusal, ranged};
use state::{Event, State};
use talk::Talk;

#[cfg(test)]
mod tests;

/// Initiator task tag of all requests of a login.
pub const LOGIN_TAG: u32 = 1;

/// An ISID of the random type (RFC 7143 §11.12.5). The qualifier distinguishes sessions of one initiator.
pub const fn random_isid(random: [u8; 3], qualifier: u16) -> [u8; 6] {
    let ([a, b, c], [d, e]) = (random, qualifier.to_be_bytes());
    [0x80, a, b, c, d, e]
}

/// A login in progress.
#[derive(Debug)]
pub struct Login {
    offer: Offer,
    isid: [u8; 6],
    state: State,
    talk: Talk,
    bargain: Bargain,
    exchange: Option<Exchange>,
    /// Keys that the target has negotiated.
    spoken: HashSet<String>,
    target_alias: Option<String>,
    portal_group: Option<u16>,
}

/// What one text of the target says about security.
#[derive(Debug, Default)]
struct Heard {
    method: Option<Event>,
    chap: Said,
}

impl Login {
    /// Begins a login. `isid` is the initiator's part of the session id, see [`random_isid`]. `random` becomes our CHAP challenge if the
    /// target has to authenticate itself, and must not be used twice.
    pub fn new(
        offer: Offer,
        isid: [u8; 6],
        random: [u8; CHALLENGE_LEN],
    ) -> Result<Login, LoginError> {
        offer.check()?;
        // RFC 7143 §11.12.5: type 11b is reserved. An ISID of zeroes is rejected by targets.
        if isid == [0; 6] || isid.first().is_some_and(|b| b >> 6 == 3) {
            let (what, why) = ("the ISID", "it is all zero or of a reserved type");
            return Err(LoginError::Offer { what, why });
        }
        let mut bargain = Bargain::new(&offer);
        let mut text = offer.names();
        let state = match offer.has_security_stage() {
            true => {
                text::push(&mut text, "AuthMethod", offer.methods());
                State::Method
            }
            false => {
                bargain.offer(&offer.purpose, &mut text);
                State::Operate
            }
        };
        let own = offer.chap.clone();
        let mut talk = Talk::default();
        talk.say(text);
        Ok(Login {
            exchange: own.map(|own| Exchange::new(own, offer.mutual.clone(), random)),
            offer,
            isid,
            state,
            talk,
            bargain,
            spoken: HashSet::new(),
            target_alias: None,
            portal_group: None,
        })
    }

    /// The next request and its text; the same until its response was taken. The caller fills in CmdSN and ExpStatSN.
    pub fn next(&self) -> (LoginRequest, Vec<u8>) {
        let (text, more) = self.talk.chunk();
        let request = LoginRequest {
            more,
            csg: self.state.stage(),
            nsg: self.asks_for(),
            version_max: 0,
            version_min: 0,
            data_len: text.len() as u32,
            isid: self.isid,
            tsih: 0,
            itt: LOGIN_TAG,
            cid: 0,
            cmd_sn: 0,
            exp_stat_sn: 0,
        };
        (request, text.to_vec())
    }

    /// Takes the response to the last request, and its text without padding. After an error or the end, further calls fail.
    pub fn take(&mut self, response: &LoginResponse, data: &[u8]) -> Result<Progress, LoginError> {
        let progress = self.turn(response, data);
        if !matches!(progress, Ok(Progress::Again)) {
            self.state = State::Over;
        }
        progress
    }

    fn turn(&mut self, response: &LoginResponse, data: &[u8]) -> Result<Progress, LoginError> {
        if matches!(self.state, State::Full | State::Over) {
            return Err(LoginError::Over);
        }
        echo("task tag", LOGIN_TAG.into(), response.itt.into())?;
        match response.status {
            status if status.is_success() => {}
            LoginStatus::MovedTemporarily => return Progress::moved(data, false),
            LoginStatus::MovedPermanently => return Progress::moved(data, true),
            status => return Err(LoginError::refused(status, self.offer.chap.is_some())),
        }
        self.check(response)?;
        let Some(text) = self.talk.hear(response.more, data)? else {
            return Ok(Progress::Again);
        };
        let (mut heard, mut reply) = (Heard::default(), Reply::default());
        for pair in text::Pairs::new(&text) {
            let (key, value) = pair?;
            self.pair(key, value, &mut heard, &mut reply)?;
        }
        self.step(response, &heard, reply)
    }

    fn asks_for(&self) -> Option<Stage> {
        let asks = self.state.asks_for(self.offer.chap.is_some());
        asks.filter(|_| self.talk.is_last())
    }

    /// Checks that a response belongs to our request and makes only the stage transition that was requested (RFC 7143 §11.13).
    fn check(&self, response: &LoginResponse) -> Result<(), LoginError> {
        echo("ISID", isid_number(self.isid), isid_number(response.isid))?;
        if response.version_active != 0 {
            let got = response.version_active;
            return Err(LoginError::Version { got });
        }
        let (from, to) = (response.csg, response.nsg);
        let stays = to.is_none() || to == self.asks_for() && !response.more;
        if from != self.state.stage() || !stays {
            let to = to.unwrap_or(from);
            return Err(LoginError::Stage { from, to });
        }
        Ok(())
    }

    /// Handles one key of the target.
    fn pair(
        &mut self,
        key: &str,
        value: &str,
        heard: &mut Heard,
        reply: &mut Reply,
    ) -> Result<(), LoginError> {
        match key {
            // Declarations that may be repeated: the last one holds.
            "TargetAlias" => {
                self.target_alias = (!is_refusal(value)).then(|| value.to_owned());
                return Ok(());
            }
            "TargetPortalGroupTag" => {
                self.portal_group = Some(ranged(key, value, &(0..=65535))? as u16);
                return Ok(());
            }
            // Has a meaning only in a redirection.
            "TargetAddress" => return Ok(()),
            "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" => {
                return match is_refusal(value) {
                    true => Ok(()),
                    false => Err(LoginError::misplaced(key)),
                };
            }
            _ => {}
        }
        if self.bargain.declared(key, value)? {
            return Ok(());
        }
        // RFC 7143 §6.3: no key is negotiated twice in a login.
        if !self.spoken.insert(key.to_owned()) {
            return Err(LoginError::Repeated { key: clip(key) });
        }
        let security = self.state.stage() == Stage::Security;
        if key == "AuthMethod" || key.starts_with("CHAP_") {
            if !security {
                return Err(LoginError::misplaced(key));
            }
            return self.security(key, value, heard);
        }
        // RFC 7143 §6.3.1: no operational keys in the SecurityNegotiation stage.
        if security && self.bargain.knows(key) {
            return Err(LoginError::misplaced(key));
        }
        if !self.bargain.take(key, value, reply)? {
            reply.not_understood(key, value);
        }
        Ok(())
    }

    /// Handles a key of the SecurityNegotiation stage.
    fn security(&mut self, key: &str, value: &str, heard: &mut Heard) -> Result<(), LoginError> {
        if key != "AuthMethod" {
            return match heard.chap.take(key, value) {
                true => Ok(()),
                false => Err(LoginError::misplaced(key)),
            };
        }
        let offered = self.offer.methods();
        heard.method = Some(match value {
            "None" if offered != "CHAP" => Event::ChoseNone,
            "CHAP" if offered != "None" => Event::ChoseChap,
            got => {
                let got = clip(got);
                return Err(LoginError::NoMethod { offered, got });
            }
        });
        Ok(())
    }

    /// Advances the state after a complete text and prepares the next request.
    fn step(
        &mut self,
        response: &LoginResponse,
        heard: &Heard,
        reply: Reply,
    ) -> Result<Progress, LoginError> {
        let before = self.state;
        let mut text = self.prove(heard)?;
        let moves = response.nsg.is_some();
        let last = if moves { Event::Moved } else { Event::Stayed };
        let challenge = heard.chap.challenges().then_some(Event::Challenged);
        // After AuthMethod or a challenge our answer is due, so `Stayed` does not apply; a stage transition still does.
        let stepped = heard.method.or(challenge);
        let last = Some(last).filter(|_| moves || stepped.is_none());
        for event in [stepped, last].into_iter().flatten() {
            self.state = self.state.next(event).ok_or(LoginError::Skipped)?;
        }
        if self.state == State::Full {
            return match reply.owed {
                Some(key) => Err(LoginError::Owed { key }),
                None => self.settle(response),
            };
        }
        if self.state != before {
            match self.state {
                State::Algorithms => Exchange::offer(&mut text),
                State::Operate => {
                    self.may_leave_security()?;
                    self.bargain.offer(&self.offer.purpose, &mut text);
                }
                _ => {}
            }
        }
        text.extend_from_slice(&reply.text);
        self.talk.say(text);
        Ok(Progress::Again)
    }

    /// Answers a challenge, or verifies the target's response, each in its state only.
    fn prove(&mut self, heard: &Heard) -> Result<Vec<u8>, LoginError> {
        let mut text = Vec::new();
        let (challenges, proves) = (heard.chap.challenges(), heard.chap.proves());
        if !challenges && !proves {
            return Ok(text);
        }
        match (&mut self.exchange, self.state) {
            (Some(exchange), State::Algorithms) if !proves => {
                exchange.answer(&heard.chap, &mut text)?;
            }
            (Some(exchange), State::Prove | State::Leave)
                if !challenges && exchange.is_mutual() =>
            {
                exchange.judge(&heard.chap)?;
            }
            _ => return Err(LoginError::misplaced("keys of CHAP")),
        }
        Ok(text)
    }

    /// With mutual CHAP the SecurityNegotiation stage ends only after the target has authenticated itself.
    fn may_leave_security(&self) -> Result<(), LoginError> {
        match &self.exchange {
            Some(exchange) if exchange.is_mutual() && !exchange.is_done() => {
                Err(ChapError::Unproven.into())
            }
            _ => Ok(()),
        }
    }

    fn settle(&self, response: &LoginResponse) -> Result<Progress, LoginError> {
        // RFC 7143 §11.13.3: the final response of a new session carries its TSIH.
        if response.tsih == 0 {
            return Err(LoginError::NoSession);
        }
        let (terms, iser) = self.bargain.settle()?;
        let proof = match &self.exchange {
            Some(exchange) if exchange.is_done() => match exchange.is_mutual() {
                true => Proof::Mutual,
                false => Proof::Initiator,
            },
            _ => Proof::None,
        };
        let seconds = |key| u16::try_from(self.bargain.value(key)).unwrap_or(u16::MAX);
        Ok(Progress::Done(Settled {
            terms,
            iser,
            tsih: response.tsih,
            target_alias: self.target_alias.clone(),
            portal_group: self.portal_group,
            time2wait: seconds(Key::Time2Wait),
            time2retain: seconds(Key::Time2Retain),
            proof,
        }))
    }
}

fn isid_number([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

fn echo(field: &'static str, expected: u64, got: u64) -> Result<(), LoginError> {
    match expected == got {
        true => Ok(()),
        false => Err(LoginError::Echo {
            field,
            expected,
            got,
        }),
    }
}
