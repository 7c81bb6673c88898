//! A scripted target: it encodes and parses real PDUs, splits its text as configured, and has its own implementation of the key rules.

use std::collections::VecDeque;

use verbena_storage_wire::iscsi::text::{self, Pairs};
use verbena_storage_wire::iscsi::{LoginRequest, LoginResponse, LoginStatus, Stage};

use super::super::chap::{Algorithm, Chap};
use super::super::{Login, LoginError, Progress};

const CHALLENGE: &[u8] = b"sixteen bytes...";
const ID: u8 = 200;

pub(super) struct Target {
    /// Credentials that it requires of the initiator.
    pub(super) account: Option<Chap>,
    /// Its own credentials, for mutual CHAP.
    pub(super) own: Option<Chap>,
    pub(super) algorithm: Algorithm,
    pub(super) base64: bool,
    /// CHAP_C.
    pub(super) challenge: Vec<u8>,
    pub(super) digests: bool,
    /// Requires digests.
    pub(super) requires_digests: bool,
    pub(super) iser: bool,
    pub(super) max_burst: u32,
    /// Offers in its first operational text.
    pub(super) offers: Vec<(&'static str, &'static str)>,
    /// Bytes of its text in one response.
    pub(super) chunk_len: usize,
    /// Pairs of the initiator, in order.
    pub(super) received: Vec<(String, String)>,
    pub(super) exchanges: usize,
    /// State between exchanges; not configured by tests.
    pub(super) greeted: bool,
    pub(super) has_offered: bool,
    pub(super) chose_chap: bool,
    pub(super) accepted: bool,
    pub(super) partial: Vec<u8>,
    pub(super) pending: VecDeque<Vec<u8>>,
    pub(super) leave: Option<Stage>,
    pub(super) status: LoginStatus,
}

impl Default for Target {
    fn default() -> Target {
        Target {
            account: None,
            own: None,
            algorithm: Algorithm::Md5,
            base64: false,
            challenge: CHALLENGE.to_vec(),
            digests: true,
            requires_digests: false,
            iser: true,
            max_burst: 262_144,
            offers: Vec::new(),
            chunk_len: 8192,
            received: Vec::new(),
            exchanges: 0,
            greeted: false,
            has_offered: false,
            chose_chap: false,
            accepted: false,
            partial: Vec::new(),
            pending: VecDeque::new(),
            leave: None,
            status: LoginStatus::Success,
        }
    }
}

