//! The shared key in the startup of connections by address (docs/extensions.md): rdma_cm, rsockets and Rust listeners.
//!
//! The Request proves that the initiator knows a key, the Reply that the responder does and has this very Request, and the
//! nonce in the initiator's first frame that it has this very Reply. Proofs precede the program's private data and are removed
//! before the program sees it. A peer that the settings expect not to be Verbena (`peer`) need not prove anything.

use core::net::{IpAddr, SocketAddr};

use verbena_stream::{Agreement, Terms};
use verbena_wire::ext::KeyProof;
use verbena_wire::mpa::startup::MAX_PRIVATE_DATA;

use crate::config::{Key, Profile};
use crate::connection::{Connection, Decision, Options};
use crate::error::Error;
use crate::oob::auth;
use crate::oob::hello::Nonces;
use crate::security::Security;
use crate::security::access::RefusedBy;
use crate::sys;

/// The state of the proof.
#[derive(Clone, Copy)]
pub(crate) enum KeyAuth {
    /// The Request was sent with this nonce.
    Requested(u64),
    /// Request and Reply are exchanged; the nonces that the first frames of the stream must carry.
    Agreed(Nonces),
}

/// A Request whose proof was verified.
pub(crate) struct AuthenticatedRequest {
    key: Key,
    nonce: u64,
}

impl Security {
    fn requires_key(&self, peer: IpAddr) -> bool {
        !self.keys.is_empty() && self.config.expected_profile(peer) == Profile::Verbena
    }

    /// Whether a request over RoCEv2, which cannot carry a proof, may be shown to the program.
    pub(crate) fn admits_roce(&self, peer: IpAddr) -> bool {
        let is_admitted = !self.requires_key(peer);
        if !is_admitted {
            self.access.refuse(peer, RefusedBy::Key);
        }
        is_admitted
    }

    /// An error if the settings demand of connections with this peer what RoCEv2 does not have: encryption, or a proof of the key.
    pub(crate) fn check_roce(&self, peer: SocketAddr) -> Result<(), Error> {
        self.check_roce_encryption()?;
        match self.requires_key(peer.ip()) {
            true => Err(Error::Unauthenticated { peer }),
            false => Ok(()),
        }
    }

    /// An error if the settings demand encryption.
    pub(crate) fn check_roce_encryption(&self) -> Result<(), Error> {
        match self.tls {
            Some(_) => Err(Error::NoDatagrams),
            None => Ok(()),
        }
    }

    /// Adds the proof to a Request that is about to be sent, if a key is set, the extensions are offered, and it has no proof yet
    /// (calls of out-of-band connections have their own).
    pub(crate) fn prove_request(&self, options: &mut Options, terms: &Terms) -> Result<(), Error> {
        if options.oob_hello.is_some() || options.proof_state.is_some() || !terms.extensions {
            return Ok(());
        }
        let Some(key) = self.keys.first() else {
            return Ok(());
        };
        let nonce = sys::random_u64()?;
        let keyed = auth::sign_request(key, nonce, &options.private_data);
        prepend(options, &keyed)?;
        options.proof_state = Some(KeyAuth::Requested(nonce));
        Ok(())
    }

    /// Whether a Request may be shown to the program. A verified proof is removed from its private data.
    pub(crate) fn check_request(&self, decision: &mut Decision) -> bool {
        let peer = decision.connection.peer().ip();
        let proposal = &mut decision.proposal;
        let keyed = KeyProof::parse(&proposal.private_data).ok();
        let good = match keyed.filter(|_| proposal.extensions) {
            Some((keyed, private_data)) => {
                let key = auth::request_proven_by(&self.keys, &keyed, private_data);
                decision.verified_request = key.map(|key| AuthenticatedRequest {
                    key: key.clone(),
                    nonce: keyed.nonce,
                });
                decision.verified_request.is_some()
            }
            None => !self.requires_key(peer),
        };
        if decision.verified_request.is_some() {
            proposal.private_data.drain(..KeyProof::LEN);
        }
        if !good {
            self.access.refuse(peer, RefusedBy::Key);
        }
        good
    }
}

impl AuthenticatedRequest {
    /// Adds the proof to the Reply.
    pub(crate) fn prove_reply(&self, options: &mut Options) -> Result<(), Error> {
        let nonce = sys::random_u64()?;
        let keyed = auth::sign_reply(&self.key, self.nonce, nonce, &options.private_data);
        prepend(options, &keyed)?;
        options.proof_state = Some(KeyAuth::Agreed(Nonces {
            local: nonce,
            required: auth::first_frame_nonce(&self.key, self.nonce, nonce),
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
        let Some(KeyAuth::Requested(asked)) = options.proof_state else {
            return Ok(());
        };
        let unproven = || Error::Unauthenticated { peer: self.peer() };
        let keyed = KeyProof::parse(&agreement.private_data).ok();
        let keyed = keyed.filter(|_| agreement.extensions);
        let (keyed, private_data) = keyed.ok_or_else(unproven)?;
        let keys = &self.core().security.keys;
        let key = auth::reply_proven_by(keys, asked, &keyed, private_data);
        let key = key.ok_or_else(unproven)?;
        options.proof_state = Some(KeyAuth::Agreed(Nonces {
            local: auth::first_frame_nonce(key, asked, keyed.nonce),
            required: keyed.nonce,
        }));
        agreement.private_data.drain(..KeyProof::LEN);
        Ok(())
    }
}

fn prepend(options: &mut Options, keyed: &KeyProof) -> Result<(), Error> {
    let (got, limit) = (options.private_data.len(), MAX_PRIVATE_DATA - KeyProof::LEN);
    if got > limit {
        return Err(Error::PrivateData { got, limit });
    }
    options.private_data.splice(..0, keyed.emit());
    Ok(())
}
