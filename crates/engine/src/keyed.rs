//! The shared key in the startup of connections by address (docs/extensions.md): rdma_cm, rsockets and Rust listeners.
//!
//! The Request proves that the initiator knows a key, the Reply that the responder does and has this very Request, and the
//! nonce in the initiator's first frame that it has this very Reply. Proofs precede the program's private data and are removed
//! before the program sees it. A peer that the settings expect not to be Verbena (`peer`) need not prove anything.

use core::net::IpAddr;

use verbena_stream::{Agreement, Terms};
use verbena_wire::ext::Keyed;
use verbena_wire::mpa::startup::MAX_PRIVATE_DATA;

use crate::access::RefusedBy;
use crate::config::{Key, Profile};
use crate::connection::{Connection, Decision, Options};
use crate::core::Core;
use crate::error::Error;
use crate::introduction::Nonces;
use crate::proof;
use crate::sys;

/// The state of the proof.
#[derive(Clone, Copy)]
pub(crate) enum Proving {
    /// The Request was sent with this nonce.
    Asked(u64),
    /// Request and Reply are exchanged; the nonces that the first frames of the stream must carry.
    Agreed(Nonces),
}

/// A Request whose proof was verified.
pub(crate) struct Proven {
    key: Key,
    nonce: u64,
}

impl Core {
    fn must_prove(&self, peer: IpAddr) -> bool {
        !self.keys.is_empty() && self.config.expected(peer) == Profile::Verbena
    }

    /// Adds the proof to a Request that is about to be sent, if a key is set, the extensions are offered, and it has no proof yet
    /// (calls of out-of-band connections have their own).
    pub(crate) fn prove_request(&self, options: &mut Options, terms: &Terms) -> Result<(), Error> {
        if options.introduction.is_some() || options.proving.is_some() || !terms.extensions {
            return Ok(());
        }
        let Some(key) = self.keys.first() else {
            return Ok(());
        };
        let nonce = sys::random_u64()?;
        let keyed = proof::sign_request(key, nonce, &options.private_data);
        prepend(options, &keyed)?;
        options.proving = Some(Proving::Asked(nonce));
        Ok(())
    }

    /// Whether a Request may be shown to the program. A verified proof is removed from its private data.
    pub(crate) fn check_request(&self, decision: &mut Decision) -> bool {
        let peer = decision.connection.peer().ip();
        let proposal = &mut decision.proposal;
        let keyed = Keyed::parse(&proposal.private_data).ok();
        let good = match keyed.filter(|_| proposal.extensions) {
            Some((keyed, private_data)) => {
                let key = proof::request_proven_by(&self.keys, &keyed, private_data);
                decision.proven = key.map(|key| Proven {
                    key: key.clone(),
                    nonce: keyed.nonce,
                });
                decision.proven.is_some()
            }
            None => !self.must_prove(peer),
        };
        if decision.proven.is_some() {
            proposal.private_data.drain(..Keyed::LEN);
        }
        if !good {
            self.access.refuse(peer, RefusedBy::Key);
        }
        good
    }
}

impl Proven {
    /// Adds the proof to the Reply.
    pub(crate) fn prove_reply(&self, options: &mut Options) -> Result<(), Error> {
        let nonce = sys::random_u64()?;
        let keyed = proof::sign_reply(&self.key, self.nonce, nonce, &options.private_data);
        prepend(options, &keyed)?;
        options.proving = Some(Proving::Agreed(Nonces {
            ours: nonce,
            demanded: proof::first_frame(&self.key, self.nonce, nonce),
        }));
        Ok(())
    }
}

impl Connection {
    /// Verifies the proof in the Reply, if the Request had one, and removes it from the private data.
    pub(crate) fn check_reply(
        &self,
        agreement: &mut Agreement,
        options: &mut Options,
    ) -> Result<(), Error> {
        let Some(Proving::Asked(asked)) = options.proving else {
            return Ok(());
        };
        let unproven = || Error::Unproven { peer: self.peer() };
        let keyed = Keyed::parse(&agreement.private_data).ok();
        let keyed = keyed.filter(|_| agreement.extensions);
        let (keyed, private_data) = keyed.ok_or_else(unproven)?;
        let keys = &self.core().keys;
        let key = proof::reply_proven_by(keys, asked, &keyed, private_data);
        let key = key.ok_or_else(unproven)?;
        options.proving = Some(Proving::Agreed(Nonces {
            ours: proof::first_frame(key, asked, keyed.nonce),
            demanded: keyed.nonce,
        }));
        agreement.private_data.drain(..Keyed::LEN);
        Ok(())
    }
}

fn prepend(options: &mut Options, keyed: &Keyed) -> Result<(), Error> {
    let (got, limit) = (options.private_data.len(), MAX_PRIVATE_DATA - Keyed::LEN);
    if got > limit {
        return Err(Error::PrivateData { got, limit });
    }
    options.private_data.splice(..0, keyed.emit());
    Ok(())
}
