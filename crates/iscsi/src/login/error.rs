//! Why a login or a search for targets came to nothing, in words. Each error says who is to blame and, where it can, what to do.
//! It promises to show at most a short piece of what a peer said, and never a secret. What happens to the connection is not known
//! here: after any error it is of no use and should be closed.

use thiserror::Error;
use verbena_wire::Malformed;
use verbena_wire::iscsi::{LoginStatus, Stage};

use super::chap::ChapError;

#[cfg(test)]
mod tests;

/// Most characters of a peer's text that an error repeats.
const SHOWN: usize = 64;

/// Who has to do something about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Whoever filled in the offer: a name, a secret or a wish is wrong.
    Offer,
    /// The target, or somebody who pretends to be it: it broke the protocol.
    Target,
    /// Nobody: the target has no room or does not serve now. Trying later may help.
    Room,
    /// Nobody: both sides are right, and have nothing in common.
    Neither,
}

/// Why a login failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LoginError {
    /// The offer cannot be made.
    #[error("{what} cannot be offered: {why}")]
    Offer {
        /// The field.
        what: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The target ended the login.
    #[error("the target refuses the login ({status}): {advice}")]
    Refused {
        /// What it said.
        status: LoginStatus,
        /// Who has to do something.
        blame: Blame,
        /// And what.
        advice: &'static str,
    },
    /// The target moved and does not say where to.
    #[error("the target says that it moved, to \"{address}\", which is no address")]
    Nowhere {
        /// What came as TargetAddress.
        address: String,
    },
    /// A response that is not to our request.
    #[error("the target answers another login: {field} {got:#x}, expected {expected:#x}")]
    Echo {
        /// The field that should be as in the request.
        field: &'static str,
        /// As in the request.
        expected: u64,
        /// As in the response.
        got: u64,
    },
    /// A version that we did not offer.
    #[error("the target speaks version {got} of iSCSI, only 0 was offered")]
    Version {
        /// What came.
        got: u8,
    },
    /// The target is in a stage that we are not in, or goes to one that it may not go to.
    #[error("the target went from stage {from} to {to}, which it was not asked to")]
    Stage {
        /// The stage of its response.
        from: Stage,
        /// The stage it goes to, or the same.
        to: Stage,
    },
    /// A step that has to be taken was not.
    #[error("the target skips a step of the login")]
    Skipped,
    /// The session has no number.
    #[error("the target ends the login without a number (TSIH) for the session")]
    NoSession,
    /// The text cannot be read.
    #[error("the target sent text that cannot be read: {0}")]
    Text(#[from] Malformed),
    /// More text than a login needs.
    #[error("the target sent more than {limit} bytes of text")]
    TooMuchText {
        /// The limit.
        limit: usize,
    },
    /// More steps than a login needs.
    #[error("the login did not end after {limit} exchanges")]
    TooLong {
        /// The limit.
        limit: u32,
    },
    /// Text in a response to a request whose own text goes on.
    #[error("the target interrupts text that goes on")]
    Interrupted,
    /// A value that the key cannot have.
    #[error("the target sent {key}={value}, which should be {wants}")]
    Value {
        /// The key.
        key: String,
        /// The beginning of the value.
        value: String,
        /// What would have been right.
        wants: &'static str,
    },
    /// An answer that the key's rule does not allow (RFC 7143 §6.2).
    #[error(
        "the target answered {key}={got} to an offer of {offered}, against the rule of that key"
    )]
    Inadmissible {
        /// The key.
        key: &'static str,
        /// What we offered.
        offered: String,
        /// What came.
        got: String,
    },
    /// The same key twice (RFC 7143 §6.3).
    #[error("the target negotiates {key} again")]
    Repeated {
        /// The key.
        key: String,
    },
    /// A key that has no place there.
    #[error("the target sent {key}, which it may not send now")]
    Misplaced {
        /// The key.
        key: String,
    },
    /// The login is over, and the target still wants an answer.
    #[error("the target ends the login and leaves its own offer of {key} without an answer")]
    Owed {
        /// The key.
        key: String,
    },
    /// Digests are required and the target has none.
    #[error(
        "{key}=CRC32C is required and the target refuses it: enable it there, or do not require it"
    )]
    NoDigest {
        /// The key.
        key: &'static str,
    },
    /// The target does not take this connection for iSER.
    #[error("the target refuses RDMAExtensions: connect without iSER, or enable it there")]
    NoIser,
    /// No common way to prove who we are.
    #[error("no way of authentication in common: offered {offered}, the target answered {got}")]
    NoMethod {
        /// What we offered.
        offered: &'static str,
        /// What came.
        got: String,
    },
    /// CHAP failed.
    #[error(transparent)]
    Chap(#[from] ChapError),
    /// A response after the end.
    #[error("this login is over: begin another on a new connection")]
    Over,
}

