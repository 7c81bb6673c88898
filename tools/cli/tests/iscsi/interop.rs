//! Another initiator at the same disk: libiscsi's programs, and a small one that uses libiscsi (`blocks.c`).

use std::fs::File;
use std::process::{Command, Stdio};

use crate::target::{Carrier, Tgt};
use crate::tool::{Folder, bytes, iscsi, random_bytes, skip};

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
    let ours = iscsi(&["capacity", &url]).expect_success();
    assert!(ours.starts_with("5242880 bytes"), "{ours}");
    assert!(theirs.contains("Total size:5242880"), "{theirs}");
    let (_, theirs) = tgt.client(&["iscsi-inq", &url]);
    let ours = iscsi(&["inquiry", &url, "--json"]).expect_success();
    let ours: serde_json::Value = serde_json::from_str(&ours).unwrap();
    for key in ["vendor", "product", "revision"] {
        let name = ours[key].as_str().unwrap();
        assert!(!name.is_empty() && theirs.contains(name), "{key}: {theirs}");
    }
    let portal = format!("iscsi://{}", tgt.portal());
    let (_, theirs) = tgt.client(&["iscsi-ls", "-s", &portal]);
    let ours = iscsi(&["discover", &portal]).expect_success();
    assert!(theirs.contains(&target.name) && ours.contains(&target.name));
}

/// The compiled other initiator; `None` if libiscsi's headers are missing.
fn blocks(folder: &Folder) -> Option<String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/iscsi/blocks.c");
    let program = folder.file("blocks");
    let words = ["-Wall", "-O1", "-o", &program, source, "-liscsi"];
    let made = Command::new("gcc").args(words).output().unwrap();
    if made.status.success() {
        return Some(program);
    }
    let said = String::from_utf8_lossy(&made.stderr);
    skip(&format!(
        "libiscsi's headers (Debian package libiscsi-dev): {said}"
    ));
    None
}

#[test]
fn data_is_interchangeable_with_libiscsi() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    tgt.lun(&target, 1, 8 * MIB);
    tgt.lun(&target, 2, 8 * MIB);
    let (url, second) = (tgt.url("", &target, 1), tgt.url("", &target, 2));
    let folder = Folder::new("interop");
    let Some(blocks) = blocks(&folder) else {
        return;
    };
    let theirs = |what: &str, url: &str, input: Stdio| {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60", &blocks, what, url]);
        let ran = command.stdin(input).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{what} by libiscsi: {said}");
        ran.stdout
    };
    let data = random_bytes(8 << 20, 21);
    let input = folder.with("input", &data);
    iscsi(&["copy", &input, &url]).expect_success();
    let read = theirs("read", &url, Stdio::null());
    assert!(read == data, "libiscsi reads something else");
    let file = File::open(&input).unwrap();
    theirs("write", &second, file.into());
    let ours = folder.file("ours");
    iscsi(&["copy", &second, &ours]).expect_success();
    assert!(bytes(&ours) == data, "we read something else");
}
