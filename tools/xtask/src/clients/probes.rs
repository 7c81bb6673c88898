//! Our own small programs that open the libraries by every name, and read the adapter's sysfs files by every function.
//! They are compiled into the stage's folder when it is filled; sources are in `tools/xtask/clients`.
//! There is no traffic; counters with values are read by the script of `pyverbs`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::case::{Case, NAMESPACE, SCRIPTS, Side};
use super::pyverbs::script;
use crate::command::{Tool, find};

/// The copy of libibverbs that a library in the stage's folder needs, named as in Python wheels.
const COPY: &str = "libibverbs-0123abcd.so.1.14.48.0";
const BUNDLED: &str = "libbundled.so";
const NAMES: &str = "names";
const SYSFS_C: &str = "sysfs-c";
const SYSFS_CXX: &str = "sysfs-c++";

pub(crate) fn cases() -> Vec<Case> {
    let in_folder = |name: &str| format!("{SCRIPTS}/{name}");
    let names = |names: &[&str]| {
        let words = names.iter().map(|name| (*name).to_owned());
        let count = names.len();
        Side::new([in_folder(NAMES)].into_iter().chain(words))
            .must_print(format!("all {count} names lead to Verbena"))
    };
    let bundled = in_folder(BUNDLED);
    let own_path = "/usr/lib/libibverbs.so.1";
    let usual = [
        "libibverbs.so",
        "libibverbs.so.1",
        "librdmacm.so",
        "librdmacm.so.1",
    ];
    let reader = |name: &str| Side::new([in_folder(name)]).must_print("all files read");
    let mut alone = names(&usual);
    // Without the audit library, the links beside the libraries are found.
    alone.launch = Some(vec!["--no-audit".to_owned()]);
    let system = system_libraries();
    let mut mounted = names(&system.iter().map(String::as_str).collect::<Vec<_>>());
    // Neither variables nor names lead to Verbena's libraries, only the files themselves.
    mounted
        .command
        .splice(0..0, ["env", "-i"].map(str::to_owned));
    mounted.launch = Some(vec![NAMESPACE.to_owned()]);
    vec![
        Case::single("names/namespace", mounted),
        Case::single("names/usual", names(&usual)),
        Case::single("names/usual-without-audit", alone),
        Case::single(
            "names/bundled-first",
            names(&[&bundled, COPY, own_path, "libibverbs.so", "librdmacm.so.1"]),
        ),
        Case::single(
            "names/bundled-last",
            names(&["libibverbs.so.1", "librdmacm.so", own_path, &bundled]),
        ),
        Case::single("sysfs/c", reader(SYSFS_C)),
        Case::single("sysfs/c++", reader(SYSFS_CXX)),
        Case::single("sysfs/python", script("sysfs.py").must_print("all files read")),
        Case::single(
            "sysfs/shell",
            Side::new(["sh", "-c", "cd /sys/class/infiniband && find -L verbena0/ports -name state && cat */ports/1/rate"])
                .must_print("verbena0/ports/1/state")
                .must_print("100 Gb/sec"),
        ),
        Case::single(
            "sysfs/ibstat",
            Side::new(["ibstat"])
                .must_print("CA 'verbena0'")
                .must_print("State: Active")
                .must_print("Link layer: Ethernet"),
        ),
        Case::single(
            "sysfs/ibstatus",
            Side::new(["ibstatus"])
                .must_print("'verbena0' port 1 status")
                .must_print("4: ACTIVE"),
        ),
    ]
}

/// The paths of the system's libibverbs and librdmacm, from the cache of the dynamic linker.
fn system_libraries() -> Vec<String> {
    let listed = Command::new("/sbin/ldconfig").arg("-p").output();
    let listed = listed.map_or(Vec::new(), |output| output.stdout);
    let listed = String::from_utf8_lossy(&listed);
    ["libibverbs.so.1", "librdmacm.so.1"]
        .map(|name| {
            let of_name = |line: &&str| line.split_whitespace().next() == Some(name);
            let path = listed
                .lines()
                .find(of_name)
                .and_then(|line| line.split_once(" => "));
            // If it is not installed, this path does not exist, and the case fails.
            path.map_or(format!("/usr/lib/{name}"), |(_, path)| {
                path.trim().to_owned()
            })
        })
        .into()
}

/// Compiles the programs; the C++ one only if there is a compiler for it.
pub(crate) fn build(folder: &Path) -> Result<()> {
    let gcc = |arguments: &[&str]| {
        Tool::new("gcc")
            .current_dir(folder)
            .args(arguments)
            .run_quietly()
    };
    gcc(&["-Wall", "-Werror", "-O1", "-o", NAMES, "names.c", "-ldl"])?;
    gcc(&["-Wall", "-Werror", "-O1", "-o", SYSFS_C, "sysfs.c"])?;
    let shared = ["-shared", "-fPIC", "-o"];
    let copy = [
        COPY,
        "-DCOPY",
        "bundled.c",
        "-Wl,--version-script=bundled.map",
    ];
    let soname = format!("-Wl,-soname,{COPY}");
    gcc(&[&shared[..], &copy, &[&soname]].concat())?;
    // DT_RPATH, not DT_RUNPATH: it is searched before LD_LIBRARY_PATH.
    let near = ["-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags"];
    let link = format!("./{COPY}");
    gcc(&[&shared[..], &[BUNDLED, "bundled.c", &link], &near].concat())?;
    if find("g++").is_some() {
        Tool::new("g++")
            .current_dir(folder)
            .args([
                "-Wall",
                "-Werror",
                "-std=c++17",
                "-O1",
                "-o",
                SYSFS_CXX,
                "sysfs.cc",
            ])
            .run_quietly()?;
    }
    Ok(())
}
