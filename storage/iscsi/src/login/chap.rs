//! CHAP (RFC 1994, RFC 7143 §12.1.3), one-way and mutual. Secrets are neither printed nor sent, responses are compared in constant time,
//! and a target's challenge that equals our own is not answered. The caller supplies the randomness of our challenge.

use core::fmt;

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use thiserror::Error;
use verbena_storage_wire::iscsi::text;
use verbena_wire::Malformed;

use super::blame::{Blame, clip};

#[cfg(test)]
mod tests;

/// Most bytes of a challenge or response (RFC 7143 §6.1, large binary values).
const MAX_BINARY: usize = 1024;
/// Random bytes that a login takes: CHAP_I and CHAP_C of our own challenge.
pub const CHALLENGE_LEN: usize = 33;

/// A CHAP secret; `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes the bytes of a secret. RFC 7143 §9.2.1 requires at least 96 random bits (12 bytes) on a connection without IPsec.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Secret {
        Secret(bytes.into())
    }

    /// Whether the secret has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

/// A user name and its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chap {
    /// CHAP_N.
    pub user: String,
    /// The secret that CHAP_R is computed from.
    pub secret: Secret,
}

impl Chap {
    /// Makes credentials of a user name and its secret.
    pub fn new(user: impl Into<String>, secret: impl Into<Vec<u8>>) -> Chap {
        Chap {
            user: user.into(),
            secret: Secret::new(secret),
        }
    }
}

/// Hash algorithm of a response (CHAP_A).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// 5: mandatory for all targets.
    Md5,
    /// 6.
    Sha1,
    /// 7.
    Sha256,
}

impl Algorithm {
    /// In the order of our offer; targets choose the first that they support. SHA-256 is last although it is the strongest: tgtd interprets
    /// 7 as SHA-1 and would reject a correct response.
    pub const ALL: [Algorithm; 3] = [Algorithm::Sha1, Algorithm::Md5, Algorithm::Sha256];

    /// Its number among PPP's authentication algorithms.
    pub const fn code(self) -> u8 {
        match self {
            Algorithm::Md5 => 5,
            Algorithm::Sha1 => 6,
            Algorithm::Sha256 => 7,
        }
    }

    /// The response to a challenge (RFC 1994 §4.1): the hash over identifier, secret and challenge.
    pub fn response(self, id: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
        match self {
            Algorithm::Md5 => hash::<Md5>(id, secret, challenge),
            Algorithm::Sha1 => hash::<Sha1>(id, secret, challenge),
            Algorithm::Sha256 => hash::<Sha256>(id, secret, challenge),
        }
    }
}

fn hash<D: Digest>(id: u8, secret: &Secret, challenge: &[u8]) -> Vec<u8> {
    let hash = D::new().chain_update([id]).chain_update(&secret.0);
    hash.chain_update(challenge).finalize().to_vec()
}

/// Why CHAP failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChapError {
    /// A key of the step is absent.
    #[error("the target's CHAP message lacks {key}")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// The target chose an algorithm that was not offered.
    #[error("the target chose CHAP_A={got}, which was not offered")]
    Algorithm {
        /// The value received.
        got: String,
    },
    /// A value that cannot be parsed.
    #[error("the target sent a {key} that cannot be read: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        why: Malformed,
    },
    /// A challenge or response outside the size limits.
    #[error("the target sent a {key} of {got} bytes; 1 to {MAX_BINARY} are possible")]
    Size {
        /// The key.
        key: &'static str,
        /// Its bytes.
        got: usize,
    },
    /// The target's challenge equals our own (RFC 7143 §9.2.1).
    #[error("the target sent our own CHAP challenge back: possible reflection attack")]
    Reflected,
    /// CHAP_N differs from the expected name.
    #[error(
        "the target sent CHAP_N=\"{got}\", which differs from the user name of the mutual credentials"
    )]
    Name {
        /// The name received.
        got: String,
    },
    /// The target's response is wrong.
    #[error(
        "the target sent a wrong response to the mutual CHAP challenge: check its address and the mutual secret on both sides"
    )]
    WrongResponse,
    /// The target did not authenticate itself.
    #[error("the target did not authenticate itself, and mutual CHAP requires it")]
    NotAuthenticated,
}

impl ChapError {
    /// The party at fault.
    pub fn blame(&self) -> Blame {
        match self {
            ChapError::Algorithm { .. } => Blame::Neither,
            _ => Blame::Target,
        }
    }
}

/// The CHAP keys of one text of the target, unparsed.
#[derive(Debug, Default)]
pub(super) struct ChapKeys {
    algorithm: Option<String>,
    id: Option<String>,
    challenge: Option<String>,
    name: Option<String>,
    response: Option<String>,
}

impl ChapKeys {
    /// Stores a key. Returns `false` if it is not one of CHAP.
    pub(super) fn store(&mut self, key: &str, value: &str) -> bool {
        let place = match key {
            "CHAP_A" => &mut self.algorithm,
            "CHAP_I" => &mut self.id,
            "CHAP_C" => &mut self.challenge,
            "CHAP_N" => &mut self.name,
            "CHAP_R" => &mut self.response,
            _ => return false,
        };
        *place = Some(value.to_owned());
        true
    }

