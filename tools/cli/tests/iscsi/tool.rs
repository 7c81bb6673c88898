//! What tests of disks have in common: our command as a process, other programs, bytes, and units opened by the library.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use verbena::{Config, Device};
use verbena_storage::session::Options;
use verbena_storage::{Blocks, Done, Unit};

/// Time limit of a program, in seconds.
const LONGEST: &str = "60";

/// The output of a program, and its exit status.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl ProgramOutput {
    fn new(output: &Output) -> ProgramOutput {
        ProgramOutput {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Checks that it succeeded; returns its output.
    #[track_caller]
    pub(crate) fn expect_success(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Checks that it failed with one sentence on standard error, and no other output.
    #[track_caller]
    pub(crate) fn expect_error(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        // A password in an address of a test causes a warning.
        let warned = |line: &&str| !line.starts_with("verbena: warning: ");
        let rest: Vec<&str> = self.err.lines().filter(warned).collect();
        let rest = rest.join("\n");
        let sentence = rest.trim_end().strip_prefix("verbena: ");
        let sentence = sentence.unwrap_or_else(|| panic!("{self:?}"));
        assert!(!sentence.contains('\n'), "{self:?}");
        sentence.to_owned()
    }
}

/// `verbena iscsi …`, not started yet.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args([
        "-s",
        "KILL",
        LONGEST,
        env!("CARGO_BIN_EXE_verbena"),
        "iscsi",
    ]);
    command.args(args).stdin(Stdio::null());
    command
}

pub(crate) fn iscsi(args: &[&str]) -> ProgramOutput {
    ProgramOutput::new(&command(args).output().unwrap())
}

/// Runs another program, if it exists.
pub(crate) fn run_program(program: &str, package: &str, args: &[&str]) -> Option<ProgramOutput> {
    let there = Command::new(program).arg("--version").output();
    if let Err(error) = there {
        skip(&format!(
            "{program} is missing (Debian package {package}): {error}"
        ));
        return None;
    }
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", LONGEST, program]).args(args);
    Some(ProgramOutput::new(
        &command.stdin(Stdio::null()).output().unwrap(),
    ))
}

/// Reports a skipped test; in CI, fails.
pub(crate) fn skip(why: &str) {
    let ci = std::env::var("CI").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "false"));
    assert!(!ci, "{why}");
    eprintln!("SKIPPED: {why}");
}

/// A folder of one test, removed on drop.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("verbena-iscsi-{id}-{name}"));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A file with these bytes.
    pub(crate) fn with(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.file(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn bytes(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// Pseudo-random numbers from a seed (splitmix64).
pub(crate) struct TestRng(pub(crate) u64);

impl TestRng {
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit
    }
}

/// Pseudo-random bytes.
pub(crate) fn random_bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut dice = TestRng(seed);
    let mut noise = Vec::with_capacity(len + 8);
    while noise.len() < len {
        noise.extend_from_slice(&dice.next_u64().to_le_bytes());
    }
    noise.truncate(len);
    noise
}

/// A unit, opened by the library.
pub(crate) fn open(url: &str, options: Options) -> Unit {
    let device = Device::with(Config::load().unwrap()).unwrap();
    Unit::open(&device, &url.parse().unwrap(), options).unwrap()
}

/// Waits until something has completed, and appends it.
pub(crate) fn wait_some(unit: &mut Unit, done: &mut Vec<Done>) {
    let end = std::time::Instant::now() + Duration::from_secs(40);
    while done.is_empty() {
        unit.poll(done).unwrap();
        assert!(std::time::Instant::now() < end, "nothing completes");
        if done.is_empty() {
            unit.wait(&[], Some(Duration::from_millis(50))).unwrap();
        }
    }
}
