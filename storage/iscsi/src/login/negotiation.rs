//! Negotiation of the operational keys of one login: our offers, the target's answers and the target's own offers. An answer that the
//! key's result function does not allow is an error. Stages and PDUs are in `login`.

use verbena_storage_wire::iscsi::text;

use super::blame::clip;
use super::error::LoginError;
use super::offer::{DigestPreference, IserOffer, Offer, Purpose};
use super::rules::{Key, RULES, Rule, SIZES, When, is_refusal, ranged};
use crate::Terms;

#[cfg(test)]
mod tests;

/// Negotiated parameters of a connection that runs on RDMA (RFC 7145 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IserTerms {
    /// Most bytes of data in a control PDU to us.
    pub max_recv: u32,
    /// Most bytes of data in a control PDU to the target.
    pub max_send: u32,
    /// Unexpected PDUs that the target may have outstanding, 0 for any number: receives to post in addition.
    pub unexpected_in: u32,
    /// Unexpected PDUs that we may have outstanding at the target, 0 for any number.
    pub unexpected_out: u32,
    /// MaxAHSLength: most bytes of additional header segments that the target takes, 0 for any number.
    pub max_ahs: u32,
}

/// State of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyState {
    /// Neither side has offered it.
    Open,
    /// We offered our value.
    Offered,
    /// Negotiated to this value.
    Agreed(u32),
}

#[derive(Debug)]
struct Item {
    rule: &'static Rule,
    /// Our value.
    ours: u32,
    state: KeyState,
}

#[derive(Debug)]
struct DigestItem {
    name: &'static str,
    preference: DigestPreference,
    offered: bool,
    agreed: bool,
}

/// Answers to the target's offers.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// Text to send.
    pub(super) text: Vec<u8>,
    /// A key that is not negotiated until the text was sent.
    pub(super) pending_key: Option<String>,
}

impl Reply {
    fn answer(&mut self, key: &str, value: &str) {
        text::push(&mut self.text, key, value);
        self.pending_key.get_or_insert_with(|| key.to_owned());
    }

    /// Answers an unknown key (RFC 7143 §6.2). A value that is itself such an answer gets none.
    pub(super) fn not_understood(&mut self, key: &str, value: &str) {
        if !is_refusal(value) {
            text::push(&mut self.text, key, "NotUnderstood");
        }
    }
}

/// Negotiation state of all keys of one login.
#[derive(Debug)]
pub(super) struct Negotiation {
    items: Vec<Item>,
    digests: [DigestItem; 2],
    /// MaxRecvDataSegmentLength: ours, and (`max_send`) the target's.
    max_recv: u32,
    max_send: u32,
    iser: Option<IserOffer>,
    unexpected_out: u32,
    max_ahs: u32,
}

/// RFC 7145 §6: whether the buffer that the target reads contains solicited data only. tgtd and the Linux target assume that it does.
const SOLICITED_ONLY: &str = "TaggedBufferForSolicitedDataOnly";
const TASK_REPORTING: &str = "TaskReporting";
/// Keys with a fixed answer, regardless of the offer.
const FIXED: [&str; 5] = [
    TASK_REPORTING,
    "IFMarker",
    "OFMarker",
    "IFMarkInt",
    "OFMarkInt",
];

static TABLE: [Rule; RULES.len()] = RULES;