impl LoginError {
    /// Who has to do something about it.
    pub fn blame(&self) -> Blame {
        match self {
            LoginError::Offer { .. } | LoginError::Over => Blame::Offer,
            LoginError::Refused { blame, .. } => *blame,
            LoginError::NoDigest { .. } | LoginError::NoIser | LoginError::NoMethod { .. } => {
                Blame::Neither
            }
            LoginError::Chap(error) => error.blame(),
            _ => Blame::Target,
        }
    }

    /// The error of a status other than success and moved. Whether there were credentials changes what to do.
    pub(super) fn refused(status: LoginStatus, with_credentials: bool) -> LoginError {
        let (blame, advice) = advice(status, with_credentials);
        LoginError::Refused {
            status,
            blame,
            advice,
        }
    }

    pub(super) fn value(key: &str, value: &str, wants: &'static str) -> LoginError {
        LoginError::Value {
            key: clip(key),
            value: clip(value),
            wants,
        }
    }

    pub(super) fn misplaced(key: &str) -> LoginError {
        LoginError::Misplaced { key: clip(key) }
    }
}

/// RFC 7143 §11.13.5, from the side of whoever has to mend it.
fn advice(status: LoginStatus, with_credentials: bool) -> (Blame, &'static str) {
    use LoginStatus as Is;
    match status {
        Is::AuthenticationFailed if with_credentials => {
            (Blame::Offer, "the user name or the secret is wrong")
        }
        Is::AuthenticationFailed => (
            Blame::Offer,
            "it wants to know who we are: give a user name and a secret",
        ),
        Is::NotAuthorised => (
            Blame::Offer,
            "this initiator name is not allowed there: add it to the target's list",
        ),
        Is::NotFound => (Blame::Offer, "there is no target of that name"),
        Is::Removed => (
            Blame::Offer,
            "the target was removed and will not come back",
        ),
        Is::MissingParameter => (
            Blame::Offer,
            "it misses a key; it may want the security stage (two_step)",
        ),
        Is::SessionType => (
            Blame::Offer,
            "it does not serve this type of session: discovery or normal",
        ),
        Is::TooManyConnections | Is::CannotInclude => (
            Blame::Room,
            "it takes no more connections: close one or try later",
        ),
        Is::Unavailable => (Blame::Room, "it does not serve now: try later"),
        Is::OutOfResources => (Blame::Room, "it has no room: try later"),
        Is::TargetError => (Blame::Target, "something failed there: see its log"),
        Is::Version => (Blame::Neither, "it does not speak version 0 of iSCSI"),
        Is::InitiatorError | Is::NoSession | Is::InvalidDuringLogin => (
            Blame::Offer,
            "it holds something in our request to be wrong: see its log",
        ),
        other => match other.class() {
            2 => (Blame::Offer, "it blames us, with a code that is not known"),
            _ => (Blame::Target, "it failed, with a code that is not known"),
        },
    }
}

/// The beginning of what a peer said, fit to be shown.
pub(super) fn clip(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(SHOWN)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
