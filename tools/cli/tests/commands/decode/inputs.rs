//! Files that are no captures, truncated or changed captures, and arguments. Every one leads to a documented exit code and at most one line
//! on standard error, never to a panic. The many variants use the library; the binary is run once for each kind.

use std::io::Read;
use std::process::{Command, Stdio};

use pcap_file::DataLink;
use verbena_cli::decode::capture::{Capture, Damage};
use verbena_cli::decode::{Options, Report};

use super::net::pcapng;
use super::support::{CAPTURES, capture, decode, fixture, verbena};

fn library(bytes: &[u8]) -> Report {
    let options = Options {
        segments: true,
        verbose: true,
        ..Options::default()
    };
    verbena_cli::decode::decode(bytes, &mut Vec::new(), options).expect("no output error")
}

fn as_pcapng(name: &str) -> Vec<u8> {
    let file = capture(name);
    let mut reader = Capture::open(file.as_slice()).expect("capture");
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().expect("packet") {
        packets.push(packet.data.to_vec());
    }
    pcapng(DataLink::ETHERNET, &packets)
}

#[track_caller]
fn unreadable(bytes: &[u8], words: &str) {
    let run = decode(bytes, &[]);
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    assert!(
        run.stderr.starts_with("verbena: standard input "),
        "{run:?}"
    );
    assert!(run.stderr.contains(words), "{run:?}");
}

#[test]
fn non_capture_files_get_one_error_line() {
    unreadable(b"", "is empty");
    unreadable(b"ab", "is neither pcap nor pcapng (it begins with 6162)");
    unreadable(&[0x5a; 5000], "is neither pcap nor pcapng");
    unreadable(&[0x1f, 0x8b, 8, 0], "is compressed with gzip");
    unreadable(
        &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0],
        "ends inside its file header",
    );
    unreadable(&[0x0a, 0x0d, 0x0d, 0x0a, 9], "ends inside its file header");
    unreadable(
        &[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 0, 9, 9, 9, 9],
        "is damaged",
    );
}

#[test]
fn unreadable_files_get_one_error_line() {
    for path in ["no/such/file.pcap", env!("CARGO_MANIFEST_DIR")] {
        let run = verbena(&["decode", path]);
        assert_eq!(run.code, 2, "{run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
        assert!(run.stderr.contains(path), "{run:?}");
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn truncated_capture_is_decoded_up_to_cut() {
    // For pcapng the small ones are enough.
    let small = ["03_rping_v1_nocrc", "09_rping_ipv6_nocrc", "17_reject_crc"];
    let mut files: Vec<_> = CAPTURES.map(|name| (name, capture(name))).into();
    files.extend(small.map(|name| (name, as_pcapng(name))));
    for (name, file) in &files {
        let whole = library(file);
        assert!(whole.damage.is_none() && whole.streams > 0);
        for cut in (0..file.len()).step_by(97) {
            let report = library(&file[..cut]);
            assert_eq!(report.violations, 0, "{name} cut at {cut}");
            assert!(report.streams <= whole.streams);
            let expected = matches!(
                report.damage,
                // A truncation between two packets cannot be detected.
                None | Some(Damage::Empty | Damage::CutHeader | Damage::Truncated { .. })
            );
            assert!(expected, "{name} cut at {cut}: {:?}", report.damage);
        }
    }
}

#[test]
fn truncated_capture_exits_with_code_two() {
    let file = capture("02_rping_v2_crc_sizes");
    let run = decode(&file[..file.len() / 2 + 1], &["--json"]);
    assert_eq!(run.code, 2);
    assert!(run.records().len() > 50);
    let line = "ends in the middle of packet";
    assert!(run.stderr.contains(line) && run.stderr.lines().count() == 1);
}

#[test]
fn corrupted_captures_never_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for name in [
        "06_rping_v2_p2p_crc",
        "16_ops_terminate_crc",
        "17_reject_crc",
    ] {
        for file in [capture(name), as_pcapng(name)] {
            for _ in 0..400 {
                let mut bent = file.clone();
                for _ in 0..1 + random() % 4 {
                    let at = random() % bent.len();
                    bent[at] = random() as u8;
                }
                library(&bent);
            }
        }
    }
}

#[test]
fn pcapng_decodes_like_pcap() {
    for name in CAPTURES {
        let kinds = |file: &[u8]| {
            let run = decode(file, &["--json", "--segments"]);
            assert_eq!(run.code, 0, "{name}");
            let mut records = run.records();
            // The test's writer has other times.
            for record in &mut records {
                record["time"] = 0.into();
            }
            records
        };
        assert_eq!(kinds(&as_pcapng(name)), kinds(&capture(name)), "{name}");
    }
}

#[test]
fn capture_without_streams_exits_cleanly() {
    let header_only = &capture("17_reject_crc")[..24];
    let run = decode(header_only, &[]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert!(run.stdout.contains("no MPA stream found"), "{}", run.stdout);
    let json = decode(header_only, &["--json"]);
    assert_eq!((json.code, json.stdout.as_str()), (0, ""));
}

#[test]
fn unknown_link_type_is_reported() {
    let mut file = capture("17_reject_crc");
    file[20] = 105;
    let run = decode(&file, &[]);
    assert_eq!(run.code, 0);
    assert!(
        run.stdout.contains("unknown link type 105"),
        "{}",
        run.stdout
    );
}

#[test]
fn closed_output_pipe_ends_decode_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .args(["decode", "--json", "--segments"])
        .arg(fixture("02_rping_v2_crc_sizes.pcap"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let mut stderr = String::new();
    let mut pipe = child.stderr.take().expect("stderr");
    pipe.read_to_string(&mut stderr).expect("utf-8");
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    assert_eq!(stderr, "");
}

#[test]
fn bad_usage_exits_two_help_lists_codes() {
    for args in [
        &["decode"][..],
        &["decode", "--stream", "x", "-"],
        &["decode", "--no-such-option", "-"],
        &["nonsense"],
        &[],
    ] {
        assert_eq!(verbena(args).code, 2, "{args:?}");
    }
    for args in [&["--help"][..], &["decode", "--help"], &["decode", "-h"]] {
        let run = verbena(args);
        assert_eq!(run.code, 0);
        assert!(run.stdout.contains("Exit codes:"), "{}", run.stdout);
        assert!(run.stdout.contains("protocol violation"));
    }
    assert!(
        verbena(&["decode", "--help"])
            .stdout
            .contains("verbena decode trace.pcap")
    );
    assert_eq!(verbena(&["--version"]).code, 0);
}
