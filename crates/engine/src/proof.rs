//! Proofs of a shared key between queue pairs that call each other (docs/extensions.md).
//! It promises that without a key nothing is proven and nothing is believed to be, and that comparing tells nobody how far it got.
//! It refuses to know connections.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use verbena_wire::ext::dial::{Answer, Call, NO_PROOF, Proof};

use crate::config::Key;

/// What the key makes of some words.
fn hmac(key: &Key, words: &[&[u8]]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.bytes()).ok()?;
    for word in words {
        mac.update(word);
    }
    Some(mac)
}

fn prove(key: Option<&Key>, words: &[&[u8]]) -> Proof {
    let mac = key.and_then(|key| hmac(key, words));
    mac.map_or(NO_PROOF, |mac| mac.finalize().into_bytes().into())
}

/// Both have no key, or both have the same.
fn is_proven(key: Option<&Key>, words: &[&[u8]], proof: &Proof) -> bool {
    match key {
        None => *proof == NO_PROOF,
        Some(key) => hmac(key, words).is_some_and(|mac| mac.verify_slice(proof).is_ok()),
    }
}

/// A call with its proof.
pub(crate) fn sign_call(key: Option<&Key>, call: Call) -> Call {
    let proof = prove(key, &[&call.emit()[..Call::PROVEN]]);
    Call { proof, ..call }
}

pub(crate) fn is_call_proven(key: Option<&Key>, call: &Call) -> bool {
    is_proven(key, &[&call.emit()[..Call::PROVEN]], &call.proof)
}

/// The answer to a call with its proof.
pub(crate) fn sign_answer(key: Option<&Key>, call: &Call, nonce: u64) -> Answer {
    let words: [&[u8]; 2] = [&call.emit()[..Call::PROVEN], &nonce.to_be_bytes()];
    let proof = prove(key, &words);
    Answer { nonce, proof }
}

pub(crate) fn is_answer_proven(key: Option<&Key>, call: &Call, answer: &Answer) -> bool {
    let words: [&[u8]; 2] = [&call.emit()[..Call::PROVEN], &answer.nonce.to_be_bytes()];
    is_proven(key, &words, &answer.proof)
}

/// The nonce in the caller's capabilities: proves that it has the answer, so that a recorded call is worth nothing.
/// Without a key it is the call's own.
pub(crate) fn last_word(key: Option<&Key>, call: &Call, answer: u64) -> u64 {
    let words: [&[u8]; 2] = [&call.nonce.to_be_bytes(), &answer.to_be_bytes()];
    match key.and_then(|key| hmac(key, &words)) {
        Some(mac) => {
            let mut first = [0; 8];
            first.copy_from_slice(&mac.finalize().into_bytes()[..8]);
            u64::from_be_bytes(first)
        }
        None => call.nonce,
    }
}

#[cfg(test)]
mod tests;
