//! What an initiator requests of a target: names, preferred values and credentials. `check` runs when a login begins and rejects values
//! that are outside a key's range or that contradict each other.

use verbena_storage_wire::iscsi::text;

use super::chap::Chap;
use super::error::LoginError;
use super::rules;

#[cfg(test)]
mod tests;

/// Most bytes of an iSCSI name (RFC 7143 §4.2.7.1).
pub const MAX_NAME: usize = 223;
/// Most bytes of other text values that we declare.
const MAX_TEXT_LEN: usize = 255;

/// SessionType.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Normal: commands to the target of this name.
    Target(String),
    /// Discovery: SendTargets only.
    Discovery,
}

/// Preference for a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DigestPreference {
    /// CRC32C is not offered.
    #[default]
    None,
    /// Offered after None.
    Accepted,
    /// Offered before None.
    Preferred,
    /// Offered alone: without it the login fails.
    Required,
}

impl DigestPreference {
    /// The value of the key, in order of preference.
    pub(super) const fn list(self) -> &'static str {
        match self {
            DigestPreference::None => "None",
            DigestPreference::Accepted => "None,CRC32C",
            DigestPreference::Preferred => "CRC32C,None",
            DigestPreference::Required => "CRC32C",
        }
    }
}

/// Keys that are offered in addition on RDMA (RFC 7145 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IserOffer {
    /// InitiatorRecvDataSegmentLength: most bytes of data in a control PDU to us.
    pub max_recv: u32,
    /// TargetRecvDataSegmentLength: most bytes of data in a control PDU to the target.
    pub max_send: u32,
    /// MaxOutstandingUnexpectedPDUs: unexpected PDUs that the target may have outstanding, 0 for any number, but not 1.
    pub unexpected: u32,
}

impl Default for IserOffer {
    /// 64 unexpected PDUs of 8 KiB: data itself does not move in PDUs.
    fn default() -> IserOffer {
        IserOffer {
            max_recv: 8192,
            max_send: 262_144,
            unexpected: 64,
        }
    }
}

/// What a login offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// InitiatorName.
    pub initiator: String,
    /// InitiatorAlias: a name for display.
    pub alias: Option<String>,
    /// SessionType, and TargetName.
    pub purpose: Purpose,
    /// HeaderDigest. Not used on RDMA, where MPA has a CRC.
    pub header_digest: DigestPreference,
    /// DataDigest.
    pub data_digest: DigestPreference,
    /// MaxRecvDataSegmentLength: most bytes of data in a PDU to us.
    pub max_recv: u32,
    /// MaxBurstLength: most bytes of one solicited data sequence.
    pub max_burst: u32,
    /// FirstBurstLength: most bytes of unsolicited data of one command.
    pub first_burst: u32,
    /// ImmediateData: the command PDU may carry data.
    pub immediate_data: bool,
    /// InitialR2T: data that is not immediate waits for an R2T.
    pub initial_r2t: bool,
    /// MaxOutstandingR2T.
    pub max_r2t: u16,
    /// DefaultTime2Wait: seconds before a lost session may be reinstated.
    pub time2wait: u16,
    /// DefaultTime2Retain: seconds for which a lost session is kept.
    pub time2retain: u16,
    /// Parameters of iSER, if the connection runs on RDMA.
    pub iser: Option<IserOffer>,
    /// Begin with the SecurityNegotiation stage even without credentials: one more exchange, which some targets require.
    pub two_step: bool,
    /// Our CHAP credentials.
    pub chap: Option<Chap>,
    /// The target's CHAP credentials, which it has to prove: its name and another secret.
    pub mutual: Option<Chap>,
}

impl Offer {
    /// The usual offer. Bursts of 1 MiB take a quarter of the R2Ts of the protocol's default, and 256 KiB of unsolicited data save small
    /// writes a round trip. Both are choices, not measured.
    pub fn new(initiator: impl Into<String>, purpose: Purpose) -> Offer {
        Offer {
            initiator: initiator.into(),
            alias: None,
            purpose,
            header_digest: DigestPreference::None,
            data_digest: DigestPreference::None,
            max_recv: 262_144,
            max_burst: 1 << 20,
            first_burst: 256 << 10,
            immediate_data: true,
            initial_r2t: false,
            max_r2t: 1,
            time2wait: 2,
            time2retain: 0,
            iser: None,
            two_step: false,
            chap: None,
            mutual: None,
        }
    }

