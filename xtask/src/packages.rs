//! The programs that tests need beside Rust, in one table, and how to get them.
//! As root they are installed from Debian without questions; otherwise the missing ones are named with the command that helps.
//! In CI a missing program is a failure, because a test that skips itself there would go unseen.

use anyhow::{Result, bail};

use crate::command::{Tool, find};
use crate::step::Outcome;

/// A program that some test starts.
struct Needed {
    program: &'static str,
    package: &'static str,
    /// What stays untested without it.
    purpose: &'static str,
}

const fn needed(program: &'static str, package: &'static str, purpose: &'static str) -> Needed {
    Needed {
        program,
        package,
        purpose,
    }
}

const NEEDED: &[Needed] = &[
    needed(
        "tshark",
        "tshark",
        "the comparison of `verbena decode` with Wireshark's iWARP dissectors",
    ),
    needed("gcc", "gcc", "linking the drop-in libraries"),
    needed(
        "nm",
        "binutils",
        "checking what the drop-in libraries export",
    ),
    needed(
        "ibv_devinfo",
        "ibverbs-utils",
        "programs of libibverbs on the drop-in libraries",
    ),
    needed(
        "ib_send_lat",
        "perftest",
        "perftest on the drop-in libraries",
    ),
    needed(
        "rping",
        "rdmacm-utils",
        "programs of librdmacm on the drop-in libraries",
    ),
    needed(
        "fi_info",
        "libfabric-bin",
        "libfabric on the drop-in libraries",
    ),
    needed("ucx_info", "ucx-utils", "UCX on the drop-in libraries"),
];

/// What to do about missing programs.
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

/// Whether the environment says that this is CI (`CI` set to anything but nothing, `0` or `false`).
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
}

/// See to it that every needed program is there; say loudly which is not.
pub(crate) fn ensure(install: bool) -> Result<Outcome> {
    let may_install = install && find("apt-get").is_some() && is_root();
    match plan(missing().len(), may_install, in_ci()) {
        Plan::Nothing => {
            for needed in NEEDED {
                println!("{}: present", needed.program);
            }
            Ok(Outcome::Passed)
        }
        Plan::Install => after_install(install_all(&missing())),
        Plan::Fail => bail!("{}", sentence(&missing())),
        Plan::Skip => Ok(Outcome::Lacking(sentence(&missing()))),
    }
}

/// An installation that fails (no network, say) spoils a CI run; elsewhere it is said loudly.
fn after_install(result: Result<()>) -> Result<Outcome> {
    let still = missing();
    match result {
        Ok(()) if still.is_empty() => Ok(Outcome::Passed),
        Ok(()) => bail!("installed, yet still not on PATH: {}", sentence(&still)),
        Err(error) if in_ci() => Err(error),
        Err(error) => Ok(Outcome::Lacking(format!(
            "{}; installing it failed: {error:#}",
            sentence(&still)
        ))),
    }
}

fn missing() -> Vec<&'static Needed> {
    let absent = |needed: &&Needed| find(needed.program).is_none();
    NEEDED.iter().filter(absent).collect()
}

fn is_root() -> bool {
    let id = Tool::new("id").arg("-u").output();
    id.is_ok_and(|text| text.trim() == "0")
}

/// Install; if the package lists are too old for that, fetch them and try once more.
fn install_all(missing: &[&Needed]) -> Result<()> {
    let install = || {
        apt_get()
            .args(["install", "-y", "--no-install-recommends"])
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
        .map(|n| format!("`{}` is missing (needed for {})", n.program, n.purpose))
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
    fn the_plan_is_total() {
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
    fn the_sentence_names_program_purpose_and_help() {
        let all: Vec<&Needed> = NEEDED.iter().collect();
        let text = sentence(&all);
        for needed in NEEDED {
            assert!(text.contains(needed.program) && text.contains(needed.purpose));
        }
        assert!(text.contains("apt-get install tshark"));
    }
}