impl Target {
    pub(super) fn received_value(&self, key: &str) -> Option<&str> {
        let found = self.received.iter().find(|(k, _)| k == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Runs a login to its end, with every header encoded and parsed.
    pub(super) fn run(&mut self, login: &mut Login) -> Result<Progress, LoginError> {
        loop {
            let (request, text) = login.next();
            assert_eq!(request.data_len as usize, text.len());
            let request = LoginRequest::parse(&request.emit()).unwrap();
            let (response, text) = self.answer(&request, &text);
            let response = LoginResponse::parse(&response.emit()).unwrap();
            self.exchanges += 1;
            match login.handle_response(&response, &text)? {
                Progress::Continue => {}
                end => return Ok(end),
            }
        }
    }

    fn answer(&mut self, request: &LoginRequest, text: &[u8]) -> (LoginResponse, Vec<u8>) {
        if self.pending.is_empty() {
            self.partial.extend_from_slice(text);
            if request.more {
                assert_eq!(request.nsg, None);
                return self.respond(request, Vec::new(), false);
            }
            self.handle_text(request);
        } else {
            assert!(text.is_empty() && request.nsg.is_none(), "interrupted");
        }
        let piece = self.pending.pop_front().unwrap_or_default();
        let more = !self.pending.is_empty();
        self.respond(request, piece, more)
    }

    fn respond(
        &mut self,
        request: &LoginRequest,
        text: Vec<u8>,
        more: bool,
    ) -> (LoginResponse, Vec<u8>) {
        // An initiator whose T bit came while our C bit was set repeats it after our text is complete.
        let nsg = self.leave.filter(|_| !more && request.nsg.is_some());
        let response = LoginResponse {
            more,
            csg: request.csg,
            nsg,
            version_max: 0,
            version_active: 0,
            data_len: text.len() as u32,
            isid: request.isid,
            tsih: if nsg == Some(Stage::FullFeature) {
                7
            } else {
                0
            },
            itt: request.itt,
            stat_sn: 0,
            window: Default::default(),
            status: self.status,
        };
        (response, text)
    }

    /// Takes a complete text and queues the answer.
    fn handle_text(&mut self, request: &LoginRequest) {
        let text = core::mem::take(&mut self.partial);
        let pairs: Vec<(String, String)> = Pairs::new(&text)
            .map(|pair| pair.map(|(k, v)| (k.to_owned(), v.to_owned())).unwrap())
            .collect();
        let mut out = Vec::new();
        if !self.greeted {
            self.greeted = true;
            text::push(&mut out, "TargetPortalGroupTag", "1");
            text::push(&mut out, "TargetAlias", "the disk");
        }
        for (key, value) in &pairs {
            self.operational(key, value, &mut out);
        }
        self.leave = request.nsg;
        self.received.extend(pairs.iter().cloned());
        if request.csg == Stage::Security {
            self.security(&pairs, &mut out);
        } else if !self.has_offered {
            self.has_offered = true;
            for (key, value) in &self.offers {
                text::push(&mut out, key, value);
                self.leave = None;
            }
            if self.account.is_some() && !self.accepted {
                self.status = LoginStatus::AuthenticationFailed;
            }
        }
        self.pending = out.chunks(self.chunk_len).map(<[u8]>::to_vec).collect();
    }

    fn security(&mut self, pairs: &[(String, String)], out: &mut Vec<u8>) {
        let get = |key: &str| {
            pairs
                .iter()
                .find(|(k, _)| k == key)
                .map(|(_, v)| v.as_str())
        };
        if let Some(methods) = get("AuthMethod") {
            self.chose_chap = self.account.is_some();
            let method = if self.chose_chap { "CHAP" } else { "None" };
            let known = methods.split(',').any(|m| m == method);
            text::push(out, "AuthMethod", if known { method } else { "Reject" });
            if self.chose_chap {
                self.leave = None;
            }
        }
        let binary = |bytes: &[u8]| match self.base64 {
            true => text::base64(bytes),
            false => text::hex(bytes),
        };
        if let Some(algorithms) = get("CHAP_A") {
            let code = self.algorithm.code().to_string();
            assert!(algorithms.split(',').any(|a| a == code));
            text::push(out, "CHAP_A", &code);
            text::push(out, "CHAP_I", &ID.to_string());
            text::push(out, "CHAP_C", &binary(&self.challenge));
        }
        let Some(response) = get("CHAP_R") else {
            return;
        };
        let account = self.account.as_ref().unwrap();
        let expected = self
            .algorithm
            .response(ID, &account.secret, &self.challenge);
        self.accepted = text::binary(response).unwrap() == expected
            && get("CHAP_N") == Some(account.user.as_str());
        if !self.accepted {
            self.status = LoginStatus::AuthenticationFailed;
        }
        if let (Some(id), Some(challenge), Some(own)) = (get("CHAP_I"), get("CHAP_C"), &self.own) {
            let challenge = text::binary(challenge).unwrap();
            let proof = self
                .algorithm
                .response(id.parse().unwrap(), &own.secret, &challenge);
            text::push(out, "CHAP_N", &own.user);
            text::push(out, "CHAP_R", &binary(&proof));
        }
    }

    /// Answers an operational key.
    fn operational(&self, key: &str, value: &str, out: &mut Vec<u8>) {
        let asked = self.offers.iter().any(|(k, _)| *k == key);
        let number = || value.parse::<u32>().unwrap();
        let answer = match key {
            _ if asked => return,
            "HeaderDigest" | "DataDigest" => {
                let can = |choice: &&str| match *choice {
                    "None" => !self.requires_digests,
                    _ => self.digests,
                };
                value.split(',').find(can).unwrap_or("Reject").to_owned()
            }
            "MaxConnections" | "MaxOutstandingR2T" => "1".into(),
            "ErrorRecoveryLevel" => "0".into(),
            "InitialR2T" | "ImmediateData" | "DataPDUInOrder" | "DataSequenceInOrder" => {
                value.into()
            }
            "MaxBurstLength" => number().min(self.max_burst).to_string(),
            "FirstBurstLength" => number().min(65536).to_string(),
            "DefaultTime2Wait" => number().max(5).to_string(),
            "DefaultTime2Retain" => number().min(20).to_string(),
            "RDMAExtensions" => text::from_bool(self.iser).into(),
            "InitiatorRecvDataSegmentLength" | "TargetRecvDataSegmentLength" => {
                number().min(65536).to_string()
            }
            _ => return,
        };
        text::push(out, key, &answer);
    }
}
