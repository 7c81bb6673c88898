//! The initiator's side of the login phase (RFC 7143 §6): produces requests, consumes responses, and ends with the negotiated
//! parameters. A login ends after at most [`MAX_EXCHANGES`] exchanges and [`MAX_TEXT`] bytes of text. There is no I/O and no clock
//! here; the caller fills in sequence numbers and supplies randomness.
//!
//! Call [`Login::next`], send the request, pass the response to [`Login::handle_response`]; repeat while it returns [`Progress::Continue`].
//!
//! Reading order: [`offer`] (what is requested) → `state` (the transitions) → `rules` and `bargain` (the keys) → [`chap`] (authentication)
//! → `talk` (text that spans PDUs) → [`error`]; [`discovery`] and [`portal`] for SendTargets.

pub mod blame;
pub mod chap;
pub mod discovery;
pub mod error;
pub mod offer;
pub mod portal;

mod negotiation;
mod outcome;
mod rules;
mod state;
mod text_exchange;

pub use blame::Blame;
pub use chap::{CHALLENGE_LEN, Chap, ChapError, Secret};
pub use discovery::{Discovery, DiscoveryError, DiscoveryProgress, TargetRecord};
pub use error::LoginError;
pub use negotiation::IserTerms;
pub use offer::{DigestPreference, IserOffer, Offer, Purpose};
pub use outcome::{Authentication, LoginOutcome, Progress};
pub use portal::Portal;
pub use text_exchange::{MAX_EXCHANGES, MAX_TEXT};

use std::collections::HashSet;

use verbena_storage_wire::iscsi::{LoginRequest, LoginResponse, LoginStatus, Stage, text};

use blame::clip;
use chap::{ChapExchange, ChapKeys};
use negotiation::{Negotiation, Reply};
use rules::{Key, is_refusal, ranged};
use state::{Event, State};
use text_exchange::TextExchange;

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
    text_exchange: TextExchange,
    negotiation: Negotiation,
    chap_exchange: Option<ChapExchange>,
    /// Keys that the target has negotiated.
    negotiated_keys: HashSet<String>,
    target_alias: Option<String>,
    portal_group: Option<u16>,
}

