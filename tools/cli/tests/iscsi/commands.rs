//! The sub-commands as a user types them: what they show, what they move, and how they fail.

use std::io::Write;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbena_testing::{WAIT_LIMIT, process_ends, wait_readable, wait_until};

use crate::target::{Carrier, Tgt};
use crate::tool::{Folder, bytes, command, iscsi, random_bytes};

const MIB: u64 = 1 << 20;

fn start() -> Option<Tgt> {
    Tgt::start(Carrier::Tcp)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

#[test]
fn targets_units_and_sizes_are_shown() {
    let Some(mut tgt) = start() else { return };
    let (first, second) = (tgt.target(), tgt.target());
    tgt.lun(&first, 1, 8 * MIB);
    tgt.lun(&first, 7, 3 * MIB);
    tgt.lun(&first, 300, MIB);
    let portal = format!("iscsi://{}", tgt.portal());

    let said = iscsi(&["discover", &portal]).expect_success();
    for target in [&first, &second] {
        let line = format!("{}  {},1", target.name, tgt.portal());
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    let found = json(&iscsi(&["discover", &portal, "--json"]).expect_success());
    assert_eq!(found["targets"].as_array().unwrap().len(), 2, "{found}");

    let all = format!("{portal}/{}", first.name);
    let rows = json(&iscsi(&["luns", &all, "--json"]).expect_success());
    let disks: Vec<(&str, u64)> = rows["luns"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["type"] == "disk")
        .map(|row| (row["lun"].as_str().unwrap(), row["bytes"].as_u64().unwrap()))
        .collect();
    assert_eq!(disks, [("1", 8 * MIB), ("7", 3 * MIB), ("300", MIB)]);
    let said = iscsi(&["luns", &all]).expect_success();
    assert!(
        said.contains("array controller") && said.contains("8 MiB"),
        "{said}"
    );

    let url = tgt.url("", &first, 7);
    let said = iscsi(&["capacity", &url]).expect_success();
    assert_eq!(said, "3145728 bytes (3 MiB): 6144 blocks of 512 bytes\n");
    let said = json(&iscsi(&["capacity", &url, "--json"]).expect_success());
    assert_eq!(said["blocks"], 6144);
    let said = iscsi(&["inquiry", &url]).expect_success();
    for line in [
        "type             disk",
        "product          VIRTUAL-DISK",
        "write-protected  no",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}: {said}");
    }
    let said = json(&iscsi(&["inquiry", &url, "--json"]).expect_success());
    assert_eq!(said["bytes"], 3 * MIB);
    assert!(said["serial"].is_string(), "{said}");
    assert_eq!(
        tgt.sessions(),
        0,
        "every session has logged out: {}",
        tgt.shown()
    );
}

#[test]
fn written_data_reads_back_unchanged() {
    let Some(mut tgt) = start() else { return };
    let target = tgt.target();
    let (one, two) = (tgt.lun(&target, 1, 8 * MIB), tgt.lun(&target, 2, 8 * MIB));
    let (url, other) = (tgt.url("", &target, 1), tgt.url("", &target, 2));
    let folder = Folder::new("written");

    // Neither end is at a block boundary.
    let data = random_bytes(3_000_001, 1);
    let input = folder.with("input", &data);
    let mut expected = vec![0; 8 << 20];
    expected[777..777 + data.len()].copy_from_slice(&data);
    for extra in [&["--verify"][..], &["--fua", "--verify", "--size", "8k"]] {
        let words = [
            &["write", &url, "--offset", "777", "--input", &input][..],
            extra,
        ]
        .concat();
        iscsi(&words).expect_success();
        assert!(bytes(&one) == expected, "the disk's file differs");
    }
    let output = folder.file("output");
    let length = data.len().to_string();
    let words = [
        "read", &url, "--offset", "777", "--length", &length, "--output", &output,
    ];
    let said = iscsi(&words);
    assert!(said.err.starts_with("3000001 bytes read in "), "{said:?}");
    assert!(bytes(&output) == data, "what was read differs");

    // Through pipes, with unknown length.
    let mut piped = command(&["write", &other, "--offset", "1m", "--quiet"]);
    let mut child = piped.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&data).unwrap();
    assert!(child.wait().unwrap().success());
    let words = [
        "read", &other, "--offset", "1m", "--length", &length, "--quiet",
    ];
    let piped = command(&words).output().unwrap();
    assert!(piped.status.success() && piped.stdout == data);
    assert!(piped.stderr.is_empty());
    let piped = command(&["read", &other, "--length", "0"])
        .output()
        .unwrap();
    assert!(piped.status.success() && piped.stdout.is_empty());
    iscsi(&["write", &other, "--input", "/dev/null"]).expect_success();
    let nothing = folder.with("nothing", b"");
    iscsi(&["write", &other, "--offset", "8m", "--input", &nothing]).expect_success();

    // Disk to disk, disk to file, file to disk.
    iscsi(&["copy", &url, &other, "--verify"]).expect_success();
    assert!(bytes(&two) == expected, "the copy differs");
    let image = folder.file("image");
    iscsi(&["copy", &url, &image, "--verify"]).expect_success();
    assert!(bytes(&image) == expected, "the image differs");
    let all = random_bytes(8 << 20, 2);
    let image = folder.with("image", &all);
    iscsi(&["copy", &image, &other, "--verify"]).expect_success();
    assert!(bytes(&two) == all, "the disk differs");
}

