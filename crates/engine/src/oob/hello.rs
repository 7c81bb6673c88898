//! Identifies both ends of an out-of-band connection: what this end sent in the startup, and the nonces of both sides' first frames
//! (docs/extensions.md). A stream begins only for the life of the queue pair that asked for it, and with a peer that has the shared key,
//! if there is one.

use core::net::SocketAddr;
use std::sync::{Arc, Weak};

use verbena_stream::Agreement;
use verbena_wire::ext::{DialReply, DialRequest};

use crate::error::Error;
use crate::oob::auth;
use crate::oob::handshake::OobHandshake;

/// What one end has sent, and in which life of its queue pair.
#[derive(Clone)]
pub(crate) struct OobHello {
    handshake: Weak<OobHandshake>,
    /// Identifies the life: each has its own.
    nonce: u64,
    role: OobRole,
}

#[derive(Clone)]
pub(crate) enum OobRole {
    /// This end called.
    Caller(Box<DialRequest>),
    /// This end was called; the nonce that the caller's first frame must contain.
    Responder { required_nonce: u64 },
    /// The queue pair is its own peer.
    Loopback,
}

/// The nonces of the first frames.
#[derive(Clone, Copy)]
pub(crate) struct Nonces {
    /// In the first frame of this end.
    pub(crate) local: u64,
    /// Required in the first frame of the peer.
    pub(crate) required: u64,
}

impl OobHello {
    pub(crate) fn new(owner: &Weak<OobHandshake>, nonce: u64, words: OobRole) -> OobHello {
        let owner = owner.clone();
        OobHello {
            handshake: owner,
            nonce,
            role: words,
        }
    }

    fn handshake(&self) -> Result<Arc<OobHandshake>, Error> {
        self.handshake.upgrade().ok_or(Error::Closed)
    }

    /// At the end of the startup: the nonces of the first frames, if the peer's answer is valid.
    pub(crate) fn verify_answer(
        &self,
        agreement: &Agreement,
        peer: SocketAddr,
    ) -> Result<Nonces, Error> {
        let owner = self.handshake()?;
        Ok(match &self.role {
            OobRole::Caller(call) => {
                let answer = DialReply::parse(&agreement.private_data).ok();
                let answer = answer.filter(|_| agreement.extensions);
                let answer = answer.ok_or(Error::Unauthenticated { peer })?;
                let key = auth::answer_proven_by(owner.keys(), call, &answer);
                let key = key.ok_or(Error::Unauthenticated { peer })?;
                Nonces {
                    local: auth::caller_nonce(key, call, answer.nonce),
                    required: answer.nonce,
                }
            }
            OobRole::Responder {
                required_nonce: demands,
            } => Nonces {
                local: self.nonce,
                required: *demands,
            },
            OobRole::Loopback => Nonces {
                local: self.nonce,
                required: self.nonce,
            },
        })
    }

    /// Attaches the connection to the life, if that still wants this one and `begin` succeeds.
    pub(crate) fn join<R>(&self, begin: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        let called = !matches!(self.role, OobRole::Responder { .. });
        self.handshake()?.join(self.nonce, called, begin)
    }

    /// The connection has ended, or was not established.
    pub(crate) fn disconnected(&self) {
        if let Some(owner) = self.handshake.upgrade() {
            owner.disconnected(self.nonce);
        }
    }
}

impl core::fmt::Debug for OobHello {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("OobHello").finish_non_exhaustive()
    }
}
