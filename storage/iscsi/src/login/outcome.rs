//! Results of a login: negotiated parameters, or a redirection. A [`LoginOutcome`] always has a TSIH other than 0.
//! How the login arrives at them is in `login`.

use verbena_storage_wire::iscsi::text;

use super::blame::clip;
use super::error::LoginError;
use super::negotiation::IserTerms;
use super::portal::Portal;
use crate::Terms;

/// State of a login after a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Not finished: send the request of [`Login::next`](super::Login::next).
    Continue,
    /// The full feature phase begins.
    Done(LoginOutcome),
    /// Redirection: close this connection and log in at the address given.
    Redirected {
        /// The new address.
        address: Portal,
        /// Moved permanently (status 0x0102), so that the new address may be stored.
        permanent: bool,
    },
}

/// Which sides authenticated themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication {
    /// Neither.
    None,
    /// The initiator.
    Initiator,
    /// Both.
    Mutual,
}

/// Result of a successful login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginOutcome {
    /// Operational parameters of the connection.
    pub terms: Terms,
    /// Parameters of iSER, if the connection runs on RDMA.
    pub iser: Option<IserTerms>,
    /// Target session identifying handle.
    pub tsih: u16,
    /// TargetAlias.
    pub target_alias: Option<String>,
    /// TargetPortalGroupTag.
    pub portal_group: Option<u16>,
    /// DefaultTime2Wait: seconds to wait before a lost session is reinstated.
    pub time2wait: u16,
    /// DefaultTime2Retain: seconds for which the target keeps a lost session.
    pub time2retain: u16,
    /// Which sides authenticated themselves.
    pub authentication: Authentication,
}

impl Progress {
    /// Reads TargetAddress of a redirection (RFC 7143 §11.13.5). Other keys are ignored.
    pub(super) fn parse_redirect(data: &[u8], permanent: bool) -> Result<Progress, LoginError> {
        let mut address = "";
        for pair in text::Pairs::new(data) {
            if let ("TargetAddress", value) = pair? {
                address = value;
            }
        }
        match Portal::parse(address) {
            Some(address) => Ok(Progress::Redirected { address, permanent }),
            None => Err(LoginError::NoAddress {
                address: clip(address),
            }),
        }
    }
}