#[test]
fn failures_print_one_line() {
    let Some(mut tgt) = start() else { return };
    let target = tgt.target();
    tgt.lun(&target, 1, MIB);
    let kept = tgt.lun(&target, 2, MIB);
    tgt.read_only(&target, 2);
    let folder = Folder::new("failures");
    let big = folder.with("big", &random_bytes((1 << 20) + 1, 3));
    let (url, fixed) = (tgt.url("", &target, 1), tgt.url("", &target, 2));
    let none = url.replace(&target.name, "iqn.2026-01.test.verbena:none");
    let closed = url.replace(&tgt.portal().to_string(), "127.0.0.1:1");
    let whole = format!("iscsi://{}/{}", tgt.portal(), target.name);
    let cases: [(&[&str], &str); 14] = [
        (&["inquiry", &tgt.url("", &target, 9)], "there is no unit 9"),
        (
            &["capacity", &tgt.url("", &target, 9)],
            "there is no unit 9",
        ),
        (&["reset", &tgt.url("", &target, 9)], "there is no unit 9"),
        (&["read", &tgt.url("", &target, 9)], "there is no unit 9"),
        (
            &["read", &tgt.url("", &target, 0)],
            "unit 0 is no disk: it calls itself array controller",
        ),
        (&["capacity", &whole], "names no unit"),
        (&["luns", &none], "there is no target of that name"),
        (
            &["discover", &closed],
            "cannot reach 127.0.0.1:1: connect: Connection refused",
        ),
        (
            &["read", &url, "--offset", "1m", "--length", "1"],
            "the disk ends at 1048576",
        ),
        (
            &["write", &url, "--input", &big],
            "1048577 bytes at 0 are asked for, and the disk ends at",
        ),
        (&["write", &fixed, "--input", &big, "-q"], "1048577 bytes"),
        (&["bench", &url, "--rw", "write"], "pass --destructive"),
        (
            &["bench", &fixed, "--rw", "write", "--destructive"],
            "the disk is write-protected",
        ),
        (&["copy", &big, &big], "neither side is a disk"),
    ];
    for (words, expected) in cases {
        let sentence = iscsi(words).expect_error();
        assert!(sentence.contains(expected), "{words:?}: {sentence}");
    }
    let small = folder.with("small", b"something");
    let sentence = iscsi(&["write", &fixed, "--input", &small]).expect_error();
    assert_eq!(sentence, "the disk is write-protected");
    assert_eq!(bytes(&kept), vec![0; 1 << 20]);
    let said = iscsi(&["inquiry", &fixed]).expect_success();
    assert!(said.contains("write-protected  yes"), "{said}");

    // A pipe with more bytes than the disk: what fits is written, and an error reports the rest.
    let mut piped = command(&["write", &url, "--quiet"]);
    let piped = piped
        .stdin(std::fs::File::open(&big).unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&piped.stderr).into_owned();
    assert_eq!(piped.status.code(), Some(1));
    assert!(
        said.contains("the input has more bytes than the disk"),
        "{said}"
    );

    // Bad usage has another exit code.
    for words in [
        &["read", "iscsi://"][..],
        &["read", "disk.img"],
        &["bench", &url, "--size", "4q"],
    ] {
        assert_eq!(iscsi(words).code, Some(2), "{words:?}");
    }
}

