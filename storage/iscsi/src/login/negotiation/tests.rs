//! Our offers, and our answers to offers of the target.

use super::*;

fn normal() -> Offer {
    Offer::new("iqn.a", Purpose::Target("iqn.b".into()))
}

fn offered(offer: &Offer) -> String {
    let mut out = Vec::new();
    Negotiation::new(offer).offer(&offer.purpose, &mut out);
    String::from_utf8(out).unwrap().replace('\0', " ")
}

#[test]
fn a_normal_session_offers_all_keys() {
    let expected = "MaxConnections=1 InitialR2T=No ImmediateData=Yes MaxBurstLength=1048576 \
                    FirstBurstLength=262144 MaxOutstandingR2T=1 DefaultTime2Wait=2 DefaultTime2Retain=0 \
                    DataPDUInOrder=Yes DataSequenceInOrder=Yes ErrorRecoveryLevel=0 HeaderDigest=None \
                    DataDigest=None MaxRecvDataSegmentLength=262144 ";
    assert_eq!(offered(&normal()), expected);
}

#[test]
fn discovery_session_offers_only_relevant_keys() {
    let expected = "DefaultTime2Wait=2 DefaultTime2Retain=0 ErrorRecoveryLevel=0 HeaderDigest=None \
                    DataDigest=None MaxRecvDataSegmentLength=262144 ";
    assert_eq!(offered(&Offer::new("iqn.a", Purpose::Discovery)), expected);
}

#[test]
fn iser_keys_come_first_without_digests() {
    let iser = Some(IserOffer::default());
    let text = offered(&Offer {
        iser,
        data_digest: DigestPreference::Preferred,
        ..normal()
    });
    let begin = "RDMAExtensions=Yes InitiatorRecvDataSegmentLength=8192 \
                 TargetRecvDataSegmentLength=262144 MaxConnections=1 ";
    assert!(text.starts_with(begin), "{text}");
    assert!(
        text.ends_with(
            "DataDigest=None MaxOutstandingUnexpectedPDUs=64 TaggedBufferForSolicitedDataOnly=Yes "
        ),
        "{text}"
    );
}

/// The target offers first: we answer with the result and keep to it.
#[test]
fn target_offers_are_answered_with_the_result() {
    let offer = Offer {
        header_digest: DigestPreference::Preferred,
        ..normal()
    };
    let rows = [
        ("InitialR2T", "Yes", Ok("InitialR2T=Yes")),
        ("InitialR2T", "No", Ok("InitialR2T=No")),
        ("ImmediateData", "No", Ok("ImmediateData=No")),
        ("MaxBurstLength", "16776192", Ok("MaxBurstLength=1048576")),
        ("MaxBurstLength", "512", Ok("MaxBurstLength=512")),
        ("DefaultTime2Wait", "0", Ok("DefaultTime2Wait=2")),
        ("ErrorRecoveryLevel", "2", Ok("ErrorRecoveryLevel=0")),
        ("HeaderDigest", "None,CRC32C", Ok("HeaderDigest=None")),
        ("HeaderDigest", "Other,CRC32C", Ok("HeaderDigest=CRC32C")),
        ("DataDigest", "CRC32C", Ok("DataDigest=Reject")),
        ("TaskReporting", "FastAbort", Ok("TaskReporting=Reject")),
        ("OFMarkInt", "1~2", Ok("OFMarkInt=Reject")),
        ("MaxBurstLength", "Reject", Ok("")),
        ("MaxBurstLength", "many", Err(())),
    ];
    for (key, value, expected) in rows {
        let mut reply = Reply::default();
        let mut bargain = Negotiation::new(&offer);
        let got = bargain.handle_key(key, value, &mut reply);
        assert_eq!(
            got.as_ref().map_err(drop),
            expected.map(|_| &true),
            "{key}={value}"
        );
        let Ok(expected) = expected else { continue };
        let text = String::from_utf8(reply.text).unwrap();
        assert_eq!(text.trim_end_matches('\0'), expected, "{key}={value}");
        assert_eq!(reply.pending_key.is_some(), !expected.is_empty());
        assert!(bargain.is_operational(key));
    }
    let mut reply = Reply::default();
    let mut bargain = Negotiation::new(&offer);
    assert_eq!(
        bargain.handle_key("MaxBurstLength", "512", &mut reply),
        Ok(true)
    );
    assert_eq!(
        bargain.handle_key("RDMAExtensions", "Yes", &mut reply),
        Ok(false)
    );
    let (terms, _) = bargain.terms().unwrap();
    assert_eq!((terms.max_burst, terms.first_burst), (512, 512));
}

#[test]
fn one_outstanding_unexpected_pdu_is_refused() {
    let iser = Some(IserOffer::default());
    let mut bargain = Negotiation::new(&Offer { iser, ..normal() });
    let error = bargain.handle_declaration("MaxOutstandingUnexpectedPDUs", "1");
    assert!(error.unwrap_err().to_string().contains("at least 2"));
}
