//! `verbena run` and `verbena env` as a user types them. Where only the path of the libraries matters, they are libraries without contents.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LIBRARIES: [&str; 5] = [
    "libibverbs.so.1",
    "librdmacm.so.1",
    "libverbena-uverbs.so",
    "libverbena-rsocket.so",
    "libverbena-audit.so",
];

/// A folder of one test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("verbena-run-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Libraries that the dynamic linker accepts and that change nothing.
    fn with_libraries(name: &str) -> Folder {
        let folder = Folder::new(name);
        for library in LIBRARIES {
            build_empty_library(&folder.0.join(library));
        }
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A shared library without contents; built by the compiler if there is one, else an empty file, about which the dynamic linker complains on
/// standard error.
fn build_empty_library(path: &Path) {
    // An audit library needs this function.
    let source = path.with_extension("c");
    std::fs::write(&source, "unsigned la_version(unsigned v) { return v; }").unwrap();
    let made = Command::new("gcc")
        .args(["-shared", "-nostdlib", "-x", "c", "-o"])
        .args([path, &source])
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        std::fs::write(path, "").unwrap();
    }
}

fn verbena<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_verbena"))
        .args(args)
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .env_remove("LD_AUDIT")
        .env_remove("NCCL_GIN_TYPE")
        .output()
        .expect("the command starts")
}

