//! Errors of login and discovery. Each names the party at fault and, where possible, a remedy. At most 64 characters of a peer's
//! text are repeated, and no secrets. After any of them the connection has to be closed.

use thiserror::Error;
use verbena_storage_wire::iscsi::{LoginStatus, Stage};
use verbena_wire::Malformed;

use super::blame::{Blame, clip};
use super::chap::ChapError;

#[cfg(test)]
mod tests;

/// Why a login failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LoginError {
    /// The offer is invalid.
    #[error("{what} cannot be offered: {why}")]
    Offer {
        /// The field.
        what: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The target rejected the login.
    #[error("the target refuses the login ({status}): {advice}")]
    Refused {
        /// Its status.
        status: LoginStatus,
        /// The party at fault.
        blame: Blame,
        /// The remedy.
        advice: &'static str,
    },
    /// A redirection without a valid address.
    #[error("the target redirects to \"{address}\", which is not a valid address")]
    NoAddress {
        /// The value of TargetAddress.
        address: String,
    },
    /// A response to another request.
    #[error("the target answers another login: {field} {got:#x}, expected {expected:#x}")]
    Echo {
        /// The field that a response has to repeat.
        field: &'static str,
        /// Value of the request.
        expected: u64,
        /// Value of the response.
        got: u64,
    },
    /// A version that was not offered.
    #[error("the target chose version {got} of iSCSI, only 0 was offered")]
    Version {
        /// Version-active of the response.
        got: u8,
    },
    /// A stage other than ours, or a transition that was not requested.
    #[error("the target went from stage {from} to {to}, which it was not asked to")]
    Stage {
        /// The stage of its response.
        from: Stage,
        /// Its next stage, or the same.
        to: Stage,
    },
    /// The target left out a mandatory step.
    #[error("the target skips a step of the login")]
    Skipped,
    /// The TSIH is 0.
    #[error("the target ends the login without a number (TSIH) for the session")]
    NoSession,
    /// The text cannot be parsed.
    #[error("the target sent text that cannot be read: {0}")]
    Text(#[from] Malformed),
    /// The limit on text was exceeded.
    #[error("the target sent more than {limit} bytes of text")]
    TooMuchText {
        /// The limit.
        limit: usize,
    },
    /// The limit on exchanges was exceeded.
    #[error("the login did not end after {limit} exchanges")]
    TooLong {
        /// The limit.
        limit: u32,
    },
    /// Text in a response while our C bit is set.
    #[error("the target interrupts an unfinished text")]
    Interrupted,
    /// A value outside the key's range.
    #[error("the target sent {key}={value}, which should be {wants}")]
    Value {
        /// The key.
        key: String,
        /// The beginning of the value.
        value: String,
        /// The expected values.
        wants: &'static str,
    },
    /// An answer that the key's result function does not allow (RFC 7143 §6.2).
    #[error(
        "the target answered {key}={got} to an offer of {offered}, which that key does not allow"
    )]
    Inadmissible {
        /// Our offer.
        key: &'static str,
        /// The answer.
        offered: String,
        /// What came.
        got: String,
    },
    /// A key was negotiated twice (RFC 7143 §6.3).
    #[error("the target negotiates {key} again")]
    Repeated {
        /// The key.
        key: String,
    },
    /// A key that is not allowed in this stage or state.
    #[error("the target sent {key}, which it may not send now")]
    Misplaced {
        /// The key.
        key: String,
    },
    /// The target's last response contains an offer that we cannot answer any more.
    #[error("the target ends the login and leaves its own offer of {key} without an answer")]
    AnswerPending {
        /// The key.
        key: String,
    },
    /// A required digest was not accepted.
    #[error(
        "{key}=CRC32C is required and the target refuses it: enable it there, or do not require it"
    )]
    NoDigest {
        /// The key.
        key: &'static str,
    },
    /// RDMAExtensions was not accepted.
    #[error("the target refuses RDMAExtensions: connect without iSER, or enable it there")]
    NoIser,
    /// No common AuthMethod.
    #[error("no common authentication method: offered {offered}, the target answered {got}")]
    NoMethod {
        /// Our offer.
        offered: &'static str,
        /// The answer.
        got: String,
    },
    /// CHAP failed.
    #[error(transparent)]
    Chap(#[from] ChapError),
    /// A response after the end.
    #[error("this login is over: begin another on a new connection")]
    Finished,
}

impl LoginError {
    /// The party at fault.
    pub fn blame(&self) -> Blame {
        match self {
            LoginError::Offer { .. } | LoginError::Finished => Blame::Offer,
            LoginError::Refused { blame, .. } => *blame,
            LoginError::NoDigest { .. } | LoginError::NoIser | LoginError::NoMethod { .. } => {
                Blame::Neither
            }
            LoginError::Chap(error) => error.blame(),
            _ => Blame::Target,
        }
    }

    /// The error of a status other than success and redirection. The advice depends on whether credentials were given.
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

/// Fault and remedy of each status (RFC 7143 §11.13.5).
fn advice(status: LoginStatus, with_credentials: bool) -> (Blame, &'static str) {
    use LoginStatus as Is;
    match status {
        Is::AuthenticationFailed if with_credentials => {
            (Blame::Offer, "the user name or the secret is wrong")
        }
        Is::AuthenticationFailed => (
            Blame::Offer,
            "it requires authentication: give a user name and a secret",
        ),
        Is::NotAuthorised => (
            Blame::Offer,
            "it does not allow this initiator name: add it to the target's list",
        ),
        Is::NotFound => (Blame::Offer, "there is no target of that name"),
        Is::Removed => (Blame::Offer, "the target was removed permanently"),
        Is::MissingParameter => (
            Blame::Offer,
            "a required key is missing; it may require the security stage (two_step)",
        ),
        Is::SessionType => (
            Blame::Offer,
            "it does not support this type of session: discovery or normal",
        ),
        Is::TooManyConnections | Is::CannotInclude => (
            Blame::Resources,
            "it accepts no more connections: close one or try later",
        ),
        Is::Unavailable => (Blame::Resources, "it is unavailable: try later"),
        Is::OutOfResources => (Blame::Resources, "it is out of resources: try later"),
        Is::TargetError => (Blame::Target, "internal error of the target: see its log"),
        Is::Version => (Blame::Neither, "it does not support version 0 of iSCSI"),
        Is::InitiatorError | Is::NoSession | Is::InvalidDuringLogin => (
            Blame::Offer,
            "it considers the login request invalid: see its log",
        ),
        other => match other.class() {
            2 => (Blame::Offer, "initiator error with an unknown code"),
            _ => (Blame::Target, "target error with an unknown code"),
        },
    }
}
