//! The libraries that `cargo xtask dropin` builds, under programs of the system. `cargo xtask test` builds them first; without them these
//! tests report that and pass.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Their folder, if they were built; a test run of the project always has them.
pub(crate) fn libraries() -> Option<PathBuf> {
    // Beside the folder of the command, as `verbena run` looks for them.
    let command = Path::new(env!("CARGO_BIN_EXE_verbena"));
    let folder = command.parent()?.parent()?.join("dropin");
    let there = folder.join("libverbena-uverbs.so").is_file();
    if !there {
        let required = std::env::var_os("DROPIN_REQUIRED").is_some();
        assert!(!required, "no libraries in {}", folder.display());
        eprintln!("not tested: no libraries in {}", folder.display());
    }
    there.then_some(folder)
}

fn preloaded(folder: &Path, program: &str, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .env("LD_PRELOAD", folder.join("libverbena-uverbs.so"))
        .env("LC_ALL", "C")
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn shim_shows_only_the_device_file() {
    let Some(folder) = libraries() else { return };
    let output = preloaded(&folder, "stat", &["-c", "%F", "/dev/infiniband/uverbs0"]);
    assert_eq!(
        text(&output.stdout),
        "character special file\n",
        "{output:?}"
    );
    assert_eq!(text(&output.stderr), "", "the linker has no complaint");
    for (path, kind) in [("/dev/null", "character special file"), ("/", "directory")] {
        let output = preloaded(&folder, "stat", &["-c", "%F", path]);
        assert_eq!(text(&output.stdout), format!("{kind}\n"), "{path}");
    }
    for path in ["/dev/infiniband/other", "/dev/infinibandx/uverbs0"] {
        assert!(
            !preloaded(&folder, "stat", &[path]).status.success(),
            "{path}"
        );
    }
    // With `access` and related calls.
    for (path, code) in [("/dev/infiniband/uverbs3", 0), ("/dev/infiniband/other", 1)] {
        let output = preloaded(
            &folder,
            "sh",
            &["-c", "test -r \"$0\" && test -w \"$0\"", path],
        );
        assert_eq!(output.status.code(), Some(code), "{path}");
    }
}

#[test]
fn command_finds_libraries_of_its_build_tree() {
    let Some(folder) = libraries() else { return };
    let output = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .args(["run", "sh", "-c", "echo $LD_LIBRARY_PATH"])
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .expect("the command starts");
    let said = text(&output.stdout);
    assert_eq!(said, format!("{}\n", folder.display()), "{output:?}");
}

#[test]
fn system_programs_load_the_libraries() {
    let Some(_) = libraries() else { return };
    for (program, argument) in [
        ("ibv_devices", "--help"),
        ("ib_send_lat", "--help"),
        ("rping", "-h"),
        ("fi_info", "--version"),
        ("ucx_info", "-v"),
    ] {
        let Some(output) = on_verbena(&[], &[program, argument]) else {
            continue;
        };
        let said = text(&output.stderr);
        // The dynamic linker's messages for a missing symbol or version, or a wrong file.
        for complaint in [
            "symbol lookup error",
            "not found (required by",
            "no version information",
            "cannot open shared object",
            "cannot be preloaded",
        ] {
            assert!(!said.contains(complaint), "{program}: {said}");
        }
        assert_ne!(output.status.code(), Some(127), "{program}: {said}");
    }
}

/// The output of a program of the system on Verbena; `None` if the machine does not have the program.
fn on_verbena(options: &[&str], program: &[&str]) -> Option<Output> {
    let output = Command::new(env!("CARGO_BIN_EXE_verbena"))
        .arg("run")
        .args(options)
        .args(program)
        .output()
        .expect("the command starts");
    let said = text(&output.stderr);
    let missing = output.status.code() == Some(127) && said.starts_with("verbena: cannot start");
    if missing {
        // `cargo xtask test` has checked for it, and fails in CI.
        eprintln!("not tested: {} is missing", program[0]);
    }
    (!missing).then_some(output)
}

#[test]
fn name_setting_names_the_adapter() {
    let Some(_) = libraries() else { return };
    let Some(output) = on_verbena(&["--set", "name=lavender"], &["ibv_devices"]) else {
        return;
    };
    assert!(text(&output.stdout).contains("lavender"), "{output:?}");
}

#[test]
fn ucx_sees_the_adapter_because_of_the_shim() {
    let Some(folder) = libraries() else { return };
    let Some(output) = on_verbena(&[], &["ucx_info", "-d"]) else {
        return;
    };
    assert!(text(&output.stdout).contains("verbena0"), "{output:?}");
    if Path::new("/dev/infiniband/uverbs0").exists() {
        return;
    }
    let without = Command::new("ucx_info")
        .arg("-d")
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .expect("it started before");
    assert!(!text(&without.stdout).contains("verbena0"), "{without:?}");
}

/// V1: functions are separate devices, with their own names and GUIDs.
#[test]
fn functions_are_listed_as_devices() {
    let Some(_) = libraries() else { return };
    let Some(output) = on_verbena(&["--set", "functions=2"], &["ibv_devices"]) else {
        return;
    };
    let said = text(&output.stdout);
    let rows = said.lines().filter(|line| line.contains("verbena0"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split_whitespace().collect()).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["verbena0", "verbena0v1", "verbena0v2"], "{said}");
    let guids: std::collections::HashSet<&str> = rows.iter().map(|row| row[1]).collect();
    assert_eq!(guids.len(), 3, "{said}");
    // V2: with a profile, devices without RDMA are not listed, although the first is one of them.
    let profile = ["--set", "presents=s=iscsi,a=rdma,b=nic,c=rdma+iscsi"];
    let Some(output) = on_verbena(&profile, &["ibv_devices"]) else {
        return;
    };
    let said = text(&output.stdout);
    let named = |name: &str| said.lines().any(|line| line.trim().starts_with(name));
    assert!(named("a ") && named("c "), "{said}");
    assert!(!named("b ") && !named("s "), "{said}");
}

/// V1: a program opens a function by its name and connects to another one, each in its own process.
#[test]
fn programs_run_on_functions() {
    let Some(_) = libraries() else { return };
    // Bound for a moment, to find a free port.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("it is bound").port().to_string();
    drop(free);
    let program = |device: &str, to: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_verbena"));
        command
            .args(["run", "--set", "functions=2", "--set", "device=127.0.0.1"])
            .args(["ibv_rc_pingpong", "-g", "0", "-n", "200", "-p", &port])
            .args(["-d", device])
            .args(to)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        command.spawn().expect("the command starts")
    };
    let mut server = program("verbena0v1", &[]);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let client = loop {
        let client = program("verbena0v2", &["127.0.0.1"]);
        let output = client.wait_with_output().expect("it ends");
        let waiting = text(&output.stderr).contains("Couldn't connect");
        if !waiting || std::time::Instant::now() > end {
            break output;
        }
    };
    if !client.status.success() {
        // No client will connect: it would wait for ever.
        let _ = server.kill();
    }
    let server = server.wait_with_output().expect("it ends");
    if client.status.code() == Some(127) {
        eprintln!("not tested: ibv_rc_pingpong is missing");
        return;
    }
    for output in [&client, &server] {
        assert!(output.status.success(), "{output:?}");
        assert!(text(&output.stdout).contains("200 iters"), "{output:?}");
    }
}
