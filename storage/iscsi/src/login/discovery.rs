//! SendTargets (RFC 7143 Appendix C): one text request, and further ones while the target's answer continues. Names and portals are
//! validated, and the answer is bounded in bytes, responses, targets and portals. The caller runs the discovery session and fills in the
//! sequence numbers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use thiserror::Error;
use verbena_storage_wire::iscsi::{Lun, NO_TAG, TextRequest, TextResponse, text};
use verbena_wire::Malformed;

use super::blame::clip;
use super::offer::MAX_NAME;
use super::portal::Portal;

#[cfg(test)]
mod tests;

/// Most bytes of an answer.
pub const MAX_RESPONSE_LEN: usize = 1 << 20;
/// Most text responses of an answer.
const MAX_RESPONSES: u32 = 1024;
/// Most targets.
pub const MAX_TARGETS: usize = 4096;
/// Most portals of one target.
pub const MAX_PORTALS: usize = 64;

/// A target that was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetRecord {
    /// iSCSI name.
    pub name: String,
    /// TargetAddress values. Empty: the address that was asked.
    pub addresses: Vec<Portal>,
}

/// State after a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiscoveryProgress {
    /// The answer continues: send the request of [`Discovery::next`].
    Continue,
    /// All targets, in the order of the answer.
    Done(Vec<TargetRecord>),
}

/// Why discovery failed. The target is at fault for all but the last.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DiscoveryError {
    /// The response has another task tag.
    #[error("the target answers task {got:#x}, expected {expected:#x}")]
    Task {
        /// Ours.
        expected: u32,
        /// The tag received.
        got: u32,
    },
    /// The answer continues without a target transfer tag.
    #[error("the target's answer is incomplete and has no tag to request the rest")]
    NoTag,
    /// The text cannot be parsed.
    #[error("the target sent text that cannot be read: {0}")]
    Text(#[from] Malformed),
    /// A limit was exceeded.
    #[error("the target lists more than {limit} {what}")]
    TooMuch {
        /// The limit.
        limit: usize,
        /// The thing that is limited.
        what: &'static str,
    },
    /// An invalid target name.
    #[error("the target lists \"{name}\", which is not a valid target name")]
    Name {
        /// The beginning of it.
        name: String,
    },
    /// An address that cannot be parsed, or that precedes any TargetName.
    #[error("the target lists the address \"{address}\", {why}")]
    Address {
        /// The beginning of it.
        address: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The target answers the key SendTargets with a refusal.
    #[error("the target does not answer SendTargets: {answer}")]
    Refused {
        /// Its value.
        answer: String,
    },
    /// A response after the end.
    #[error("this discovery has completed or failed: start another")]
    Finished,
}

/// A SendTargets request in progress.
#[derive(Debug)]
pub struct Discovery {
    itt: u32,
    ttt: u32,
    lun: Lun,
    received: Vec<u8>,
    responses: u32,
    finished: bool,
}

impl Discovery {
    /// Requests all targets, under this task tag.
    pub fn new(itt: u32) -> Discovery {
        Discovery {
            itt,
            ttt: NO_TAG,
            lun: Lun::default(),
            received: Vec::new(),
            responses: 0,
            finished: false,
        }
    }

    /// The next request and its text. The caller fills in CmdSN and ExpStatSN.
    pub fn next(&self) -> (TextRequest, Vec<u8>) {
        let mut text = Vec::new();
        if self.responses == 0 {
            text::push(&mut text, "SendTargets", "All");
        }
        let request = TextRequest {
            immediate: false,
            is_final: true,
            more: false,
            data_len: text.len() as u32,
            lun: self.lun,
            itt: self.itt,
            ttt: self.ttt,
            cmd_sn: 0,
            exp_stat_sn: 0,
        };
        (request, text)
    }

    /// Takes a response and its text.
    pub fn handle_response(
        &mut self,
        response: &TextResponse,
        data: &[u8],
    ) -> Result<DiscoveryProgress, DiscoveryError> {
        let found = self.process_response(response, data);
        self.finished = !matches!(found, Ok(DiscoveryProgress::Continue));
        found
    }

    fn process_response(
        &mut self,
        response: &TextResponse,
        data: &[u8],
    ) -> Result<DiscoveryProgress, DiscoveryError> {
        if self.finished {
            return Err(DiscoveryError::Finished);
        }
        if response.itt != self.itt {
            return Err(DiscoveryError::Task {
                expected: self.itt,
                got: response.itt,
            });
        }
        self.responses += 1;
        limit(self.responses as usize, MAX_RESPONSES as usize, "responses")?;
        limit(self.received.len() + data.len(), MAX_RESPONSE_LEN, "bytes")?;
        self.received.extend_from_slice(data);
        if response.is_final && !response.more {
            return read(&self.received).map(DiscoveryProgress::Done);
        }
        // RFC 7143 §11.11.4: a response that is not final has a target transfer tag, with which the rest is requested.
        if response.ttt == NO_TAG {
            return Err(DiscoveryError::NoTag);
        }
        (self.ttt, self.lun) = (response.ttt, response.lun);
        Ok(DiscoveryProgress::Continue)
    }
}

fn limit(got: usize, limit: usize, what: &'static str) -> Result<(), DiscoveryError> {
    match got > limit {
        true => Err(DiscoveryError::TooMuch { limit, what }),
        false => Ok(()),
    }
}

/// Parses the whole answer: names, each followed by its addresses.
fn read(answer: &[u8]) -> Result<Vec<TargetRecord>, DiscoveryError> {
    let mut records: Vec<TargetRecord> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut current = None;
    for pair in text::Pairs::new(answer) {
        match pair? {
            ("TargetName", name) => {
                let place = match places.entry(name) {
                    // A name may be repeated, with other addresses.
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        limit(records.len() + 1, MAX_TARGETS, "targets")?;
                        records.push(record(name)?);
                        *new.insert(records.len() - 1)
                    }
                };
                current = Some(place);
            }
            ("TargetAddress", address) => {
                let target = current.and_then(|at| records.get_mut(at));
                add(target, address)?;
            }
            ("SendTargets", answer) => {
                let answer = clip(answer);
                return Err(DiscoveryError::Refused { answer });
            }
            // TargetAlias and vendor-specific keys.
            _ => {}
        }
    }
    Ok(records)
}

fn record(name: &str) -> Result<TargetRecord, DiscoveryError> {
    let odd = |c: char| c.is_control() || c.is_whitespace();
    if name.is_empty() || name.len() > MAX_NAME || name.contains(odd) {
        return Err(DiscoveryError::Name { name: clip(name) });
    }
    Ok(TargetRecord {
        name: name.to_owned(),
        addresses: Vec::new(),
    })
}

fn add(target: Option<&mut TargetRecord>, address: &str) -> Result<(), DiscoveryError> {
    let wrong = |why| DiscoveryError::Address {
        address: clip(address),
        why,
    };
    let target = target.ok_or_else(|| wrong("before any target name"))?;
    let portal = Portal::parse(address).ok_or_else(|| wrong("which is not a valid address"))?;
    if !target.addresses.contains(&portal) {
        limit(
            target.addresses.len() + 1,
            MAX_PORTALS,
            "portals of a target",
        )?;
        target.addresses.push(portal);
    }
    Ok(())
}