#[test]
fn ping_reset_and_bench_succeed() {
    let Some(mut tgt) = start() else { return };
    let target = tgt.target();
    let file = tgt.lun(&target, 1, 4 * MIB);
    let url = tgt.url("", &target, 1);
    let said = iscsi(&["ping", &url, "-n", "3"]).expect_success();
    assert_eq!(said.matches("reply ").count(), 3, "{said}");
    assert_eq!(
        iscsi(&["reset", &url]).expect_success(),
        "unit 1 was reset\n"
    );
    for rw in ["--rw=read", "--rw=randread", "--discard"] {
        let said = iscsi(&["bench", &url, rw, "--seconds", "1", "--size", "64k"]).expect_success();
        assert!(said.contains(" requests/s, "), "{said}");
    }
    assert!(bytes(&file) == vec![0; 4 << 20], "reading writes nothing");
    let words = [
        "bench",
        &url,
        "--rw",
        "mix",
        "--seconds",
        "1",
        "--destructive",
        "--json",
    ];
    let score = json(&iscsi(&words).expect_success());
    assert!(
        score["reads"].as_u64() > score["writes"].as_u64(),
        "{score}"
    );
    assert!(score["writes"].as_u64() > Some(0) && score["latency_us"]["p99"].is_number());
    assert!(bytes(&file) != vec![0; 4 << 20]);
}

/// Whether a process has a handler for a signal.
fn in_mask(process: u32, mask: &str, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix(mask));
    let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn interrupt_ends_bench_with_report() {
    let Some(mut tgt) = start() else { return };
    let target = tgt.target();
    tgt.lun(&target, 1, 4 * MIB);
    let url = tgt.url("", &target, 1);
    let mut started = std::process::Command::new(env!("CARGO_BIN_EXE_verbena"));
    started.args(["iscsi", "bench", &url, "--seconds", "600"]);
    let child = started.stdout(Stdio::piped()).spawn().unwrap();
    wait_until("it has logged in", || {
        tgt.sessions() > 0 && in_mask(child.id(), "SigCgt:", Signal::INT)
    });
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    // `timeout` signals the process and then its group: that counts as one request.
    wait_until("the first one is taken", || {
        !in_mask(child.id(), "ShdPnd:", Signal::INT)
    });
    kill_process(pid, Signal::INT).unwrap();
    assert!(process_ends(child.id(), WAIT_LIMIT), "it goes on");
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(
        said.contains("requests/s"),
        "what was measured is shown: {said}"
    );
    assert_eq!(tgt.sessions(), 0, "{}", tgt.shown());
}

/// A login in progress has nothing to end in order.
#[test]
fn interrupt_ends_login_at_once() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "iscsi://{}/iqn.2026-01.test.verbena:silent/1",
        silent.local_addr().unwrap()
    );
    let folder = Folder::new("silent");
    let (file, socket) = (folder.with("file", b"bytes"), folder.with("socket", b""));
    let cases: [&[&str]; 8] = [
        &["discover", &url],
        &["inquiry", &url],
        &["read", &url, "--output", &file],
        &["write", &url, "--input", &file],
        &["copy", &url, &file],
        &["copy", &url, &url],
        &["bench", &url],
        &["nbd", &url, "--socket", &socket],
    ];
    for words in cases {
        let mut started = std::process::Command::new(env!("CARGO_BIN_EXE_verbena"));
        started.arg("iscsi").args(words).args(["--timeout", "300"]);
        let child = started.stderr(Stdio::piped()).spawn().unwrap();
        let (dialled, _) = silent.accept().unwrap();
        wait_readable("a login request", &dialled);
        // Not SIGINT, which a process started in the background ignores until it installs its handler.
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        // Without the answer that it waits for during 300 s.
        assert!(process_ends(child.id(), WAIT_LIMIT), "{words:?}");
        let ended = child.wait_with_output().unwrap();
        assert!(!ended.status.success(), "{words:?}: {ended:?}");
    }
}

/// A failed write of the output is an error like others, and no panic.
#[test]
fn full_output_device_is_an_error() {
    let Some(mut tgt) = start() else { return };
    let target = tgt.target();
    tgt.lun(&target, 1, MIB);
    let url = tgt.url("", &target, 1);
    let cases: [&[&str]; 9] = [
        &["discover", &url],
        &["discover", &url, "--json"],
        &["luns", &url],
        &["inquiry", &url],
        &["inquiry", &url, "--json"],
        &["capacity", &url],
        &["ping", &url, "-n", "1"],
        &["reset", &url],
        &["bench", &url, "--seconds", "1"],
    ];
    for words in cases {
        let full = std::fs::File::create("/dev/full").unwrap();
        let ended = command(words).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{words:?}: {said}");
        assert!(
            said.starts_with("verbena: cannot write to standard output: No space"),
            "{said}"
        );
    }
}

