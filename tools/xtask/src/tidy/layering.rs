//! Imports go inward only: which package may depend on which, as a table.
//! The pure crates also have a list of external crates they may use, so that no socket or clock comes in through a dependency.
//! Manifests are checked, not source text or the resolved graph.

use std::path::Path;

use super::Finding;
use crate::workspace::{Dependency, Package};

const RULE: &str = "layering";

/// The dependencies of one package.
struct LayerRule {
    package: &'static str,
    /// Workspace packages it may depend on.
    inward: Inward,
    /// External crates it may depend on.
    outside: Outside,
}

#[derive(Clone, Copy)]
enum Inward {
    Any,
    Only(&'static [&'static str]),
}

#[derive(Clone, Copy)]
enum Outside {
    Any,
    Only(&'static [&'static str]),
}

const fn free(package: &'static str, inward: &'static [&'static str]) -> LayerRule {
    LayerRule {
        package,
        inward: Inward::Only(inward),
        outside: Outside::Any,
    }
}

const fn pure(
    package: &'static str,
    inward: &'static [&'static str],
    outside: &'static [&'static str],
) -> LayerRule {
    LayerRule {
        package,
        inward: Inward::Only(inward),
        outside: Outside::Only(outside),
    }
}

const WIRE: &str = "verbena-wire";
const STREAM: &str = "verbena-stream";
const ROCE: &str = "verbena-roce";
const TCPIP: &str = "verbena-tcpip";
const SYNC: &str = "verbena-sync";
const EVENTS: &str = "verbena-events";
const MEM: &str = "verbena-mem";
const RING: &str = "verbena-ring";
const NIC: &str = "verbena-nic";
const CELLS: &str = "verbena-cells";
const ISCSI: &str = "verbena-iscsi";
const ENGINE: &str = "verbena-engine";
const SPLIT_WIRE: &str = "verbena-split-wire";
const STORAGE_WIRE: &str = "verbena-storage-wire";
const LAN: &str = "verbena-lan";
const SIM: &str = "verbena-sim";
const TESTING: &str = "verbena-testing";
const VERBENA: &str = "verbena";
const RSOCKET: &str = "verbena-rsocket";

/// The layers, from the inside out. A new package gets its line here.
const LAYERS: &[LayerRule] = &[
    pure(WIRE, &[], &["crc-fast", "serde", "thiserror", "zerocopy"]),
    pure(STREAM, &[WIRE], &["serde", "thiserror", "zerocopy"]),
    // For the type of times.
    pure(ROCE, &[STREAM, WIRE], &["serde", "thiserror"]),
    pure(
        TCPIP,
        &[STREAM],
        &["arrayvec", "etherparse", "hmac", "sha2", "thiserror"],
    ),
    pure(SPLIT_WIRE, &[WIRE], &["zerocopy"]),
    pure(STORAGE_WIRE, &[WIRE], &["zerocopy"]),
    pure("verbena-push", &[SPLIT_WIRE, WIRE], &["thiserror"]),
    free(SYNC, &[]),
    free(MEM, &[SYNC, WIRE]),
    free(RING, &[MEM, WIRE]),
    free(EVENTS, &[SYNC, STREAM]),
    free(NIC, &[EVENTS, MEM, ROCE, STREAM, SYNC, WIRE]),
    free(CELLS, &[SPLIT_WIRE, NIC, MEM, STREAM, WIRE]),
    free(ISCSI, &[STORAGE_WIRE, NIC, MEM, WIRE]),
    free(LAN, &[]),
    // `verbena-lan` for the TAP of a port.
    free(
        ENGINE,
        &[EVENTS, LAN, NIC, MEM, RING, ROCE, STREAM, SYNC, TCPIP, WIRE],
    ),
    // Its own code is pure (`names.rs`); of `verbena-lan` it uses the learning switch and values.
    free("verbena-fabric", &[LAN]),
    free(
        SIM,
        &[
            CELLS,
            EVENTS,
            "verbena-push",
            SPLIT_WIRE,
            NIC,
            MEM,
            ROCE,
            STREAM,
            // For whole adapters over a network of frames.
            TCPIP,
            "verbena-fabric",
            WIRE,
        ],
    ),
    free(VERBENA, &[ENGINE, EVENTS, NIC, MEM, STREAM, WIRE, SIM]),
    free(RSOCKET, &[VERBENA]),
    free(
        "verbena-split",
        &[
            VERBENA,
            CELLS,
            LAN,
            "verbena-push",
            SPLIT_WIRE,
            NIC,
            MEM,
            STREAM,
            WIRE,
        ],
    ),
    free("verbena-storage", &[VERBENA, ISCSI, STORAGE_WIRE, WIRE]),
    free("verbena-capi", &[VERBENA, RSOCKET, SYNC]),
    pure("verbena-shim", &[], &["libc"]),
    pure("verbena-audit", &[], &[]),
    pure("verbena-preload", &[], &["libc"]),
    pure("verbena-unmap", &[], &["libc"]),
    free(
        "verbena-cli",
        &[
            VERBENA,
            SIM,
            "verbena-fabric",
            "verbena-push",
            "verbena-split",
            "verbena-storage",
            SPLIT_WIRE,
            STORAGE_WIRE,
            STREAM,
            WIRE,
        ],
    ),
    // The engine's system calls are those of its UDP loops.
    free("verbena-peers", &[VERBENA, "verbena-cli", ENGINE]),
    free(TESTING, &[]),
    free("verbena-models", &[SYNC]),
    free("xtask", &[]),
    LayerRule {
        package: "verbena-fuzz",
        inward: Inward::Any,
        outside: Outside::Any,
    },
];