fn run(folder: &Folder, rest: &[&str]) -> Output {
    let libs = folder.0.to_str().unwrap();
    verbena(["run", "--libs", libs].iter().chain(rest))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn exit_code_is_that_of_the_program() {
    let folder = Folder::with_libraries("exit");
    for code in [0, 3, 126, 255] {
        let output = run(&folder, &["sh", "-c", &format!("exit {code}")]);
        assert_eq!(output.status.code(), Some(code));
    }
}

#[test]
fn run_ends_with_signal_of_the_program() {
    let folder = Folder::with_libraries("signal");
    // SIGKILL, SIGTERM, and SIGPIPE, which the Rust runtime ignores in this command.
    for signal in [9, 15, 13] {
        let output = run(&folder, &["sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(output.status.signal(), Some(signal), "{output:?}");
    }
}

#[test]
fn arguments_after_program_are_not_parsed() {
    let folder = Folder::with_libraries("dashes");
    for line in [
        &["printf", "%s,", "-a", "--set", "b"][..],
        &["--", "printf", "%s,", "-a", "--set", "b"],
    ] {
        let output = run(&folder, line);
        assert_eq!(text(&output.stdout), "-a,--set,b,", "{output:?}");
    }
    let output = run(&folder, &["printf", "%s,", "--", "c"]);
    assert_eq!(text(&output.stdout), "--,c,", "{output:?}");
    assert_eq!(run(&folder, &["--bogus", "true"]).status.code(), Some(2));
    assert_eq!(run(&folder, &[]).status.code(), Some(2));
}

#[test]
fn program_gets_library_paths_and_settings() {
    let folder = Folder::with_libraries("environment");
    let show = "echo $LD_LIBRARY_PATH; echo $LD_PRELOAD; echo $LD_AUDIT $NCCL_GIN_TYPE; echo $VERBENA_PERSONALITY $VERBENA_DEVICE $VERBENA_CRC";
    let wishes = [
        "--personality",
        "iwarp",
        "--device",
        "127.0.0.1",
        "--set",
        "crc=on",
    ];
    let output = run(&folder, &[&wishes[..], &["sh", "-c", show]].concat());
    let libs = folder.0.display();
    let expected = format!(
        "{libs}\n{libs}/libverbena-uverbs.so\n{libs}/libverbena-audit.so 0\niwarp 127.0.0.1 on\n"
    );
    assert_eq!(text(&output.stdout), expected, "{output:?}");
}

#[test]
fn missing_libraries_error_lists_searched_folders() {
    let folder = Folder::new("missing");
    let output = run(&folder, &["true"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    for part in [folder.0.to_str().unwrap(), "cargo xtask dropin", "--libs"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn bad_setting_prevents_program_start() {
    let folder = Folder::with_libraries("setting");
    let mark = folder.0.join("started");
    for (wish, said) in [
        (["--set", "crc=perhaps"], "--set crc=perhaps: expected"),
        (["--set", "crx=on"], "did you mean crc?"),
        (["--set", "crc"], "expected key=value"),
        (["--personality", "tokenring"], "tokenring"),
    ] {
        let output = run(
            &folder,
            &[&wish[..], &["touch", mark.to_str().unwrap()]].concat(),
        );
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(said), "{output:?}");
        assert!(!mark.exists(), "it was started all the same");
    }
}

#[test]
fn start_failures_have_distinct_exit_codes() {
    let folder = Folder::with_libraries("start");
    let output = run(&folder, &["no-such-program-anywhere"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("no-such-program-anywhere"));
    let plain = folder.0.join("plain");
    std::fs::write(&plain, "hello").unwrap();
    let output = run(&folder, &[plain.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(126), "{output:?}");
}

#[test]
fn set_user_id_program_raises_warning() {
    let folder = Folder::with_libraries("raised");
    let program = folder.0.join("raised");
    std::fs::copy("/bin/true", &program).unwrap();
    let mut rights = program.metadata().unwrap().permissions();
    rights.set_mode(0o4755);
    std::fs::set_permissions(&program, rights).unwrap();
    let path = program.to_str().unwrap();
    let said = text(&run(&folder, &[path]).stderr);
    // A set-user-ID file of the same user raises no rights.
    assert!(!said.contains("ignores the environment"), "{said}");
    if std::os::unix::fs::chown(&program, Some(65534), None).is_ok() {
        let mut rights = program.metadata().unwrap().permissions();
        rights.set_mode(0o4755);
        std::fs::set_permissions(&program, rights).unwrap();
        let said = text(&run(&folder, &[path]).stderr);
        assert!(said.contains("ignores the environment"), "{said}");
    }
}

#[test]
fn env_lines_evaluate_quoted_or_unquoted() {
    let folder = Folder::with_libraries("two  blanks it's");
    let libs = folder.0.to_str().unwrap();
    let show = "printf '%s\\n' \"$LD_LIBRARY_PATH\" \"$LD_PRELOAD\" \"$VERBENA_CRC\"; sh -c 'echo $VERBENA_CRC'";
    for evaluate in ["eval $(\"$@\");", "eval \"$(\"$@\")\";"] {
        let output = Command::new("sh")
            .args(["-c", &format!("{evaluate} {show}"), "sh"])
            .arg(env!("CARGO_BIN_EXE_verbena"))
            .args(["env", "--libs", libs, "--set", "crc=off"])
            .env("LD_LIBRARY_PATH", "/was there")
            .env_remove("LD_PRELOAD")
            .output()
            .unwrap();
        let expected = format!("{libs}:/was there\nlibverbena-uverbs.so\noff\noff\n");
        assert_eq!(text(&output.stdout), expected, "{output:?}");
    }
    let fish = verbena(["env", "--shell", "fish", "--libs", libs]);
    assert!(text(&fish.stdout).starts_with("set -gx LD_LIBRARY_PATH '"));
    let bad = verbena(["env", "--set", "crx=1", "--libs", libs]);
    assert_eq!((bad.status.code(), bad.stdout.len()), (Some(2), 0));
}

#[test]
fn namespace_is_entered_or_refusal_explained() {
    let folder = Folder::with_libraries("namespace");
    let output = run(&folder, &["--namespace", "readlink", "/proc/self/ns/mnt"]);
    if output.status.code() == Some(2) {
        let said = text(&output.stderr);
        assert!(said.starts_with("verbena: --namespace: "), "{said}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let ours = std::fs::read_link("/proc/self/ns/mnt").unwrap();
    let its = text(&output.stdout);
    assert_ne!(its.trim(), ours.to_str().unwrap());
}

#[test]
fn link_shows_device_and_interface() {
    for (format, expected) in [
        (
            "rdma",
            "link verbena0/1 state ACTIVE physical_state LINK_UP netdev lo \n",
        ),
        ("ibdev2netdev", "verbena0 port 1 ==> lo (Up)\n"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_verbena"))
            .args(["link", "--format", format])
            .env("VERBENA_DEVICE", "127.0.0.1")
            .output()
            .unwrap();
        assert_eq!(text(&output.stdout), expected, "{output:?}");
    }
}
