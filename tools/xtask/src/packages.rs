//! The programs and C headers that tests need besides Rust, in one table, and how to get them.
//! As root they are installed from Debian without questions; otherwise the missing ones are printed with the command that installs them.
//! In CI a missing one is a failure, because a skipped test would go unnoticed there.

use std::path::Path;

use anyhow::{Result, bail};

use crate::command::{Tool, find};
use crate::step::Outcome;

/// How a needed thing is recognized.
#[derive(Debug, Clone, Copy)]
enum Prerequisite {
    /// A program that some test starts, by its name on `PATH`.
    Program(&'static str),
    /// A C header or another file that some test uses, by its path.
    File(&'static str),
}

impl Prerequisite {
    fn name(self) -> &'static str {
        match self {
            Prerequisite::Program(name) | Prerequisite::File(name) => name,
        }
    }

    fn is_present(self) -> bool {
        match self {
            Prerequisite::Program(name) => find(name).is_some(),
            Prerequisite::File(path) => Path::new(path).is_file(),
        }
    }
}

/// A thing that some test needs.
struct Needed {
    prerequisite: Prerequisite,
    package: &'static str,
    /// What is not tested without it.
    purpose: &'static str,
}

const fn program(name: &'static str, package: &'static str, purpose: &'static str) -> Needed {
    Needed {
        prerequisite: Prerequisite::Program(name),
        package,
        purpose,
    }
}

const fn file(path: &'static str, package: &'static str, purpose: &'static str) -> Needed {
    Needed {
        prerequisite: Prerequisite::File(path),
        package,
        purpose,
    }
}

const NEEDED: &[Needed] = &[
    program(
        "tshark",
        "tshark",
        "the comparison of `verbena decode` with Wireshark's iWARP dissectors",
    ),
    program(
        "gcc",
        "gcc",
        "linking the drop-in libraries, and the comparison of the C API with the headers that C programs include",
    ),
    program("g++", "g++", "a reader of the adapter's sysfs files in C++"),
    program(
        "nm",
        "binutils",
        "checking what the drop-in libraries export",
    ),
    file(
        "/usr/include/infiniband/verbs.h",
        "libibverbs-dev",
        "the comparison of the C API with libibverbs",
    ),
    file(
        "/usr/include/rdma/rdma_cma.h",
        "librdmacm-dev",
        "the comparison of the C API with librdmacm",
    ),
    program(
        "ibv_devinfo",
        "ibverbs-utils",
        "programs of libibverbs on the drop-in libraries",
    ),
    program(
        "ibstat",
        "infiniband-diags",
        "diagnostics that read the adapter's sysfs files",
    ),
    program(
        "ib_send_lat",
        "perftest",
        "perftest on the drop-in libraries",
    ),
    program(
        "rping",
        "rdmacm-utils",
        "programs of librdmacm on the drop-in libraries",
    ),
    program(
        "fi_info",
        "libfabric-bin",
        "libfabric on the drop-in libraries",
    ),
    program(
        "fio",
        "fio",
        "fio's engine for RDMA on the drop-in libraries",
    ),
    program("nc", "netcat-openbsd", "a program under the socket shim"),
    program(
        "iperf3",
        "iperf3",
        "a program under the socket shim, a program to compare with, and traffic through the split driver",
    ),
    program(
        "curl",
        "curl",
        "a download through the split driver, byte for byte",
    ),
    program(
        "ucx_info",
        "ucx-utils",
        "UCX on the drop-in libraries, and a program to compare with",
    ),
    program(
        "/usr/bin/python3",
        "python3",
        "our scripts on the drop-in libraries, and a web server behind the split driver",
    ),
    file(
        "/usr/lib/python3/dist-packages/pyverbs/__init__.py",
        "python3-pyverbs",
        "our scripts on the drop-in libraries",
    ),
    program(
        "virtualenv",
        "virtualenv",
        "MPI, NIXL and Mooncake from PyPI on the drop-in libraries",
    ),
    program(
        "strace",
        "strace",
        "what system calls a program makes on the drop-in libraries",
    ),
    program(
        "ip",
        "iproute2",
        "programs on the drop-in libraries, and interfaces of the split driver, in network namespaces",
    ),
    program(
        "ping",
        "iputils-ping",
        "frames through an interface of the split driver",
    ),
    program(
        "ethtool",
        "ethtool",
        "what an interface of the split driver offers",
    ),
    program(
        "unshare",
        "util-linux",
        "interfaces of the split driver in network namespaces",
    ),
    program(
        "nbdcopy",
        "libnbd-bin",
        "copies, descriptions and a mount of a disk that is exported over NBD",
    ),
    program(
        "qemu-img",
        "qemu-utils",
        "qemu's programs on a disk that is exported over NBD",
    ),
    program(
        "fusermount3",
        "fuse3",
        "a file system made on an exported disk that is mounted as a file",
    ),
    program(
        "mkfs.ext4",
        "e2fsprogs",
        "a file system that has gone through an exported disk",
    ),
    program(
        "tgtd",
        "tgt",
        "a target for the iSCSI initiator, over TCP and over iSER on the drop-in libraries",
    ),
    program(
        "iscsi-ls",
        "libiscsi-bin",
        "another initiator at the same target, to tell faults of the target from ours, and on the drop-in libraries",
    ),
    file(
        "/usr/include/iscsi/iscsi.h",
        "libiscsi-dev",
        "an initiator on libiscsi for exchanging data with ours",
    ),
    program("mandoc", "mandoc", "whether the manual pages are valid"),
    program(
        "setpriv",
        "util-linux",
        "terminating programs together with the tests that started them",
    ),
    program(
        "valgrind",
        "valgrind",
        "counting the instructions of fixed scenarios",
    ),
];

/// What only a long run needs.
const NEEDED_LONG: &[Needed] = &[
    program("rados", "ceph-common", CEPH),
    program("ceph-mon", "ceph-mon", CEPH),
    program("ceph-osd", "ceph-osd", CEPH),
    program(
        "mmdebstrap",
        "mmdebstrap",
        "the Debian package in a fresh root",
    ),
    program("lintian", "lintian", "Debian's rules for the package"),
    program("rpmbuild", "rpm", "the rpm package"),
    program(
        "chromium",
        "chromium",
        "the page of `verbena web` in a browser",
    ),
    program(
        "chromedriver",
        "chromium-driver",
        "the page of `verbena web` in a browser",
    ),
];
const CEPH: &str = "a cluster of Ceph on the drop-in libraries";

/// What to do about missing things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Nothing,
    Install,
    Fail,
    Skip,
}

