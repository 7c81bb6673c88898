//! Proofs of a shared key (HMAC-SHA256) in calls of out-of-band connections and in the startup of connections by address
//! (docs/extensions.md). Without a key nothing is proven, and only the empty proof is accepted. Proofs are compared in constant time.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use verbena_wire::ext::dial::{DialReply, DialRequest, KeyProof, NO_PROOF, Proof};

use crate::config::Key;
use crate::security::keys::Keys;

/// The HMAC over the concatenation of `words`.
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

/// The key with which `proof` is valid for these words. Without keys, `Some(None)` if the proof is empty.
fn proven_by<'a>(keys: &'a Keys, words: &[&[u8]], proof: &Proof) -> Option<Option<&'a Key>> {
    if keys.is_empty() {
        return (*proof == NO_PROOF).then_some(None);
    }
    let proves = |key: &&Key| hmac(key, words).is_some_and(|mac| mac.verify_slice(proof).is_ok());
    keys.iter().find(proves).map(Some)
}

/// Signs a call.
pub(crate) fn sign_call(key: Option<&Key>, call: DialRequest) -> DialRequest {
    let proof = prove(key, &[&call.emit()[..DialRequest::COVERED_LEN]]);
    DialRequest { proof, ..call }
}

/// The key that proves a call. The answer must be signed with it: the caller may not have the others.
pub(crate) fn call_proven_by<'a>(keys: &'a Keys, call: &DialRequest) -> Option<Option<&'a Key>> {
    proven_by(
        keys,
        &[&call.emit()[..DialRequest::COVERED_LEN]],
        &call.proof,
    )
}

/// Signs the answer to a call.
pub(crate) fn sign_answer(key: Option<&Key>, call: &DialRequest, nonce: u64) -> DialReply {
    let words: [&[u8]; 2] = [
        &call.emit()[..DialRequest::COVERED_LEN],
        &nonce.to_be_bytes(),
    ];
    let proof = prove(key, &words);
    DialReply { nonce, proof }
}

/// The key that proves the answer to a call.
pub(crate) fn answer_proven_by<'a>(
    keys: &'a Keys,
    call: &DialRequest,
    answer: &DialReply,
) -> Option<Option<&'a Key>> {
    let words: [&[u8]; 2] = [
        &call.emit()[..DialRequest::COVERED_LEN],
        &answer.nonce.to_be_bytes(),
    ];
    proven_by(keys, &words, &answer.proof)
}

/// The nonce in the caller's capabilities: proves that it has the answer, so that a replayed call is useless.
/// Without a key it is the call's own nonce.
pub(crate) fn caller_nonce(key: Option<&Key>, call: &DialRequest, answer: u64) -> u64 {
    let words: [&[u8]; 2] = [&call.nonce.to_be_bytes(), &answer.to_be_bytes()];
    match key.and_then(|key| hmac(key, &words)) {
        Some(mac) => first_bytes(mac),
        None => call.nonce,
    }
}

fn first_bytes(mac: Hmac<Sha256>) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&mac.finalize().into_bytes()[..8]);
    u64::from_be_bytes(first)
}

/// Domain separation for the proofs of a connection by address: no proof is valid for another purpose.
const REQUEST: &[u8] = b"VbKy request";
const REPLY: &[u8] = b"VbKy reply";
const FIRST_FRAME: &[u8] = b"VbKy first frame";

/// Signs a Request with this private data.
pub(crate) fn sign_request(key: &Key, nonce: u64, private_data: &[u8]) -> KeyProof {
    let words = [REQUEST, &nonce.to_be_bytes(), private_data];
    let proof = prove(Some(key), &words);
    KeyProof { nonce, proof }
}

/// The key that proves a Request.
pub(crate) fn request_proven_by<'a>(
    keys: &'a Keys,
    keyed: &KeyProof,
    private_data: &[u8],
) -> Option<&'a Key> {
    let words = [REQUEST, &keyed.nonce.to_be_bytes(), private_data];
    proven_by(keys, &words, &keyed.proof).flatten()
}

/// Signs the Reply to a Request with nonce `asked`.
pub(crate) fn sign_reply(key: &Key, asked: u64, nonce: u64, private_data: &[u8]) -> KeyProof {
    let words = [
        REPLY,
        &asked.to_be_bytes(),
        &nonce.to_be_bytes(),
        private_data,
    ];
    let proof = prove(Some(key), &words);
    KeyProof { nonce, proof }
}

/// The key that proves the Reply to a Request with nonce `asked`.
pub(crate) fn reply_proven_by<'a>(
    keys: &'a Keys,
    asked: u64,
    keyed: &KeyProof,
    private_data: &[u8],
) -> Option<&'a Key> {
    let words = [
        REPLY,
        &asked.to_be_bytes(),
        &keyed.nonce.to_be_bytes(),
        private_data,
    ];
    proven_by(keys, &words, &keyed.proof).flatten()
}

/// The nonce in the initiator's capabilities: proves that it has the Reply, so that a replayed Request is useless.
pub(crate) fn first_frame_nonce(key: &Key, asked: u64, answered: u64) -> u64 {
    let words = [FIRST_FRAME, &asked.to_be_bytes(), &answered.to_be_bytes()];
    // HMAC takes keys of any length.
    hmac(key, &words).map_or(0, first_bytes)
}

#[cfg(test)]
mod tests;
