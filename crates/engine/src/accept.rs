//! Incoming connections: listeners at an address, and the acceptor that runs the startups of what arrives there.
//! `owner_rules` decides which device may listen and accept where (V2).

pub(crate) mod acceptor;
pub(crate) mod listening;
pub(crate) mod owner_rules;
pub(crate) mod request;
pub(crate) mod shares;

use core::net::SocketAddr;
use std::sync::{Arc, Weak};

use verbena_nic::profile::Service;
use verbena_sync::locks::Mutex;

use crate::error::Error;
use acceptor::{PendingRequests, Permits};
use owner_rules::OwnerRules;

/// What limits the connections that an engine accepts.
pub(crate) struct Admission {
    /// Limits startups of accepted connections.
    pub(crate) half_open: Arc<Permits>,
    /// Listeners on which threads wait for requests.
    pub(crate) pending_requests: Mutex<Vec<Weak<PendingRequests>>>,
    /// Rules of the setting `owners` (V2).
    owner_rules: Option<OwnerRules>,
}

impl Admission {
    pub(crate) fn new(half_open: Arc<Permits>, owner_rules: Option<OwnerRules>) -> Admission {
        Admission {
            half_open,
            pending_requests: Mutex::default(),
            owner_rules,
        }
    }

    /// The rules as they apply to another device of the adapter.
    pub(crate) fn rules_for(&self, device: &str) -> Option<OwnerRules> {
        let rules = self.owner_rules.as_ref()?;
        Some(rules.for_device(device))
    }

    /// An error if a rule gives this address to another device or service.
    pub(crate) fn check_owner(
        &self,
        service: Service,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<(), Error> {
        match &self.owner_rules {
            Some(rules) => rules.check(service, local, peer),
            None => Ok(()),
        }
    }
}