fn plan(missing: usize, may_install: bool, ci: bool) -> Plan {
    match (missing, may_install, ci) {
        (0, _, _) => Plan::Nothing,
        (_, true, _) => Plan::Install,
        (_, false, true) => Plan::Fail,
        (_, false, false) => Plan::Skip,
    }
}

/// Whether the environment says that this is CI (`CI` set to a value other than empty, `0` or `false`).
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// Installs missing things where possible; prints which are missing.
pub(crate) fn ensure(install: bool, long: bool) -> Result<Outcome> {
    let may_install = install && find("apt-get").is_some() && is_root();
    match plan(missing(long).len(), may_install, in_ci()) {
        Plan::Nothing => {
            for needed in needed(long) {
                println!("{}: present", needed.prerequisite.name());
            }
            Ok(Outcome::Passed)
        }
        Plan::Install => after_install(install_all(&missing(long)), long),
        Plan::Fail => bail!("{}", sentence(&missing(long))),
        Plan::Skip => Ok(Outcome::Lacking(sentence(&missing(long)))),
    }
}

/// An installation that fails (without a network, for example) fails a CI run; elsewhere it is reported.
fn after_install(result: Result<()>, long: bool) -> Result<Outcome> {
    let still = missing(long);
    match result {
        Ok(()) if still.is_empty() => Ok(Outcome::Passed),
        Ok(()) => bail!("still missing after installation: {}", sentence(&still)),
        Err(error) if in_ci() => Err(error),
        Err(error) => Ok(Outcome::Lacking(format!(
            "{}; installing it failed: {error:#}",
            sentence(&still)
        ))),
    }
}

fn needed(long: bool) -> impl Iterator<Item = &'static Needed> {
    let further = if long { NEEDED_LONG } else { &[] };
    NEEDED.iter().chain(further)
}

fn missing(long: bool) -> Vec<&'static Needed> {
    let absent = |needed: &&Needed| !needed.prerequisite.is_present();
    needed(long).filter(absent).collect()
}

fn is_root() -> bool {
    let id = Tool::new("id").arg("-u").output();
    id.is_ok_and(|text| text.trim() == "0")
}

/// Installs; if that fails, updates the package lists and tries once more.
fn install_all(missing: &[&Needed]) -> Result<()> {
    let install = || {
        apt_get()
            // Packages that are installed stay: one that conflicts with them is not installed.
            .args(["install", "-y", "--no-install-recommends", "--no-remove"])
            .args(missing.iter().map(|needed| needed.package))
            .run()
    };
    if install().is_ok() {
        return Ok(());
    }
    apt_get().arg("update").run()?;
    install()
}

fn apt_get() -> Tool {
    Tool::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive")
}

fn sentence(missing: &[&Needed]) -> String {
    let each: Vec<String> = missing
        .iter()
        .map(|n| {
            format!(
                "`{}` is missing (needed for {})",
                n.prerequisite.name(),
                n.purpose
            )
        })
        .collect();
    let packages: Vec<&str> = missing.iter().map(|n| n.package).collect();
    format!(
        "{}; on Debian: apt-get install {}",
        each.join(", "),
        packages.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_table_is_complete() {
        let mut table = String::new();
        for missing in [0, 1] {
            for may_install in [false, true] {
                for ci in [false, true] {
                    let plan = plan(missing, may_install, ci);
                    table += &format!("{missing} {may_install} {ci} {plan:?}\n");
                }
            }
        }
        let expected = "0 false false Nothing\n0 false true Nothing\n\
                        0 true false Nothing\n0 true true Nothing\n\
                        1 false false Skip\n1 false true Fail\n\
                        1 true false Install\n1 true true Install\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn message_names_package_purpose_and_command() {
        let all: Vec<&Needed> = needed(true).collect();
        let text = sentence(&all);
        for needed in needed(true) {
            assert!(text.contains(needed.prerequisite.name()) && text.contains(needed.purpose));
        }
        assert!(
            text.contains("apt-get install tshark gcc g++ binutils libibverbs-dev librdmacm-dev")
        );
    }

    #[test]
    fn programs_and_headers_are_detected() {
        assert!(Prerequisite::Program("sh").is_present());
        assert!(!Prerequisite::Program("no-such-program-anywhere").is_present());
        assert!(
            Prerequisite::File(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).is_present()
        );
        // A folder is not a header, and a program's name is not a path.
        assert!(!Prerequisite::File(env!("CARGO_MANIFEST_DIR")).is_present());
        assert!(!Prerequisite::File("sh").is_present());
    }
}
