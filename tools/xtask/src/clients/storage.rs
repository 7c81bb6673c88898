//! Storage programs: fio's engine for RDMA, and a cluster of Ceph whose daemons and clients exchange all messages over verbs.
//! iSCSI and iSER have tests of their own (`storage/`, `tools/cli/tests`).

use super::case::{Case, Noise, PEER, PORT, SCRIPTS, Side, Topology};

/// What fio's client asks of the server for each block.
const VERBS: &[&str] = &["write", "read", "send"];
/// Options of both sides.
const BLOCKS: &[&str] = &["--ioengine=rdma", "--bs=64k", "--size=32m", "--iodepth=16"];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for verb in VERBS {
        let quick = *verb == "write";
        cases.push(fio(&format!("storage/fio/{verb}"), verb).quick_if(quick));
        let far = fio(&format!("namespaces/fio/{verb}"), verb).at(Topology::Namespaces);
        cases.push(far.quick_if(false));
    }
    cases.push(ceph());
    cases
}

fn fio(name: &str, verb: &str) -> Case {
    let side = |options: &[String]| {
        let words = ["fio", "--name=blocks"]
            .into_iter()
            .chain(BLOCKS.iter().copied());
        let words = words.map(str::to_owned).chain(options.iter().cloned());
        Side::new(words).must_print("err= 0")
    };
    let server = side(&["--rw=read".to_owned(), format!("--port={PORT}")]);
    let client = side(&[
        "--rw=write".to_owned(),
        format!("--verb={verb}"),
        format!("--hostname={PEER}"),
        format!("--port={PORT}"),
    ]);
    Case::pair(name, server, client).limit(60)
}

/// A monitor, an object store in memory, and clients that write, read and compare.
fn ceph() -> Case {
    let script = format!("{SCRIPTS}/ceph.sh");
    let side = Side::new(["sh", &script, PEER, PORT])
        .must_print("all good")
        .noise(CEPH_LOG);
    Case::single("storage/ceph", side)
        .at(Topology::OwnAddress)
        .quick_if(false)
        .starts(&["ceph", "ceph-mon", "ceph-osd", "rados"])
        .limit(180)
}

/// Lines of Ceph's daemons before they have a log file.
const CEPH_LOG: &[Noise] = &[Noise {
    part: " -1 ",
    reason: "Ceph prints messages of its highest level to standard error, also those that it expects at the first start",
}];