impl Negotiation {
    pub(super) fn new(offer: &Offer) -> Negotiation {
        let iser = offer.iser();
        let known = TABLE
            .iter()
            .filter(|r| r.when != When::Iser || iser.is_some());
        let item = |rule: &'static Rule| Item {
            rule,
            ours: preferred_value(offer, rule),
            state: KeyState::Open,
        };
        let digest = |name, wish| DigestItem {
            name,
            // RFC 7145 §6.1: no digests on RDMA.
            preference: iser.map_or(wish, |_| DigestPreference::None),
            offered: false,
            agreed: false,
        };
        Negotiation {
            items: known.map(item).collect(),
            digests: [
                digest("HeaderDigest", offer.header_digest),
                digest("DataDigest", offer.data_digest),
            ],
            max_recv: offer.max_recv,
            max_send: Terms::DEFAULT.max_send,
            iser,
            unexpected_out: 0,
            max_ahs: 256,
        }
    }

    /// Appends all keys that we offer.
    pub(super) fn offer(&mut self, purpose: &Purpose, out: &mut Vec<u8>) {
        let (digests, items) = (&mut self.digests, &mut self.items);
        for item in items {
            let speak = match item.rule.when {
                When::Always | When::Iser => true,
                // RFC 7143 §13: irrelevant in a discovery session.
                When::Normal => *purpose != Purpose::Discovery,
                When::OnRequest => false,
            };
            if speak && item.state == KeyState::Open {
                text::push(out, item.rule.name, &item.rule.write(item.ours));
                item.state = KeyState::Offered;
            }
        }
        for digest in digests {
            text::push(out, digest.name, digest.preference.list());
            digest.offered = true;
        }
        match self.iser {
            Some(iser) => {
                let unexpected = iser.unexpected.to_string();
                text::push(out, "MaxOutstandingUnexpectedPDUs", &unexpected);
                // The Write STag covers what the target has to read, and no unsolicited data.
                text::push(out, SOLICITED_ONLY, "Yes");
            }
            // RFC 7145 §6.2: ignored on RDMA.
            None => text::push(out, "MaxRecvDataSegmentLength", &self.max_recv.to_string()),
        }
    }

    /// Handles an operational key of the target. Returns `false` if it is unknown.
    pub(super) fn handle_key(
        &mut self,
        key: &str,
        value: &str,
        reply: &mut Reply,
    ) -> Result<bool, LoginError> {
        if let Some(item) = self.items.iter_mut().find(|i| i.rule.name == key) {
            return item.handle_value(value, reply).map(|()| true);
        }
        if let Some(digest) = self.digests.iter_mut().find(|d| d.name == key) {
            return digest.handle_value(value, reply).map(|()| true);
        }
        if self.handle_declaration(key, value)? {
            return Ok(true);
        }
        if !FIXED.contains(&key) {
            return Ok(false);
        }
        if !is_refusal(value) {
            // RFC 7143 §13.23: TaskReporting stays at its default. §13.25: markers are obsolete.
            let ours = value
                .split(',')
                .find(|v| key == TASK_REPORTING && *v == "RFC3720");
            reply.answer(key, ours.unwrap_or("Reject"));
        }
        Ok(true)
    }

    /// Whether a key is operational.
    pub(super) fn is_operational(&self, key: &str) -> bool {
        let items = self.items.iter().map(|i| i.rule.name);
        let digests = self.digests.iter().map(|d| d.name);
        items.chain(digests).chain(FIXED).any(|name| name == key)
    }

    /// Handles declarations of the target, which may come at any time and need no answer.
    pub(super) fn handle_declaration(
        &mut self,
        key: &str,
        value: &str,
    ) -> Result<bool, LoginError> {
        let iser = self.iser.is_some();
        match key {
            "MaxRecvDataSegmentLength" => {
                if !is_refusal(value) {
                    self.max_send = ranged(key, value, &SIZES)?;
                }
            }
            "MaxOutstandingUnexpectedPDUs" if iser => {
                if !is_refusal(value) {
                    self.unexpected_out = ranged(key, value, &(0..=u32::MAX))?;
                }
                if self.unexpected_out == 1 {
                    return Err(LoginError::value(key, value, "0 or at least 2"));
                }
            }
            "MaxAHSLength" if iser => {
                if !is_refusal(value) {
                    self.max_ahs = ranged(key, value, &(0..=u32::MAX))?;
                }
            }
            // Declared by initiators only; an answer changes nothing.
            SOLICITED_ONLY if iser => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The value of a key.
    pub(super) fn value(&self, key: Key) -> u32 {
        let item = self.items.iter().find(|i| i.rule.key == key);
        item.map_or(0, Item::value)
    }

    /// The parameters of the connection, and those of iSER.
    pub(super) fn terms(&self) -> Result<(Terms, Option<IserTerms>), LoginError> {
        let iser = self.iser.map(|offer| self.iser_terms(offer)).transpose()?;
        let [header, data] = &self.digests;
        for digest in [header, data] {
            if digest.preference == DigestPreference::Required && !digest.agreed {
                return Err(LoginError::NoDigest { key: digest.name });
            }
        }
        let max_burst = self.value(Key::MaxBurst);
        let terms = Terms {
            header_digest: header.agreed,
            data_digest: data.agreed,
            max_recv: iser.map_or(self.max_recv, |t| t.max_recv),
            max_send: iser.map_or(self.max_send, |t| t.max_send),
            max_burst,
            // RFC 7143 §13.14: at most MaxBurstLength, which the target may have lowered.
            first_burst: self.value(Key::FirstBurst).min(max_burst),
            immediate_data: self.value(Key::ImmediateData) != 0,
            initial_r2t: self.value(Key::InitialR2t) != 0,
            max_r2t: u16::try_from(self.value(Key::MaxR2t)).unwrap_or(u16::MAX),
        };
        Ok((terms, iser))
    }

    fn iser_terms(&self, offer: IserOffer) -> Result<IserTerms, LoginError> {
        if self.value(Key::RdmaExtensions) == 0 {
            return Err(LoginError::NoIser);
        }
        Ok(IserTerms {
            max_recv: self.value(Key::InitiatorRecv),
            max_send: self.value(Key::TargetRecv),
            unexpected_in: offer.unexpected,
            unexpected_out: self.unexpected_out,
            max_ahs: self.max_ahs,
        })
    }
}

impl Item {
    fn handle_value(&mut self, value: &str, reply: &mut Reply) -> Result<(), LoginError> {
        if is_refusal(value) {
            // The key keeps its state: `value` combines our offer with the default.
            return Ok(());
        }
        let theirs = self.rule.read(value)?;
        let both = self.rule.combine(self.ours, theirs);
        if self.state == KeyState::Open {
            reply.answer(self.rule.name, &self.rule.write(both));
        } else if both != theirs {
            return Err(LoginError::Inadmissible {
                key: self.rule.name,
                offered: self.rule.write(self.ours),
                got: clip(value),
            });
        }
        self.state = KeyState::Agreed(both);
        Ok(())
    }

    /// The result. An offer without an answer is combined with the default, so that the stricter value holds.
    fn value(&self) -> u32 {
        match self.state {
            KeyState::Open => self.rule.default,
            KeyState::Offered => self.rule.combine(self.ours, self.rule.default),
            KeyState::Agreed(value) => value,
        }
    }
}

impl DigestItem {
    fn handle_value(&mut self, value: &str, reply: &mut Reply) -> Result<(), LoginError> {
        if is_refusal(value) {
            return Ok(());
        }
        let ours = self.preference.list();
        let is_ours = |choice: &&str| ours.split(',').any(|o| o == *choice);
        if !self.offered {
            // As the responder we choose the first value of the target's list that we accept.
            let choice = value.split(',').find(is_ours);
            reply.answer(self.name, choice.unwrap_or("Reject"));
            self.agreed = choice == Some("CRC32C");
            return Ok(());
        }
        if !is_ours(&value) {
            return Err(match self.preference {
                DigestPreference::Required if value == "None" => {
                    LoginError::NoDigest { key: self.name }
                }
                _ => LoginError::Inadmissible {
                    key: self.name,
                    offered: ours.to_owned(),
                    got: clip(value),
                },
            });
        }
        self.agreed = value == "CRC32C";
        Ok(())
    }
}

/// Our value of a key.
fn preferred_value(offer: &Offer, rule: &Rule) -> u32 {
    let iser = offer.iser().unwrap_or_default();
    match rule.key {
        Key::RdmaExtensions => 1,
        Key::InitiatorRecv => iser.max_recv,
        Key::TargetRecv => iser.max_send,
        Key::InitialR2t => offer.initial_r2t.into(),
        Key::ImmediateData => offer.immediate_data.into(),
        Key::MaxBurst => offer.max_burst,
        Key::FirstBurst => offer.first_burst,
        Key::MaxR2t => offer.max_r2t.into(),
        Key::Time2Wait => offer.time2wait.into(),
        Key::Time2Retain => offer.time2retain.into(),
        // Fixed: one connection, data in order, no recovery above level 0.
        Key::MaxConnections
        | Key::PduInOrder
        | Key::SequenceInOrder
        | Key::RecoveryLevel
        | Key::ProtocolLevel => rule.default,
    }
}
