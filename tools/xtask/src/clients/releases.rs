//! Programs of another release: its packages are downloaded, unpacked into the stage's folder, and run with its own loader and C library.
//! All libraries but our two come from that release, and the system is not changed.
//! Only archives that apt is configured with are used; the cases of a release they do not carry are skipped.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::case::{Case, PEER, PORT, SCRIPTS, Side};
use super::perftest::UNKNOWN_DEVICE;
use super::rping::RPING_STDERR;
use super::source::Source;
use crate::command::Tool;

/// A release other than the one that is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) name: &'static str,
    /// Its name in the archive.
    suite: &'static str,
    /// The programs and everything they load.
    packages: &'static [&'static str],
}

const RELEASES: &[Release] = &[Release {
    name: "debian13",
    suite: "trixie",
    packages: &[
        "ibverbs-utils",
        "rdmacm-utils",
        "perftest",
        "ibverbs-providers",
        "libibumad3",
        "libpci3",
        "libnl-3-200",
        "libnl-route-3-200",
        "libudev1",
        "libgcc-s1",
        "zlib1g",
        "libc6",
    ],
}];

/// The keys that sign Debian's archives.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Below the folder of a release.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";

pub(crate) fn cases() -> Vec<Case> {
    RELEASES.iter().flat_map(Release::cases).collect()
}

impl Release {
    fn cases(&self) -> Vec<Case> {
        let name = |what: &str| format!("releases/{}/{what}", self.name);
        let alone = |what: &str, options: &[&str], says: &str| {
            let side = self
                .side(what, options)
                .must_print("verbena0")
                .must_print(says);
            Case::single(name(what), side)
        };
        let pair = |what: &str, program: &str, own: [&[&str]; 2], both: &[&str], says: &str| {
            let [server, client] = own.map(|own| {
                let side = self.side(program, &[own, both].concat());
                side.noise(RPING_STDERR).noise(&[UNKNOWN_DEVICE])
            });
            Case::pair(name(what), server, client.must_print(says)).limit(60)
        };
        let port = ["-p", PORT];
        let ping: [&[&str]; 2] = [&["-s"], &["-c", "-a", PEER]];
        let tool: [&[&str]; 2] = [&["-F"], &["-F", PEER]];
        let managed: [&[&str]; 2] = [&["-F", "-R"], &["-F", "-R", PEER]];
        let called: [&[&str]; 2] = [&[], &["-s", PEER]];
        let mut cases = vec![
            alone("ibv_devices", &[], "device"),
            alone("ibv_devinfo", &["-v"], "PORT_ACTIVE (4)"),
            pair(
                "ibv_rc_pingpong",
                "ibv_rc_pingpong",
                [&["-g", "0"], &["-g", "0", PEER]],
                &port,
                "usec/iter",
            ),
            pair(
                "rping",
                "rping",
                ping,
                &["-p", PORT, "-C", "100", "-v", "-V"],
                "rdma-ping-99",
            ),
            pair("ib_send_lat", "ib_send_lat", tool, &port, "#bytes"),
            pair("ib_write_bw/cm", "ib_write_bw", managed, &port, "#bytes"),
            pair("ucmatose", "ucmatose", called, &port, "return status 0"),
            pair(
                "rstream",
                "rstream",
                called,
                &["-p", PORT, "-S", "1000"],
                "Gb/sec",
            ),
        ];
        for case in &mut cases {
            case.source = Some(Source::Release(*self));
            case.quick = false;
        }
        cases
    }

    /// The release's own loader searches our libraries first, then its own.
    fn side(&self, program: &str, options: &[&str]) -> Side {
        let tree = format!("{SCRIPTS}/{}", self.name);
        let libraries = format!("{tree}/{LIBRARIES}");
        let head = [
            format!("{libraries}/{LOADER}"),
            "--library-path".to_owned(),
            format!("{SCRIPTS}:{libraries}"),
            format!("{tree}/usr/bin/{program}"),
        ];
        let options = options.iter().map(|word| (*word).to_owned());
        let mut side = Side::new(head.into_iter().chain(options));
        side.launch = None;
        side
    }

    /// Downloads the packages into `apt` and unpacks them as `tree`.
    pub(super) fn unpack(&self, apt: &Path, tree: &Path) -> Result<()> {
        ensure!(cfg!(target_arch = "x86_64"), "only x86-64 is supported");
        for part in [
            "lists/partial",
            "cache/archives/partial",
            "parts",
            "packages",
        ] {
            std::fs::create_dir_all(apt.join(part))?;
        }
        let archive = archive()?;
        let line = format!("deb [signed-by={KEYS}] {archive} {} main\n", self.suite);
        std::fs::write(apt.join("sources.list"), line)?;
        let suite = self.suite;
        run_reported(apt_get(apt, 180).arg("update"), || {
            format!("the configured archive does not have the suite {suite}")
        })?;
        let packages = apt.join("packages");
        let download = apt_get(apt, 300).arg("download").args(self.packages);
        run_reported(download.current_dir(&packages), || {
            format!("the suite {suite} lacks a package, or its download failed")
        })?;
        // Unpacked elsewhere first: a partly unpacked tree must not be used.
        let half = apt.join("tree");
        for entry in std::fs::read_dir(&packages)? {
            let unpack = Tool::new("dpkg-deb").arg("--extract");
            unpack.arg(entry?.path()).arg(&half).run_quietly()?;
        }
        std::fs::rename(&half, tree)
            .with_context(|| format!("cannot name the folder {}", tree.display()))
    }
}

/// An error without apt's message, which names archives; the message is printed to the terminal.
fn run_reported(tool: Tool, what: impl FnOnce() -> String) -> Result<()> {
    tool.run_quietly().map_err(|error| {
        println!("{error:#}");
        anyhow::anyhow!(what())
    })
}

/// apt-get with every folder that it writes to below `folder`.
fn apt_get(folder: &Path, seconds: u32) -> Tool {
    let mut tool = Tool::new("timeout").args([&seconds.to_string(), "apt-get", "-q"]);
    let at = |part: &str| -> PathBuf { folder.join(part) };
    for (name, value) in [
        ("Dir::State", at("")),
        ("Dir::State::lists", at("lists")),
        ("Dir::State::status", PathBuf::from("/dev/null")),
        ("Dir::Cache", at("cache")),
        ("Dir::Etc::sourcelist", at("sources.list")),
        ("Dir::Etc::sourceparts", at("parts")),
    ] {
        tool = tool.args(["-o", &format!("{name}={}", value.display())]);
    }
    tool
}

/// The archive from which apt gets this system's own release.
fn archive() -> Result<String> {
    let system =
        std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let own = system
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("/etc/os-release has no release name")?;
    let format = "$(CODENAME) $(REPO_URI)";
    let targets = Tool::new("apt-get").args(["indextargets", "--format", format]);
    let targets = targets.output()?;
    let archive = targets
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find_map(|(codename, address)| (codename == own).then(|| address.to_owned()));
    archive.with_context(|| format!("apt is configured with no archive of {own}"))
}
