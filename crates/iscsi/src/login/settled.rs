//! What a login comes to: terms, or another address. It promises that a session which is settled has its number and its terms.
//! How it came to that is not known here.

use verbena_wire::iscsi::text;

use super::bargain::IserTerms;
use super::error::{LoginError, clip};
use super::portal::Portal;
use crate::Terms;

/// How a login goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// There is more to say: ask [`Login::next`](super::Login::next).
    Again,
    /// The full feature phase begins.
    Done(Settled),
    /// The target is elsewhere: close this connection and log in there.
    Moved {
        /// Where.
        address: Portal,
        /// For good, so that the new address is worth keeping.
        permanent: bool,
    },
}

/// Who proved what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Nobody anything.
    None,
    /// We proved who we are.
    Initiator,
    /// Both sides did.
    Mutual,
}

/// What a login came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The terms of the connection.
    pub terms: Terms,
    /// Those of iSER, if the connection runs on RDMA.
    pub iser: Option<IserTerms>,
    /// The target's number for the session.
    pub tsih: u16,
    /// What the target calls itself to people.
    pub target_alias: Option<String>,
    /// The portal group that we reached.
    pub portal_group: Option<u16>,
    /// Seconds to wait before a lost session is taken up again.
    pub time2wait: u16,
    /// Seconds for which the target keeps a lost session.
    pub time2retain: u16,
    /// Who proved what.
    pub proof: Proof,
}

impl Progress {
    /// Reads where a target went (RFC 7143 §11.13.5). What else it says does not matter any more.
    pub(super) fn moved(data: &[u8], permanent: bool) -> Result<Progress, LoginError> {
        let mut address = "";
        for pair in text::Pairs::new(data) {
            if let ("TargetAddress", value) = pair? {
                address = value;
            }
        }
        match Portal::parse(address) {
            Some(address) => Ok(Progress::Moved { address, permanent }),
            None => Err(LoginError::Nowhere {
                address: clip(address),
            }),
        }
    }
}
