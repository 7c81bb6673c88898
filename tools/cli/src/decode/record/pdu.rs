//! An iSCSI PDU as both printers show it: its header as text, and the important numbers by name. A number is present exactly if the PDU has
//! it. The numbers are not checked.

use serde::Serialize;
use verbena_storage_wire::iscsi::{FromInitiator, FromTarget, NO_TAG, Window};
use verbena_storage_wire::scsi::Cdb;

/// Whether a digest is correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is.
    Good,
    /// It is not.
    Wrong,
}

impl Verdict {
    /// The result of a comparison.
    pub fn new(equal: bool) -> Verdict {
        if equal { Verdict::Good } else { Verdict::Wrong }
    }

    /// As text.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Wrong => "wrong",
        }
    }
}

/// An iSCSI PDU.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Pdu {
    /// Its header as text.
    pub words: String,
    /// Initiator Task Tag, in hexadecimal; absent if reserved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itt: Option<String>,
    /// Target Transfer Tag, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttt: Option<String>,
    /// CmdSN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmd_sn: Option<u32>,
    /// ExpStatSN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp_stat_sn: Option<u32>,
    /// StatSN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stat_sn: Option<u32>,
    /// ExpCmdSN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp_cmd_sn: Option<u32>,
    /// MaxCmdSN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cmd_sn: Option<u32>,
    /// The SCSI command by name, with its relevant bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cdb: Option<String>,
    /// The header digest, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_digest: Option<Verdict>,
    /// The data digest, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_digest: Option<Verdict>,
    /// The first bytes of data in hexadecimal, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
}

impl Pdu {
    /// A PDU of an initiator.
    pub fn from_initiator(pdu: &FromInitiator) -> Pdu {
        // ITT, TTT, CmdSN, ExpStatSN.
        let (itt, ttt, cmd_sn, exp_stat_sn) = match pdu {
            FromInitiator::NopOut(p) => (p.itt, p.ttt, Some(p.cmd_sn), p.exp_stat_sn),
            FromInitiator::ScsiCommand(p) => (p.itt, NO_TAG, Some(p.cmd_sn), p.exp_stat_sn),
            FromInitiator::TaskRequest(p) => (p.itt, NO_TAG, Some(p.cmd_sn), p.exp_stat_sn),
            FromInitiator::LoginRequest(p) => (p.itt, NO_TAG, Some(p.cmd_sn), p.exp_stat_sn),
            FromInitiator::TextRequest(p) => (p.itt, p.ttt, Some(p.cmd_sn), p.exp_stat_sn),
            FromInitiator::DataOut(p) => (p.itt, p.ttt, None, p.exp_stat_sn),
            FromInitiator::LogoutRequest(p) => (p.itt, NO_TAG, Some(p.cmd_sn), p.exp_stat_sn),
            FromInitiator::Snack(p) => (p.itt, p.ttt, None, p.exp_stat_sn),
        };
        let cdb = match pdu {
            FromInitiator::ScsiCommand(p) => Some(Cdb::from_bytes(p.cdb).to_string()),
            _ => None,
        };
        Pdu {
            words: header_text(&pdu.to_string(), pdu.opcode().word()),
            itt: tag(itt),
            ttt: tag(ttt),
            cmd_sn,
            exp_stat_sn: Some(exp_stat_sn),
            cdb,
            ..Pdu::default()
        }
    }

    /// A PDU of a target.
    pub fn from_target(pdu: &FromTarget) -> Pdu {
        let (itt, ttt, stat_sn, window) = match pdu {
            FromTarget::NopIn(p) => (p.itt, p.ttt, Some(p.stat_sn), p.window),
            FromTarget::ScsiResponse(p) => (p.itt, NO_TAG, Some(p.stat_sn), p.window),
            FromTarget::TaskResponse(p) => (p.itt, NO_TAG, Some(p.stat_sn), p.window),
            FromTarget::LoginResponse(p) => (p.itt, NO_TAG, Some(p.stat_sn), p.window),
            FromTarget::TextResponse(p) => (p.itt, p.ttt, Some(p.stat_sn), p.window),
            // RFC 7143 §11.7: StatSN is valid only with a status.
            FromTarget::DataIn(p) => (p.itt, p.ttt, p.status.map(|_| p.stat_sn), p.window),
            FromTarget::LogoutResponse(p) => (p.itt, NO_TAG, Some(p.stat_sn), p.window),
            FromTarget::R2t(p) => (p.itt, p.ttt, Some(p.stat_sn), p.window),
            FromTarget::AsyncMessage(p) => (NO_TAG, NO_TAG, Some(p.stat_sn), p.window),
            FromTarget::Reject(p) => (NO_TAG, NO_TAG, Some(p.stat_sn), p.window),
        };
        let Window {
            exp_cmd_sn,
            max_cmd_sn,
        } = window;
        Pdu {
            words: header_text(&pdu.to_string(), pdu.opcode().word()),
            itt: tag(itt),
            ttt: tag(ttt),
            stat_sn,
            exp_cmd_sn: Some(exp_cmd_sn),
            max_cmd_sn: Some(max_cmd_sn),
            ..Pdu::default()
        }
    }
}

/// The text of a PDU, without the name that its record has.
fn header_text(said: &str, name: &str) -> String {
    said.strip_prefix(name).unwrap_or(said).trim().to_owned()
}

fn tag(tag: u32) -> Option<String> {
    (tag != NO_TAG).then(|| format!("{tag:#010x}"))
}
