//! A setuid program and its caller: the caller's environment and home directory name no file and set nothing, and the contents of a file
//! that is no configuration are not shown. Only root can make such a program; without root the test prints a note, and in CI it fails.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use verbena_engine::config::Config;

use crate::common::serialize_tests;

const SECRET: &str = "root:$y$j9T$notforcallers:19700:0:99999:7:::";
const OTHER_UID: u32 = 65_534;
/// Set in the process that the tests below start. A name with the project's prefix would be taken for a setting.
const LOAD: &str = "SECURE_TEST_LOAD";

/// What the setuid program runs: a test of this very file, so that no other program is needed.
#[test]
fn load() {
    if std::env::var_os(LOAD).is_none() {
        return;
    }
    match Config::load() {
        Ok(config) => println!("\n> half_open {}", config.half_open),
        Err(problems) => println!("\n> {problems}"),
    }
}

struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let name = format!("verbena-secure-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("home/verbena")).unwrap();
        for each in [&folder, &folder.join("home"), &folder.join("home/verbena")] {
            fs::set_permissions(each, Permissions::from_mode(0o755)).unwrap();
        }
        TempDir(folder)
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What [`load`] prints in `program` with only this environment.
fn output_of(program: &Path, user: Option<u32>, environment: &[(&str, &Path)]) -> String {
    let mut command = Command::new(program);
    command.args(["setuid_config::load", "--exact", "--nocapture"]);
    command.env_clear().envs(environment.iter().copied());
    command.env(LOAD, "1");
    if let Some(user) = user {
        command.uid(user);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text.split("\n> ").nth(1).expect(&text);
    said.split("\ntest ").next().unwrap().trim().to_owned()
}

#[test]
fn setuid_programs_ignore_environment_and_home() {
    // A process that another test forks while the program is written has it open until its exec, and execve(2) fails with ETXTBSY that long.
    let _alone = serialize_tests();
    if !rustix::process::geteuid().is_root() {
        let ci = std::env::var("CI").is_ok_and(|v| !matches!(v.as_str(), "" | "0" | "false"));
        assert!(!ci, "only root can make a setuid program of root");
        eprintln!("SKIPPED: only root can make a setuid program of root");
        return;
    }
    let folder = TempDir::new("setuid");
    let program = folder.0.join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let shadow = folder.file("shadow", SECRET, 0o600);
    let home = folder.0.join("home");
    folder.file("home/verbena/config.toml", "half_open = 7", 0o644);
    let nine = Path::new("9");
    let cases: [&[(&str, &Path)]; 3] = [
        &[("VERBENA_CONFIG", &shadow)],
        &[("XDG_CONFIG_HOME", &home)],
        &[("VERBENA_HALF_OPEN", nine)],
    ];
    // The same file without the bit follows its caller's environment: so the bit makes the difference.
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    assert!(output_of(&program, Some(OTHER_UID), cases[0]).contains("a file that can be read"));
    assert_eq!(
        output_of(&program, Some(OTHER_UID), cases[1]),
        "half_open 7"
    );
    assert_eq!(
        output_of(&program, Some(OTHER_UID), cases[2]),
        "half_open 9"
    );
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    let usual = format!("half_open {}", Config::default().half_open);
    for environment in cases {
        assert_eq!(
            output_of(&program, Some(OTHER_UID), environment),
            usual,
            "{environment:?}"
        );
    }
}

/// The message shows a caller that may read the file where it is wrong, and other callers nothing of its contents.
#[test]
fn invalid_configuration_contents_are_not_shown() {
    let _alone = serialize_tests();
    let folder = TempDir::new("shadow");
    let shadow = folder.file("shadow", SECRET, 0o600);
    let text = output_of(
        &std::env::current_exe().unwrap(),
        None,
        &[("VERBENA_CONFIG", &shadow)],
    );
    assert!(text.contains("line 1"), "{text}");
    for word in ["root", "notforcallers", "19700"] {
        assert!(!text.contains(word), "{text}");
    }
}