/// What one text of the target says about security.
#[derive(Debug, Default)]
struct SecurityKeys {
    method: Option<Event>,
    chap: ChapKeys,
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
        let mut bargain = Negotiation::new(&offer);
        let mut text = offer.declarations();
        let state = match offer.has_security_stage() {
            true => {
                text::push(&mut text, "AuthMethod", offer.auth_methods());
                State::Method
            }
            false => {
                bargain.offer(&offer.purpose, &mut text);
                State::Operational
            }
        };
        let own = offer.chap.clone();
        let mut dialogue = TextExchange::default();
        dialogue.set_text(text);
        Ok(Login {
            chap_exchange: own.map(|own| ChapExchange::new(own, offer.mutual.clone(), random)),
            offer,
            isid,
            state,
            text_exchange: dialogue,
            negotiation: bargain,
            negotiated_keys: HashSet::new(),
            target_alias: None,
            portal_group: None,
        })
    }

    /// The next request and its text; the same until its response was taken. The caller fills in CmdSN and ExpStatSN.
    pub fn next(&self) -> (LoginRequest, Vec<u8>) {
        let (text, more) = self.text_exchange.chunk();
        let request = LoginRequest {
            more,
            csg: self.state.stage(),
            nsg: self.requested_stage(),
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
    pub fn handle_response(
        &mut self,
        response: &LoginResponse,
        data: &[u8],
    ) -> Result<Progress, LoginError> {
        let progress = self.process_response(response, data);
        if !matches!(progress, Ok(Progress::Continue)) {
            self.state = State::Finished;
        }
        progress
    }

    fn process_response(
        &mut self,
        response: &LoginResponse,
        data: &[u8],
    ) -> Result<Progress, LoginError> {
        if matches!(self.state, State::FullFeature | State::Finished) {
            return Err(LoginError::Finished);
        }
        check_echo("task tag", LOGIN_TAG.into(), response.itt.into())?;
        match response.status {
            status if status.is_success() => {}
            LoginStatus::MovedTemporarily => return Progress::parse_redirect(data, false),
            LoginStatus::MovedPermanently => return Progress::parse_redirect(data, true),
            status => return Err(LoginError::refused(status, self.offer.chap.is_some())),
        }
        self.check(response)?;
        let Some(text) = self.text_exchange.receive(response.more, data)? else {
            return Ok(Progress::Continue);
        };
        let (mut received, mut reply) = (SecurityKeys::default(), Reply::default());
        for pair in text::Pairs::new(&text) {
            let (key, value) = pair?;
            self.handle_key(key, value, &mut received, &mut reply)?;
        }
        self.step(response, &received, reply)
    }

    fn requested_stage(&self) -> Option<Stage> {
        let asks = self.state.requested_stage(self.offer.chap.is_some());
        asks.filter(|_| self.text_exchange.is_last())
    }

    /// Checks that a response belongs to our request and makes only the stage transition that was requested (RFC 7143 §11.13).
    fn check(&self, response: &LoginResponse) -> Result<(), LoginError> {
        check_echo("ISID", isid_number(self.isid), isid_number(response.isid))?;
        if response.version_active != 0 {
            let got = response.version_active;
            return Err(LoginError::Version { got });
        }
        let (from, to) = (response.csg, response.nsg);
        let stays = to.is_none() || to == self.requested_stage() && !response.more;
        if from != self.state.stage() || !stays {
            let to = to.unwrap_or(from);
            return Err(LoginError::Stage { from, to });
        }
        Ok(())
    }

    /// Handles one key of the target.
    fn handle_key(
        &mut self,
        key: &str,
        value: &str,
        keys: &mut SecurityKeys,
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
        if self.negotiation.handle_declaration(key, value)? {
            return Ok(());
        }
        // RFC 7143 §6.3: no key is negotiated twice in a login.
        if !self.negotiated_keys.insert(key.to_owned()) {
            return Err(LoginError::Repeated { key: clip(key) });
        }
        let security = self.state.stage() == Stage::Security;
        if key == "AuthMethod" || key.starts_with("CHAP_") {
            if !security {
                return Err(LoginError::misplaced(key));
            }
            return self.handle_security_key(key, value, keys);
        }
        // RFC 7143 §6.3.1: no operational keys in the SecurityNegotiation stage.
        if security && self.negotiation.is_operational(key) {
            return Err(LoginError::misplaced(key));
        }
        if !self.negotiation.handle_key(key, value, reply)? {
            reply.not_understood(key, value);
        }
        Ok(())
    }

    /// Handles a key of the SecurityNegotiation stage.
    fn handle_security_key(
        &mut self,
        key: &str,
        value: &str,
        keys: &mut SecurityKeys,
    ) -> Result<(), LoginError> {
        if key != "AuthMethod" {
            return match keys.chap.store(key, value) {
                true => Ok(()),
                false => Err(LoginError::misplaced(key)),
            };
        }
        let offered = self.offer.auth_methods();
        keys.method = Some(match value {
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
        keys: &SecurityKeys,
        reply: Reply,
    ) -> Result<Progress, LoginError> {
        let before = self.state;
        let mut text = self.authenticate(keys)?;
        let moves = response.nsg.is_some();
        let last = if moves { Event::Moved } else { Event::Stayed };
        let challenge = keys.chap.has_challenge().then_some(Event::Challenged);
        // After AuthMethod or a challenge our answer is due, so `Stayed` does not apply; a stage transition still does.
        let stepped = keys.method.or(challenge);
        let last = Some(last).filter(|_| moves || stepped.is_none());
        for event in [stepped, last].into_iter().flatten() {
            self.state = self.state.next(event).ok_or(LoginError::Skipped)?;
        }
        if self.state == State::FullFeature {
            return match reply.pending_key {
                Some(key) => Err(LoginError::AnswerPending { key }),
                None => self.finish(response),
            };
        }
        if self.state != before {
            match self.state {
                State::Algorithms => ChapExchange::offer(&mut text),
                State::Operational => {
                    self.may_leave_security()?;
                    self.negotiation.offer(&self.offer.purpose, &mut text);
                }
                _ => {}
            }
        }
        text.extend_from_slice(&reply.text);
        self.text_exchange.set_text(text);
        Ok(Progress::Continue)
    }

    /// Answers a challenge, or verifies the target's response, each in its state only.
    fn authenticate(&mut self, keys: &SecurityKeys) -> Result<Vec<u8>, LoginError> {
        let mut text = Vec::new();
        let (challenges, proves) = (keys.chap.has_challenge(), keys.chap.has_response());
        if !challenges && !proves {
            return Ok(text);
        }
        match (&mut self.chap_exchange, self.state) {
            (Some(exchange), State::Algorithms) if !proves => {
                exchange.answer(&keys.chap, &mut text)?;
            }
            (Some(exchange), State::Response | State::Leave)
                if !challenges && exchange.is_mutual() =>
            {
                exchange.verify(&keys.chap)?;
            }
            _ => return Err(LoginError::misplaced("keys of CHAP")),
        }
        Ok(text)
    }

    /// With mutual CHAP the SecurityNegotiation stage ends only after the target has authenticated itself.
    fn may_leave_security(&self) -> Result<(), LoginError> {
        match &self.chap_exchange {
            Some(exchange) if exchange.is_mutual() && !exchange.is_done() => {
                Err(ChapError::NotAuthenticated.into())
            }
            _ => Ok(()),
        }
    }

    fn finish(&self, response: &LoginResponse) -> Result<Progress, LoginError> {
        // RFC 7143 §11.13.3: the final response of a new session carries its TSIH.
        if response.tsih == 0 {
            return Err(LoginError::NoSession);
        }
        let (terms, iser) = self.negotiation.terms()?;
        let proof = match &self.chap_exchange {
            Some(exchange) if exchange.is_done() => match exchange.is_mutual() {
                true => Authentication::Mutual,
                false => Authentication::Initiator,
            },
            _ => Authentication::None,
        };
        let seconds = |key| u16::try_from(self.negotiation.value(key)).unwrap_or(u16::MAX);
        Ok(Progress::Done(LoginOutcome {
            terms,
            iser,
            tsih: response.tsih,
            target_alias: self.target_alias.clone(),
            portal_group: self.portal_group,
            time2wait: seconds(Key::Time2Wait),
            time2retain: seconds(Key::Time2Retain),
            authentication: proof,
        }))
    }
}

fn isid_number([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

fn check_echo(field: &'static str, expected: u64, got: u64) -> Result<(), LoginError> {
    match expected == got {
        true => Ok(()),
        false => Err(LoginError::Echo {
            field,
            expected,
            got,
        }),
    }
}