    /// The declarations of the first request, in either stage (RFC 7143 §6.3).
    pub(super) fn declarations(&self) -> Vec<u8> {
        let mut text = Vec::new();
        text::push(&mut text, "InitiatorName", &self.initiator);
        if let Some(alias) = &self.alias {
            text::push(&mut text, "InitiatorAlias", alias);
        }
        match &self.purpose {
            Purpose::Target(name) => {
                text::push(&mut text, "SessionType", "Normal");
                text::push(&mut text, "TargetName", name);
            }
            Purpose::Discovery => text::push(&mut text, "SessionType", "Discovery"),
        }
        text
    }

    /// Whether the login begins with the SecurityNegotiation stage.
    pub(super) fn has_security_stage(&self) -> bool {
        self.two_step || self.chap.is_some()
    }

    /// AuthMethod, in order of preference. With mutual CHAP there is no alternative.
    pub(super) fn auth_methods(&self) -> &'static str {
        match (&self.chap, &self.mutual) {
            (Some(_), Some(_)) => "CHAP",
            (Some(_), None) => "CHAP,None",
            (None, _) => "None",
        }
    }

    /// iSER is for normal sessions only (RFC 7145 §6.3).
    pub(super) fn iser(&self) -> Option<IserOffer> {
        self.iser.filter(|_| self.purpose != Purpose::Discovery)
    }

    /// Rejects values that no target could accept.
    pub(super) fn check(&self) -> Result<(), LoginError> {
        check_name("InitiatorName", &self.initiator)?;
        if let Purpose::Target(target) = &self.purpose {
            check_name("TargetName", target)?;
        }
        if let Some(alias) = &self.alias {
            check_text("InitiatorAlias", alias)?;
        }
        self.check_numbers()?;
        self.check_credentials()
    }

    fn check_numbers(&self) -> Result<(), LoginError> {
        let mut sizes = vec![
            ("MaxRecvDataSegmentLength", self.max_recv),
            ("MaxBurstLength", self.max_burst),
            ("FirstBurstLength", self.first_burst),
        ];
        if let Some(iser) = self.iser {
            sizes.push(("InitiatorRecvDataSegmentLength", iser.max_recv));
            sizes.push(("TargetRecvDataSegmentLength", iser.max_send));
            refuse(
                iser.unexpected == 1,
                "MaxOutstandingUnexpectedPDUs",
                "it is 0 or at least 2",
            )?;
        }
        for (what, size) in sizes {
            refuse(!rules::SIZES.contains(&size), what, "it is 512 to 16777215")?;
        }
        refuse(
            self.first_burst > self.max_burst,
            "FirstBurstLength",
            "it is at most MaxBurstLength",
        )?;
        refuse(self.max_r2t == 0, "MaxOutstandingR2T", "it is at least 1")?;
        let times = [
            ("DefaultTime2Wait", self.time2wait),
            ("DefaultTime2Retain", self.time2retain),
        ];
        for (what, time) in times {
            refuse(
                u32::from(time) > rules::MAX_TIME,
                what,
                "it is at most 3600 seconds",
            )?;
        }
        let digests = [self.header_digest, self.data_digest].contains(&DigestPreference::Required);
        refuse(
            digests && self.iser().is_some(),
            "a required digest",
            "iSER has no digests",
        )
    }

    fn check_credentials(&self) -> Result<(), LoginError> {
        for chap in [&self.chap, &self.mutual].into_iter().flatten() {
            check_text("the CHAP user name", &chap.user)?;
            let empty = chap.secret.is_empty();
            refuse(empty, "the CHAP secret", "it is empty")?;
        }
        let what = "mutual CHAP";
        match (&self.chap, &self.mutual) {
            (None, Some(_)) => refuse(true, what, "it also needs credentials of the initiator"),
            // RFC 7143 §9.2.1: with one secret for both directions, a response can be reflected.
            (Some(own), Some(mutual)) => refuse(
                own.secret == mutual.secret,
                what,
                "the secrets of both directions must differ",
            ),
            _ => Ok(()),
        }
    }
}

fn refuse(wrong: bool, what: &'static str, why: &'static str) -> Result<(), LoginError> {
    match wrong {
        true => Err(LoginError::Offer { what, why }),
        false => Ok(()),
    }
}

fn check_name(what: &'static str, text: &str) -> Result<(), LoginError> {
    check_text(what, text)?;
    refuse(text.len() > MAX_NAME, what, "it has more than 223 bytes")?;
    let spaces = text.contains(char::is_whitespace);
    refuse(spaces, what, "it has spaces")
}

fn check_text(what: &'static str, text: &str) -> Result<(), LoginError> {
    refuse(text.is_empty(), what, "it is empty")?;
    refuse(
        text.len() > MAX_TEXT_LEN,
        what,
        "it has more than 255 bytes",
    )?;
    let controls = text.contains(char::is_control);
    refuse(controls, what, "it has control characters")
}
