//! Valid and invalid offers.

use super::*;

fn normal() -> Offer {
    Offer::new("iqn.a", Purpose::Target("iqn.b".into()))
}

#[test]
fn default_offers_are_valid() {
    assert_eq!(normal().check(), Ok(()));
    assert_eq!(Offer::new("iqn.a", Purpose::Discovery).check(), Ok(()));
    let iser = Some(IserOffer::default());
    assert_eq!(Offer { iser, ..normal() }.check(), Ok(()));
}

#[test]
fn invalid_offers_are_refused() {
    type Change = fn(&mut Offer);
    let iser = |unexpected| {
        Some(IserOffer {
            unexpected,
            ..IserOffer::default()
        })
    };
    let mut on_rdma = Offer {
        iser: iser(1),
        ..normal()
    };
    assert!(
        on_rdma
            .check()
            .unwrap_err()
            .to_string()
            .contains("at least 2")
    );
    on_rdma = Offer {
        iser: iser(2),
        header_digest: DigestPreference::Required,
        ..normal()
    };
    assert!(
        on_rdma
            .check()
            .unwrap_err()
            .to_string()
            .contains("iSER has no digests")
    );
    let rows: [(Change, &str); 16] = [
        (
            |o| o.initiator.clear(),
            "InitiatorName cannot be offered: it is empty",
        ),
        (|o| o.initiator = "iqn.a b".into(), "spaces"),
        (|o| o.initiator = "iqn.a\0TargetName=x".into(), "control"),
        (|o| o.initiator = "a".repeat(224), "223"),
        (|o| o.purpose = Purpose::Target(String::new()), "TargetName"),
        (|o| o.alias = Some("a".repeat(256)), "InitiatorAlias"),
        (|o| o.max_recv = 511, "MaxRecvDataSegmentLength"),
        (|o| o.max_burst = 1 << 24, "MaxBurstLength"),
        (|o| o.max_burst = 4096, "at most MaxBurstLength"),
        (|o| o.max_r2t = 0, "MaxOutstandingR2T"),
        (|o| o.time2wait = 3601, "DefaultTime2Wait"),
        (|o| o.time2retain = 3601, "DefaultTime2Retain"),
        (|o| o.chap = Some(Chap::new("", "x")), "user name"),
        (|o| o.chap = Some(Chap::new("x", "")), "secret"),
        (
            |o| o.mutual = Some(Chap::new("x", "y")),
            "credentials of the initiator",
        ),
        (
            |o| {
                o.chap = Some(Chap::new("x", "same"));
                o.mutual = Some(Chap::new("y", "same"));
            },
            "must differ",
        ),
    ];
    for (change, expected) in rows {
        let mut offer = normal();
        change(&mut offer);
        let error = offer.check().unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

#[test]
fn auth_methods_follow_the_credentials() {
    let chap = |name| Some(Chap::new(name, name));
    assert_eq!(normal().auth_methods(), "None");
    assert_eq!(
        Offer {
            chap: chap("a"),
            ..normal()
        }
        .auth_methods(),
        "CHAP,None"
    );
    let both = Offer {
        chap: chap("a"),
        mutual: chap("b"),
        ..normal()
    };
    assert_eq!(both.auth_methods(), "CHAP");
    assert!(both.has_security_stage() && !normal().has_security_stage());
}
