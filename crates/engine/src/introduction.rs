//! Identifies both ends of an out-of-band connection: what this end sent in the startup, and the nonces of both sides' first frames
//! (docs/extensions.md). A stream begins only for the life of the queue pair that asked for it, and with a peer that has the shared key,
//! if there is one.

use core::net::SocketAddr;
use std::sync::{Arc, Weak};

use verbena_stream::Agreement;
use verbena_wire::ext::{Answer, Call};

use crate::error::Error;
use crate::life::Life;
use crate::proof;

/// What one end has sent, and in which life of its queue pair.
#[derive(Clone)]
pub(crate) struct Introduction {
    life: Weak<Life>,
    /// Identifies the life: each has its own.
    nonce: u64,
    words: Words,
}

#[derive(Clone)]
pub(crate) enum Words {
    /// This end called.
    Called(Box<Call>),
    /// This end was called; the nonce that the caller's first frame must contain.
    Answered { demands: u64 },
    /// The queue pair is its own peer.
    Itself,
}

/// The nonces of the first frames.
#[derive(Clone, Copy)]
pub(crate) struct Nonces {
    /// In the first frame of this end.
    pub(crate) ours: u64,
    /// Required in the first frame of the peer.
    pub(crate) demanded: u64,
}

impl Introduction {
    pub(crate) fn new(life: &Weak<Life>, nonce: u64, words: Words) -> Introduction {
        let life = life.clone();
        Introduction { life, nonce, words }
    }

    fn life(&self) -> Result<Arc<Life>, Error> {
        self.life.upgrade().ok_or(Error::Closed)
    }

    /// At the end of the startup: the nonces of the first frames, if the peer's answer is valid.
    pub(crate) fn conclude(
        &self,
        agreement: &Agreement,
        peer: SocketAddr,
    ) -> Result<Nonces, Error> {
        let life = self.life()?;
        Ok(match &self.words {
            Words::Called(call) => {
                let answer = Answer::parse(&agreement.private_data).ok();
                let answer = answer.filter(|_| agreement.extensions);
                let answer = answer.ok_or(Error::Unproven { peer })?;
                let key = proof::answer_proven_by(life.keys(), call, &answer);
                let key = key.ok_or(Error::Unproven { peer })?;
                Nonces {
                    ours: proof::last_word(key, call, answer.nonce),
                    demanded: answer.nonce,
                }
            }
            Words::Answered { demands } => Nonces {
                ours: self.nonce,
                demanded: *demands,
            },
            Words::Itself => Nonces {
                ours: self.nonce,
                demanded: self.nonce,
            },
        })
    }

    /// Attaches the connection to the life, if that still wants this one and `begin` succeeds.
    pub(crate) fn join<R>(&self, begin: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        let called = !matches!(self.words, Words::Answered { .. });
        self.life()?.join(self.nonce, called, begin)
    }

    /// The connection has ended, or was not established.
    pub(crate) fn parted(&self) {
        if let Some(life) = self.life.upgrade() {
            life.parted(self.nonce);
        }
    }
}
