//! How the two ends of a connection that was made by hand know each other: what was said in the startup, and what the
//! first frame of either must prove (docs/extensions.md). It promises that a stream begins only in the life that asked
//! for it, and with a peer that knows the shared key. It refuses to dial.

use core::net::SocketAddr;
use std::sync::{Arc, Weak};

use verbena_stream::Agreement;
use verbena_wire::ext::{Answer, Call};

use crate::error::Error;
use crate::life::Life;
use crate::proof;

/// What one end has said, in which life of its queue pair.
#[derive(Clone)]
pub(crate) struct Introduction {
    life: Weak<Life>,
    /// Names the life: each has its own.
    nonce: u64,
    words: Words,
}

#[derive(Clone)]
pub(crate) enum Words {
    /// We called.
    Called(Box<Call>),
    /// We were called; what the caller's first frame must prove.
    Answered { demands: u64 },
    /// The queue pair is its own peer.
    Itself,
}

/// The nonces of the first frames.
#[derive(Clone, Copy)]
pub(crate) struct Nonces {
    /// Ours.
    pub(crate) ours: u64,
    /// The peer's.
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

    /// The startup is over: what the first frames must show, if the peer has said what it must.
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

    /// The life has its connection, if it still wants this one and `begin` can begin it.
    pub(crate) fn join<R>(&self, begin: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        let called = !matches!(self.words, Words::Answered { .. });
        self.life()?.join(self.nonce, called, begin)
    }

    /// The connection is over, or never was.
    pub(crate) fn parted(&self) {
        if let Some(life) = self.life.upgrade() {
            life.parted(self.nonce);
        }
    }
}
