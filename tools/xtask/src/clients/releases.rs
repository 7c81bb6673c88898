//! Programs of another release (`source/release.rs`), which run with its own loader and C library.
//! All libraries but our two come from that release.
//! The cases of a release that apt's archives do not carry are skipped.

use super::case::{Case, PEER, PORT, SCRIPTS, Side};
use super::perftest::UNKNOWN_DEVICE;
use super::rping::RPING_STDERR;
use super::source::Source;
use super::source::release::Release;

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
}