    /// Whether there are keys of a challenge.
    pub(super) fn has_challenge(&self) -> bool {
        self.algorithm.is_some() || self.id.is_some() || self.challenge.is_some()
    }

    /// Whether there are keys of a response.
    pub(super) fn has_response(&self) -> bool {
        self.name.is_some() || self.response.is_some()
    }
}

/// CHAP of one login.
#[derive(Debug)]
pub(super) struct ChapExchange {
    own: Chap,
    /// Expected credentials of the target, with mutual CHAP.
    mutual: Option<Chap>,
    id: u8,
    challenge: [u8; CHALLENGE_LEN - 1],
    algorithm: Option<Algorithm>,
    verified: bool,
}

impl ChapExchange {
    pub(super) fn new(
        own: Chap,
        mutual: Option<Chap>,
        random: [u8; CHALLENGE_LEN],
    ) -> ChapExchange {
        let [id, challenge @ ..] = random;
        ChapExchange {
            own,
            mutual,
            id,
            challenge,
            algorithm: None,
            verified: false,
        }
    }

    /// Appends CHAP_A.
    pub(super) fn offer(text: &mut Vec<u8>) {
        let codes = Algorithm::ALL.map(|a| a.code().to_string());
        text::push(text, "CHAP_A", &codes.join(","));
    }

    /// Answers the target's challenge, and appends our own challenge with mutual CHAP.
    pub(super) fn answer(&mut self, keys: &ChapKeys, out: &mut Vec<u8>) -> Result<(), ChapError> {
        let algorithm = parse_algorithm(required("CHAP_A", &keys.algorithm)?)?;
        let id = identifier(required("CHAP_I", &keys.id)?)?;
        let challenge = bytes("CHAP_C", required("CHAP_C", &keys.challenge)?)?;
        // RFC 7143 §9.2.1: answering our own challenge would give a reflecting peer the response it needs.
        if self.mutual.is_some() && challenge == self.challenge {
            return Err(ChapError::Reflected);
        }
        self.algorithm = Some(algorithm);
        let response = algorithm.response(id, &self.own.secret, &challenge);
        text::push(out, "CHAP_N", &self.own.user);
        text::push(out, "CHAP_R", &text::hex(&response));
        if self.mutual.is_some() {
            text::push(out, "CHAP_I", &self.id.to_string());
            text::push(out, "CHAP_C", &text::hex(&self.challenge));
        }
        Ok(())
    }

    /// Verifies the target's response.
    pub(super) fn verify(&mut self, keys: &ChapKeys) -> Result<(), ChapError> {
        let (Some(mutual), Some(algorithm)) = (&self.mutual, self.algorithm) else {
            return Err(ChapError::NotAuthenticated);
        };
        let name = required("CHAP_N", &keys.name)?;
        let response = bytes("CHAP_R", required("CHAP_R", &keys.response)?)?;
        let expected = algorithm.response(self.id, &mutual.secret, &self.challenge);
        // Response before name, so that a peer without the secret does not learn which name is expected.
        if !bool::from(expected.ct_eq(&response)) {
            return Err(ChapError::WrongResponse);
        }
        if name != mutual.user {
            return Err(ChapError::Name { got: clip(name) });
        }
        self.verified = true;
        Ok(())
    }

    /// Whether the target has to authenticate itself.
    pub(super) fn is_mutual(&self) -> bool {
        self.mutual.is_some()
    }

    /// Whether authentication is complete in all required directions.
    pub(super) fn is_done(&self) -> bool {
        self.algorithm.is_some() && (self.verified || self.mutual.is_none())
    }
}

fn required<'a>(key: &'static str, value: &'a Option<String>) -> Result<&'a str, ChapError> {
    value.as_deref().ok_or(ChapError::Missing { key })
}

fn parse_algorithm(value: &str) -> Result<Algorithm, ChapError> {
    let code = text::number(value).ok();
    let found = Algorithm::ALL
        .into_iter()
        .find(|a| Some(u64::from(a.code())) == code);
    found.ok_or_else(|| ChapError::Algorithm { got: clip(value) })
}

/// CHAP_I: one byte.
fn identifier(value: &str) -> Result<u8, ChapError> {
    let key = "CHAP_I";
    let number = text::number(value).map_err(|why| ChapError::Value { key, why })?;
    u8::try_from(number).map_err(|_| ChapError::Value {
        key,
        why: Malformed::Text {
            what: "a number above 255",
            at: 0,
        },
    })
}

fn bytes(key: &'static str, value: &str) -> Result<Vec<u8>, ChapError> {
    let bytes = text::binary(value).map_err(|why| ChapError::Value { key, why })?;
    match bytes.len() {
        1..=MAX_BINARY => Ok(bytes),
        got => Err(ChapError::Size { key, got }),
    }
}