/// An existing file is not truncated if the range is not within the disk.
#[test]
fn out_of_range_read_keeps_output_file() {
    let Some(mut tgt) = start() else { return };
    let target = tgt.target();
    tgt.lun(&target, 1, MIB);
    let url = tgt.url("", &target, 1);
    let path = std::env::temp_dir().join(format!("verbena-kept-{}", std::process::id()));
    std::fs::write(&path, b"dear").unwrap();
    let name = path.to_str().unwrap();
    let words = [
        "read", &url, "--offset", "1m", "--length", "512", "-o", name,
    ];
    let ended = command(&words).output().unwrap();
    let left = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert_eq!(left, b"dear");
}

/// The error about a wrong address does not contain its password, which would appear on the screen and in logs.
#[test]
fn passwords_are_never_shown() {
    let wrong = "iscsi://user%topsecret@127.0.0.1/none/1";
    let mutual = "iscsi://a%b@host/iqn.2026-01.test:x/1?target_user=c&target_password=topsecret&x";
    let cases: [&[&str]; 6] = [
        &["inquiry", wrong],
        &["discover", mutual],
        &["bench", "iscsi://user:topsecret@127.0.0.1"],
        &["copy", wrong, "-"],
        &["copy", "-", mutual],
        &["nbd", wrong, "--socket", "s"],
    ];
    for words in cases {
        let said = iscsi(words);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains("not the address of a disk"), "{said:?}");
        let all = format!("{}{}", said.out, said.err);
        assert!(!all.contains("topsecret"), "{all}");
    }
}

/// A name without a password, a password file that other users can read, and a password on the command line.
#[test]
fn passwords_come_from_files_and_the_environment() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new("passwords");
    let file = folder.file("password");
    std::fs::write(&file, "a secret of 16 b\nmore\n").unwrap();
    let open = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
    // No process listens there: earlier errors are reported first, then that one.
    let url = "iscsi://127.0.0.1:1/iqn.2026-01.test:x/1";
    let [with, none] = [
        &["inquiry", url, "--user", "me", "--password-file", &file][..],
        &["inquiry", url, "--user", "me"][..],
    ];
    open(0o640);
    let said = iscsi(with).expect_error();
    assert!(
        said.contains("mode 0640") && said.contains("chmod 600"),
        "{said}"
    );
    open(0o600);
    let said = iscsi(with);
    assert!(!said.err.contains("warning"), "{said:?}");
    assert!(said.expect_error().contains("127.0.0.1"));
    let said = iscsi(none).expect_error();
    assert!(said.contains("VERBENA_ISCSI_PASSWORD"), "{said}");
    let output = command(none)
        .env("VERBENA_ISCSI_PASSWORD", "short")
        .output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(said.contains("warning: a CHAP secret of 5 bytes"), "{said}");
    assert!(!said.contains("unknown setting"), "{said}");
    let seen = "iscsi://me%asecretof16bytes@127.0.0.1:1/iqn.2026-01.test:x/1";
    let said = iscsi(&["inquiry", seen]);
    assert!(
        said.err.contains("warning: a password on the command line"),
        "{said:?}"
    );
    let said = iscsi(&["inquiry", seen, "--user", "me"]).expect_error();
    assert!(said.contains("already contains a user"), "{said}");
}

/// V2: the first device with iSCSI is used, and an adapter without one reports that.
#[test]
fn initiator_uses_first_iscsi_device() {
    let Some(mut tgt) = start() else { return };
    let target = tgt.target();
    tgt.lun(&target, 1, MIB);
    let url = tgt.url("", &target, 1);
    let ask = |presents: &str| {
        let mut command = command(&["capacity", &url]);
        let output = command.env("VERBENA_PRESENTS", presents).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    for presents in ["verbena0=rdma,eth7=nic,scsi0=iscsi", "scsi0=iscsi"] {
        let (good, said) = ask(presents);
        assert!(good && said.starts_with("1048576 bytes"), "{said}");
    }
    let (good, said) = ask("verbena0=rdma,eth7=nic");
    assert!(
        !good && said.contains("no device of this adapter provides iscsi"),
        "{said}"
    );
}
