//! The target over iSER: tgtd and libiscsi on our libraries, which take them for those of an adapter (RFC 7145).

use std::path::PathBuf;

use crate::target::{Carrier, INITIATOR, Tgt};

const MIB: u64 = 1 << 20;

fn start() -> Option<Tgt> {
    let verbena = PathBuf::from(env!("CARGO_BIN_EXE_verbena"));
    Tgt::start(Carrier::Iser(verbena))
}

#[test]
fn targets_and_units_are_found() {
    let Some(mut tgt) = start() else { return };
    let target = tgt.target();
    tgt.lun(&target, 1, 8 * MIB);
    let (well, said) = tgt.client(&["iscsi-inq", "-i", INITIATOR, &tgt.url("", &target, 1)]);
    assert!(
        well && said.contains("DIRECT_ACCESS"),
        "{said}{}",
        tgt.log()
    );
    let (well, said) = tgt.client(&[
        "iscsi-readcapacity16",
        "-i",
        INITIATOR,
        &tgt.url("", &target, 1),
    ]);
    assert!(well && said.contains("Total size:8388608"), "{said}");
}

#[test]
fn what_is_written_is_in_the_file() {
    let Some(mut tgt) = start() else { return };
    let target = tgt.target();
    let file = tgt.lun(&target, 1, 64 * MIB);
    let url = tgt.url("", &target, 1);
    for test in ["ALL.Write10.Simple", "ALL.Read10.Simple"] {
        let (_, said) = tgt.client(&[
            "iscsi-test-cu",
            "-i",
            INITIATOR,
            "-d",
            "-f",
            "-t",
            test,
            &url,
        ]);
        assert!(said.contains("Simple ...passed"), "{said}{}", tgt.log());
    }
    assert_ne!(std::fs::read(&file).unwrap(), vec![0; 64 << 20]);
}