/// Tests of any package may use these too. `verbena-lan` depends on no other package, and gives tests of frames a TAP.
const DEV_INWARD: &[&str] = &[SIM, TESTING, LAN];

/// Checks every manifest of the workspace.
pub(crate) fn check(packages: &[Package], root: &Path) -> Vec<Finding> {
    let members: Vec<&str> = packages.iter().map(|p| p.name.as_str()).collect();
    let mut findings = Vec::new();
    for package in packages {
        let relative = package.manifest_path.strip_prefix(root);
        let path = relative.unwrap_or(&package.manifest_path).to_string_lossy();
        let report = |sentence: String| Finding::new(&path, 0, RULE, sentence);
        let Some(arrow) = LAYERS.iter().find(|a| a.package == package.name) else {
            findings.push(report(format!(
                "package `{}` has no layer; add it to LAYERS in tools/xtask/src/tidy/layering.rs",
                package.name
            )));
            continue;
        };
        let complaints = package
            .dependencies
            .iter()
            .filter_map(|d| check_dependency(arrow, d, &members));
        findings.extend(complaints.map(report));
    }
    findings
}

/// What is wrong with one dependency, if anything.
fn check_dependency(
    arrow: &LayerRule,
    dependency: &Dependency,
    members: &[&str],
) -> Option<String> {
    let name = dependency.name.as_str();
    let dev = dependency.kind.as_deref() == Some("dev");
    if members.contains(&name) {
        let allowed = match arrow.inward {
            Inward::Any => true,
            Inward::Only(list) => list.contains(&name) || (dev && DEV_INWARD.contains(&name)),
        };
        let itself = dev && name == arrow.package;
        return (!allowed && !itself).then(|| {
            format!(
                "`{}` must not depend on `{name}`: imports go inward only",
                arrow.package
            )
        });
    }
    match arrow.outside {
        Outside::Only(list) if !dev && !list.contains(&name) => Some(format!(
            "`{}` is pure and may use only {} from outside, not `{name}`",
            arrow.package,
            list.join(", ")
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependency = |&(name, kind): &(&str, Option<&str>)| Dependency {
            name: name.into(),
            kind: kind.map(str::to_owned),
            req: String::new(),
        };
        Package {
            name: name.into(),
            manifest_path: format!("/w/crates/{name}/Cargo.toml").into(),
            dependencies: dependencies.iter().map(dependency).collect(),
            targets: Vec::new(),
            publish: None,
            shown: crate::workspace::Shown::default(),
        }
    }

    fn sentences(packages: &[Package]) -> Vec<String> {
        let findings = check(packages, Path::new("/w"));
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn inward_dependencies_pass() {
        let packages = [
            package(WIRE, &[("thiserror", None), ("proptest", Some("dev"))]),
            package(STREAM, &[(WIRE, None), (SIM, Some("dev"))]),
            package(MEM, &[(WIRE, None), (TESTING, Some("dev"))]),
            package(SIM, &[(STREAM, None), ("anything", None)]),
            package("verbena-fuzz", &[(SIM, None), ("libfuzzer-sys", None)]),
        ];
        assert_eq!(sentences(&packages), [""; 0]);
    }

    #[test]
    fn outward_dependency_is_found() {
        let packages = [package(WIRE, &[(STREAM, None)]), package(STREAM, &[])];
        let expected = "crates/verbena-wire/Cargo.toml:1: layering: \
                        `verbena-wire` must not depend on `verbena-stream`: imports go inward only";
        assert_eq!(sentences(&packages), [expected]);
    }

    #[test]
    fn c_api_depends_on_the_rust_api_only() {
        let packages = [
            package("verbena-capi", &[(VERBENA, None), (NIC, None)]),
            package(VERBENA, &[]),
            package(NIC, &[]),
        ];
        assert_eq!(sentences(&packages).len(), 1);
    }

    #[test]
    fn dev_dependency_may_reach_only_the_simulator() {
        let packages = [
            package(WIRE, &[(STREAM, Some("dev"))]),
            package(STREAM, &[(SIM, Some("dev"))]),
            package(SIM, &[]),
        ];
        assert_eq!(sentences(&packages).len(), 1);
    }

    #[test]
    fn pure_crate_depends_on_listed_crates_only() {
        for kind in [None, Some("build")] {
            let packages = [package(STREAM, &[("tokio", kind)])];
            assert!(sentences(&packages)[0].contains("not `tokio`"));
        }
    }

    #[test]
    fn unknown_package_error_names_the_table() {
        let packages = [package("verbena-news", &[])];
        assert!(
            sentences(&packages)[0]
                .contains("add it to LAYERS in tools/xtask/src/tidy/layering.rs")
        );
    }

    #[test]
    fn dependency_table_points_inward() {
        for (at, arrow) in LAYERS.iter().enumerate() {
            if let Inward::Only(list) = arrow.inward {
                for name in list {
                    let inner = LAYERS[..at].iter().any(|a| a.package == *name);
                    assert!(inner, "{} before {name}", arrow.package);
                }
            }
        }
    }
}
