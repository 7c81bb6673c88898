//! Another initiator at the same disk: libiscsi's programs, and qemu's with libiscsi below.

use crate::target::{Carrier, Tgt};
use crate::tool::{Folder, bytes, iscsi, noise, other, skip};

const MIB: u64 = 1 << 20;

#[test]
fn libiscsi_sees_the_same_disks() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    tgt.lun(&target, 1, 5 * MIB);
    let url = tgt.url("", &target, 1);
    let (well, theirs) = tgt.client(&["iscsi-readcapacity16", &url]);
    assert!(well, "{theirs}");
    let ours = iscsi(&["capacity", &url]).good();
    assert!(ours.starts_with("5242880 bytes"), "{ours}");
    assert!(theirs.contains("Total size:5242880"), "{theirs}");
    let (_, theirs) = tgt.client(&["iscsi-inq", &url]);
    let ours = iscsi(&["inquiry", &url, "--json"]).good();
    let ours: serde_json::Value = serde_json::from_str(&ours).unwrap();
    for key in ["vendor", "product", "revision"] {
        let name = ours[key].as_str().unwrap();
        assert!(!name.is_empty() && theirs.contains(name), "{key}: {theirs}");
    }
    let portal = format!("iscsi://{}", tgt.portal());
    let (_, theirs) = tgt.client(&["iscsi-ls", "-s", &portal]);
    let ours = iscsi(&["discover", &portal]).good();
    assert!(theirs.contains(&target.name) && ours.contains(&target.name));
}

#[test]
fn what_one_initiator_writes_the_other_reads() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    tgt.lun(&target, 1, 8 * MIB);
    tgt.lun(&target, 2, 8 * MIB);
    let (url, second) = (tgt.url("", &target, 1), tgt.url("", &target, 2));
    let folder = Folder::new("interop");
    let qemu = |args: &[&str]| other("qemu-img", "qemu-utils", args);
    let Some(said) = qemu(&["info", &url]) else {
        return;
    };
    if said.code != Some(0) {
        return skip(&format!(
            "qemu-img has no iSCSI (Debian package qemu-block-extra): {}",
            said.err
        ));
    }
    let data = noise(8 << 20, 21);
    let input = folder.with("input", &data);
    iscsi(&["copy", &input, &url]).good();
    let theirs = folder.file("theirs");
    qemu(&["convert", "-f", "raw", "-O", "raw", &url, &theirs])
        .unwrap()
        .good();
    assert!(bytes(&theirs) == data, "qemu-img reads something else");
    let words = ["convert", "-n", "-f", "raw", "-O", "raw", &input, &second];
    qemu(&words).unwrap().good();
    let ours = folder.file("ours");
    iscsi(&["copy", &second, &ours]).good();
    assert!(bytes(&ours) == data, "we read something else");
}
